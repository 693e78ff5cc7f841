//! How values are encoded.

use std::{
    any::type_name,
    hash::{DefaultHasher, Hasher},
    io,
};

use bincode::{
    config::{Config, standard},
    enc::write::Writer,
    error::DecodeError,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::failure::Failed;

/// Encodes a value.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Failed> {
    let encoded = bincode::serde::encode_to_vec(value, standard());
    encoded.map_err(|error| Failed::of(format!("a {} cannot be encoded: {error}", type_name::<T>())))
}

/// Returns the size of a value when it is encoded; what cannot be encoded counts as nothing.
pub(crate) fn size<T: Serialize>(value: &T) -> u64 {
    let mut counter = Counter(0);
    let counted = bincode::serde::encode_into_writer(value, &mut counter, standard());
    counted.map_or(0, |()| counter.0)
}

/// Counts what is written.
struct Counter(u64);

impl Writer for &mut Counter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.0 += bytes.len() as u64;
        Ok(())
    }
}

/// Returns the size of a value when it is encoded, and the hash of that; what cannot be encoded counts as nothing.
pub(crate) fn fingerprint<T: Serialize>(value: &T) -> (u64, u64) {
    let mut counter = Hashing::default();
    let counted = bincode::serde::encode_into_writer(value, &mut counter, standard());
    counted.map_or((0, 0), |()| counter.done())
}

/// Counts and hashes what is written.
#[derive(Default)]
pub(crate) struct Hashing {
    pub(crate) bytes: u64,
    hasher: DefaultHasher,
}

impl Hashing {
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hasher.write(bytes);
    }

    pub(crate) fn done(self) -> (u64, u64) {
        (self.bytes, self.hasher.finish())
    }
}

impl Writer for &mut Hashing {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.take(bytes);
        Ok(())
    }
}

/// A decoded number takes at most so many times the bytes of the encoded one.
const GROWTH_MAX: usize = 16;

/// What has at most this size in bytes, encoded, claims no more than [`GROWTH_MAX`] times as much when it is decoded.
const SMALL_BYTES_MAX: usize = 1 << 20;
/// The same of what is larger.
const LARGE_BYTES_MAX: usize = 256 << 20;

/// Decodes a value.
///
/// The bytes may be another node's: a length in them is believed only up to what so many bytes may claim, so that a false
/// one does not use up the memory.
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
            Err(Failed::of(format!("{rest} bytes are left after a {}", type_name::<T>())))
        }
        Err(error) => Err(Failed::of(format!("a {} cannot be decoded: {error}", type_name::<T>()))),
    }
}

/// Decodes a value from what can be read, which is so many bytes, and believes lengths in it as [`decode`] does.
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
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use super::*;

    /// The length of a text of so many bytes.
    fn length(bytes: u64) -> Vec<u8> {
        [&[253], &bytes.to_le_bytes()[..]].concat()
    }

    #[test]
    fn a_false_length_is_refused_before_memory_is_taken() {
        for bytes in [u64::MAX, 1 << 60, 1 << 40] {
            let false_length = length(bytes);
            decode::<String>(&false_length).unwrap_err();
            decode::<(u8, Vec<String>)>(&[&[1, 3][..], &false_length].concat()).unwrap_err();
            decode_read::<String>(&mut &false_length[..], false_length.len() as u64).unwrap_err();
        }
    }

    #[test]
    fn what_grows_most_is_decoded_at_every_size() {
        for count in [1, SMALL_BYTES_MAX - 5, SMALL_BYTES_MAX + 1] {
            let numbers = vec![1_u128; count];
            let encoded = encode(&numbers).unwrap();
            assert_eq!(decode::<Vec<u128>>(&encoded).unwrap(), numbers);
            let read: Vec<u128> = decode_read(&mut &encoded[..], encoded.len() as u64).unwrap();
            assert_eq!(read, numbers);
        }
    }
}
