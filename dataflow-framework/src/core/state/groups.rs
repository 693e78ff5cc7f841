//! Groups of calls that are cancelled when one of their calls fails. See [`OnFailure::CancelGroup`](crate::OnFailure::CancelGroup).
//!
//! A group is a range of the calls of the program, or of a task. It is *open* while its calls are made. A closed group is
//! kept only while one of its calls is unfinished and at least one of them cancels the group when it fails.

use std::{cmp::Reverse, collections::BTreeSet, ops::Range};

use crate::{failure::Failure, ids::CallId};

/// The number of groups above which completed ones are searched and removed.
pub(in crate::core) const GROUPS_MIN: usize = 64;

/// Groups with calls that cancel the others when they fail; by positions in the order of the program, or of a
/// task.
#[derive(Debug, Default)]
pub(in crate::core) struct Groups {
    /// The open groups: the start of each, and whether it is cancelled.
    pub(in crate::core) open: Vec<(u64, bool)>,
    /// The closed groups: start and end. Of two with the same start the outer one is first.
    pub(in crate::core) closed: BTreeSet<(u64, Reverse<u64>)>,
    /// The last call whose failure cancels its group.
    pub(in crate::core) last: Option<u64>,
    /// The number of closed groups above which completed ones are removed.
    pub(in crate::core) many: usize,
}

/// A cancelled group.
#[derive(Debug)]
pub(in crate::core) enum Group {
    OfProgram(Range<CallId>),
    /// A group of the task of this call.
    OfTask(CallId, Range<u64>),
}

impl Groups {
    /// Records a call whose failure cancels its group.
    pub(in crate::core) fn add_cancelling(&mut self, position: u64) {
        self.last = Some(position);
    }

    /// Cancels the innermost group of a call, and returns its range; `next` is the position of the next call. In an
    /// open group, calls made until it is closed are cancelled as well.
    pub(in crate::core) fn of(&mut self, position: u64, next: u64) -> Option<Range<u64>> {
        let before = self.closed.range(..(position + 1, Reverse(u64::MAX)));
        let mut around = before.rev().map(|(start, Reverse(end))| *start..*end);
        if let Some(closed) = around.find(|calls| position < calls.end) {
            return Some(closed);
        }
        let (start, is_given_up) = self.open.iter_mut().rev().find(|(start, _)| *start <= position)?;
        *is_given_up = true;
        Some(*start..next)
    }

    /// Opens a group whose first call would have this position.
    pub(in crate::core) fn open(&mut self, start: u64) {
        self.open.push((start, false));
    }

    /// Closes the group that was opened last.
    pub(in crate::core) fn close(&mut self, calls: &Range<u64>) {
        self.open.pop();
        self.add(calls);
    }

    /// Returns whether new calls belong to a cancelled group.
    pub(in crate::core) fn are_given_up(&self) -> bool {
        self.open.iter().any(|(_, is_given_up)| *is_given_up)
    }

    pub(in crate::core) fn add(&mut self, calls: &Range<u64>) {
        if self.last.is_some_and(|last| last >= calls.start) {
            self.closed.insert((calls.start, Reverse(calls.end)));
        }
    }

    /// Removes groups that are over according to `is_over`, if there are many groups.
    pub(in crate::core) fn forget_ended(&mut self, is_over: impl Fn(Range<u64>) -> bool) {
        if self.closed.len() >= self.many.max(GROUPS_MIN) {
            self.closed.retain(|(start, Reverse(end))| !is_over(*start..*end));
            self.many = 2 * self.closed.len();
        }
    }
}

/// Returns the failure to report for a group: preferably one that cancelled it, and of several the first.
pub(crate) fn first_of<'a, K: Ord>(
    failures: impl Iterator<Item = &'a Failure>,
    position: impl Fn(&Failure) -> K,
) -> Option<&'a Failure> {
    failures.min_by_key(|failure| (!failure.cancels_group(), position(failure)))
}
