//! Small problems for the tests of this crate.

use std::{collections::VecDeque, ops::Range};

use ordered_float::NotNan;
use serde::{Deserialize, Serialize};

use crate::{
    enumerate::Enumerate,
    problem::{Goal, Problem},
    tree::{Children, Tree},
};

/// The full tree of a depth and a breadth; a state is the path to it. The cost of a leaf is a hash of its path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Paths {
    pub(crate) depth: u8,
    pub(crate) breadth: u8,
}

impl Tree for Paths {
    type State = Vec<u8>;
    type Children = VecDeque<Vec<u8>>;

    fn root(&self) -> Vec<u8> {
        Vec::new()
    }

    fn branch(&self, state: &mut Vec<u8>) -> VecDeque<Vec<u8>> {
        if state.len() == usize::from(self.depth) {
            return VecDeque::new();
        }
        (0..self.breadth).map(|child| state.iter().copied().chain([child]).collect()).collect()
    }
}

/// The same tree, in place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Steps(pub(crate) Paths);

/// The last steps of the paths that are left.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LastSteps(Range<u8>);

impl Tree for Steps {
    type State = Vec<u8>;
    type Children = LastSteps;

    fn root(&self) -> Vec<u8> {
        Vec::new()
    }

    fn branch(&self, state: &mut Vec<u8>) -> LastSteps {
        LastSteps(0..if state.len() < usize::from(self.0.depth) { self.0.breadth } else { 0 })
    }
}

impl Children<Steps> for LastSteps {
    const IN_PLACE: bool = true;

    fn next(&mut self, tree: &Steps, parent: &Vec<u8>) -> Option<Vec<u8>> {
        let mut child = parent.clone();
        self.descend(tree, &mut child).then_some(child)
    }

    fn descend(&mut self, _: &Steps, state: &mut Vec<u8>) -> bool {
        self.0.next().map(|step| state.push(step)).is_some()
    }

    fn ascend(&self, _: &Steps, state: &mut Vec<u8>) {
        state.pop();
    }

    fn split(&mut self, _: &Steps, _: &Vec<u8>) -> Option<Self> {
        let middle = self.0.start + (self.0.end - self.0.start) / 2;
        let away = middle..self.0.end;
        self.0.end = middle;
        (!away.is_empty()).then_some(Self(away))
    }

    fn is_single(&self, _: &Steps, _: &Vec<u8>) -> bool {
        self.0.len() == 1
    }
}

impl Enumerate for Steps {
    type Output = u64;

    fn visit(&self, _: &Vec<u8>, states: &mut u64) {
        *states += 1;
    }
}

impl Problem for Paths {
    type Cost = u64;
    type Solution = Vec<u8>;

    fn leaf(&self, state: &Vec<u8>) -> Option<u64> {
        let hash = |sum: u64, &step: &u8| {
            (sum ^ u64::from(step)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
        };
        (state.len() == usize::from(self.depth)).then(|| state.iter().fold(1, hash))
    }

    fn bound(&self, _: &mut Vec<u8>, _: Option<u64>) -> Option<u64> {
        Some(0)
    }

    fn solution(&self, leaf: &Vec<u8>) -> Vec<u8> {
        leaf.clone()
    }
}

/// The 0/1 knapsack, items sorted by value per weight: maximise.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Knapsack {
    pub(crate) capacity: u64,
    /// Values and weights.
    pub(crate) items: Vec<(u64, u64)>,
}

/// What is packed, and which items are decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Packing {
    pub(crate) taken: Vec<bool>,
    pub(crate) value: u64,
    pub(crate) room: u64,
}

impl Knapsack {
    pub(crate) fn new(capacity: u64, mut items: Vec<(u64, u64)>) -> Self {
        items.sort_by(|(v, w), (v2, w2)| (v2 * w).cmp(&(v * w2)));
        Self { capacity, items }
    }

    pub(crate) fn brute_force(&self) -> u64 {
        let value = |set: u32| {
            let (mut value, mut weight) = (0, 0);
            for (item, &(v, w)) in self.items.iter().enumerate() {
                if set & (1 << item) != 0 {
                    (value, weight) = (value + v, weight + w);
                }
            }
            (weight <= self.capacity).then_some(value)
        };
        (0..1 << self.items.len()).filter_map(value).max().unwrap_or(0)
    }
}

impl Tree for Knapsack {
    type State = Packing;
    type Children = VecDeque<Packing>;

    fn root(&self) -> Packing {
        Packing { taken: Vec::new(), value: 0, room: self.capacity }
    }

    fn branch(&self, state: &mut Packing) -> VecDeque<Packing> {
        let (value, weight) = self.items[state.taken.len()];
        let with = |take: bool| {
            let mut child = state.clone();
            child.taken.push(take);
            if take {
                child.value += value;
                child.room -= weight;
            }
            child
        };
        let fits = (weight <= state.room).then(|| with(true));
        fits.into_iter().chain([with(false)]).collect()
    }
}

impl Problem for Knapsack {
    type Cost = u64;
    type Solution = Vec<bool>;
    const GOAL: Goal = Goal::Maximise;

    fn leaf(&self, state: &Packing) -> Option<u64> {
        (state.taken.len() == self.items.len()).then_some(state.value)
    }

    fn bound(&self, state: &mut Packing, _: Option<u64>) -> Option<u64> {
        let (mut value, mut room) = (state.value, state.room);
        for &(v, w) in &self.items[state.taken.len()..] {
            if w > room {
                return Some(value + v * room / w);
            }
            (value, room) = (value + v, room - w);
        }
        Some(value)
    }

    fn solution(&self, leaf: &Packing) -> Vec<bool> {
        leaf.taken.clone()
    }
}

/// The same knapsack with values that are no whole numbers: half as much each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Halves(pub(crate) Knapsack);

impl Tree for Halves {
    type State = Packing;
    type Children = VecDeque<Packing>;

    fn root(&self) -> Packing {
        self.0.root()
    }

    fn branch(&self, state: &mut Packing) -> VecDeque<Packing> {
        self.0.branch(state)
    }
}

fn half(value: u64) -> NotNan<f64> {
    NotNan::new(value as f64 / 2.0).expect("it is a number")
}

impl Problem for Halves {
    type Cost = NotNan<f64>;
    type Solution = Vec<bool>;
    const GOAL: Goal = Goal::Maximise;

    fn leaf(&self, state: &Packing) -> Option<NotNan<f64>> {
        self.0.leaf(state).map(half)
    }

    fn bound(&self, state: &mut Packing, _: Option<NotNan<f64>>) -> Option<NotNan<f64>> {
        self.0.bound(state, None).map(half)
    }

    fn solution(&self, leaf: &Packing) -> Vec<bool> {
        self.0.solution(leaf)
    }
}
