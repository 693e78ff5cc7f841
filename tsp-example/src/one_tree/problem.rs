//! Branch and bound by one-trees: bounds by subgradient ascent, branches on a city with too many edges.

use std::{cell::RefCell, collections::VecDeque};

use bnb_framework::{Problem, Tree};
use serde::{Deserialize, Serialize};

use super::{
    SCALE,
    ascent::{Ascent, ascend},
    decide::{Decision, Trials, decisions},
    doubled,
    edges::{Edges, Impossible},
    graph::{Arcs, Graph, Matrix},
    links::Links,
    marginal::Marginals,
    phase::Phase,
    tree::OneTree,
};
use crate::{
    heuristic::Heuristic,
    instance::{City, Instance, read_numbered},
};

/// The travelling salesman as a tree of decisions about edges, for at least four cities.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Instance", into = "Instance")]
pub struct OneTreeProblem {
    instance: Instance,
    /// If distances depend on the direction: the same without directions.
    doubled: Option<Instance>,
    heuristic: Heuristic,
}

/// The decisions made about the edges.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OneTreeState {
    edges: Edges,
    multipliers: Vec<i64>,
    /// No tour below the state is shorter.
    low: u64,
    phase: Phase,
    /// The number of steps made in the phase.
    taken: u32,
    /// A tour that was at a leaf beside this state, and is to be passed over; or none.
    passed: Vec<City>,
    next: Next,
}

/// What follows a state.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Next {
    /// Not bounded yet.
    Unknown,
    /// The ascent goes on in an only child.
    GoOn,
    /// The best one-tree has too many edges at this city; one or two of them are free.
    Decide { city: City, free: Vec<City> },
    /// The best one-tree is a tour, and nothing below the state is shorter.
    Tour(Vec<City>),
    /// The tour itself: a leaf.
    Leaf(Vec<City>),
}

/// The maximum number of ends of edges that are listed.
const LISTED_ENDS_MAX: usize = 1 << 18;
/// The work after which a bound is left as it is, to be raised by the next state: edges and cities looked at.
/// A search notices its time limit only between states, and takes a last bound of every open one.
const WORK: usize = 1 << 22;

/// The maximum number of decisions that are tried before one is made, and the number of cities for all
/// trials.
const TRIED_MAX: usize = 5;
const TRIED_CITIES: usize = 2_000;
/// Decisions are made without trial if they promise so few states below, in proportion to none.
const TRIED_STATES_MIN: f64 = 0.2;

/// Memory for one-trees, so that a step of the ascent does not allocate.
#[derive(Default)]
struct Room {
    tree: OneTree,
    trial: OneTree,
    graph: Graph,
    marginals: Marginals,
    trials: Trials,
}

/// What a round of work on a bound has led to.
enum Round {
    /// No tour below the state is short enough.
    Hopeless,
    /// Another round may raise the bound.
    Again,
    /// It is known what follows.
    Over,
}

thread_local! {
    static ROOM: RefCell<Room> = RefCell::default();
}

impl From<Instance> for OneTreeProblem {
    fn from(instance: Instance) -> Self {
        let heuristic = Heuristic::new(&instance);
        let doubled = instance.is_directed().then(|| doubled::instance(&instance));
        Self { instance, doubled, heuristic }
    }
}

impl From<OneTreeProblem> for Instance {
    fn from(problem: OneTreeProblem) -> Self {
        problem.instance
    }
}

impl OneTreeProblem {
    /// Creates the problem for an instance of at least four cities.
    ///
    /// # Panics
    /// Panics if there are fewer.
    pub fn new(instance: Instance) -> Self {
        assert!(instance.len() >= 4, "{} cities have only one tour", instance.len());
        instance.into()
    }

    /// Returns the instance whose one-trees are built.
    fn undirected(&self) -> &Instance {
        self.doubled.as_ref().unwrap_or(&self.instance)
    }

    /// Returns a length that no tour is shorter than, from the root alone. `best` is the length of a tour, if
    /// one is known. `stops` is asked now and then; once it returns `true`, the bound is left as it is.
    pub fn root_bound(&self, best: Option<u64>, mut stops: impl FnMut() -> bool) -> u64 {
        let mut state = self.root();
        loop {
            let Some(low) = self.bound(&mut state, best) else { return best.unwrap_or(state.low) };
            if !matches!(state.next, Next::GoOn) || stops() {
                return low;
            }
            state.next = Next::Unknown;
        }
    }

    /// Raises the bound of a state by one phase, and draws conclusions. `best` is the cost to prune by.
    fn work(&self, arcs: &impl Arcs, state: &mut OneTreeState, best: Option<u64>, room: &mut Room) -> Round {
        let Room { tree, trial, marginals, trials, .. } = room;
        let enough = best.map_or(i64::MAX / 4, |best| scaled(best) - SCALE);
        let steps = steps_max(arcs.cities(), state.edges.allowed_ends());
        let plan = state.phase.plan(arcs.cities());
        let trees = [&mut *tree, trial];
        let ascent = ascend(arcs, &mut state.multipliers, trees, enough, &plan, (state.taken, steps));
        if ascent == Ascent::Impossible {
            return Round::Hopeless;
        }
        state.low = state.low.max(ceiling(tree.bound));
        if best.is_some_and(|best| state.low >= best) {
            state.next = Next::GoOn;
            return Round::Over;
        }
        if let Ascent::Unfinished(taken) = ascent {
            (state.taken, state.next) = (taken, Next::GoOn);
            return Round::Over;
        }
        let left = enough - tree.bound;
        marginals.compute(arcs, tree, &state.multipliers, left);
        if best.is_some() {
            match marginals.apply(&mut state.edges, tree, left) {
                Err(Impossible) => return Round::Hopeless,
                Ok(decided) => {
                    let next = state.phase.next(decided, tree.satisfies(&state.edges));
                    if let Some(phase) = next {
                        (state.phase, state.taken) = (phase, 0);
                        return Round::Again;
                    }
                }
            }
        }
        let enough = if best.is_some() { enough } else { tree.bound + tree.bound / 50 + SCALE };
        let mut choices = decisions(&state.edges, tree, marginals, enough - tree.bound);
        choices.truncate((super::phase::tune_pub(14, TRIED_MAX as f64) as usize).min(TRIED_CITIES / arcs.cities()).max(1));
        let decision = match choices.as_slice() {
            [] => None,
            [(_, only)] => Some(only.clone()),
            [(states, first), ..] if *states < super::phase::tune_pub(16, TRIED_STATES_MIN) => Some(first.clone()),
            _ => {
                let bounds = (tree.bound, enough);
                trials.choose(self.undirected(), &state.edges, &state.multipliers, choices, bounds)
            }
        };
        state.next = match decision {
            Some(Decision { city, free }) => Next::Decide { city, free },
            None => Next::Tour(tree.tour()),
        };
        Round::Over
    }

    /// Moves the multipliers as if there were only edges between near neighbours, which is quick. What they
    /// give is no bound, but a good start.
    fn approach(&self, state: &mut OneTreeState, room: &mut Room) {
        let Room { tree, trial, graph, .. } = room;
        let multipliers = &mut state.multipliers;
        if state.low == 0 && tree.build(&Matrix { instance: &self.instance, edges: &state.edges }, multipliers) {
            state.low = ceiling(tree.bound);
        }
        graph.fill_near(&self.instance, &state.edges, self.heuristic.near());
        let cities = self.instance.len();
        let plan = state.phase.plan(cities);
        let steps = steps_max(cities, 0);
        let trees = [tree, trial];
        match ascend(graph, multipliers, trees, i64::MAX / 4, &plan, (state.taken, steps)) {
            Ascent::Unfinished(taken) => state.taken = taken,
            Ascent::Done | Ascent::Impossible => (state.phase, state.taken) = (Phase::After, 0),
        }
        state.next = Next::GoOn;
    }

    /// Creates a child of a state with more decisions.
    fn child(state: &OneTreeState, edges: Edges) -> OneTreeState {
        OneTreeState {
            edges,
            multipliers: state.multipliers.clone(),
            low: state.low,
            phase: Phase::below(state.multipliers.len()),
            taken: 0,
            passed: state.passed.clone(),
            next: Next::Unknown,
        }
    }

    /// Returns a leaf with a tour, and states with all other tours: those without one of its edges, and those
    /// with that edge.
    fn pass(state: &OneTreeState, tour: &[City]) -> VecDeque<OneTreeState> {
        let links = Links::of(tour);
        let passed = (!state.passed.is_empty()).then(|| Links::of(&state.passed));
        let passed = passed.filter(|passed| passed.satisfy(&state.edges));
        let is_new = passed.as_ref().is_none_or(|passed| links.edges().any(|(i, j)| !passed.has(i, j)));
        let mut children = VecDeque::new();
        if is_new {
            children.push_back(OneTreeState { next: Next::Leaf(tour.to_vec()), ..state.clone() });
        }
        // An edge that tells the two tours apart leaves only one to be passed over on either side.
        let tells_apart = |i, j| !is_new || passed.as_ref().is_none_or(|passed| !passed.has(i, j));
        let mut free = links.edges().filter(|&(i, j)| !state.edges.is_forced(i, j) && tells_apart(i, j));
        if let Some((i, j)) = free.next() {
            let other = if is_new && passed.is_some() { state.passed.clone() } else { Vec::new() };
            let (mut without, mut with) = (state.edges.clone(), state.edges.clone());
            if without.forbid(i, j).is_ok() {
                children.push_back(OneTreeState { passed: other, ..Self::child(state, without) });
            }
            if with.force(i, j).is_ok() {
                children.push_back(OneTreeState { passed: tour.to_vec(), ..Self::child(state, with) });
            }
        }
        children
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

impl Tree for OneTreeProblem {
    type State = OneTreeState;
    type Children = VecDeque<OneTreeState>;

    fn root(&self) -> OneTreeState {
        let cities = self.undirected().len();
        let edges = if self.doubled.is_some() { doubled::edges(cities) } else { Edges::all(cities) };
        OneTreeState {
            edges,
            multipliers: vec![0; cities],
            low: 0,
            phase: Phase::first(cities, self.doubled.is_some()),
            taken: 0,
            passed: Vec::new(),
            next: Next::Unknown,
        }
    }

    fn branch(&self, state: &mut OneTreeState) -> VecDeque<OneTreeState> {
        // Without pruning the state was not bounded, but the decision follows from the bound.
        if matches!(state.next, Next::Unknown) && self.bound(state, None).is_none() {
            return VecDeque::new();
        }
        match &state.next {
            Next::Unknown | Next::Leaf(_) => VecDeque::new(),
            Next::GoOn => [OneTreeState { next: Next::Unknown, ..state.clone() }].into(),
            Next::Tour(tour) => Self::pass(state, tour),
            Next::Decide { city, free } => {
                let decision = Decision { city: *city, free: free.clone() };
                let branches = decision.branches(&state.edges).into_iter();
                branches.map(|edges| Self::child(state, edges)).collect()
            }
        }
    }
}

impl Problem for OneTreeProblem {
    type Cost = u64;
    type Solution = Vec<City>;

    fn leaf(&self, state: &OneTreeState) -> Option<u64> {
        match &state.next {
            Next::Leaf(tour) => Some(self.undirected().tour_length(tour)),
            _ => None,
        }
    }

    fn bound(&self, state: &mut OneTreeState, best: Option<u64>) -> Option<u64> {
        // The bound of a state that was visited is known, and that of its parent may be enough.
        if !matches!(state.next, Next::Unknown) || best.is_some_and(|best| state.low >= best) {
            return Some(state.low);
        }
        ROOM.with_borrow_mut(|room| {
            let mut work = WORK;
            loop {
                if state.phase == Phase::Waiting {
                    (state.phase, state.next) = (Phase::Below(0), Next::GoOn);
                    return Some(state.low);
                }
                if state.phase == Phase::Near {
                    self.approach(state, room);
                    return Some(state.low);
                }
                let ends = state.edges.allowed_ends();
                let round = if ends <= LISTED_ENDS_MAX {
                    let mut graph = std::mem::take(&mut room.graph);
                    graph.fill(self.undirected(), &state.edges);
                    let round = self.work(&graph, state, best, room);
                    room.graph = graph;
                    round
                } else {
                    let edges = state.edges.clone();
                    self.work(&Matrix { instance: self.undirected(), edges: &edges }, state, best, room)
                };
                match round {
                    Round::Hopeless => return None,
                    Round::Over => return Some(state.low),
                    Round::Again => {}
                }
                work = work.saturating_sub(ends * state.phase.plan(self.undirected().len()).steps as usize);
                if work == 0 {
                    state.next = Next::GoOn;
                    return Some(state.low);
                }
            }
        })
    }

    fn cost_of(&self, tour: &Vec<City>) -> Option<u64> {
        self.instance.checked_length(tour)
    }

    fn construct(&self, seed: u64, stops: &dyn Fn() -> bool) -> Option<Vec<City>> {
        Some(self.heuristic.construct(&self.instance, seed, stops))
    }

    fn improve(&self, tour: &Vec<City>, seed: u64, stops: &dyn Fn() -> bool) -> Option<Vec<City>> {
        self.heuristic.improve(&self.instance, tour, seed, stops)
    }

    fn read_solution(&self, given: serde_json::Value) -> Option<Vec<City>> {
        read_numbered(given)
    }

    fn solution(&self, leaf: &OneTreeState) -> Vec<City> {
        match &leaf.next {
            Next::Leaf(tour) if self.doubled.is_some() => doubled::directed(tour),
            Next::Leaf(tour) => tour.clone(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
