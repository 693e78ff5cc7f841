//! The identity of a value: the size and the hash of its encoding.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{PART_BYTES, Typed, Value};
use crate::{
    encoding::{Hashing, half},
    file::File,
};

/// The encoded size of a value, in bytes, and the hash of the encoding.
pub(crate) type Identity = (u64, u128);

impl Value {
    /// Returns the identity of the value for the cache, which is slow the first time; `None` if it cannot be
    /// encoded.
    pub(crate) fn identity(&self) -> Option<Identity> {
        if let Some(identity) = self.0.identity.get() {
            return Some(*identity);
        }
        let identity = match self.known_name() {
            Some(name) => (name.bytes(), half(&name.hash())),
            // The thread of a worker has to survive an encoding that panics.
            None => catch_unwind(AssertUnwindSafe(|| self.fingerprint())).unwrap_or_default(),
        };
        if identity.1 == 0 { None } else { Some(*self.0.identity.get_or_init(|| identity)) }
    }

    /// Returns whether it is a file outside of this process, which every node has.
    pub(crate) fn is_outside(&self) -> bool {
        self.0.value.get().and_then(Typed::file).is_some_and(File::is_everywhere)
    }

    /// Returns the encoded size, in bytes, and the hash of the encoding; zeros if it cannot be encoded.
    pub(crate) fn fingerprint(&self) -> Identity {
        let encoded = self.0.encoded().clone();
        if let Some(encoded) = encoded {
            let mut counter = Hashing::default();
            while counter.bytes < encoded.bytes() {
                match encoded.part(counter.bytes, PART_BYTES) {
                    Ok(part) if !part.is_empty() => counter.take(&part),
                    _ => return (0, 0),
                }
            }
            return counter.done();
        }
        let Typed { value, kind } = self.0.value.get().expect("what is not encoded is a value");
        (kind.fingerprint)(&**value)
    }

    /// Does the same as [`fingerprint`](Self::fingerprint), but does not use an earlier encoding if the value is
    /// there.
    pub(crate) fn fingerprint_now(&self) -> Identity {
        match self.0.value.get() {
            Some(Typed { value, kind }) => (kind.fingerprint)(&**value),
            None => self.fingerprint(),
        }
    }
}
