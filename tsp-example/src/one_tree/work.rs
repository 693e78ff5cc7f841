//! The work on the bound of a state: the phases of the ascent, the conclusions from it, and the decision on
//! which the state is branched.

use super::{
    SCALE,
    ascent::{Ascent, UNKNOWN, ascend},
    decide::{Decision, Trials, decisions},
    graph::{Arcs, Graph, Matrix},
    marginal::Marginals,
    phase::Phase,
    problem::{Next, OneTreeState},
    tree::OneTree,
};
use crate::{heuristic::Near, instance::Instance};

/// The maximum number of ends of edges that are listed.
const LISTED_ENDS_MAX: usize = 1 << 18;
/// The work after which a bound is left as it is, to be raised by the next state: edges and cities looked at.
/// A search notices its time limit only between states.
const WORK: usize = 1 << 22;
/// The maximum number of decisions that are tried before one is made, and the number of cities for all
/// trials.
const TRIED_MAX: usize = 5;
const TRIED_CITIES: usize = 2_000;
/// Decisions are made without trial if they promise so few states below, in proportion to those of a state
/// whose bound has not risen.
const TRIED_STATES_MIN: f64 = 0.2;

/// Memory for one-trees, so that a step of the ascent does not allocate.
#[derive(Default)]
pub(super) struct Room {
    tree: OneTree,
    trial: OneTree,
    graph: Graph,
    marginals: Marginals,
    trials: Trials,
}

/// The result of one round of work on a bound.
enum Round {
    /// No tour below the state is short enough.
    Hopeless,
    /// Another round may raise the bound.
    Again,
    /// The next step is known.
    Over,
}

/// The data from which the bounds of an instance are computed.
#[derive(Clone, Copy)]
pub(super) struct Bounder<'a> {
    pub(super) instance: &'a Instance,
    /// The nearest neighbours of all cities, for large instances.
    pub(super) near: &'a Near,
    /// The cost to prune by.
    pub(super) best: Option<u64>,
}

impl Bounder<'_> {
    /// Raises the bound of a state as far as a limited amount of work allows, and determines the next step.
    /// Returns the bound; `None` if no tour below the state is short enough.
    pub(super) fn bound(&self, state: &mut OneTreeState, room: &mut Room) -> Option<u64> {
        let mut work = WORK;
        loop {
            match state.phase {
                Phase::Waiting => {
                    (state.phase, state.next) = (Phase::Below(0), Next::GoOn);
                    return Some(state.low);
                }
                Phase::Near => {
                    self.approach(state, room);
                    return Some(state.low);
                }
                _ => {}
            }
            let ends = state.edges.allowed_ends();
            let round = if ends <= LISTED_ENDS_MAX {
                let mut graph = std::mem::take(&mut room.graph);
                graph.fill(self.instance, &state.edges);
                let round = self.round(&graph, state, room);
                room.graph = graph;
                round
            } else {
                let edges = state.edges.clone();
                self.round(&Matrix { instance: self.instance, edges: &edges }, state, room)
            };
            match round {
                Round::Hopeless => return None,
                Round::Over => return Some(state.low),
                Round::Again => {}
            }
            work = work.saturating_sub(ends * state.phase.plan(self.instance.len()).steps as usize);
            if work == 0 {
                state.next = Next::GoOn;
                return Some(state.low);
            }
        }
    }

    /// Raises the bound of a state by one phase, and draws conclusions.
    fn round(&self, arcs: &impl Arcs, state: &mut OneTreeState, room: &mut Room) -> Round {
        let Room { tree, trial, marginals, trials, .. } = room;
        // A scaled bound above this means a bound of at least `best`.
        let enough = self.best.map_or(UNKNOWN, |best| scaled(best) - SCALE);
        let steps = steps_max(arcs.cities(), state.edges.allowed_ends());
        let plan = state.phase.plan(arcs.cities());
        let trees = [&mut *tree, trial];
        let ascent = ascend(arcs, &mut state.multipliers, trees, enough, &plan, (state.taken, steps));
        if ascent == Ascent::Impossible {
            return Round::Hopeless;
        }
        state.low = state.low.max(ceiling(tree.bound));
        if self.best.is_some_and(|best| state.low >= best) {
            state.next = Next::GoOn;
            return Round::Over;
        }
        if let Ascent::Unfinished(taken) = ascent {
            (state.taken, state.next) = (taken, Next::GoOn);
            return Round::Over;
        }
        let left = enough - tree.bound;
        marginals.compute(arcs, tree, &state.multipliers, left);
        if self.best.is_some() {
            let Ok(decided) = marginals.apply(&mut state.edges, tree, left) else { return Round::Hopeless };
            if let Some(phase) = state.phase.next(decided, tree.satisfies(&state.edges)) {
                (state.phase, state.taken) = (phase, 0);
                return Round::Again;
            }
        }
        state.next = match self.decide(state, tree, marginals, trials) {
            Some(Decision { city, free }) => Next::Decide { city, free },
            None => Next::Tour(tree.tour()),
        };
        Round::Over
    }

    /// Returns the next decision, or `None` if the one-tree is a tour.
    fn decide(
        &self,
        state: &OneTreeState,
        tree: &OneTree,
        marginals: &Marginals,
        trials: &mut Trials,
    ) -> Option<Decision> {
        // As far as seems reasonable while no tour is known.
        let enough = self.best.map_or(tree.bound + tree.bound / 50, scaled).max(tree.bound + SCALE);
        let mut choices = decisions(&state.edges, tree, marginals, enough - tree.bound);
        choices.truncate(TRIED_MAX.min(TRIED_CITIES / self.instance.len()).max(1));
        match choices.as_slice() {
            [] => None,
            [(_, only)] => Some(only.clone()),
            [(states, first), ..] if *states < TRIED_STATES_MIN => Some(first.clone()),
            _ => {
                let bounds = (tree.bound, enough);
                trials.choose(self.instance, &state.edges, &state.multipliers, choices, bounds)
            }
        }
    }

    /// Moves the multipliers as if there were only edges between near neighbours, which is quick. The result is
    /// not a bound, but a good start. The first call computes a bound without multipliers, so that there is
    /// one.
    fn approach(&self, state: &mut OneTreeState, room: &mut Room) {
        let Room { tree, trial, graph, .. } = room;
        let multipliers = &mut state.multipliers;
        let all = Matrix { instance: self.instance, edges: &state.edges };
        if state.low == 0 && tree.build(&all, multipliers) {
            state.low = ceiling(tree.bound);
        }
        graph.fill_near(self.instance, &state.edges, self.near);
        let cities = self.instance.len();
        let (plan, steps) = (state.phase.plan(cities), steps_max(cities, 0));
        let enough = self.best.map_or(UNKNOWN, scaled);
        match ascend(graph, multipliers, [tree, trial], enough, &plan, (state.taken, steps)) {
            Ascent::Unfinished(taken) => state.taken = taken,
            Ascent::Done | Ascent::Impossible => (state.phase, state.taken) = (Phase::After, 0),
        }
        state.next = Next::GoOn;
    }
}

/// Returns how many steps of an ascent are made at once.
fn steps_max(cities: usize, ends: usize) -> u32 {
    u32::try_from(WORK / (ends + cities * cities / 4 + 1)).unwrap_or(u32::MAX).max(1)
}

/// Returns the length that a scaled bound proves.
fn ceiling(bound: i64) -> u64 {
    u64::try_from((bound + SCALE - 1).div_euclid(SCALE)).unwrap_or(0)
}

fn scaled(cost: u64) -> i64 {
    i64::try_from(cost).unwrap_or(i64::MAX / SCALE).saturating_mul(SCALE)
}
