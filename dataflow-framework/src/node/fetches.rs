//! The versions that are being fetched by this node, and the calls that wait for them.
//!
//! A version is requested from one node after another that has it. The reply contains the version, or the name of an
//! object if it is large. The object is then fetched from all nodes that have the version: those that have fetched it
//! themselves offer it, too, so the transfer continues if the node that has replied is lost. Messages may be lost: a
//! request without a reply is repeated, and then sent to the next node.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use taskwork::{
    NodeId,
    companion::{FetchError, ObjectName},
};
use tokio::sync::oneshot;

use super::answers::Answer;
use crate::{
    core::{Assignment, Mark},
    ids::{CallId, VersionId},
    value::Value,
};

/// The maximum number of versions that are fetched at a time.
const FETCHES_MAX: usize = 8;

/// The time after which a version is requested again, in milliseconds.
const REPEAT_MS: u64 = 500;

/// The number of times that a version is requested again before the next node is asked.
const REPEATS_MAX: u32 = 6;

/// A version that is not here, and the nodes that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Missing {
    pub(crate) version: VersionId,
    pub(crate) mark: Mark,
    pub(crate) from: Vec<NodeId>,
    /// Its encoded value, if the sender has it and it is [small](super::small).
    pub(crate) content: Option<Vec<u8>>,
}

pub(crate) struct Arrived {
    pub(crate) version: VersionId,
    pub(crate) mark: Mark,
    pub(crate) value: Value,
    /// Its size, in bytes.
    pub(crate) bytes: u64,
    pub(crate) awaited: Awaited,
}

/// The purposes for which a version was fetched.
#[derive(Default)]
pub(crate) struct Awaited {
    /// Whether a waiting call changes it in place.
    pub(crate) is_taken: bool,
    /// Whether it was also requested without a call (`add_alone`).
    pub(crate) is_alone: bool,
    /// The calls that miss no other input.
    pub(crate) ready: Vec<Assignment>,
}

/// A version that could not be fetched.
pub(crate) struct GivenUp {
    pub(crate) version: VersionId,
    /// The calls that waited for it.
    pub(crate) calls: Vec<Assignment>,
    /// The nodes that have it, whether they were asked or not.
    pub(crate) tried: Vec<NodeId>,
    /// The local error that prevents its reception, if any.
    pub(crate) reason: Option<String>,
}

/// The versions that are being fetched by this node, and the calls that wait for them.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    under_way: BTreeMap<VersionId, Fetch>,
    /// The calls that wait, and the number of versions that each one is missing.
    calls: BTreeMap<CallId, (Assignment, usize)>,
}

#[derive(Debug)]
struct Fetch {
    mark: Mark,
    /// The nodes that have it, the next one first.
    from: VecDeque<NodeId>,
    /// The nodes that did not send it.
    tried: Vec<NodeId>,
    /// The local error that prevents its reception, if any.
    failed: Option<String>,
    /// The time of the last request to the first node, or of its reply that it prepares the version.
    asked_ms: Option<u64>,
    repeats: u32,
    transfer: Option<Transfer>,
    calls: Vec<CallId>,
    /// Whether it was also requested without a call (`add_alone`).
    is_alone: bool,
}

/// The transfer of an object that contains a version. Dropping this stops the transfer.
#[derive(Debug)]
struct Transfer {
    name: ObjectName,
    /// The last node that has replied with this name.
    offered_by: NodeId,
    _stop: oneshot::Sender<()>,
}

/// The consequence of a reply.
#[must_use]
pub(crate) enum Next {
    Nothing,
    Arrived(Arrived),
    /// Fetch the object, and stop when the receiver is notified.
    Fetch(ObjectName, oneshot::Receiver<()>),
}

impl Fetches {
    /// Adds a call that waits for versions.
    pub(crate) fn add(&mut self, assignment: Assignment, missing: Vec<Missing>) {
        let call = assignment.call;
        self.calls.insert(call, (assignment, missing.len()));
        for missing in missing {
            self.fetch(missing).calls.push(call);
        }
    }

    /// Adds a version for which no call waits.
    pub(crate) fn add_alone(&mut self, missing: Missing) {
        self.fetch(missing).is_alone = true;
    }

    fn fetch(&mut self, missing: Missing) -> &mut Fetch {
        let Missing { version, mark, from, .. } = missing;
        let fetch = self.under_way.entry(version).or_insert_with(|| Fetch {
            mark,
            from: VecDeque::new(),
            tried: Vec::new(),
            failed: None,
            asked_ms: None,
            repeats: 0,
            transfer: None,
            calls: Vec::new(),
            is_alone: false,
        });
        for peer in from {
            if !fetch.from.contains(&peer) {
                fetch.from.push_back(peer);
            }
        }
        fetch
    }

    /// Removes the waiting calls and returns them. Their versions still arrive.
    pub(crate) fn take_back(&mut self) -> Vec<Assignment> {
        for fetch in self.under_way.values_mut() {
            fetch.calls.clear();
        }
        std::mem::take(&mut self.calls).into_values().map(|(assignment, _)| assignment).collect()
    }

    /// Removes a waiting call and returns it. Its versions still arrive.
    pub(crate) fn take(&mut self, call: CallId) -> Option<Assignment> {
        let (assignment, _) = self.calls.remove(&call)?;
        for fetch in self.under_way.values_mut() {
            fetch.calls.retain(|other| *other != call);
        }
        Some(assignment)
    }

    /// Returns the requests to send now; and the versions that could not be fetched, with the calls that waited
    /// for them.
    pub(crate) fn asks(&mut self, now_ms: u64) -> (Vec<(NodeId, VersionId)>, Vec<GivenUp>) {
        let (mut asks, mut given_up) = (Vec::new(), Vec::new());
        for (version, fetch) in self.under_way.iter_mut().take(FETCHES_MAX) {
            let is_due = fetch.failed.is_none() && fetch.is_request_due(now_ms);
            if is_due {
                fetch.request(now_ms);
            }
            match fetch.from.front().filter(|_| fetch.failed.is_none()) {
                Some(peer) if is_due => asks.push((*peer, *version)),
                Some(_) => {}
                None => given_up.push(*version),
            }
        }
        let given_up = given_up.into_iter().map(|version| self.give_up(version)).collect();
        (asks, given_up)
    }

    /// Cancels the fetch of a version and returns the calls that need it.
    fn give_up(&mut self, version: VersionId) -> GivenUp {
        let fetch = self.under_way.remove(&version);
        let of = |fetch: Fetch| {
            // A version that cannot be received here may be recomputed elsewhere.
            let tried = fetch.tried.into_iter().chain(fetch.from).collect();
            (fetch.calls, tried, fetch.failed)
        };
        let (calls, tried, reason) = fetch.map(of).unwrap_or_default();
        let mut given_up = Vec::new();
        for call in &calls {
            given_up.extend(self.calls.remove(call).map(|(assignment, _)| assignment));
            for fetch in self.under_way.values_mut() {
                fetch.calls.retain(|other| other != call);
            }
        }
        GivenUp { version, calls: given_up, tried, reason }
    }

    /// Returns the nodes from which a version can be fetched.
    pub(crate) fn owners(&self, version: VersionId) -> Vec<NodeId> {
        self.under_way.get(&version).map_or_else(Vec::new, |fetch| fetch.from.iter().copied().collect())
    }

    /// Handles the reply of a node to a request.
    pub(crate) fn on_answer(
        &mut self,
        from: NodeId,
        version: VersionId,
        answer: Answer,
        now_ms: u64,
    ) -> Next {
        let fetch = self.under_way.get_mut(&version).filter(|fetch| fetch.from.front() == Some(&from));
        let Some(fetch) = fetch else { return Next::Nothing };
        match answer {
            Answer::Here(content) => {
                let bytes = content.len() as u64;
                return self.complete(version, Value::from_encoded(content), bytes);
            }
            Answer::Object(name) => {
                fetch.repeats = 0;
                match &mut fetch.transfer {
                    Some(transfer) if transfer.name == name => transfer.offered_by = from,
                    transfer => {
                        let (stop, stopped) = oneshot::channel();
                        *transfer = Some(Transfer { name, offered_by: from, _stop: stop });
                        return Next::Fetch(name, stopped);
                    }
                }
            }
            Answer::Absent => fetch.turn_away(),
            // It is asked again after the usual time.
            Answer::Prepares => (fetch.asked_ms, fetch.repeats) = (Some(now_ms), 0),
        }
        Next::Nothing
    }

    /// Handles the end of a transfer.
    pub(crate) fn on_fetched(
        &mut self,
        version: VersionId,
        name: ObjectName,
        fetched: Result<Value, FetchError>,
    ) -> Next {
        let Some(fetch) = self.under_way.get_mut(&version) else { return Next::Nothing };
        let Some(transfer) = fetch.transfer.take_if(|transfer| transfer.name == name) else {
            return Next::Nothing;
        };
        match fetched {
            Ok(value) => return self.complete(version, value, name.bytes()),
            Err(FetchError::Sink(error)) => fetch.failed = Some(error.to_string()),
            // The node serves others, and is asked again.
            Err(FetchError::Busy) => {}
            Err(_) if fetch.from.front() == Some(&transfer.offered_by) => fetch.turn_away(),
            // The next node was asked, but has not replied yet.
            Err(_) => {}
        }
        Next::Nothing
    }

    fn complete(&mut self, version: VersionId, value: Value, bytes: u64) -> Next {
        let Some(fetch) = self.under_way.remove(&version) else { return Next::Nothing };
        let mark = fetch.mark;
        Next::Arrived(Arrived { version, mark, value, bytes, awaited: self.end_fetch(version, fetch) })
    }

    /// Records that a version came with an assignment, and returns the calls that waited for it. The nodes that were
    /// asked for it may be lost by now, and the fetch would fail. Returns `None` if it was not being fetched.
    pub(crate) fn on_arrived(&mut self, version: VersionId) -> Option<Awaited> {
        let fetch = self.under_way.remove(&version)?;
        Some(self.end_fetch(version, fetch))
    }

    fn end_fetch(&mut self, version: VersionId, fetch: Fetch) -> Awaited {
        let Fetch { calls, is_alone, .. } = fetch;
        let (mut is_taken, mut ready) = (false, Vec::new());
        for call in calls {
            let Some((assignment, missing)) = self.calls.get_mut(&call) else { continue };
            is_taken |= assignment.takes(version);
            *missing -= 1;
            if *missing == 0 {
                ready.extend(self.calls.remove(&call).map(|(assignment, _)| assignment));
            }
        }
        Awaited { is_taken, is_alone, ready }
    }

    pub(crate) fn on_lost(&mut self, peer: NodeId) {
        for fetch in self.under_way.values_mut() {
            if fetch.from.front() == Some(&peer) {
                fetch.turn_away();
            }
            fetch.from.retain(|other| *other != peer);
        }
    }
}

impl Fetch {
    /// Returns whether a request to the first node is due. None is sent while the object that it offers is being fetched.
    fn is_request_due(&self, now_ms: u64) -> bool {
        let is_offered =
            self.transfer.as_ref().is_some_and(|transfer| self.from.front() == Some(&transfer.offered_by));
        !is_offered && self.asked_ms.is_none_or(|asked_ms| now_ms >= asked_ms + REPEAT_MS)
    }

    /// Records a request to the first node, and switches to the next node if the first one does not reply.
    fn request(&mut self, now_ms: u64) {
        match self.asked_ms {
            Some(_) if self.repeats == REPEATS_MAX => self.turn_away(),
            Some(_) => self.repeats += 1,
            None => {}
        }
        self.asked_ms = Some(now_ms);
    }

    /// Switches to the next node. A transfer continues: other nodes may offer the same object.
    fn turn_away(&mut self) {
        self.tried.extend(self.from.pop_front());
        (self.asked_ms, self.repeats) = (None, 0);
    }
}
