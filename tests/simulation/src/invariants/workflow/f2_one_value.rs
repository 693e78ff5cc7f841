//! F2: a version has one value, permanently and on all nodes: otherwise two calls that read it would see
//! different data, and a recomputed value would differ from the lost one.

use std::collections::BTreeMap;

use dataflow_framework::simulation::Version;

use super::{Step, step};
use crate::invariants::{Facts, Invariant, Seen};

/// The mark and the hash of each version.
#[derive(Default)]
pub(in crate::invariants) struct OneValue(BTreeMap<Version, (u128, u128)>);

impl Invariant for OneValue {
    fn name(&self) -> &'static str {
        "F2 (one value)"
    }

    fn see(&mut self, _: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        let Some((node, Step::Holds { version, mark, value })) = step(seen) else { return Ok(()) };
        let known = *self.0.entry(*version).or_insert((*mark, *value));
        if known != (*mark, *value) {
            return Err(format!("{node} has another value of {version:?} than before"));
        }
        Ok(())
    }
}
