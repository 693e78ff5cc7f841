//! The outcomes of the calls of a program, which other nodes remember in case its node is lost.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{failure::Reason, ids::CallId};

/// The maximum number of ranges in a [piece](History::pieces).
const RANGES_MAX: usize = 10_000;

/// The maximum number of failures in a piece. Each has a reason of at most a few kilobytes.
const FAILURES_MAX: usize = 16;

/// The completed calls of a program. Data created by the program counts as completed, so that there are few
/// gaps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct History {
    /// Disjoint, non-adjacent ranges of calls that have written their output: the end of each by its start.
    ended: BTreeMap<CallId, CallId>,
    /// The calls that have failed permanently, with the reasons.
    failed: BTreeMap<CallId, Reason>,
    /// The calls that have failed, and have written defaults.
    ignored: BTreeSet<CallId>,
    /// The nested calls that have written their output, by the calls of the program within which they were
    /// made, while these are unfinished.
    within: BTreeMap<CallId, BTreeSet<CallId>>,
}

impl History {
    pub(crate) fn has_ended(&self, call: CallId) -> bool {
        is_in(&self.ended, call)
    }

    /// Returns whether a call that was made within `root`, a call of the program, has written its output.
    pub(in crate::core) fn has_ended_within(&self, root: CallId, call: CallId) -> bool {
        self.within.get(&root).is_some_and(|calls| calls.contains(&call))
    }

    /// Returns whether a call has written its output. If it was made within `root`, it counts as completed also if
    /// `root` is.
    pub(crate) fn has_ended_of(&self, call: CallId, root: Option<CallId>) -> bool {
        match root {
            Some(root) => self.has_ended(root) || self.has_ended_within(root, call),
            None => self.has_ended(call),
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.ended.iter().map(|(start, end)| end - start).sum()
    }

    pub(in crate::core) fn failure(&self, call: CallId) -> Option<&Reason> {
        self.failed.get(&call)
    }

    pub(crate) fn add_end(&mut self, call: CallId) {
        self.add_range(call, call + 1);
        self.within.remove(&call);
    }

    /// Adds a call, made within `root`, that has written its output, unless `root` has completed.
    pub(in crate::core) fn add_end_within(&mut self, root: CallId, call: CallId) {
        if !self.has_ended(root) {
            self.within.entry(root).or_default().insert(call);
        }
    }

    pub(in crate::core) fn add_failure(&mut self, call: CallId, reason: Reason) {
        self.failed.insert(call, reason);
    }

    pub(crate) fn add_ignored(&mut self, call: CallId) {
        self.ignored.insert(call);
    }

    pub(in crate::core) fn is_ignored(&self, call: CallId) -> bool {
        self.ignored.contains(&call)
    }

    pub(in crate::core) fn bytes(&self) -> usize {
        let reasons: usize = self.failed.values().map(|reason| reason.text.len()).sum();
        16 * (self.ended.len() + self.failed.len() + self.ignored.len()) + reasons
    }

    fn add_range(&mut self, mut start: CallId, mut end: CallId) {
        if start >= end {
            return;
        }
        if let Some((before, before_end)) = self.ended.range(..=start).next_back()
            && *before_end >= start
        {
            start = *before;
            end = end.max(*before_end);
        }
        while let Some((next, next_end)) = self.ended.range(start..=end).next().map(|(a, b)| (*a, *b)) {
            end = end.max(next_end);
            self.ended.remove(&next);
        }
        self.ended.insert(start, end);
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (start, end) in other.ended {
            self.add_range(start, end);
        }
        self.failed.extend(other.failed);
        self.ignored.extend(other.ignored);
        for (root, calls) in other.within {
            self.within.entry(root).or_default().extend(calls);
        }
        let ended = &self.ended;
        self.within.retain(|root, _| !is_in(ended, *root));
    }

    /// Returns the calls that another history lacks.
    pub(in crate::core) fn without(self, known: &Self) -> Self {
        let mut rest = Self::default();
        for (start, end) in self.ended {
            let mut from = start;
            let before = known.ended.range(..=start).next_back();
            let after = known.ended.range(start..end).skip_while(|(known_start, _)| **known_start == start);
            for (known_start, known_end) in before.into_iter().chain(after) {
                rest.add_range(from, *known_start);
                from = from.max(*known_end);
            }
            rest.add_range(from, end);
        }
        rest.failed = self.failed.into_iter().filter(|(call, _)| !known.failed.contains_key(call)).collect();
        rest.ignored = self.ignored.difference(&known.ignored).copied().collect();
        for (root, calls) in self.within.into_iter().filter(|(root, _)| !known.has_ended(*root)) {
            let calls: BTreeSet<_> =
                calls.into_iter().filter(|call| !known.has_ended_within(root, *call)).collect();
            if !calls.is_empty() {
                rest.within.insert(root, calls);
            }
        }
        rest
    }

    /// Splits the history into pieces that fit into a message.
    pub(crate) fn pieces(&self) -> Vec<Self> {
        let ended: Vec<_> = self.ended.iter().map(|(start, end)| (*start, *end)).collect();
        let failed: Vec<_> = self.failed.iter().map(|(call, reason)| (*call, reason.clone())).collect();
        let ignored: Vec<_> = self.ignored.iter().copied().collect();
        let ended = ended
            .chunks(RANGES_MAX)
            .map(|ended| Self { ended: ended.iter().copied().collect(), ..Self::default() });
        let failed = failed
            .chunks(FAILURES_MAX)
            .map(|failed| Self { failed: failed.iter().cloned().collect(), ..Self::default() });
        let ignored = ignored
            .chunks(RANGES_MAX)
            .map(|ignored| Self { ignored: ignored.iter().copied().collect(), ..Self::default() });
        let mut pieces: Vec<_> = ended.chain(failed).chain(ignored).collect();
        let within = self.within.iter().flat_map(|(root, calls)| calls.iter().map(|call| (*root, *call)));
        let within: Vec<_> = within.collect();
        for within in within.chunks(RANGES_MAX) {
            let mut piece = Self::default();
            for (root, call) in within {
                piece.within.entry(*root).or_default().insert(*call);
            }
            pieces.push(piece);
        }
        pieces
    }
}

fn is_in(ranges: &BTreeMap<CallId, CallId>, call: CallId) -> bool {
    ranges.range(..=call).next_back().is_some_and(|(_, end)| call < *end)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::vec, prelude::*};

    use super::History;

    #[test]
    fn adjacent_ranges_are_merged() {
        let mut history = History::default();
        for call in [5, 3, 4, 9, 0, 4] {
            history.add_end(call);
        }
        assert_eq!(history.ended.into_iter().collect::<Vec<_>>(), [(0, 1), (3, 6), (9, 10)]);
    }

    #[test]
    fn pieces_add_up_to_the_whole_history() {
        let mut history = History::default();
        for call in 0..25_000 {
            history.add_end(2 * call);
        }
        for call in 0..40 {
            history.add_failure(2 * call + 1, "as it was told".into());
        }
        history.add_ignored(20);
        history.add_end_within(49_999, 1 << 63);
        // Its caller has completed.
        history.add_end_within(20, 1 << 63);
        let pieces = history.pieces();
        assert_eq!(pieces.len(), 3 + 3 + 1 + 1);
        let mut whole = History::default();
        for piece in pieces {
            whole.add(piece);
        }
        assert_eq!(whole, history);
        assert_eq!(whole.number(), 25_000);
    }

    proptest! {
        #[test]
        fn history_has_all_added_calls(calls in vec(0..40_u64, 0..60), others in vec(0..40_u64, 0..60)) {
            let (mut history, mut other) = (History::default(), History::default());
            for call in &calls {
                history.add_end(*call);
            }
            for call in &others {
                other.add_end(*call);
            }
            let (added, known) = (other.clone().without(&history), history.clone());
            for call in 0..41 {
                prop_assert_eq!(added.has_ended(call), other.has_ended(call) && !known.has_ended(call));
            }
            history.add(added);
            let expected: BTreeSet<_> = calls.iter().chain(&others).copied().collect();
            for call in 0..41 {
                prop_assert_eq!(history.has_ended(call), expected.contains(&call));
            }
            let ranges: Vec<_> = history.ended.into_iter().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
