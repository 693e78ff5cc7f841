//! The one place that names the binary format: everything that is sent or kept as bytes passes through
//! [`encode`] and [`decode`].
//!
//! The format is bincode 2 with its standard configuration (little endian, variable-length integers). It is exchanged in
//! this file alone; the wire's version grows when it is.

use bincode::config::{Configuration, Limit, LittleEndian, Varint, standard};
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

/// The most bytes that one decoded value may claim, in bytes: a peer's or a znode's lengths are believed only up to it.
pub(crate) const DECODE_BYTES_MAX: usize = 64 << 20;

type Format = Configuration<LittleEndian, Varint, Limit<DECODE_BYTES_MAX>>;

fn format() -> Format {
    standard().with_limit::<DECODE_BYTES_MAX>()
}

/// A value that could not be written as bytes.
#[derive(Debug, Error)]
#[error("a value could not be encoded: {source}")]
pub struct EncodeError {
    #[from]
    source: bincode::error::EncodeError,
}

/// Bytes that are not a value of the type expected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes are no such value.
    #[error("{bytes} bytes could not be decoded: {source}")]
    Malformed {
        /// How many bytes there were.
        bytes: usize,
        /// What is wrong with them.
        source: bincode::error::DecodeError,
    },
    /// The value ends before the bytes do.
    #[error("{left} of {bytes} bytes were left over")]
    Trailing {
        /// How many bytes there were.
        bytes: usize,
        /// How many of them the value did not take.
        left: usize,
    },
}

/// Writes a value as bytes.
///
/// # Errors
/// If the value's `Serialize` refuses, or it is larger than [`DECODE_BYTES_MAX`].
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, EncodeError> {
    Ok(bincode::serde::encode_to_vec(value, format())?)
}

/// Reads a value from exactly these bytes.
///
/// # Errors
/// If the bytes are no such value, claim lengths beyond [`DECODE_BYTES_MAX`], or go on after it.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let (value, read) = bincode::serde::decode_from_slice(bytes, format())
        .map_err(|source| DecodeError::Malformed { bytes: bytes.len(), source })?;
    match bytes.len() - read {
        0 => Ok(value),
        left => Err(DecodeError::Trailing { bytes: bytes.len(), left }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_reads_back(value: (u64, String, Vec<Option<i16>>)) {
            let bytes = encode(&value).unwrap();
            prop_assert_eq!(decode::<(u64, String, Vec<Option<i16>>)>(&bytes).unwrap(), value);
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = decode::<(u64, String, Vec<Option<i16>>)>(&bytes);
        }
    }

    #[test]
    fn a_huge_length_is_refused_before_memory_is_taken() {
        let claims_2_pow_60_elements = [253, 0, 0, 0, 0, 0, 0, 0, 16];
        assert!(decode::<Vec<u64>>(&claims_2_pow_60_elements).is_err());
    }

    #[test]
    fn bytes_left_over_are_an_error() {
        let mut bytes = encode(&7_u32).unwrap();
        bytes.push(0);
        assert!(matches!(decode::<u32>(&bytes), Err(DecodeError::Trailing { bytes: 2, left: 1 })));
    }
}
