//! The open states of one task, each with its bound, the most promising first.
//!
//! A state is visited when it is put on the agenda; that is when its bound becomes known. When its turn comes
//! it is removed to be branched. If there are too many states, the search dives: it continues depth first
//! below the next state until nothing is left there.

use std::{cmp::Ordering, collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    frontier::{Frontier, Place, Searched, Unvisited, Visitor},
    options::{Split, Strategy},
    problem::Problem,
    tree::Children as _,
};

/// Open states in the order of their turn.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Agenda<P: Problem> {
    open: BTreeMap<Turn<P>, Open<P>>,
    /// The part that is searched depth first.
    dive: Option<Frontier<P>>,
}

/// The key that decides which state is next.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Turn<P: Problem> {
    /// Its bound, if the states with the best bounds come first wherever they are.
    first: Option<P::Cost>,
    /// Its position in the tree: the rank among its siblings, level by level.
    position: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Open<P: Problem> {
    bound: P::Cost,
    state: P::State,
    /// Its estimated share of the whole tree.
    share: f64,
}

/// The result of assessing a state that is put on the agenda.
pub(crate) enum Assessed<C> {
    /// Open, with this bound.
    Open(C),
    /// Nothing is left to do below it.
    Nothing,
    /// Nothing is left to do below it, nor at its later siblings.
    NothingNorAfter,
}

/// Visits the states of an agenda.
pub(crate) trait Assessor<P: Problem>: Visitor<P> {
    /// Visits a state but does not branch it.
    fn assess(&mut self, problem: &P, state: &mut P::State) -> Assessed<P::Cost>;

    /// Returns whether a state with this bound is still worth branching. If not, it is counted as pruned.
    fn is_hopeful(&mut self, bound: P::Cost) -> bool;
}

impl<P: Problem> Agenda<P> {
    pub(crate) fn new(problem: &P) -> Self {
        Self { open: BTreeMap::new(), dive: Some(Frontier::new(problem)) }
    }

    fn nothing() -> Self {
        Self { open: BTreeMap::new(), dive: None }
    }

    pub(crate) fn search(
        &mut self,
        problem: &P,
        strategy: Strategy,
        visitor: &mut impl Assessor<P>,
    ) -> Searched {
        let (by_bound, open_max) = match strategy {
            Strategy::BestFirst { open_max } => (true, open_max),
            Strategy::BestChildFirst { open_max } => (false, open_max),
            Strategy::DepthFirst => (false, 0),
        };
        if let Some((root, share)) = self.dive.as_mut().and_then(Frontier::take_root) {
            self.dive = None;
            self.add(problem, vec![(root, share)], &[], by_bound, visitor);
        }
        loop {
            if let Some(dive) = &mut self.dive {
                if dive.search(problem, visitor) == Searched::Paused {
                    return Searched::Paused;
                }
                self.dive = None;
            }
            let Some((turn, Open { bound, mut state, share })) = self.open.pop_first() else {
                return Searched::Over;
            };
            if visitor.is_hopeful(bound) {
                let mut children = problem.branch(&mut state);
                if self.open.len() >= open_max {
                    self.dive = Some(Frontier::below(state, children, share, Place::UNKNOWN));
                    continue;
                }
                let mut states = Vec::new();
                while let Some(child) = children.next(problem, &state) {
                    states.push(child);
                }
                let each = share / states.len().max(1) as f64;
                let states = states.into_iter().map(|state| (state, each)).collect();
                self.add(problem, states, &turn.position, by_bound, visitor);
            }
            if visitor.pauses(true) {
                return Searched::Paused;
            }
        }
    }

    /// Visits siblings, and puts the open ones on the agenda.
    fn add(
        &mut self,
        problem: &P,
        siblings: Vec<(P::State, f64)>,
        parent: &[u32],
        by_bound: bool,
        visitor: &mut impl Assessor<P>,
    ) {
        let mut open = Vec::with_capacity(siblings.len());
        for (mut state, share) in siblings {
            match visitor.assess(problem, &mut state) {
                Assessed::Open(bound) => open.push(Open { bound, state, share }),
                Assessed::Nothing => {}
                Assessed::NothingNorAfter => break,
            }
        }
        // A stable sort keeps siblings with the same bound in the application's order.
        open.sort_by(|a, b| better_first::<P>(&a.bound, &b.bound));
        for (open, rank) in open.into_iter().zip(0_u32..) {
            let position = parent.iter().copied().chain([rank]).collect();
            self.open.insert(Turn { first: by_bound.then_some(open.bound), position }, open);
        }
    }

    pub(crate) fn dive(&self) -> Option<&Frontier<P>> {
        self.dive.as_ref()
    }

    /// Splits off some of the shallowest states, or a part of the dive if there are no others.
    pub(crate) fn split(&mut self, problem: &P, split: Split) -> Option<Self> {
        if self.open.is_empty() {
            let dive = self.dive.as_mut()?;
            let dive = if split == Split::Half { dive.split(problem) } else { dive.split_state(problem) }?;
            return Some(Self { dive: Some(dive), ..Self::nothing() });
        }
        // The last state of all stays.
        if self.open.len() == 1 && self.dive.is_none() {
            return None;
        }
        let depth = self.open.keys().map(|turn| turn.position.len()).min()?;
        let shallowest = || self.open.keys().filter(|turn| turn.position.len() == depth);
        // Take every second one, starting with the second, so that both sides get equally good states.
        let (from, step) = match split {
            Split::Next | Split::InOrder | Split::Discrepancy => (0, usize::MAX),
            Split::Half | Split::Alternating => (usize::from(shallowest().count() > 1), 2),
        };
        let away: Vec<Turn<P>> = shallowest().skip(from).step_by(step).map(Turn::copy).collect();
        let taken = away.into_iter().filter_map(|turn| self.open.remove_entry(&turn));
        Some(Self { open: taken.collect(), dive: None })
    }

    pub(crate) fn share_left(&mut self, problem: &P) -> f64 {
        let dive = self.dive.as_mut().map_or(0.0, |dive| dive.share_left(problem));
        dive + self.open.values().map(|open| open.share).sum::<f64>()
    }

    pub(crate) fn bound(&mut self, problem: &P) -> Option<P::Cost> {
        let dive = match &mut self.dive {
            None => None,
            // If the dive has no bound, there is none on the whole.
            Some(dive) => Some(dive.bound(problem)?),
        };
        self.open.values().map(|open| open.bound).chain(dive).reduce(|a, b| P::GOAL.best(a, b))
    }

    /// Passes on the open part: the bounds of states that were visited but not branched, and all other states.
    pub(crate) fn open_states(
        &self,
        problem: &P,
        bounds: &mut dyn FnMut(P::Cost),
        tell: &mut dyn FnMut(Unvisited<&mut P::State>),
    ) {
        self.open.values().for_each(|open| bounds(open.bound));
        if let Some(dive) = &self.dive {
            dive.open_states(problem, tell);
        }
    }
}

fn better_first<P: Problem>(a: &P::Cost, b: &P::Cost) -> Ordering {
    if P::GOAL.better(a, b) {
        Ordering::Less
    } else if P::GOAL.better(b, a) {
        Ordering::Greater
    } else {
        Ordering::Equal
    }
}

impl<P: Problem> Turn<P> {
    fn copy(&self) -> Self {
        Self { first: self.first, position: self.position.clone() }
    }
}

impl<P: Problem> Ord for Turn<P> {
    /// For equal bounds, the deeper state comes first: it is nearer to a solution.
    fn cmp(&self, other: &Self) -> Ordering {
        let bounds = match (&self.first, &other.first) {
            (Some(a), Some(b)) => {
                better_first::<P>(a, b).then_with(|| other.position.len().cmp(&self.position.len()))
            }
            _ => Ordering::Equal,
        };
        bounds.then_with(|| self.position.cmp(&other.position))
    }
}

impl<P: Problem> PartialOrd for Turn<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P: Problem> PartialEq for Turn<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P: Problem> Eq for Turn<P> {}

impl<P: Problem> fmt::Debug for Agenda<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agenda").field("open", &self.open.len()).field("dive", &self.dive).finish()
    }
}
