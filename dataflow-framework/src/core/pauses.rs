//! Pauses of failed calls before they are tried again. A paused call does not become ready.
//!
//! The core has no clock: [`Action::Wake`](super::Action::Wake) requests to end a pause. With a journal, the end is
//! recorded as a time, so that a restarted program continues the pause.

use std::{collections::BTreeMap, time::Duration};

use super::{action::Action, data::Data, journal::fact::Fact};
use crate::{ids::CallId, options::Options};

/// The paused calls.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// The paused calls, each with its number of failures.
    held: BTreeMap<CallId, u32>,
    /// The recorded pauses of unfinished calls, by the call of the program within which each was made, and by the call:
    /// the number of failures, and the time of the end in microseconds since 1970.
    recorded: BTreeMap<(CallId, CallId), (u32, u64)>,
}

/// Returns the pause of a call that has failed this number of times: it doubles each time.
fn pause(options: &Options, failures: u32) -> Option<Duration> {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let pause = options.pause?.saturating_mul(doubled);
    Some(pause.min(options.pause_max.unwrap_or(Options::PAUSE_MAX)))
}

impl Pauses {
    pub(super) fn holds(&self, call: CallId) -> bool {
        self.held.contains_key(&call)
    }

    /// Lets a failed call pause if it has that option.
    pub(super) fn begin(&mut self, data: &mut Data, id: CallId) {
        let call = &data.calls[&id];
        let (root, failures) = (call.root(id), call.failures);
        if let Some(pause) = pause(&call.options, failures) {
            self.held.insert(id, failures);
            data.actions.push(Action::Wake { root, call: id, failures, pause, until_us: None });
        }
    }

    /// Restores the number of failures of a call that is made again, and continues its pause unless it
    /// has started.
    pub(super) fn resume(&mut self, data: &mut Data, id: CallId, is_started: bool) {
        if self.recorded.is_empty() {
            return;
        }
        let call = data.calls.get_mut(&id).expect("it was made");
        let recorded = self.recorded.get(&(call.root(id), id));
        let Some((failures, until_us)) = recorded.copied() else { return };
        call.failures = failures;
        if is_started {
            return;
        }
        if let Some(pause) = pause(&call.options, failures) {
            self.held.insert(id, failures);
            let root = call.root(id);
            data.actions.push(Action::Wake { root, call: id, failures, pause, until_us: Some(until_us) });
        }
    }

    pub(super) fn record(&mut self, (root, call): (CallId, CallId), failures: u32, until_us: u64) {
        self.recorded.insert((root, call), (failures, until_us));
    }

    /// Ends the pause of a call after this number of failures. Returns whether it was paused.
    pub(super) fn end(&mut self, call: CallId, failures: u32) -> bool {
        self.held.get(&call) == Some(&failures) && self.held.remove(&call).is_some()
    }

    /// Removes a call that has ended, made within `root`. If it is a call of the program, those made within it have
    /// ended too.
    pub(super) fn remove(&mut self, root: CallId, call: CallId) {
        self.held.remove(&call);
        if root != call {
            self.recorded.remove(&(root, call));
            return;
        }
        while let Some((within, _)) = self.recorded.range((root, 0)..=(root, CallId::MAX)).next() {
            let within = *within;
            self.recorded.remove(&within);
        }
    }

    pub(super) fn facts(&self) -> impl Iterator<Item = Fact> {
        let recorded = self.recorded.iter().map(|(call, paused)| (*call, *paused));
        recorded.map(|((root, call), (failures, until_us))| Fact::Paused { root, call, failures, until_us })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{
        Action, Commute, Fact, Graph, Mark, Member, NewCall, Outcome,
        graph_tests::{assigned_to, graph_of, new_call, version, written_by},
    };
    use crate::{
        failure::Failure,
        ids::{Argument, NESTED_BIT},
        options::Options,
    };

    const PAUSED: Fact = Fact::Paused { root: 0, call: 0, failures: 1, until_us: 77 };

    const OPTIONS: Options = Options {
        retry: 4,
        pause: Some(Duration::from_secs(1)),
        pause_max: Some(Duration::from_secs(3)),
        ..Options::DEFAULT
    };

    fn graph() -> Graph {
        let mut graph = graph_of([1]);
        graph.journal().enable();
        graph
    }

    fn call(graph: &mut Graph) {
        graph.call(0, new_call(vec![], 1, OPTIONS));
    }

    /// Lets the running call fail, and returns its pause and the recorded end of the pause.
    fn fail(graph: &mut Graph) -> Option<(u64, Option<u64>)> {
        graph.ended(0, Member::HERE, Outcome::Failed(Failure::new("t", 0, "no licence")));
        wake(graph)
    }

    fn wake(graph: &mut Graph) -> Option<(u64, Option<u64>)> {
        graph.actions().into_iter().find_map(|action| match action {
            Action::Wake { call: 0, pause, until_us, .. } => Some((pause.as_secs(), until_us)),
            Action::Assign(..) => panic!("a paused call starts"),
            _ => None,
        })
    }

    #[test]
    fn failed_call_is_tried_again_after_growing_pauses() {
        let mut graph = graph();
        call(&mut graph);
        for (failures, seconds) in [(1, 1), (2, 2), (3, 3), (4, 3)] {
            assert_eq!(assigned_to(&mut graph), [(0, Member::HERE)]);
            assert_eq!(fail(&mut graph), Some((seconds, None)));
            graph.wake(0, failures);
        }
        assert_eq!(assigned_to(&mut graph), [(0, Member::HERE)]);
        assert_eq!(fail(&mut graph), None, "it has no further try");
        graph.wake(0, 5);
        assert_eq!(assigned_to(&mut graph), []);
    }

    #[test]
    fn pause_continues_when_the_program_restarts() {
        let mut before = graph();
        call(&mut before);
        assert_eq!(assigned_to(&mut before), [(0, Member::HERE)]);
        assert_eq!(fail(&mut before), Some((1, None)));
        before.journalled(Fact::Paused { root: 0, call: 0, failures: 1, until_us: 77 });
        let mut graph = graph();
        before.recorded_so_far().into_iter().for_each(|fact| graph.recall(fact));
        call(&mut graph);
        assert_eq!(wake(&mut graph), Some((1, Some(77))));
        graph.wake(0, 1);
        assert_eq!(assigned_to(&mut graph), [(0, Member::HERE)]);
        assert_eq!(fail(&mut graph), Some((2, None)), "it has failed twice");
    }

    #[test]
    fn call_cancelled_in_its_pause_does_not_start() {
        let mut graph = graph();
        call(&mut graph);
        assert_eq!(assigned_to(&mut graph), [(0, Member::HERE)]);
        assert_eq!(fail(&mut graph), Some((1, None)));
        graph.cancel_all(0..1);
        graph.wake(0, 1);
        assert_eq!((assigned_to(&mut graph), graph.unfinished()), (vec![], 0));
    }

    /// Returns the graph of a restarted program whose call had failed once, and the mark of the call.
    fn restarted() -> (Graph, Mark) {
        let mut before = graph();
        call(&mut before);
        let mark = before.known().calls[&0].mark;
        let mut graph = graph();
        graph.recall(PAUSED);
        (graph, mark)
    }

    #[test]
    fn call_running_since_earlier_run_keeps_its_number_of_failures() {
        let (mut graph, mark) = restarted();
        graph.on_running(Member::HERE, 0, mark);
        call(&mut graph);
        assert_eq!(wake(&mut graph), None);
        assert_eq!(fail(&mut graph), Some((2, None)));
    }

    #[test]
    fn call_that_failed_before_it_was_made_keeps_its_number_of_failures() {
        let (mut graph, mark) = restarted();
        graph.on_running(Member::HERE, 0, mark);
        assert_eq!(fail(&mut graph), None);
        call(&mut graph);
        assert_eq!(wake(&mut graph), Some((2, None)));
    }

    #[test]
    fn end_of_earlier_pause_does_not_end_a_later_one() {
        let (mut graph, mark) = restarted();
        call(&mut graph);
        assert_eq!(wake(&mut graph), Some((1, Some(77))));
        graph.on_running(Member::HERE, 0, mark);
        assert_eq!(fail(&mut graph), Some((2, None)));
        graph.wake(0, 1);
        assert_eq!(assigned_to(&mut graph), []);
        graph.wake(0, 2);
        assert_eq!(assigned_to(&mut graph), [(0, Member::HERE)]);
    }

    #[test]
    fn pause_of_commuting_call_continues_when_the_program_restarts() {
        let mut graph = graph();
        graph.recall(Fact::Paused { root: 1, call: 1, failures: 1, until_us: 77 });
        graph.data(0, 8, 0);
        let call = new_call(vec![Argument::Update(version(0, 0))], 1, OPTIONS);
        graph.call(1, NewCall { commute: Some(Commute { chain: 1, at: 0 }), ..call });
        let is_wake = |action: &Action| matches!(action, Action::Wake { call: 1, until_us: Some(77), .. });
        assert!(graph.actions().iter().any(is_wake));
        graph.journalled(Fact::Commuted { call: 1, with: 1 });
        assert_eq!(assigned_to(&mut graph), []);
        graph.wake(1, 1);
        assert_eq!(assigned_to(&mut graph), [(1, Member::HERE)]);
    }

    #[test]
    fn pause_of_finished_call_is_removed() {
        let (mut graph, _) = restarted();
        graph.journal().add_end(0, None);
        call(&mut graph);
        assert!(!graph.recorded_so_far().contains(&PAUSED));
    }

    #[test]
    fn pauses_of_calls_within_a_finished_one_are_removed() {
        let (mut graph, _) = restarted();
        let within = Fact::Paused { root: 0, call: NESTED_BIT + 5, failures: 1, until_us: 77 };
        graph.recall(within.clone());
        assert!(graph.recorded_so_far().contains(&within));
        call(&mut graph);
        graph.wake(0, 1);
        assert_eq!(assigned_to(&mut graph), [(0, Member::HERE)]);
        written_by(&mut graph, 0, Member::HERE);
        assert!(!graph.recorded_so_far().iter().any(|fact| matches!(fact, Fact::Paused { .. })));
    }
}
