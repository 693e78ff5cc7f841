//! Replies to other nodes that request versions of this node.
//!
//! A large version is not encoded while the requester waits for the reply. A separate thread encodes it to a file;
//! until it has finished, the reply is [`Answer::Prepares`].

use std::{sync::Arc, thread};

use super::{
    executor::Executor,
    fetches::{Ask, Piece},
    messages::News,
};
use crate::{ids::VersionId, value::Value};

/// The size from which a version is transferred through files on both sides and verified by its hash, in bytes.
const LARGE_BYTES_MIN: u64 = 16 << 20;

/// The answer to a request for a piece of a version.
#[derive(Debug)]
pub(crate) enum Answer {
    Piece(Piece),
    /// The version is not here.
    Absent,
    /// It is large and still being encoded.
    Prepares,
}

impl Executor {
    pub(crate) fn answer(self: &Arc<Self>, ask: Ask) -> Answer {
        let version = ask.version;
        let (Some(value), Some(bytes)) = (self.store.get(version), self.store.size(version)) else {
            return Answer::Absent;
        };
        let digest = value.known_digest();
        if bytes >= LARGE_BYTES_MIN && digest.is_none() {
            return self.prepare(version, value);
        }
        match Piece::of(ask, &value, digest.filter(|_| bytes >= LARGE_BYTES_MIN)) {
            Ok(piece) => {
                if value.is_twice() {
                    self.store.on_encoded(version);
                }
                Answer::Piece(piece)
            }
            Err(failed) => {
                self.on_corrupt(version, &failed.reason);
                Answer::Absent
            }
        }
    }

    /// Encodes a large version in the background.
    fn prepare(self: &Arc<Self>, version: VersionId, value: Value) -> Answer {
        if !self.preparing().insert(version) {
            return Answer::Prepares;
        }
        let executor = Arc::clone(self);
        let prepare = move || {
            let prepared = value.find_digest();
            if let Err(failed) = &prepared {
                executor.on_corrupt(version, &failed.reason);
            }
            executor.preparing().remove(&version);
        };
        match thread::Builder::new().name("encoder".to_owned()).spawn(prepare) {
            Ok(_) => Answer::Prepares,
            Err(error) => {
                tracing::warn!(%error, "cannot start the thread that encodes data for another node");
                self.preparing().remove(&version);
                Answer::Absent
            }
        }
    }

    fn on_corrupt(&self, version: VersionId, reason: &str) {
        let reason = self.here(reason);
        tracing::warn!(call = version.call, slot = version.slot, reason, "a stored version is corrupt");
        self.forget_rest(version, &reason);
        drop(self.forget(version));
        if let Some(report) = self.report() {
            report.tell(News::Damaged { version, reason });
        }
    }

    /// Removes the versions that are useless without a corrupt one.
    pub(super) fn forget_rest(&self, version: VersionId, reason: &str) {
        for other in self.rest_of_output(version) {
            drop(self.forget(other));
            if let Some(report) = self.report() {
                report.tell(News::Damaged { version: other, reason: reason.to_owned() });
            }
        }
    }
}
