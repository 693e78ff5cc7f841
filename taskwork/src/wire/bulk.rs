//! Byte objects between nodes: their names, and the messages on a stream.
//!
//! ```text
//!   fetcher                                  owner
//!   Ask { object, offset }, end of stream ─▶
//!                                          ◀─ Answer, one byte
//!                                          ◀─ if it is Here: the bytes from the offset, end of stream
//! ```

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The name of a byte object: it is derived from the content, so it is the same on every node, and a fetcher can
/// verify the content. The length is part of it, so a fetcher knows the required memory before it
/// asks. As text it is the length, a hyphen, and the hash in hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectName {
    /// The BLAKE3 hash of the content.
    pub(crate) hash: [u8; 32],
    /// The length of the content, in bytes.
    pub(crate) bytes: u64,
}

/// A text that is not the name of an object.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not the name of an object: its length, a hyphen, and 64 hexadecimal digits")]
pub struct ObjectNameError(String);

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

impl ObjectName {
    /// Creates the name of a content with this BLAKE3 hash and length in bytes.
    pub fn new(hash: [u8; 32], bytes: u64) -> Self {
        Self { hash, bytes }
    }

    /// Returns the BLAKE3 hash of the content.
    pub fn hash(&self) -> [u8; 32] {
        self.hash
    }

    /// Returns the length of the content, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", self.bytes)?;
        self.hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for ObjectName {
    type Err = ObjectNameError;

    fn from_str(text: &str) -> Result<Self, ObjectNameError> {
        let refused = || ObjectNameError(text.chars().take(100).collect());
        let (bytes, digits) = text.split_once('-').ok_or_else(refused)?;
        let all_digits = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !all_digits || !bytes.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(refused());
        }
        let bytes = bytes.parse().map_err(|_| refused())?;
        let mut hash = [0; 32];
        for (byte, place) in hash.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&digits[place..place + 2], 16).map_err(|_| refused())?;
        }
        Ok(Self { hash, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::codec;

    #[test]
    fn object_name_round_trips_and_garbage_is_rejected() {
        let name = ObjectName { hash: std::array::from_fn(|k| u8::try_from(k).unwrap() * 7), bytes: 1 << 40 };
        assert_eq!(name.to_string().parse(), Ok(name));
        let digits = "0".repeat(64);
        for text in
            ["", "-", &digits, &format!("-{digits}"), &format!("+1-{digits}"), &format!("1-+{digits}")]
        {
            assert!(text.parse::<ObjectName>().is_err(), "{text:?}");
        }
        assert!(format!("1-{}", "é".repeat(32)).parse::<ObjectName>().is_err());
    }

    #[test]
    fn requests_and_answers_have_their_declared_sizes() {
        let object = ObjectName { hash: [0xff; 32], bytes: u64::MAX };
        assert!(codec::encode(&Ask { object, offset: u64::MAX }).unwrap().len() <= ASK_BYTES_MAX);
        for answer in [Answer::Here, Answer::Unknown, Answer::Busy] {
            assert_eq!(codec::encode(&answer).unwrap().len(), ANSWER_BYTES);
        }
    }
}
