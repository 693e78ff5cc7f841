//! A task in transit between nodes, or parked in `ZooKeeper`.

use std::{fmt, ops::Deref};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Visitor},
};

use crate::{
    id::TaskId,
    scope::{Completed, Scope, Spawned},
};

/// The maximum size of a task in transit by [`Envelope::bytes`], in bytes: the limit of one message minus the
/// message's other content.
pub const TASK_BYTES_MAX: usize = (64 << 20) - (128 << 10);

/// A task as bytes, with everything that travels with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The task's id, which does not change when the task moves.
    pub id: TaskId,
    /// The scope of the task, if it was spawned or split off from a task there.
    pub scope: Option<Scope>,
    /// The ids of the tasks split off from it so far. They are toggled when it completes, on whichever node that
    /// is: if they were toggled at the split, the list could be empty while a child still runs.
    pub children: Vec<TaskId>,
    /// The tasks that it has spawned, or the scope that it waits for.
    pub spawned: Spawned,
    /// The number of consecutive nodes that were lost while they held it, before it had run there for long.
    pub crashes: u32,
    /// The output so far, encoded.
    pub output: Blob,
    /// The task itself, encoded.
    pub task: Blob,
}

impl Envelope {
    /// Creates the envelope of a task that has just started.
    pub fn new(id: TaskId, output: Blob, task: Blob) -> Self {
        let (scope, children, spawned) = (None, Vec::new(), Spawned::Nothing);
        Self { id, scope, children, spawned, crashes: 0, output, task }
    }

    /// Returns the completion of the task in its current state.
    pub fn completed(&self) -> Completed<'_> {
        let Self { id, scope, children, spawned, .. } = self;
        Completed { id: *id, scope: *scope, children, renewed: None, spawned }
    }

    /// The maximum size of an encoded id, in bytes: two numbers.
    const ID_BYTES_MAX: usize = 18;
    /// The maximum size of the encoded number of crashes, in bytes.
    const CRASHES_BYTES_MAX: usize = 5;
    /// The maximum size of the encoding before the ids of a scope, in bytes.
    const SCOPED_BYTES_MAX: usize = 10;

    /// Returns an upper bound on its encoded size, in bytes.
    pub fn bytes(&self) -> usize {
        let scoped = usize::from(self.scope.is_some()) + self.spawned.ids();
        let bytes = Self::bytes_of(self.children.len() + scoped, self.output.len(), self.task.len());
        bytes + if scoped > 0 { Self::SCOPED_BYTES_MAX } else { 0 }
    }

    /// Returns the same bound for an envelope with these numbers of further ids and of bytes, without a scope. Each of
    /// its three parts is preceded by its length, two more by a presence flag.
    pub fn bytes_of(children: usize, output_bytes: usize, task_bytes: usize) -> usize {
        (1 + children) * Self::ID_BYTES_MAX + Self::CRASHES_BYTES_MAX + 3 * 9 + 2 + output_bytes + task_bytes
    }
}

/// Encoded data that clones share: an open grant is sent repeatedly, and may be
/// large.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Blob(Bytes);

impl Blob {
    /// Returns the same bytes, shared, for sending.
    pub fn shared(&self) -> Bytes {
        self.0.clone()
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<Blob> for Vec<u8> {
    fn from(blob: Blob) -> Self {
        blob.0.into()
    }
}

impl Deref for Blob {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Serialized as one byte string, not byte by byte.
impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_byte_buf(AnyBytes).map(Self::from)
    }
}

struct AnyBytes;

impl Visitor<'_> for AnyBytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
        Ok(bytes)
    }
}
