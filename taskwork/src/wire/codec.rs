//! The only module that knows the binary format: everything that is sent or stored as bytes passes through
//! [`encode`] and [`decode`].
//!
//! The format is bincode 2 with its standard configuration (little endian, variable-length integers). To
//! replace it, change only this file and increase the wire's version.

use bincode::{
    config::{Configuration, Limit, LittleEndian, Varint, standard},
    enc::write::Writer,
};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

/// The maximum size of one encoded value, in bytes: of a task, an output, a message. The limit applies to
/// encoding and decoding, so that no node writes a value that another cannot read.
pub(crate) const ENCODED_BYTES_MAX: usize = 64 << 20;

/// The maximum memory that one decoded value may claim, in bytes: lengths received from a peer or a znode are
/// trusted only up to it. An encoded number takes at least a sixteenth of its size in memory, so no encoded
/// value claims more.
const CLAIMED_BYTES_MAX: usize = 16 * ENCODED_BYTES_MAX;

type Format = Configuration<LittleEndian, Varint, Limit<CLAIMED_BYTES_MAX>>;

fn format() -> Format {
    standard().with_limit::<CLAIMED_BYTES_MAX>()
}

/// A value could not be encoded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The value's `Serialize` implementation returned an error.
    #[error("a value could not be encoded: {reason}")]
    Refused {
        /// The message of the error.
        reason: String,
    },
    /// The value is too large to be sent or stored.
    #[error("{bytes} bytes are more than the limit of {limit} bytes")]
    TooLarge {
        /// Its encoded size.
        bytes: usize,
        /// The maximum size.
        limit: usize,
    },
}

/// Bytes could not be decoded to a value of the expected type.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes do not encode such a value.
    #[error("{bytes} bytes could not be decoded: {reason}")]
    Malformed {
        /// The number of bytes.
        bytes: usize,
        /// The parser's error.
        reason: String,
    },
    /// There are more bytes than any value may have.
    #[error("{bytes} bytes are more than the limit of {limit} bytes")]
    TooLarge {
        /// The number of bytes.
        bytes: usize,
        /// The maximum number.
        limit: usize,
    },
    /// There are bytes after the value.
    #[error("{left} of {bytes} bytes were left over")]
    Trailing {
        /// The number of bytes.
        bytes: usize,
        /// The number of bytes after the value.
        left: usize,
    },
}

/// Encodes a value.
///
/// # Errors
/// If the value's `Serialize` returns an error, or it is larger than [`ENCODED_BYTES_MAX`].
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, EncodeError> {
    encode_up_to(value, ENCODED_BYTES_MAX)
}

/// Encodes a value to the same bytes in pieces: large byte strings of the value that are in `shared` become
/// separate pieces and are not copied.
///
/// # Errors
/// As [`encode`].
pub(crate) fn encode_sharing<T: Serialize + ?Sized>(
    value: &T,
    shared: &[Bytes],
) -> Result<Vec<Bytes>, EncodeError> {
    let mut written = write(value, shared, ENCODED_BYTES_MAX)?;
    written.end_piece();
    Ok(written.pieces)
}

fn encode_up_to<T: Serialize + ?Sized>(value: &T, limit: usize) -> Result<Vec<u8>, EncodeError> {
    Ok(write(value, &[], limit)?.kept)
}

fn write<'a, T: Serialize + ?Sized>(
    value: &T,
    shared: &'a [Bytes],
    limit: usize,
) -> Result<Bounded<'a>, EncodeError> {
    let mut written = Bounded { shared, pieces: Vec::new(), kept: Vec::new(), bytes: 0, limit };
    bincode::serde::encode_into_writer(value, &mut written, format())
        .map_err(|refused| EncodeError::Refused { reason: refused.to_string() })?;
    match written.bytes {
        bytes if bytes > limit => Err(EncodeError::TooLarge { bytes, limit }),
        _ => Ok(written),
    }
}

/// Smaller byte strings are copied: a separate piece would cost more.
const SHARED_BYTES_MIN: usize = 4 << 10;

/// A writer that keeps bytes up to a limit and only counts them beyond it, so that an error can report the
/// size.
struct Bounded<'a> {
    /// Byte strings that need not be copied.
    shared: &'a [Bytes],
    pieces: Vec<Bytes>,
    /// The bytes since the last piece.
    kept: Vec<u8>,
    bytes: usize,
    limit: usize,
}

impl Bounded<'_> {
    fn end_piece(&mut self) {
        if !self.kept.is_empty() {
            self.pieces.push(std::mem::take(&mut self.kept).into());
        }
    }

    /// Returns the shared byte string that has the same address and length, if it is large.
    fn shared(&self, bytes: &[u8]) -> Option<Bytes> {
        let same = |shared: &&Bytes| shared.as_ptr() == bytes.as_ptr() && shared.len() == bytes.len();
        let large = bytes.len() >= SHARED_BYTES_MIN;
        self.shared.iter().filter(|_| large).find(same).cloned()
    }
}

impl Writer for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.bytes += bytes.len();
        if self.bytes > self.limit {
            (self.kept, self.pieces) = (Vec::new(), Vec::new());
        } else if let Some(shared) = self.shared(bytes) {
            self.end_piece();
            self.pieces.push(shared);
        } else {
            self.kept.extend_from_slice(bytes);
        }
        Ok(())
    }
}

/// Decodes a value from exactly these bytes.
///
/// # Errors
/// If the bytes do not encode such a value, are more than [`ENCODED_BYTES_MAX`], claim lengths beyond what
/// they can hold, or continue after the value.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    if bytes.len() > ENCODED_BYTES_MAX {
        return Err(DecodeError::TooLarge { bytes: bytes.len(), limit: ENCODED_BYTES_MAX });
    }
    let (value, read) = bincode::serde::decode_from_slice(bytes, format())
        .map_err(|wrong| malformed::<T>(bytes.len(), &wrong))?;
    match bytes.len() - read {
        0 => Ok(value),
        left => Err(DecodeError::Trailing { bytes: bytes.len(), left }),
    }
}

/// Describes bytes that are not a value of a type. Some attributes of serde require a self-describing format.
pub(super) fn malformed<T>(bytes: usize, wrong: &bincode::error::DecodeError) -> DecodeError {
    let mut reason = wrong.to_string();
    if reason.contains("AnyNotSupported") || reason.contains("IdentifierNotSupported") {
        reason = format!(
            "{} uses #[serde(untagged)], #[serde(tag)], #[serde(flatten)] or serde_json::Value, for which the format of \
             tasks has no form: use a plain enum or struct",
            std::any::type_name::<T>()
        );
    }
    DecodeError::Malformed { bytes, reason }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn encoded_value_round_trips(value: (u64, String, Vec<Option<i16>>)) {
            let bytes = encode(&value).unwrap();
            prop_assert_eq!(decode::<(u64, String, Vec<Option<i16>>)>(&bytes).unwrap(), value);
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = decode::<(u64, String, Vec<Option<i16>>)>(&bytes);
        }
    }

    #[derive(Debug, Serialize, serde::Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Number(u32),
    }

    #[test]
    fn untagged_enum_error_names_the_type_and_the_attribute() {
        let error = decode::<Untagged>(&encode(&Untagged::Number(7)).unwrap()).unwrap_err().to_string();
        assert!(error.contains("Untagged") && error.contains("#[serde(untagged)]"), "{error}");
    }

    #[test]
    fn huge_length_is_refused_before_allocation() {
        let claims_2_pow_60_elements = [253, 0, 0, 0, 0, 0, 0, 0, 16];
        assert!(decode::<Vec<u64>>(&claims_2_pow_60_elements).is_err());
    }

    #[test]
    fn value_with_small_numbers_at_the_limit_can_be_decoded() {
        // Each number is encoded as one byte and takes eight in memory.
        let many_small_numbers = vec![7_u64; 9 << 20];
        let bytes = encode(&many_small_numbers).unwrap();
        assert_eq!(decode::<Vec<u64>>(&bytes).unwrap(), many_small_numbers);
    }

    #[test]
    fn value_that_could_not_be_decoded_is_not_encoded() {
        let largest = "x".repeat(ENCODED_BYTES_MAX - 5);
        let bytes = encode(&largest).unwrap();
        assert_eq!(bytes.len(), ENCODED_BYTES_MAX);
        assert!(decode::<String>(&bytes).unwrap() == largest);
        let refused = encode(&(largest, 7_u8)).unwrap_err();
        assert_eq!(refused.to_string(), "67108865 bytes are more than the limit of 67108864 bytes");
    }

    #[test]
    fn bytes_beyond_the_limit_are_rejected_without_decoding() {
        let bytes = vec![0; ENCODED_BYTES_MAX + 1];
        assert!(matches!(decode::<u8>(&bytes), Err(DecodeError::TooLarge { .. })));
    }

    #[test]
    fn surplus_bytes_are_an_error() {
        let mut bytes = encode(&7_u32).unwrap();
        bytes.push(0);
        assert!(matches!(decode::<u32>(&bytes), Err(DecodeError::Trailing { bytes: 2, left: 1 })));
    }
}
