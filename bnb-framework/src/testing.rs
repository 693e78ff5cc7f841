//! Small problems for the tests of this crate.

use std::{collections::VecDeque, ops::Range};

use serde::{Deserialize, Serialize};

use crate::{
    enumerate::Enumerate,
    problem::Problem,
    tree::{Children, InPlace, Moves, Tree},
};

/// The full tree of a given depth and breadth; a state is the path to it. The cost of a leaf is a hash of its
/// path.
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

/// The same tree, searched in place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Steps(pub(crate) Paths);

/// The last steps of the paths that were not visited yet.
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
    type Step = Moves;

    fn next(&mut self, tree: &Steps, parent: &Vec<u8>) -> Option<Vec<u8>> {
        let mut child = parent.clone();
        self.descend(tree, &mut child).then_some(child)
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

impl InPlace<Steps> for LastSteps {
    fn descend(&mut self, _: &Steps, state: &mut Vec<u8>) -> bool {
        self.0.next().map(|step| state.push(step)).is_some()
    }

    fn ascend(&self, _: &Steps, state: &mut Vec<u8>) {
        state.pop();
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
