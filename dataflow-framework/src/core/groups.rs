//! Groups of calls that are cancelled when one of them fails, if it has that option
//! ([`OnFailure::CancelGroup`]).
//!
//! A group is a range of the steps of the program, or of a task. It is *open* while its calls are made. It is
//! stored while it is open or has unfinished calls, and only if it has calls with the option.
//!
//! The set of calls that had not started when one failed depends on timing. So it is recorded before it becomes
//! visible, like a cancellation by the program; a restarted program cancels the same calls, and no others.

use std::ops::Range;

use super::{
    fact::Fact,
    graph::{Action, Graph},
    state::groups::Group,
};
use crate::{failure::Failure, ids::CallId, options::OnFailure};

impl Graph {
    /// Opens a group that starts with the next call of the program.
    pub(crate) fn open_group(&mut self, start: CallId) {
        self.groups.open(start);
    }

    /// Closes the group of the program that was opened last.
    pub(crate) fn close_group(&mut self, calls: Range<CallId>) {
        self.groups.close(&calls);
        let Self { groups, calls: known, .. } = self;
        groups.forget_ended(|calls| !known.any_unfinished(calls));
    }

    /// Adds a group of calls that the task of a call has made.
    pub(super) fn add_group_of_task(&mut self, parent: CallId, calls: Range<u64>) {
        let nest = self.nest(parent);
        nest.groups.add(&calls);
        let is_one = |failure: &Failure| failure.position().is_some_and(|at| calls.contains(&at));
        if nest.failures.iter().any(|failure| failure.cancels_group() && is_one(failure)) {
            self.cancel_positions(parent, calls);
        }
    }

    /// Returns the group to cancel because of the failure of a call, if the call has that option.
    pub(super) fn group_to_cancel(&mut self, id: CallId, on_failure: OnFailure) -> Option<Group> {
        if on_failure != OnFailure::CancelGroup {
            return None;
        }
        let Some(within) = self.within(id) else {
            let next = self.next();
            return self.groups.of(id, next).map(Group::OfProgram);
        };
        let nest = self.nests.by_call.get_mut(&within.parent)?;
        let calls = nest.groups.of(within.position, u64::MAX)?;
        Some(Group::OfTask(within.parent, calls))
    }

    pub(super) fn cancel_failed_group(&mut self, group: Group) {
        match group {
            Group::OfProgram(calls) => self.cancel_group(calls),
            Group::OfTask(parent, calls) if self.nests.by_call.contains_key(&parent) => {
                self.cancel_positions(parent, calls);
            }
            Group::OfTask(..) => {}
        }
    }

    /// Cancels the calls of a group that have not started.
    pub(super) fn cancel_group(&mut self, calls: Range<CallId>) {
        if !self.durable.is_on {
            return self.cancel_all(calls);
        }
        let cancelled = self.prepare_cancellation(calls);
        if !cancelled.is_empty() {
            self.actions.push(Action::Record(Fact::Cancelled(cancelled)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Capacity, Input, Member, Outcome,
            graph_tests::{new_call, version},
            state::groups::Groups,
        },
        Action, Fact, Graph,
    };
    use crate::{
        failure::Failure,
        ids::Argument,
        options::{OnFailure, Options},
    };

    /// Makes a group of three calls: the first is ready, the others wait for a call outside of the group.
    fn makes_group(facts: &[Fact]) -> Graph {
        let mut graph = Graph::new(true);
        graph.enable_recording();
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
        assert_eq!(failed, [Fact::Failed { call: 1, reason: "as it was told".to_owned() }]);
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
