//! The messages of a transfer of a byte object on a stream.
//!
//! ```text
//!   fetcher                                  owner
//!   Ask { object, offset }, end of stream ─▶
//!                                          ◀─ Answer, one byte
//!                                          ◀─ if it is Here: the bytes from the offset, end of stream
//! ```

use serde::{Deserialize, Serialize};

pub(crate) use crate::companion::ObjectName;

/// A request for the rest of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) object: ObjectName,
    /// The number of bytes that the fetcher already has; at most the object's length.
    pub(crate) offset: u64,
}

pub(crate) const ASK_BYTES_MAX: usize = 64;

/// The answer of the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The bytes follow.
    Here,
    /// The node does not have the object.
    Unknown,
    /// The node already serves the maximum number of requests.
    Busy,
}

/// The size of an encoded answer, in bytes.
pub(crate) const ANSWER_BYTES: usize = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::codec;

    #[test]
    fn requests_and_answers_have_their_declared_sizes() {
        let object = ObjectName { hash: [0xff; 32], bytes: u64::MAX };
        assert!(codec::encode(&Ask { object, offset: u64::MAX }).unwrap().len() <= ASK_BYTES_MAX);
        for answer in [Answer::Here, Answer::Unknown, Answer::Busy] {
            assert_eq!(codec::encode(&answer).unwrap().len(), ANSWER_BYTES);
        }
    }
}
