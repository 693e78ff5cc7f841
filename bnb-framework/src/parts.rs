//! A search that visits the same states regardless of the number of workers and nodes.
//!
//! Pruning must not depend on the time at which a worker learns of a solution. So workers exchange solutions at fixed
//! points only:
//!
//! 1. **first**: one task visits a given number of states, depth first, and keeps the best solution it finds;
//! 2. **cut**: the same task branches the tree, level by level, until a given number of states are open: the
//!    parts;
//! 3. **parts**: it spawns the parts in their order, a batch at a time; each is searched by one worker, which prunes by
//!    the best solution before the start of the batch and by its own solutions in that part. The end of a batch is a
//!    **fence**: the task waits for all of it, and the next batch prunes by the best solution that was found before.
//!
//! If two solutions have equal cost, the one found in the earlier part wins, so the answer is the same, too. The
//! price is that the parts of a batch do not learn from each other, and that workers wait at fences (after B. Archibald
//! and others, Replicable parallel branch and bound search, 2018).

use std::{collections::VecDeque, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    agenda::{Assessed, Assessor},
    frontier::{Frontier, Place, Searched, Unvisited},
    options::Replicable,
    problem::Problem,
    tree::Children as _,
};

/// The parts that a task has to search.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Parts<P: Problem> {
    stage: Stage<P>,
    /// The cost to prune by in all parts, if anything was found before they were cut.
    limit: Option<P::Cost>,
    /// The limit used for pruning after each fence so far.
    fences: Vec<Option<P::Cost>>,
}

#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
enum Stage<P: Problem> {
    First {
        frontier: Frontier<P>,
        states_left: u64,
        limit: Option<P::Cost>,
    },
    /// Open states, level by level. Only the task that started the search reaches this stage.
    Cut {
        open: VecDeque<Part<P>>,
    },
    /// The parts that were not spawned yet, in the order of their positions. The limit is that of the next batch.
    Parts {
        parts: VecDeque<Part<P>>,
    },
    /// A part that was spawned.
    Part(Now<P>),
}

/// The reason why the search of a task has returned.
#[must_use]
pub(crate) enum Stopped {
    Paused,
    Over,
    /// The next [batch](Parts::next_batch) must be spawned.
    AtFence,
}

/// A visited state to branch, with everything below it.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Part<P: Problem> {
    position: Vec<u32>,
    bound: P::Cost,
    state: P::State,
    /// Its estimated share of the whole tree.
    share: f64,
}

/// A part that is being searched.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Now<P: Problem> {
    position: Vec<u32>,
    frontier: Frontier<P>,
    /// The cost to prune by, including the solutions found in this part.
    limit: Option<P::Cost>,
}

/// A visitor that prunes only by explicitly passed limits.
pub(crate) trait IsolatedVisitor<P: Problem>: Assessor<P> {
    /// Starts to prune by a limit, if it is better than that at the start of the search; solutions found from now on
    /// have this position and these fences.
    fn enter(&mut self, limit: Option<P::Cost>, position: &[u32], fences: &[Option<P::Cost>]);
    /// Sets the bound of the state above the children that are visited next.
    fn set_bound_above(&mut self, bound: P::Cost);
    /// Returns the cost of the best solution found so far, without that at the start of the search.
    fn best_found(&self) -> Option<P::Cost>;
    /// Returns the cost of the best solution that was found anywhere before a fence, counted from 0.
    fn best_at_fence(&mut self, fence: usize) -> Option<P::Cost>;
    /// Makes `pauses` return true after this many states.
    fn pause_after(&mut self, states: Option<u64>);
    /// Returns the number of states left.
    fn states_ahead(&self) -> u64;
}

impl<P: Problem> Parts<P> {
    pub(crate) fn new(problem: &P, options: Replicable) -> Self {
        let (frontier, states_left) = (Frontier::new(problem), options.first_states);
        let stage = Stage::First { frontier, states_left, limit: None };
        Self { stage, limit: None, fences: Vec::new() }
    }

    pub(crate) fn search(
        &mut self,
        problem: &P,
        parts: usize,
        visitor: &mut impl IsolatedVisitor<P>,
    ) -> Stopped {
        loop {
            match &mut self.stage {
                Stage::First { frontier, states_left, limit } => {
                    visitor.enter(*limit, &[], &[]);
                    if *states_left > 0 {
                        visitor.pause_after(Some(*states_left));
                        let searched = frontier.search(problem, visitor);
                        *states_left = visitor.states_ahead();
                        visitor.pause_after(None);
                        *limit = visitor.best_found();
                        if searched == Searched::Over {
                            return Stopped::Over;
                        }
                        if *states_left > 0 {
                            return Stopped::Paused;
                        }
                    }
                    // Only a solution better than the first has to have a position; the root is visited
                    // again.
                    self.limit = *limit;
                    let mut open = VecDeque::new();
                    add(&mut open, problem, vec![problem.root()], &[], 1.0, visitor);
                    self.limit = visitor.best_found();
                    self.stage = Stage::Cut { open };
                }
                Stage::Cut { open } => {
                    while open.len() < parts {
                        let Some(part) = open.pop_front() else { break };
                        let Part { position, bound, mut state, share } = part;
                        let mut children = problem.branch(&mut state);
                        let mut states = Vec::new();
                        while let Some(child) = children.next(problem, &state) {
                            states.push(child);
                        }
                        visitor.enter(self.limit, &[], &[]);
                        visitor.set_bound_above(bound);
                        add(open, problem, states, &position, share, visitor);
                        self.limit = visitor.best_found();
                        if visitor.pauses(true) {
                            return Stopped::Paused;
                        }
                    }
                    let mut parts = std::mem::take(open);
                    parts.make_contiguous().sort_by(|a, b| a.position.cmp(&b.position));
                    self.stage = Stage::Parts { parts };
                }
                Stage::Parts { parts } => {
                    // Everything that was spawned is complete, so all of its solutions are known.
                    let best = [self.limit, visitor.best_at_fence(self.fences.len())].into_iter().flatten();
                    self.limit = best.reduce(|a, b| P::GOAL.best(a, b));
                    self.fences.push(self.limit);
                    visitor.enter(self.limit, &[], &self.fences);
                    parts.retain(|part| visitor.is_hopeful(part.bound));
                    return if parts.is_empty() { Stopped::Over } else { Stopped::AtFence };
                }
                Stage::Part(part) => {
                    visitor.enter(part.limit, &part.position, &self.fences);
                    let searched = part.frontier.search(problem, visitor);
                    part.limit = visitor.best_found();
                    return if searched == Searched::Over { Stopped::Over } else { Stopped::Paused };
                }
            }
        }
    }

    /// Takes the next parts, each with its estimated share of the whole tree.
    pub(crate) fn next_batch(&mut self, problem: &P, parts_max: usize) -> Vec<(f64, Self)> {
        let Stage::Parts { parts } = &mut self.stage else { return Vec::new() };
        let mut batch = Vec::new();
        while batch.len() < parts_max.max(1) {
            let Some(Part { position, mut state, share, .. }) = parts.pop_front() else { break };
            let children = problem.branch(&mut state);
            let frontier = Frontier::below(state, children, share, Place::UNKNOWN);
            let stage = Stage::Part(Now { position, frontier, limit: self.limit });
            batch.push((share, Self { stage, limit: self.limit, fences: self.fences.clone() }));
        }
        batch
    }

    pub(crate) fn frontier(&self) -> Option<&Frontier<P>> {
        match &self.stage {
            Stage::First { frontier, .. } => Some(frontier),
            Stage::Part(part) => Some(&part.frontier),
            Stage::Cut { .. } | Stage::Parts { .. } => None,
        }
    }

    pub(crate) fn share_left(&mut self, problem: &P) -> f64 {
        match &mut self.stage {
            Stage::First { .. } => 1.0,
            Stage::Cut { open } => open.iter().map(|part| part.share).sum(),
            Stage::Parts { parts } => parts.iter().map(|part| part.share).sum(),
            Stage::Part(part) => part.frontier.share_left(problem),
        }
    }

    /// Passes on the open part: the bounds of states that were visited but not branched, and all other states.
    pub(crate) fn open_states(
        &self,
        problem: &P,
        bounds: &mut dyn FnMut(P::Cost),
        tell: &mut dyn FnMut(Unvisited<&mut P::State>),
    ) {
        match &self.stage {
            Stage::First { frontier, .. } => frontier.open_states(problem, tell),
            Stage::Cut { open } => open.iter().for_each(|part| bounds(part.bound)),
            Stage::Parts { parts } => parts.iter().for_each(|part| bounds(part.bound)),
            Stage::Part(part) => part.frontier.open_states(problem, tell),
        }
    }
}

/// Visits siblings, and keeps the open ones behind all others.
fn add<P: Problem>(
    open: &mut VecDeque<Part<P>>,
    problem: &P,
    siblings: Vec<P::State>,
    parent: &[u32],
    share: f64,
    visitor: &mut impl IsolatedVisitor<P>,
) {
    let share = share / siblings.len().max(1) as f64;
    for (mut state, number) in siblings.into_iter().zip(0_u32..) {
        let position: Vec<u32> = parent.iter().copied().chain([number]).collect();
        visitor.enter(visitor.best_found(), &position, &[]);
        match visitor.assess(problem, &mut state) {
            Assessed::Open(bound) => {
                open.push_back(Part { position, bound, state, share });
            }
            Assessed::Nothing => {}
            Assessed::NothingNorAfter => break,
        }
    }
}

impl<P: Problem> fmt::Debug for Parts<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stage, parts) = match &self.stage {
            Stage::First { .. } => ("first", 1),
            Stage::Cut { open } => ("cut", open.len()),
            Stage::Parts { parts } => ("parts", parts.len()),
            Stage::Part(_) => ("part", 1),
        };
        f.debug_struct("Parts").field("stage", &stage).field("parts", &parts).finish_non_exhaustive()
    }
}
