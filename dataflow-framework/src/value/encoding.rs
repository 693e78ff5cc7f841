//! How values are encoded.

use std::{
    any::type_name,
    hash::{DefaultHasher, Hasher},
};

use bincode::enc::write::Writer;
use serde::{Serialize, de::DeserializeOwned};

use crate::failure::Failed;

/// Encodes a value.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Failed> {
    let encoded = bincode::serde::encode_to_vec(value, bincode::config::standard());
    encoded.map_err(|error| Failed::of(format!("a {} cannot be encoded: {error}", type_name::<T>())))
}

/// Returns the size of a value when it is encoded; what cannot be encoded counts as nothing.
pub(super) fn size<T: Serialize>(value: &T) -> u64 {
    let mut counter = Counter(0);
    let counted = bincode::serde::encode_into_writer(value, &mut counter, bincode::config::standard());
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
pub(super) fn fingerprint<T: Serialize>(value: &T) -> (u64, u64) {
    let mut counter = Hashing::default();
    let counted = bincode::serde::encode_into_writer(value, &mut counter, bincode::config::standard());
    counted.map_or((0, 0), |()| counter.done())
}

/// Counts and hashes what is written.
#[derive(Default)]
pub(super) struct Hashing {
    pub(super) bytes: u64,
    hasher: DefaultHasher,
}

impl Hashing {
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hasher.write(bytes);
    }

    pub(super) fn done(self) -> (u64, u64) {
        (self.bytes, self.hasher.finish())
    }
}

impl Writer for &mut Hashing {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.take(bytes);
        Ok(())
    }
}

/// Decodes a value.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failed> {
    let decoded = bincode::serde::decode_from_slice(bytes, bincode::config::standard());
    match decoded {
        Ok((value, read)) if read == bytes.len() => Ok(value),
        Ok((_, read)) => {
            let rest = bytes.len() - read;
            Err(Failed::of(format!("{rest} bytes are left after a {}", type_name::<T>())))
        }
        Err(error) => Err(Failed::of(format!("a {} cannot be decoded: {error}", type_name::<T>()))),
    }
}
