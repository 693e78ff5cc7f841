//! The pieces of a version that have arrived: in memory, or in a file if the version is large.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use super::fetches::PIECE_BYTES;
use crate::{
    spilled::{Arriving, Digest},
    value::Value,
};

/// The pieces that have arrived, by number.
#[derive(Debug)]
pub(super) enum Pieces {
    InMemory(BTreeMap<u64, Vec<u8>>),
    InFile(Arriving, BTreeSet<u64>),
}

impl Pieces {
    /// Creates an empty set of pieces.
    ///
    /// # Errors
    /// If a file is needed and cannot be created.
    pub(super) fn new(is_large: bool) -> io::Result<Self> {
        if is_large {
            return Ok(Self::InFile(Arriving::new()?, BTreeSet::new()));
        }
        Ok(Self::InMemory(BTreeMap::new()))
    }

    pub(super) fn has(&self, number: u64) -> bool {
        match self {
            Self::InMemory(pieces) => pieces.contains_key(&number),
            Self::InFile(_, numbers) => numbers.contains(&number),
        }
    }

    pub(super) fn count(&self) -> u64 {
        match self {
            Self::InMemory(pieces) => pieces.len() as u64,
            Self::InFile(_, numbers) => numbers.len() as u64,
        }
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn put(&mut self, number: u64, bytes: Vec<u8>) -> io::Result<()> {
        match self {
            Self::InMemory(pieces) => drop(pieces.insert(number, bytes)),
            Self::InFile(arriving, numbers) => {
                arriving.put(&bytes, number * PIECE_BYTES)?;
                numbers.insert(number);
            }
        }
        Ok(())
    }

    /// Returns the complete value, which has this size and, if it is large, this hash.
    pub(super) fn whole(self, bytes: u64, digest: Option<Digest>) -> Value {
        match self {
            Self::InMemory(pieces) => Value::from_encoded(pieces.into_values().flatten().collect()),
            Self::InFile(arriving, _) => {
                let digest = digest.expect("a large version comes with its hash");
                Value::from_spilled(arriving.end(bytes, digest))
            }
        }
    }
}
