//! Explanations for users: the calls of the graph by task and state, and the reason why a call waits.
//!
//! Nothing is stored for this while calls are made and complete, except for a few [counts](super::observed): a
//! query searches the graph, in a time proportional to the number of known calls.

use dataflow_view::{Explanation, Input, Place, State};

use super::{
    call::{Call, CallState},
    data::Data,
    failures::Failures,
    members::Member,
    queues::Queues,
    version::State as VersionState,
};
use crate::ids::{CallId, NESTED_BIT, VersionId};

/// The maximum number of missing inputs that are named.
const MISSING_MAX: usize = 20;

/// The parts of the graph by which it explains a call.
pub(super) struct Explaining<'a> {
    pub(super) data: &'a Data,
    pub(super) queues: &'a Queues,
    /// The least number that the next call may have.
    pub(super) next: CallId,
    pub(super) failures: &'a Failures,
}

impl Explaining<'_> {
    /// Returns the reason why a call waits, or its outcome. `name` names members.
    pub(super) fn explain(&self, id: CallId, name: impl Fn(Member) -> String) -> Explanation {
        let known = self.data.calls.get(&id);
        let place = match known {
            _ if (self.next..NESTED_BIT).contains(&id) => Place::NotMade { next: self.next },
            Some(call) => self.place(id, call, name),
            None => match self.reason(id) {
                Some(reason) => Place::Failed { reason },
                None if self.data.journal.history().has_ended(id) => Place::Ended,
                None => Place::Over,
            },
        };
        Explanation {
            call: id,
            task: known.map(|call| call.work.name().to_owned()),
            place,
            failures: known.map_or(0, |call| call.failures),
            losses: known.map_or(0, |call| call.deaths),
        }
    }

    pub(super) fn place(&self, id: CallId, call: &Call, name: impl Fn(Member) -> String) -> Place {
        match call.state {
            CallState::Inputs(_) if self.queues.pauses.holds(id) => Place::Paused,
            CallState::Inputs(_) => self.waits(call),
            CallState::Worker => {
                let crew = self.data.members.crew();
                Place::Ready {
                    before: self.queues.before(id) as u64,
                    nodes: crew.members,
                    with_room: crew.with_room,
                    limit: self.data.members.reached_limit(call.demand()).map(str::to_owned),
                    lacks: self.data.lacks(id).iter().map(ToString::to_string).collect(),
                }
            }
            CallState::Runs(member) => Place::Runs { node: name(member) },
            CallState::Recorded => Place::Recorded,
            CallState::Done => match self.reason(id) {
                Some(reason) => Place::Failed { reason },
                None => Place::Ended,
            },
        }
    }

    fn waits(&self, call: &Call) -> Place {
        let missing = call.reads().filter(|input| !self.data.versions[input].is_present());
        let mut missing: Vec<_> = missing.collect();
        missing.sort_unstable();
        missing.dedup();
        let more = missing.len().saturating_sub(MISSING_MAX) as u64;
        let missing = missing.into_iter().take(MISSING_MAX).map(|input| self.missing(input));
        Place::Waits { missing: missing.collect(), more }
    }

    fn missing(&self, VersionId { call, slot }: VersionId) -> Input {
        let writer = self.data.calls.get(&call);
        Input {
            call,
            slot,
            task: writer.map(|writer| writer.work.name().to_owned()),
            state: writer.map_or(State::Ended, |writer| writer.state.shown()),
            is_made_again: self.data.journal.history().has_ended(call),
        }
    }

    pub(super) fn reason(&self, id: CallId) -> Option<String> {
        let failed = self.failures.of_call(id).map(|failure| failure.reason().to_owned());
        let failed =
            failed.or_else(|| self.data.journal.history().failure(id).map(|reason| reason.text.clone()));
        failed.or_else(|| {
            // The failure is stored with its output.
            let writes = self.data.calls.get(&id).map_or(1, |call| call.writes);
            let written = (0..writes).map(|slot| VersionId { call: id, slot });
            let mut states =
                written.filter_map(|version| self.data.versions.get(&version)).map(|known| &known.state);
            states.find_map(|state| match state {
                VersionState::Failed(failure) => Some(failure.to_string()),
                _ => None,
            })
        })
    }
}

impl CallState {
    pub(super) fn shown(self) -> State {
        match self {
            Self::Inputs(_) => State::Waiting,
            Self::Worker => State::Ready,
            Self::Runs(_) | Self::Recorded => State::Running,
            Self::Done => State::Ended,
        }
    }
}
