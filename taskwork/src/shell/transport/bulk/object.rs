//! A byte object: immutable bytes, named by their hash. An incomplete object is served as far as it was received, so
//! that a chain of nodes takes little longer than a single transfer.

use std::{collections::BTreeSet, io, sync::Arc};

use blake3::Hasher;
use bytes::Bytes;
use tokio::sync::watch;

use super::sink::Sink;
use crate::{id::NodeId, wire::bulk::ObjectName};

/// A byte object in memory. Clones share the bytes.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    name: ObjectName,
    content: Arc<watch::Sender<Content>>,
    /// The members that have fetched it completely from this node.
    takers: Arc<watch::Sender<BTreeSet<NodeId>>>,
}

/// The content received so far.
#[derive(Debug, Default)]
struct Content {
    pieces: Vec<Bytes>,
    stage: Stage,
}

/// The completeness of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Stage {
    /// More data will follow.
    #[default]
    Coming,
    Complete,
    /// No more data will follow.
    Failed,
}

/// The writer of an object. If it is dropped before the content is complete, fetchers of the object are cut off
/// and continue at other owners.
#[derive(Debug)]
pub(crate) struct Filling {
    object: Object,
}

/// Reads an object from an offset, as data arrives.
pub(super) struct Reading {
    content: watch::Receiver<Content>,
    /// The number of pieces that were read or skipped.
    pieces: usize,
    /// The number of bytes after these pieces that were read or will be skipped.
    passed: u64,
}

/// The rest of an object will not arrive.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rest of the object will not arrive here")]
pub(super) struct Never;

/// Computes the name of a content from its pieces.
#[derive(Clone)]
pub(super) struct Naming {
    hasher: Hasher,
    bytes: u64,
}

impl Object {
    /// Creates an object from the pieces of its content. Every byte is read once.
    pub(crate) fn new(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let pieces: Vec<Bytes> = pieces.into_iter().collect();
        Self::with(Self::name_of(&pieces), pieces, Stage::Complete)
    }

    /// Returns the name of a content, given in pieces.
    pub(crate) fn name_of<P: AsRef<[u8]>>(pieces: impl IntoIterator<Item = P>) -> ObjectName {
        let mut naming = Naming::new();
        for piece in pieces {
            naming.add(piece.as_ref());
        }
        naming.name()
    }

    /// Creates an object that the caller fills. The content is not verified here, but by each fetcher.
    pub(crate) fn to_be_filled(name: ObjectName) -> Filling {
        Filling { object: Self::with(name, Vec::new(), Stage::Coming) }
    }

    fn with(name: ObjectName, pieces: Vec<Bytes>, stage: Stage) -> Self {
        let content = Arc::new(watch::Sender::new(Content { pieces, stage }));
        Self { name, content, takers: Arc::default() }
    }

    /// Creates an object with a wrong name.
    #[cfg(test)]
    pub(super) fn falsely_named(name: ObjectName, content: Bytes) -> Self {
        Self::with(name, vec![content], Stage::Complete)
    }

    pub(crate) fn name(&self) -> ObjectName {
        self.name
    }

    pub(super) fn stage(&self) -> Stage {
        self.content.borrow().stage
    }

    /// Returns whether both are clones of the same object.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.content, &other.content)
    }

    /// Returns the pieces received so far, without copying.
    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        self.content.borrow().pieces.clone()
    }

    /// Records that a member has fetched the object completely from this node.
    pub(super) fn add_taker(&self, member: NodeId) {
        self.takers.send_if_modified(|takers| takers.insert(member));
    }

    /// Waits until this number of members have fetched the object from this node.
    pub(crate) async fn taken_by_many(&self, members: usize) {
        let mut takers = self.takers.subscribe();
        // Cannot fail: `self` keeps the sender.
        let _ = takers.wait_for(|takers| takers.len() >= members).await;
    }

    pub(super) fn read_from(&self, offset: u64) -> Reading {
        Reading { content: self.content.subscribe(), pieces: 0, passed: offset }
    }
}

impl Filling {
    /// Returns the object, which can already be offered.
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn add(&self, bytes: Bytes) {
        self.object.content.send_modify(|content| content.pieces.push(bytes));
    }

    /// Marks the content as complete. The caller has verified it.
    pub(crate) fn complete(self) -> Object {
        self.object.content.send_modify(|content| content.stage = Stage::Complete);
        self.object.clone()
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.object.content.send_if_modified(|content| {
            let cut_off = content.stage == Stage::Coming;
            if cut_off {
                content.stage = Stage::Failed;
            }
            cut_off
        });
    }
}

/// Forwards data before it can be verified: each fetcher verifies the whole object.
impl Sink for Filling {
    async fn take(&mut self, bytes: Bytes) -> io::Result<()> {
        self.add(bytes);
        Ok(())
    }

    /// Fails: other nodes may have received the data already.
    async fn clear(&mut self) -> io::Result<()> {
        Err(io::Error::other("the content does not match its name, and was forwarded already"))
    }
}

impl Reading {
    /// Waits for data, and returns at most `bytes_max` bytes without copying; `None` at the end.
    pub(super) async fn next(&mut self, bytes_max: usize) -> Result<Option<Bytes>, Never> {
        loop {
            let known = self.pieces;
            // The receiver keeps only the latest value, and fails after the last clone of the object.
            let arrived = |content: &Content| content.pieces.len() > known || content.stage != Stage::Coming;
            let content = self.content.wait_for(arrived).await.map_err(|_| Never)?;
            let Some(piece) = content.pieces.get(self.pieces) else {
                return if content.stage == Stage::Complete { Ok(None) } else { Err(Never) };
            };
            let length = piece.len() as u64;
            if self.passed >= length {
                (self.pieces, self.passed) = (self.pieces + 1, self.passed - length);
                continue;
            }
            let start = usize::try_from(self.passed).unwrap_or(usize::MAX);
            let slice = piece.slice(start..piece.len().min(start.saturating_add(bytes_max)));
            self.passed += slice.len() as u64;
            return Ok(Some(slice));
        }
    }
}

impl Naming {
    pub(super) fn new() -> Self {
        Self { hasher: Hasher::new(), bytes: 0 }
    }

    pub(super) fn add(&mut self, piece: &[u8]) {
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
    }

    /// Returns the name of the content so far.
    pub(super) fn name(&self) -> ObjectName {
        ObjectName { hash: *self.hasher.finalize().as_bytes(), bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Object {
        Object::new([&b"abc"[..], b"", b"defgh"].map(Bytes::from_static))
    }

    async fn rest(mut reading: Reading) -> Result<Vec<u8>, Never> {
        let mut read = Vec::new();
        while let Some(slice) = reading.next(2).await? {
            assert!((1..=2).contains(&slice.len()), "{slice:?}");
            read.extend_from_slice(&slice);
        }
        Ok(read)
    }

    #[test]
    fn object_name_does_not_depend_on_the_pieces() {
        let whole = Object::new([Bytes::from_static(b"abcdefgh")]);
        assert_eq!(whole.name(), parts().name());
        assert_eq!(whole.pieces().concat(), parts().pieces().concat());
        assert_ne!(whole.name(), Object::new([Bytes::from_static(b"abcdefgi")]).name());
        let empty = Object::new([]).name();
        assert_eq!(empty.to_string(), "0-af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
    }

    #[tokio::test]
    async fn object_is_readable_from_any_offset() {
        let object = parts();
        for offset in 0..=9 {
            let expected = b"abcdefgh".get(usize::try_from(offset).unwrap()..).unwrap_or_default();
            assert_eq!(rest(object.read_from(offset)).await.unwrap(), expected, "from {offset}");
        }
    }

    #[tokio::test]
    async fn incomplete_object_is_read_as_data_arrives() {
        let filling = Object::to_be_filled(parts().name());
        let mut reading = filling.object().read_from(2);
        filling.add(Bytes::from_static(b"a"));
        filling.add(Bytes::from_static(b"bc"));
        assert_eq!(reading.next(9).await, Ok(Some(Bytes::from_static(b"c"))));
        let next = tokio::spawn(async move { (reading.next(9).await, reading) });
        tokio::task::yield_now().await;
        filling.add(Bytes::from_static(b"defgh"));
        let (next, mut reading) = next.await.unwrap();
        assert_eq!(next, Ok(Some(Bytes::from_static(b"defgh"))));
        let object = filling.complete();
        assert_eq!(reading.next(9).await, Ok(None));
        assert_eq!(rest(object.read_from(0)).await.unwrap(), b"abcdefgh");
    }

    #[tokio::test]
    async fn readers_of_an_abandoned_object_get_an_error() {
        let filling = Object::to_be_filled(parts().name());
        filling.add(Bytes::from_static(b"a"));
        let readings = [filling.object().read_from(0), filling.object().read_from(5)];
        drop(filling);
        for reading in readings {
            assert_eq!(rest(reading).await, Err(Never));
        }
    }
}
