//! A message between nodes on the network.

use serde::{Deserialize, Serialize};

use super::{
    codec::{self, EncodeError},
    parcel::Parcel,
    payload::Payload,
};
use crate::{companion::Refusal, envelope::Blob};

/// A message on the network. `P` is a parcel, or a reference to one that is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Packet<P = Parcel> {
    /// A message of the protocol.
    Protocol(P),
    /// A message between companions.
    Companion(Note),
}

/// A message between the companions of a job, or about one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) job: u64,
    /// The number of the message among those of its sender.
    pub(crate) number: u64,
    pub(crate) content: NoteContent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NoteContent {
    Message(Blob),
    /// The receiver of the message with this number has not accepted it.
    Refused(Refusal),
}

impl NoteContent {
    /// Returns the size of the message, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Message(bytes) => bytes.len(),
            Self::Refused(_) => 0,
        }
    }
}

impl Note {
    /// Encodes the note for the network. A large message in it is shared, not copied.
    ///
    /// # Errors
    /// If it is larger than any value may be.
    pub(crate) fn payload(self) -> Result<Payload, EncodeError> {
        let shared = match &self.content {
            NoteContent::Message(bytes) => vec![bytes.shared()],
            NoteContent::Refused(_) => Vec::new(),
        };
        codec::encode_sharing(&Packet::<Parcel>::Companion(self), &shared).map(Payload::from)
    }
}
