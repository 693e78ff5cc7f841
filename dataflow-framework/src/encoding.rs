//! The encoding of values.

use std::{any::type_name, io};

use bincode::{
    config::{Config, standard},
    enc::write::Writer,
    error::DecodeError,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::failure::Failed;

pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Failed> {
    let encoded = bincode::serde::encode_to_vec(value, standard());
    encoded.map_err(|error| Failed::of_runtime(format!("a {} cannot be encoded: {error}", type_name::<T>())))
}

/// Returns the encoded size of a value; 0 if it cannot be encoded.
pub(crate) fn size<T: Serialize>(value: &T) -> u64 {
    let mut counter = Counter(0);
    let counted = bincode::serde::encode_into_writer(value, &mut counter, standard());
    counted.map_or(0, |()| counter.0)
}

/// Counts the bytes written to it.
struct Counter(u64);

impl Writer for &mut Counter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.0 += bytes.len() as u64;
        Ok(())
    }
}

/// Returns a hash of a value that is the same in all builds and on all machines: journals keep it, and external
/// systems know it as the token of a call. The hashes of the standard library may change.
pub(crate) fn stable_hash<T: Serialize>(value: &T) -> u128 {
    fingerprint(value).1
}

/// Returns the encoded size of a value, and the hash of the encoding; zeros if it cannot be encoded.
pub(crate) fn fingerprint<T: Serialize>(value: &T) -> (u64, u128) {
    let mut counter = Hashing::default();
    let counted = bincode::serde::encode_into_writer(value, &mut counter, standard());
    counted.map_or((0, 0), |()| counter.done())
}

/// Counts and hashes the bytes written to it.
#[derive(Default)]
pub(crate) struct Hashing {
    pub(crate) bytes: u64,
    hasher: blake3::Hasher,
}

impl Hashing {
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hasher.update(bytes);
    }

    /// Returns the number of bytes, and half of the BLAKE3 hash.
    pub(crate) fn done(self) -> (u64, u128) {
        (self.bytes, half(self.hasher.finalize().as_bytes()))
    }
}

/// Returns half of a BLAKE3 hash.
pub(crate) fn half(hash: &[u8; 32]) -> u128 {
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    u128::from_le_bytes(half)
}

impl Writer for &mut Hashing {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.take(bytes);
        Ok(())
    }
}

/// The maximum ratio of the size of a decoded number to its encoded size.
const GROWTH_MAX: usize = 16;

/// The maximum encoded size in bytes of small data, which may claim [`GROWTH_MAX`] times as much memory as this when
/// it is decoded.
const SMALL_BYTES_MAX: usize = 1 << 20;
/// The same for larger data. Above this size there is no limit.
const LARGE_BYTES_MAX: usize = 256 << 20;

/// Decodes a value.
///
/// The bytes may come from another node. A length in them is accepted only up to a limit that depends on their
/// number, so that a false length cannot exhaust the memory.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failed> {
    let decoded = match bytes.len() {
        length if length <= SMALL_BYTES_MAX => {
            from_slice(bytes, standard().with_limit::<{ GROWTH_MAX * SMALL_BYTES_MAX }>())
        }
        length if length <= LARGE_BYTES_MAX => {
            from_slice(bytes, standard().with_limit::<{ GROWTH_MAX * LARGE_BYTES_MAX }>())
        }
        _ => from_slice(bytes, standard()),
    };
    match decoded {
        Ok((value, read)) if read == bytes.len() => Ok(value),
        Ok((_, read)) => {
            let rest = bytes.len() - read;
            Err(Failed::of_runtime(format!("{rest} bytes are left after a {}", type_name::<T>())))
        }
        Err(error) => Err(Failed::of_runtime(format!("a {} cannot be decoded: {error}", type_name::<T>()))),
    }
}

/// Decodes a value from a reader of this many bytes, with the same limits as [`decode`].
pub(crate) fn decode_read<T: DeserializeOwned>(
    from: &mut impl io::Read,
    bytes: u64,
) -> Result<T, DecodeError> {
    match usize::try_from(bytes).unwrap_or(usize::MAX) {
        length if length <= SMALL_BYTES_MAX => {
            from_read(from, standard().with_limit::<{ GROWTH_MAX * SMALL_BYTES_MAX }>())
        }
        length if length <= LARGE_BYTES_MAX => {
            from_read(from, standard().with_limit::<{ GROWTH_MAX * LARGE_BYTES_MAX }>())
        }
        _ => from_read(from, standard()),
    }
}

fn from_slice<T: DeserializeOwned>(bytes: &[u8], format: impl Config) -> Result<(T, usize), DecodeError> {
    bincode::serde::decode_from_slice(bytes, format)
}

fn from_read<T: DeserializeOwned>(from: &mut impl io::Read, format: impl Config) -> Result<T, DecodeError> {
    bincode::serde::decode_from_std_read(from, format)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "an error fails the test")]

    use super::*;

    /// The hash of `4 "call" 7 1 2`, as one byte for each number.
    const HASH_OF_FIRST_BUILD: u128 = 0x3d9f_e644_3e31_9bb5_7f33_ecdf_7fee_8576;

    #[test]
    fn stable_hash_is_that_of_earlier_builds() {
        assert_eq!(stable_hash(&("call", 7_u64, [1_u8, 2])), HASH_OF_FIRST_BUILD);
        assert_ne!(stable_hash(&("call", 8_u64, [1_u8, 2])), HASH_OF_FIRST_BUILD);
    }

    /// The encoded length of a text of this many bytes.
    fn length(bytes: u64) -> Vec<u8> {
        [&[253], &bytes.to_le_bytes()[..]].concat()
    }

    #[test]
    fn false_length_is_refused_before_memory_is_allocated() {
        for bytes in [u64::MAX, 1 << 60, 1 << 40] {
            let false_length = length(bytes);
            decode::<String>(&false_length).unwrap_err();
            decode::<(u8, Vec<String>)>(&[&[1, 3][..], &false_length].concat()).unwrap_err();
            decode_read::<String>(&mut &false_length[..], false_length.len() as u64).unwrap_err();
        }
    }

    #[test]
    fn data_with_largest_growth_is_decoded_at_every_size() {
        for count in [1, SMALL_BYTES_MAX - 5, SMALL_BYTES_MAX + 1] {
            let numbers = vec![1_u128; count];
            let encoded = encode(&numbers).unwrap();
            assert_eq!(decode::<Vec<u128>>(&encoded).unwrap(), numbers);
            let read: Vec<u128> = decode_read(&mut &encoded[..], encoded.len() as u64).unwrap();
            assert_eq!(read, numbers);
        }
    }
}
