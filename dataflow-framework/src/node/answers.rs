//! Replies to other nodes that request versions of this node.
//!
//! A version that fits into a message is sent in the reply. A larger one is offered as an object, and the reply is its
//! name. A very large one is not encoded while the requester waits for the reply: a separate thread encodes it to a
//! file. The first reply is then [`Answer::Prepares`], and another one follows when the thread has finished.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    thread,
};

use serde::{Deserialize, Serialize};
use taskwork::{
    NodeId,
    companion::{ObjectContent, ObjectName},
};

use super::{executor::Executor, messages::News};
use crate::{failure::Failed, ids::VersionId, spilled::LARGE_BYTES_MIN, value::Value};

/// The maximum size of a version in a message, in bytes.
const MESSAGE_BYTES_MAX: u64 = 256 << 10;

/// The reply to a request for a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The encoded version.
    Here(Vec<u8>),
    /// It is offered as an object.
    Object(ObjectName),
    /// The version is not here.
    Absent,
    /// It is large and still being encoded.
    Prepares,
}

/// The versions that are being encoded for other nodes.
#[derive(Debug, Default)]
pub(super) struct Preparing {
    requesters: BTreeMap<VersionId, BTreeSet<NodeId>>,
    /// The replies to send now.
    due: Vec<(NodeId, VersionId)>,
}

/// A version in the store, as the content of an object.
struct Stored {
    executor: Weak<Executor>,
    version: VersionId,
    name: ObjectName,
}

impl ObjectContent for Stored {
    fn part(&self, offset: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        let executor = self.executor.upgrade().ok_or(io::ErrorKind::NotFound)?;
        let value = executor.store.get(self.version).ok_or(io::ErrorKind::NotFound)?;
        // The value may have been encoded again since the offer, with another content.
        let part = value.find_name(false).and_then(|name| {
            let is_same = name == self.name;
            if is_same { value.part(offset, bytes_max).map(|(_, part)| Some(part)) } else { Ok(None) }
        });
        match executor.check_readable(self.version, &value, part) {
            Ok(part) => part.ok_or_else(|| io::ErrorKind::NotFound.into()),
            Err(failed) => Err(io::Error::other(failed.reason)),
        }
    }
}

impl Executor {
    /// Returns the reply to a node that requests a version.
    pub(crate) fn answer(self: &Arc<Self>, to: NodeId, version: VersionId) -> Answer {
        let (Some(value), Some(bytes)) = (self.store.get(version), self.store.size(version)) else {
            return Answer::Absent;
        };
        if bytes <= MESSAGE_BYTES_MAX {
            let content = value.part(0, usize::MAX);
            let content = self.check_readable(version, &value, content);
            return content.map_or(Answer::Absent, |(_, content)| Answer::Here(content));
        }
        let is_large = bytes >= LARGE_BYTES_MIN;
        if is_large && value.known_name().is_none() {
            return self.prepare(to, version, value);
        }
        let name = value.find_name(is_large);
        match self.check_readable(version, &value, name) {
            Ok(name) => {
                self.offer(version, name);
                Answer::Object(name)
            }
            Err(_) => Answer::Absent,
        }
    }

    /// Returns the replies about versions that have been prepared since the last call.
    pub(crate) fn due_answers(self: &Arc<Self>) -> Vec<(NodeId, VersionId, Answer)> {
        let due = std::mem::take(&mut self.preparing().due);
        due.into_iter().map(|(to, version)| (to, version, self.answer(to, version))).collect()
    }

    /// Offers a version to other nodes as long as it is in the store.
    pub(super) fn offer(self: &Arc<Self>, version: VersionId, name: ObjectName) {
        let Some(network) = self.network() else { return };
        self.store.offer(version, name, || {
            let content = Stored { executor: Arc::downgrade(self), version, name };
            network.objects.offer_content(name, content)
        });
    }

    /// Updates the accounting after a version was encoded, or removes the version if that has failed.
    fn check_readable<T>(
        &self,
        version: VersionId,
        value: &Value,
        read: Result<T, Failed>,
    ) -> Result<T, Failed> {
        if value.is_twice() {
            self.store.on_encoded(version);
        }
        read.inspect_err(|failed| self.on_corrupt(version, &failed.reason))
    }

    /// Encodes a large version in the background.
    fn prepare(self: &Arc<Self>, to: NodeId, version: VersionId, value: Value) -> Answer {
        let mut preparing = self.preparing();
        if let Some(requesters) = preparing.requesters.get_mut(&version) {
            requesters.insert(to);
            return Answer::Prepares;
        }
        preparing.requesters.insert(version, BTreeSet::from([to]));
        drop(preparing);
        let executor = Arc::clone(self);
        let prepare = move || {
            let named = catch_unwind(AssertUnwindSafe(|| value.find_name(true)));
            // The requesters would wait without a limit for the encoding of a value that panics.
            let panicked = |_| Err(Failed::of_runtime("its encoding has panicked"));
            if let Err(failed) = named.unwrap_or_else(panicked) {
                executor.on_corrupt(version, &failed.reason);
            }
            executor.on_prepared(version);
        };
        match thread::Builder::new().name("encoder".to_owned()).spawn(prepare) {
            Ok(_) => Answer::Prepares,
            Err(error) => {
                tracing::warn!(%error, "cannot start the thread that encodes data for another node");
                self.preparing().requesters.remove(&version);
                Answer::Absent
            }
        }
    }

    fn on_prepared(&self, version: VersionId) {
        let mut preparing = self.preparing();
        let requesters = preparing.requesters.remove(&version).unwrap_or_default();
        preparing.due.extend(requesters.into_iter().map(|to| (to, version)));
        drop(preparing);
        if let Some(network) = self.network() {
            network.wake.notify_one();
        }
    }

    fn on_corrupt(&self, version: VersionId, reason: &str) {
        let reason = self.here(reason);
        tracing::warn!(call = version.call, slot = version.slot, reason, "a stored version is corrupt");
        self.forget_rest(version, &reason);
        drop(self.forget(version));
        if let Some(report) = self.report() {
            report.tell(News::Damaged { version, reason });
        }
    }

    /// Removes the versions that are useless without a corrupt one.
    pub(super) fn forget_rest(&self, version: VersionId, reason: &str) {
        for other in self.rest_of_output(version) {
            drop(self.forget(other));
            if let Some(report) = self.report() {
                report.tell(News::Damaged { version: other, reason: reason.to_owned() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        thread,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::{
        core::Mark,
        encoding::encode,
        node::store::Store,
        value::{Datum, Value},
    };

    const VERSION: VersionId = VersionId { call: 3, slot: 1 };
    const REQUESTER: NodeId = NodeId(7);
    const SOON: Duration = Duration::from_secs(60);

    /// Creates a node with a version.
    fn with(value: Value) -> Arc<Executor> {
        let nesting = &crate::program::CallsOfTasks;
        let executor = Arc::new(Executor::new(Arc::default(), Store::default(), None, true, nesting));
        let bytes = value.size();
        executor.put(VERSION, value, Mark::default(), bytes);
        executor
    }

    fn object_name(executor: &Arc<Executor>) -> ObjectName {
        let answer = executor.answer(REQUESTER, VERSION);
        let Answer::Object(name) = answer else { panic!("it is offered as an object: {answer:?}") };
        name
    }

    fn stored(executor: &Arc<Executor>, name: ObjectName) -> Stored {
        Stored { executor: Arc::downgrade(executor), version: VERSION, name }
    }

    fn list(bytes: u64) -> Vec<u8> {
        vec![7; usize::try_from(bytes).expect("it fits")]
    }

    /// Returns a value with several possible encodings, and one of them.
    fn unordered() -> (HashSet<u64>, Vec<u8>) {
        let set: HashSet<u64> = (0..100_000).collect();
        let encoded = encode(&set).expect("it can be");
        (set, encoded)
    }

    fn read<T: Datum>(executor: &Executor) -> Arc<T> {
        executor.get(VERSION).expect("it is here").read().expect("it has this type")
    }

    fn due_answers(executor: &Arc<Executor>, number: usize) -> Vec<(NodeId, VersionId, Answer)> {
        let deadline = Instant::now() + SOON;
        let mut due = Vec::new();
        while due.len() < number {
            assert!(Instant::now() < deadline, "{due:?}");
            thread::yield_now();
            due.extend(executor.due_answers());
        }
        due
    }

    #[test]
    fn version_is_sent_in_the_reply_up_to_its_limit_and_as_object_above() {
        let fits = list(MESSAGE_BYTES_MAX - 5);
        let executor = with(Value::new(fits.clone()));
        assert_eq!(executor.store.size(VERSION), Some(MESSAGE_BYTES_MAX));
        assert_eq!(executor.answer(REQUESTER, VERSION), Answer::Here(encode(&fits).expect("it can be")));
        let executor = with(Value::new(list(MESSAGE_BYTES_MAX - 4)));
        let name = object_name(&executor);
        let encoded = encode(&list(MESSAGE_BYTES_MAX - 4)).expect("it can be");
        assert_eq!(name.bytes(), MESSAGE_BYTES_MAX + 1);
        let content = stored(&executor, name);
        assert_eq!(content.part(0, usize::MAX).expect("it is here"), encoded);
        assert_eq!(content.part(MESSAGE_BYTES_MAX, 9).expect("it is here"), [7]);
        assert!(content.part(MESSAGE_BYTES_MAX + 1, 9).expect("it is here").is_empty());
        drop(executor.forget(VERSION));
        assert_eq!(executor.answer(REQUESTER, VERSION), Answer::Absent);
        content.part(0, 1).expect_err("it was forgotten");
    }

    #[test]
    fn content_is_not_served_under_the_name_of_another_encoding() {
        let (set, encoded) = unordered();
        let executor = with(Value::from_encoded(encoded.clone()));
        let first = object_name(&executor);
        assert_eq!(stored(&executor, first).part(9, 9).expect("it is here"), encoded[9..18]);
        // The value replaces its encoding, and is encoded in its own order later.
        assert_eq!(*read::<HashSet<u64>>(&executor), set);
        stored(&executor, first).part(9, 9).expect_err("there is another encoding");
        let second = object_name(&executor);
        assert_ne!(second, first);
        stored(&executor, second).part(9, 9).expect("it is here");
    }

    #[test]
    fn ordered_value_keeps_its_name_when_it_is_encoded_again() {
        let encoded = encode(&list(MESSAGE_BYTES_MAX)).expect("it can be");
        let executor = with(Value::from_encoded(encoded.clone()));
        let name = object_name(&executor);
        read::<Vec<u8>>(&executor);
        assert_eq!(stored(&executor, name).part(0, usize::MAX).expect("it is here"), encoded);
        assert_eq!(object_name(&executor), name);
    }

    #[test]
    fn requesters_of_large_version_get_its_name_once_it_is_encoded() {
        let executor = with(Value::new(list(LARGE_BYTES_MIN)));
        let other = NodeId(8);
        assert_eq!(executor.answer(REQUESTER, VERSION), Answer::Prepares);
        // It may be encoded already.
        let is_second_waiting = executor.answer(other, VERSION) == Answer::Prepares;
        let due = due_answers(&executor, 1 + usize::from(is_second_waiting));
        let name = object_name(&executor);
        assert_eq!(due[0], (REQUESTER, VERSION, Answer::Object(name)));
        assert!(due[1..].iter().all(|answer| *answer == (other, VERSION, Answer::Object(name))));
        assert!(
            name.bytes() > LARGE_BYTES_MIN
                && executor.get(VERSION).expect("it is here").known_name() == Some(name)
        );
        assert_eq!(executor.answer(other, VERSION), Answer::Object(name), "it is known now");
    }

    /// Panics when it is encoded, but not when its size is computed.
    #[derive(Deserialize)]
    struct Panics(Vec<u8>);

    impl Serialize for Panics {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            assert_ne!(thread::current().name(), Some("encoder"), "it cannot be encoded");
            self.0.serialize(serializer)
        }
    }

    #[test]
    fn large_version_whose_encoding_panics_is_absent() {
        let executor = with(Value::new(Panics(list(LARGE_BYTES_MIN))));
        assert_eq!(executor.answer(REQUESTER, VERSION), Answer::Prepares);
        assert_eq!(due_answers(&executor, 1), [(REQUESTER, VERSION, Answer::Absent)]);
    }
}
