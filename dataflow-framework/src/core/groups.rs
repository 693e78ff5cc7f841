//! Groups of calls that are cancelled when one of their calls fails. See [`OnFailure::CancelGroup`](crate::OnFailure::CancelGroup).
//!
//! A group is a range of the calls of the program, or of a task. It is *open* while its calls are made. A closed group is
//! kept only while one of its calls is unfinished and at least one of them cancels the group when it fails.
//!
//! The set of calls that had not started when one failed depends on timing. So it is recorded before it becomes
//! visible, like a cancellation by the program; a restarted program cancels the same calls, and no others.

use std::{cmp::Reverse, collections::BTreeSet, ops::Range};

use crate::{failure::Failure, ids::CallId};

/// The number of groups above which completed ones are searched and removed.
pub(super) const GROUPS_MIN: usize = 64;

/// Groups with calls that cancel the others when they fail; by positions in the order of the program, or of a
/// task.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// The open groups: the start of each, and whether it is cancelled.
    pub(super) open: Vec<(u64, bool)>,
    /// The closed groups: start and end. Of two with the same start the outer one is first.
    pub(super) closed: BTreeSet<(u64, Reverse<u64>)>,
    /// The last call whose failure cancels its group.
    pub(super) last: Option<u64>,
    /// The number of closed groups above which completed ones are removed.
    pub(super) many: usize,
}

/// A cancelled group.
#[derive(Debug)]
pub(super) enum Group {
    OfProgram(Range<CallId>),
    /// A group of the task of this call.
    OfTask(CallId, Range<u64>),
}

impl Groups {
    /// Records a call whose failure cancels its group.
    pub(super) fn add_cancelling(&mut self, position: u64) {
        self.last = Some(position);
    }

    /// Cancels the innermost group of a call, and returns its range; `next` is the position of the next call. In an
    /// open group, calls made until it is closed are cancelled as well.
    pub(super) fn of(&mut self, position: u64, next: u64) -> Option<Range<u64>> {
        let before = self.closed.range(..(position + 1, Reverse(u64::MAX)));
        let mut around = before.rev().map(|(start, Reverse(end))| *start..*end);
        if let Some(closed) = around.find(|calls| position < calls.end) {
            return Some(closed);
        }
        let (start, is_given_up) = self.open.iter_mut().rev().find(|(start, _)| *start <= position)?;
        *is_given_up = true;
        Some(*start..next)
    }

    pub(super) fn open(&mut self, start: u64) {
        self.open.push((start, false));
    }

    pub(super) fn close(&mut self, calls: &Range<u64>) {
        self.open.pop();
        self.add(calls);
    }

    /// Returns whether new calls belong to a cancelled group.
    pub(super) fn are_given_up(&self) -> bool {
        self.open.iter().any(|(_, is_given_up)| *is_given_up)
    }

    pub(super) fn add(&mut self, calls: &Range<u64>) {
        if self.last.is_some_and(|last| last >= calls.start) {
            self.closed.insert((calls.start, Reverse(calls.end)));
        }
    }

    /// Removes groups that are over according to `is_over`, if there are many groups.
    pub(super) fn forget_ended(&mut self, is_over: impl Fn(Range<u64>) -> bool) {
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

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Action, Capacity, Fact, Graph, Input, Member, Outcome,
            graph_tests::{new_call, version},
        },
        Groups,
    };
    use crate::{
        failure::Failure,
        ids::Argument,
        options::{OnFailure, Options},
    };

    /// Makes a group of three calls: the first is ready, the others wait for a call outside of the group.
    fn makes_group(facts: &[Fact]) -> Graph {
        let mut graph = Graph::new(true);
        graph.journal().enable();
        for fact in facts {
            graph.recall(fact.clone());
        }
        graph.joined(Member::HERE, Capacity::of_workers(2));
        graph.call(0, new_call(vec![], 1, Options::DEFAULT));
        graph.open_group(1);
        let options = Options { on_failure: OnFailure::CancelGroup, ..Options::DEFAULT };
        graph.call(1, new_call(vec![], 1, options));
        for id in 2..4 {
            graph.call(id, new_call(vec![Argument::Read(version(0, 0))], 1, options));
        }
        graph.close_group(1..4);
        graph
    }

    fn recorded(graph: &mut Graph) -> Vec<Fact> {
        let record = |action| match action {
            Action::Record(fact) => Some(fact),
            _ => None,
        };
        graph.actions().into_iter().filter_map(record).collect()
    }

    #[test]
    fn cancelled_group_is_recorded_and_restart_cancels_nothing_else() {
        let mut graph = makes_group(&[]);
        assert_eq!(recorded(&mut graph), []);
        let failure = Failure::new("task", 1, "as it was told");
        graph.ended(1, Member::HERE, Outcome::Failed(failure));
        let failed = recorded(&mut graph);
        assert_eq!(failed, [Fact::Failed { call: 1, reason: "as it was told".into() }]);
        graph.journalled(failed[0].clone());
        let cancelled = recorded(&mut graph);
        let [Fact::Cancelled(calls)] = &cancelled[..] else { panic!("it is recorded: {cancelled:?}") };
        assert!(calls.iter().cloned().flatten().eq(2..4));
        assert!(matches!(graph.want(version(3, 0)), Input::Awaited), "it is not recorded");
        graph.journalled(cancelled[0].clone());
        assert!(matches!(graph.want(version(3, 0)), Input::Failed(_)));
        // It had not been recorded when the node of the program was lost.
        let mut again = makes_group(&failed);
        assert_eq!(recorded(&mut again), []);
        assert!((2..4).all(|id| again.is_unfinished(id)));
        let mut again = makes_group(&[failed[0].clone(), cancelled[0].clone()]);
        assert_eq!(recorded(&mut again), []);
        assert!(!again.is_unfinished(2) && !again.is_unfinished(3));
    }

    #[test]
    fn call_belongs_to_its_innermost_group() {
        let mut groups = Groups::default();
        groups.open(2);
        groups.open(4);
        groups.add_cancelling(5);
        groups.close(&(4..6));
        groups.open(6);
        groups.add_cancelling(6);
        groups.close(&(6..7));
        assert_eq!(groups.of(1, 9), None);
        assert_eq!(groups.of(5, 9), Some(4..6));
        assert_eq!(groups.of(6, 9), Some(6..7));
        assert!(!groups.are_given_up());
        // The outer one is still open.
        assert_eq!(groups.of(7, 9), Some(2..9));
        assert!(groups.are_given_up());
        groups.close(&(2..10));
        assert!(!groups.are_given_up());
        assert_eq!(groups.of(3, 20), Some(2..10));
        assert_eq!(groups.of(4, 20), Some(4..6));
        assert_eq!(groups.of(10, 20), None);
    }

    #[test]
    fn inner_of_two_groups_with_the_same_start_closes_first() {
        let mut groups = Groups::default();
        groups.open(20);
        groups.open(20);
        groups.add_cancelling(20);
        groups.close(&(20..21));
        assert_eq!(groups.of(20, 22), Some(20..21));
        assert_eq!(groups.of(21, 22), Some(20..22));
        groups.close(&(20..23));
        assert_eq!(groups.of(20, 30), Some(20..21));
        assert_eq!(groups.of(22, 30), Some(20..23));
    }

    #[test]
    fn groups_without_effect_are_removed() {
        let mut groups = Groups::default();
        for start in 0..1000 {
            groups.open(start);
            groups.close(&(start..start + 1));
        }
        assert!(groups.closed.is_empty());
        for start in 1000..2000 {
            groups.open(start);
            groups.add_cancelling(start);
            groups.close(&(start..start + 1));
            groups.forget_ended(|calls| calls.end < start);
            assert!(groups.closed.len() <= 64, "{}", groups.closed.len());
        }
        assert_eq!(groups.of(1999, 2000), Some(1999..2000));
    }
}
