//! Bugs of routines, which the simulation of batches, a test of their crate, must find.

use super::{Mutant, mutant};

/// The number of seeds of that test.
pub(super) const SEEDS: u32 = 3_000;

pub(super) const MUTANTS: &[Mutant] = &[
    mutant(
        "acknowledge before durable",
        "routines/src/batch/live.rs",
        "take_while(|unsynced| unsynced.number <= durable)",
        "take_while(|unsynced| unsynced.number <= durable + 1)",
    ),
    mutant(
        "count a result twice",
        "routines/src/wire/exchange.rs",
        "        if self.unanswered.remove(id) {\n",
        "        if self.unanswered.remove(id) || self.calls.contains(id) {\n",
    ),
    mutant(
        "checkpoint of another index",
        "routines/src/batch/live.rs",
        "Some(index) => batch.open.remove(index).then_some(index..index + 1),",
        "Some(_) => batch.open.take_front(1),",
    ),
    mutant(
        "stop that loses the calls of its frame",
        "routines/src/batch/live.rs",
        "                    batch.open.extend(&calls);\n",
        "                    drop(calls);\n",
    ),
    mutant(
        "reduce a result twice",
        "routines/src/batch/live.rs",
        "                reduced.add(&key, *index, number);\n",
        "                reduced.add(&key, *index, number);\n                reduced.add(&key, *index, number);\n",
    ),
    mutant(
        "reduced results lost by a merge",
        "routines/src/tally.rs",
        "self.reduced.get_or_insert_default().merge(*other);",
        "self.reduced.get_or_insert(other);",
    ),
    mutant(
        "checkpoint left behind by a split",
        "routines/src/batch/mod.rs",
        "let checkpoint = self.checkpoint.take_if(|last| open.contains(last.index));",
        "let checkpoint = None;",
    ),
];
