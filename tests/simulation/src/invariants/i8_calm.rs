//! I8: no input from a user, a peer or a znode makes a node panic; it causes a clear error instead.

use super::{Facts, Invariant, Seen};

pub(super) struct NothingPanics;

impl Invariant for NothingPanics {
    fn name(&self) -> &'static str {
        "I8 (no panic)"
    }

    fn see(&mut self, _: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Panicked { what } => Err((*what).to_owned()),
            _ => Ok(()),
        }
    }
}
