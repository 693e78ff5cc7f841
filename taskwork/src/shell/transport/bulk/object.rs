//! A byte object: immutable bytes, named by their hash. An incomplete object is served as far as it was received, so
//! that a chain of nodes takes little longer than a single transfer.

use std::{collections::BTreeSet, fmt, io, sync::Arc};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::{Blocking, ObjectContent, ObjectHasher, sink::Sink};
use crate::{id::NodeId, wire::bulk::ObjectName};

/// A byte object. Clones share the bytes.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    name: ObjectName,
    content: Content,
    /// The members that have fetched it completely from this node.
    takers: Arc<watch::Sender<BTreeSet<NodeId>>>,
}

#[derive(Clone)]
enum Content {
    Memory(Arc<watch::Sender<Received>>),
    /// It is read in parts while it is served.
    Elsewhere(Arc<dyn ObjectContent>),
}

/// The content received so far.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pieces: Vec<Bytes>,
    stage: Stage,
}

/// The completeness of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Stage {
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
    content: Arc<watch::Sender<Received>>,
}

/// Reads an object from an offset.
pub(crate) enum ObjectReader {
    /// As data arrives.
    Memory {
        content: watch::Receiver<Received>,
        /// The number of pieces that were read or skipped.
        pieces: usize,
        /// The number of bytes after these pieces that were read or will be skipped.
        passed: u64,
    },
    Elsewhere {
        content: Arc<dyn ObjectContent>,
        /// The bytes that were read in advance.
        block: Bytes,
        /// The offset of the next block.
        offset: u64,
        end: u64,
        blocking: Blocking,
        /// The slot of the request, also during a read that outlives it.
        place: Arc<OwnedSemaphorePermit>,
    },
}

/// The number of bytes of a content outside of memory that are read at a time.
const BLOCK_BYTES: usize = 512 << 10;

/// The rest of an object will not arrive.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Never {
    #[error("the rest of the object will not arrive here")]
    Abandoned,
    #[error("the object cannot be read: {0}")]
    Unreadable(String),
}

impl Object {
    /// Creates an object from the pieces of its content. Every byte is read once.
    pub(crate) fn new(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let pieces: Vec<Bytes> = pieces.into_iter().collect();
        Self::with(Self::name_of(&pieces), pieces, Stage::Complete)
    }

    /// Creates an object of a content outside of memory. The name is verified only by fetchers.
    pub(crate) fn elsewhere(name: ObjectName, content: Arc<dyn ObjectContent>) -> Self {
        Self { name, content: Content::Elsewhere(content), takers: Arc::default() }
    }

    /// Returns the name of a content, given in pieces.
    pub(crate) fn name_of<P: AsRef<[u8]>>(pieces: impl IntoIterator<Item = P>) -> ObjectName {
        let mut hasher = ObjectHasher::new();
        for piece in pieces {
            hasher.add(piece.as_ref());
        }
        hasher.name()
    }

    /// Creates an object that the caller fills. The content is not verified here, but by each fetcher.
    pub(crate) fn to_be_filled(name: ObjectName) -> Filling {
        let content = Arc::new(watch::Sender::default());
        let object = Self { name, content: Content::Memory(Arc::clone(&content)), takers: Arc::default() };
        Filling { object, content }
    }

    fn with(name: ObjectName, pieces: Vec<Bytes>, stage: Stage) -> Self {
        let content = Arc::new(watch::Sender::new(Received { pieces, stage }));
        Self { name, content: Content::Memory(content), takers: Arc::default() }
    }

    /// Creates an object of a content in memory. The name is verified only by fetchers.
    pub(super) fn named(name: ObjectName, content: Bytes) -> Self {
        Self::with(name, vec![content], Stage::Complete)
    }

    pub(crate) fn name(&self) -> ObjectName {
        self.name
    }

    pub(super) fn stage(&self) -> Stage {
        match &self.content {
            Content::Memory(received) => received.borrow().stage,
            Content::Elsewhere(_) => Stage::Complete,
        }
    }

    pub(super) fn is_in_memory(&self) -> bool {
        matches!(self.content, Content::Memory(_))
    }

    /// Returns whether both are clones of the same object.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.takers, &other.takers)
    }

    /// Returns the pieces in memory, as far as received, without copying.
    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        match &self.content {
            Content::Memory(received) => received.borrow().pieces.clone(),
            Content::Elsewhere(_) => Vec::new(),
        }
    }

    /// Records that a member has fetched the object completely from this node.
    pub(super) fn add_taker(&self, member: NodeId) {
        self.takers.send_if_modified(|takers| takers.insert(member));
    }

    /// Waits until a condition holds for the members that have fetched the object from this node.
    pub(crate) async fn taken_by(&self, mut holds: impl FnMut(&BTreeSet<NodeId>) -> bool) {
        let mut takers = self.takers.subscribe();
        // Cannot fail: `self` keeps the sender.
        let _ = takers.wait_for(|takers| holds(takers)).await;
    }

    pub(super) fn read_from(
        &self,
        offset: u64,
        blocking: Blocking,
        place: &Arc<OwnedSemaphorePermit>,
    ) -> ObjectReader {
        match &self.content {
            Content::Memory(received) => {
                ObjectReader::Memory { content: received.subscribe(), pieces: 0, passed: offset }
            }
            Content::Elsewhere(content) => {
                let (content, end, place) = (Arc::clone(content), self.name.bytes, Arc::clone(place));
                ObjectReader::Elsewhere { content, block: Bytes::new(), offset, end, blocking, place }
            }
        }
    }
}

impl Filling {
    /// Returns the object, which can already be offered.
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn add(&self, bytes: Bytes) {
        self.content.send_modify(|content| content.pieces.push(bytes));
    }

    /// Marks the content as complete. The caller has verified it.
    pub(crate) fn complete(self) -> Object {
        self.content.send_modify(|content| content.stage = Stage::Complete);
        self.object.clone()
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.content.send_if_modified(|content| {
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

impl ObjectReader {
    /// Waits for data, and returns at most `bytes_max` bytes without copying; `None` at the end.
    pub(crate) async fn next(&mut self, bytes_max: usize) -> Result<Option<Bytes>, Never> {
        match self {
            Self::Memory { content, pieces, passed } => {
                next_received(content, (pieces, passed), bytes_max).await
            }
            Self::Elsewhere { content, block, offset, end, blocking, place } => {
                if block.is_empty() {
                    let left = usize::try_from(*end - *offset).unwrap_or(usize::MAX).min(BLOCK_BYTES);
                    if left == 0 {
                        return Ok(None);
                    }
                    let (content, from, place) = (Arc::clone(content), *offset, Arc::clone(place));
                    let read = blocking.run(move || {
                        let read = content.part(from, left);
                        drop(place);
                        read
                    });
                    let read = read.await;
                    let read = read.map_err(|error| Never::Unreadable(error.to_string()))?;
                    if read.is_empty() || read.len() > left {
                        return Err(Never::Unreadable("its length does not match its name".to_owned()));
                    }
                    *offset += read.len() as u64;
                    *block = read.into();
                }
                Ok(Some(block.split_to(block.len().min(bytes_max))))
            }
        }
    }
}

/// Returns the next bytes that were received, at this position.
async fn next_received(
    content: &mut watch::Receiver<Received>,
    (pieces, passed): (&mut usize, &mut u64),
    bytes_max: usize,
) -> Result<Option<Bytes>, Never> {
    loop {
        let known = *pieces;
        // The receiver keeps only the latest value, and fails after the last clone of the object.
        let arrived = |content: &Received| content.pieces.len() > known || content.stage != Stage::Coming;
        let content = content.wait_for(arrived).await.map_err(|_| Never::Abandoned)?;
        let Some(piece) = content.pieces.get(*pieces) else {
            return if content.stage == Stage::Complete { Ok(None) } else { Err(Never::Abandoned) };
        };
        let length = piece.len() as u64;
        if *passed >= length {
            (*pieces, *passed) = (*pieces + 1, *passed - length);
            continue;
        }
        let start = usize::try_from(*passed).unwrap_or(usize::MAX);
        let slice = piece.slice(start..piece.len().min(start.saturating_add(bytes_max)));
        *passed += slice.len() as u64;
        return Ok(Some(slice));
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory(_) => "Memory",
            Self::Elsewhere(_) => "Elsewhere",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::sync::Semaphore;

    use super::*;

    fn parts() -> Object {
        Object::new([&b"abc"[..], b"", b"defgh"].map(Bytes::from_static))
    }

    fn reader(object: &Object, offset: u64, blocking: Blocking) -> ObjectReader {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        object.read_from(offset, blocking, &Arc::new(place))
    }

    async fn rest(mut reading: ObjectReader) -> Result<Vec<u8>, Never> {
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
            assert_eq!(
                rest(reader(&object, offset, Blocking::Inline)).await.unwrap(),
                expected,
                "from {offset}"
            );
        }
    }

    #[tokio::test]
    async fn incomplete_object_is_read_as_data_arrives() {
        let filling = Object::to_be_filled(parts().name());
        let mut reading = reader(filling.object(), 2, Blocking::Inline);
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
        assert_eq!(rest(reader(&object, 0, Blocking::Inline)).await.unwrap(), b"abcdefgh");
    }

    #[tokio::test]
    async fn readers_of_an_abandoned_object_get_an_error() {
        let filling = Object::to_be_filled(parts().name());
        filling.add(Bytes::from_static(b"a"));
        let readings = [0, 5].map(|offset| reader(filling.object(), offset, Blocking::Inline));
        drop(filling);
        for reading in readings {
            assert_eq!(rest(reading).await, Err(Never::Abandoned));
        }
    }

    /// A content whose bytes depend on the thread that reads it.
    struct ReadsThread(thread::ThreadId);

    impl ObjectContent for ReadsThread {
        fn part(&self, _: u64, _: usize) -> io::Result<Vec<u8>> {
            Ok(vec![u8::from(thread::current().id() == self.0)])
        }
    }

    #[tokio::test]
    async fn small_content_is_read_on_another_thread() {
        let name = ObjectName { bytes: 1, ..parts().name() };
        let object = Object::elsewhere(name, Arc::new(ReadsThread(thread::current().id())));
        assert_eq!(rest(reader(&object, 0, Blocking::Elsewhere)).await.unwrap(), [0]);
        assert_eq!(rest(reader(&object, 0, Blocking::Inline)).await.unwrap(), [1]);
    }
}
