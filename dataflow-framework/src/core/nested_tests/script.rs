//! The scripts of random tasks, and their outputs in a sequential run.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use proptest::{collection::vec, prelude::*, sample::Index};

use crate::{
    ids::{CallId, number_within},
    options::Options,
};

/// The number of kinds of tasks. A task calls those of lower numbers.
pub(super) const KINDS: usize = 6;

/// The memory of a member.
pub(super) const MEMORY: u64 = 8;

/// The kind of run-once tasks: with a journal, their output differs in each execution.
pub(super) const ONCE: usize = 0;

/// Returns the options of the calls of a task. Some kinds demand all workers of a member, or all its memory.
pub(super) fn options(kind: usize, has_journal: bool) -> Options {
    match kind {
        ONCE => Options { nondeterministic: has_journal, ..Options::DEFAULT },
        1 => Options { cores: 2, ..Options::DEFAULT },
        2 => Options { spread: true, ..Options::DEFAULT },
        3 => Options { memory: MEMORY, ..Options::DEFAULT },
        4 => Options { everywhere: true, ..Options::DEFAULT },
        _ => Options::DEFAULT,
    }
}

/// The acts of a task, in order, and its result.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) acts: Vec<Act>,
    /// The handle that the task forwards instead of a result of its own, if it has handles.
    pub(super) forwards: Option<Index>,
    pub(super) fails: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Act {
    Bring(u64),
    Call { kind: Index, reads: Vec<Index> },
    Get(Index),
    Drop(Index),
    Wait,
    CancelNone,
}

pub(super) fn scripts() -> impl Strategy<Value = Vec<Script>> {
    let index = any::<Index>;
    let act = prop_oneof![
        1 => any::<u64>().prop_map(Act::Bring),
        4 => (index(), vec(index(), 0..3)).prop_map(|(kind, reads)| Act::Call { kind, reads }),
        2 => index().prop_map(Act::Get),
        1 => index().prop_map(Act::Drop),
        1 => Just(Act::Wait),
        1 => Just(Act::CancelNone),
    ];
    let script = (vec(act, 0..6), prop::option::of(index()), 0..40)
        .prop_map(|(acts, forwards, fails)| Script { acts, forwards, fails: fails == 0 });
    vec(script, KINDS)
}

pub(super) fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// The reason why a call has no known output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lacking {
    /// The call fails.
    Failed,
    /// The output depends on an unseen output of a run-once call.
    Unseen,
}

/// Returns the output of a call. With a journal, `once` has the outputs of calls of kind [`ONCE`] that were seen.
pub(super) fn sequential(
    scripts: &[Script],
    (id, kind): (CallId, usize),
    inputs: &[u64],
    once: Option<&BTreeMap<CallId, u64>>,
) -> Result<u64, Lacking> {
    let script = &scripts[kind];
    if let Some(once) = once.filter(|_| kind == ONCE && !script.fails) {
        return once.get(&id).copied().ok_or(Lacking::Unseen);
    }
    let (mut handles, mut got, mut position) = (Vec::new(), Vec::new(), 0);
    for act in &script.acts {
        match act {
            Act::Bring(value) => {
                position += 1;
                handles.push(*value);
            }
            Act::Call { kind: of, reads } if kind > 0 => {
                let reads: Vec<u64> = reads.iter().filter_map(|read| pick(&handles, *read)).collect();
                let child = (number_within(id, 0, position), of.index(kind));
                position += 1;
                handles.push(sequential(scripts, child, &reads, once)?);
            }
            Act::Get(which) => got.extend(pick(&handles, *which)),
            Act::Drop(which) if !handles.is_empty() => {
                handles.swap_remove(which.index(handles.len()));
            }
            Act::Call { .. } | Act::Drop(_) | Act::Wait | Act::CancelNone => {}
        }
    }
    if script.fails {
        return Err(Lacking::Failed);
    }
    let own = hash((kind, inputs, got));
    Ok(script.forwards.and_then(|which| pick(&handles, which)).unwrap_or(own))
}

pub(super) fn pick<T: Copy>(from: &[T], which: Index) -> Option<T> {
    (!from.is_empty()).then(|| from[which.index(from.len())])
}
