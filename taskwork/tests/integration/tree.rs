//! A tree whose shape is determined by a hash.

use serde::{Deserialize, Serialize};
use taskwork::{Context, Outcome, Task, Variable, Variables};

/// Counts the nodes of a tree, and finds the largest hash.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tree {
    pub(crate) open: Vec<(u64, u32)>,
    /// Makes the task large.
    pub(crate) ballast: Vec<u8>,
}

pub(crate) struct Largest;

impl Variable for Largest {
    type Value = u64;
    const NAME: &'static str = "largest";
    fn improves(new: &u64, old: &u64) -> bool {
        new > old
    }
}

pub(crate) fn hash(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Tree {
    pub(crate) fn root() -> Self {
        Self { open: vec![(1, 0)], ballast: Vec::new() }
    }

    fn visit(open: &mut Vec<(u64, u32)>, depth_max: u32) -> Option<u64> {
        let (state, depth) = open.pop()?;
        if depth < depth_max {
            open.extend((0..=hash(state) % 4).map(|k| (hash(state.wrapping_add(k)), depth + 1)));
        }
        Some(state)
    }

    /// Returns the number of nodes, and the largest hash.
    pub(crate) fn sequential(depth_max: u32) -> (u64, u64) {
        let (mut open, mut count, mut largest) = (Self::root().open, 0, 0);
        while let Some(state) = Self::visit(&mut open, depth_max) {
            (count, largest) = (count + 1, largest.max(state));
        }
        (count, largest)
    }
}

impl Task for Tree {
    /// The depth of the tree.
    type Shared = u32;
    type Output = u64;

    fn variables(declare: &mut Variables) {
        declare.declare::<Largest>();
    }

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let depth_max = *cx.shared();
        loop {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            let Some(state) = Self::visit(&mut self.open, depth_max) else { return Outcome::Complete };
            *cx.output() += 1;
            cx.worked(1);
            if cx.get_var::<Largest>().is_none_or(|&largest| state > largest) {
                cx.set_var::<Largest>(state);
            }
            cx.potential_split(self);
        }
    }

    fn split(&mut self, _: &u32) -> Option<Self> {
        (self.open.len() > 1).then(|| Self { open: vec![self.open.remove(0)], ballast: Vec::new() })
    }
}
