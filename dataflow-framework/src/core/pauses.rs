//! Pauses of failed calls before they are tried again. A paused call is held, like a call whose inputs are undecided.
//!
//! The core has no clock: [`Action::Wake`](super::Action::Wake) requests to end a pause. With a journal, the end is
//! recorded as a time, so that a restarted program continues the pause.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{action::Action, call::Call, data::Data, journal::fact::Fact};
use crate::{ids::CallId, options::Options};

/// The paused calls.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    held: BTreeSet<CallId>,
    /// The recorded pauses of unfinished calls: the number of failures, and the time of the end in microseconds since
    /// 1970.
    recorded: BTreeMap<CallId, (u32, u64)>,
}

/// Returns the pause of a call that has failed this number of times: it doubles each time.
fn pause(options: &Options, failures: u32) -> Option<Duration> {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let pause = options.pause?.saturating_mul(doubled);
    Some(pause.min(options.pause_max.unwrap_or(Options::PAUSE_MAX)))
}

impl Pauses {
    pub(super) fn holds(&self, call: CallId) -> bool {
        self.held.contains(&call)
    }

    /// Lets a failed call pause if it has that option.
    pub(super) fn begin(&mut self, data: &mut Data, id: CallId) {
        let Call { options, failures, .. } = data.calls[&id];
        if let Some(pause) = pause(&options, failures) {
            self.held.insert(id);
            data.actions.push(Action::Wake { call: id, failures, pause, until_us: None });
        }
    }

    /// Continues the pause of a call that is made again.
    pub(super) fn resume(&mut self, data: &mut Data, id: CallId) {
        let Some((failures, until_us)) = self.recorded.get(&id).copied() else { return };
        let call = data.calls.get_mut(&id).expect("it was made");
        call.failures = failures;
        if let Some(pause) = pause(&call.options, failures) {
            self.held.insert(id);
            data.actions.push(Action::Wake { call: id, failures, pause, until_us: Some(until_us) });
        }
    }

    pub(super) fn record(&mut self, call: CallId, failures: u32, until_us: u64) {
        self.recorded.insert(call, (failures, until_us));
    }

    /// Ends the pause of a call. Returns whether it was paused.
    pub(super) fn end(&mut self, call: CallId) -> bool {
        self.held.remove(&call)
    }

    /// Removes a call that has ended.
    pub(super) fn remove(&mut self, call: CallId) {
        self.held.remove(&call);
        self.recorded.remove(&call);
    }

    pub(super) fn facts(&self) -> impl Iterator<Item = Fact> {
        let recorded = self.recorded.iter().map(|(call, paused)| (*call, *paused));
        recorded.map(|(call, (failures, until_us))| Fact::Paused { call, failures, until_us })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{
        Action, Fact, Graph, Member, Outcome,
        graph_tests::{assigned_to, graph_of, new_call},
    };
    use crate::{failure::Failure, options::Options};

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
        for seconds in [1, 2, 3, 3] {
            assert_eq!(assigned_to(&mut graph), [(0, Member::HERE)]);
            assert_eq!(fail(&mut graph), Some((seconds, None)));
            graph.wake(0);
        }
        assert_eq!(assigned_to(&mut graph), [(0, Member::HERE)]);
        assert_eq!(fail(&mut graph), None, "it has no further try");
        graph.wake(0);
        assert_eq!(assigned_to(&mut graph), []);
    }

    #[test]
    fn pause_continues_when_the_program_restarts() {
        let mut before = graph();
        call(&mut before);
        assert_eq!(assigned_to(&mut before), [(0, Member::HERE)]);
        assert_eq!(fail(&mut before), Some((1, None)));
        before.journalled(Fact::Paused { call: 0, failures: 1, until_us: 77 });
        let mut graph = graph();
        before.recorded_so_far().into_iter().for_each(|fact| graph.recall(fact));
        call(&mut graph);
        assert_eq!(wake(&mut graph), Some((1, Some(77))));
        graph.wake(0);
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
        graph.wake(0);
        assert_eq!((assigned_to(&mut graph), graph.unfinished()), (vec![], 0));
    }
}
