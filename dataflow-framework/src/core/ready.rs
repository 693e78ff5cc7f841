//! The calls that wait for a worker, in the order in which they are to begin.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{call::CallId, levels::Levels};

/// The calls that wait for a worker: those of the highest priority first, of these the ones with the most calls behind
/// one another that depend on them, of these the earliest.
#[derive(Debug, Default)]
pub(super) struct Ready {
    heap: BinaryHeap<Key>,
}

type Key = (i32, u32, Reverse<CallId>);

impl Ready {
    pub(super) fn push(&mut self, call: CallId, priority: i32, levels: &Levels) {
        self.heap.push((priority, levels.of(call), Reverse(call)));
    }

    pub(super) fn pop(&mut self) -> Option<CallId> {
        self.heap.pop().map(|(_, _, Reverse(call))| call)
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Orders all calls anew.
    pub(super) fn reorder(&mut self, levels: &Levels) {
        let calls = std::mem::take(&mut self.heap).into_iter();
        self.heap = calls.map(|(priority, _, call)| (priority, levels.of(call.0), call)).collect();
    }
}
