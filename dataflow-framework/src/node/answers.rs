//! What a node answers to others that ask for its versions.
//!
//! What is large is not encoded while somebody waits for the answer, but by a thread of its own, to a file; until that
//! is done the answer is that it is being prepared.

use std::{sync::Arc, thread};

use super::{
    executor::Executor,
    fetches::{Ask, Piece},
    messages::News,
};
use crate::{ids::VersionId, value::Value};

/// The size beyond which a version goes through files on both sides, and is checked by its hash, in bytes.
const LARGE_BYTES_MIN: u64 = 16 << 20;

/// The answer to a request for a piece of a version.
#[derive(Debug)]
pub(crate) enum Answer {
    Piece(Piece),
    /// The version is not here.
    Absent,
    /// It is large, and will be ready to be sent soon.
    Prepares,
}

impl Executor {
    /// Answers what another node asks.
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
                    self.store.is_encoded(version);
                }
                Answer::Piece(piece)
            }
            Err(failed) => {
                self.is_damaged(version, &failed.reason);
                Answer::Absent
            }
        }
    }

    /// Has a version prepared that is large.
    fn prepare(self: &Arc<Self>, version: VersionId, value: Value) -> Answer {
        if !self.prepares().insert(version) {
            return Answer::Prepares;
        }
        let site = Arc::clone(self);
        let prepare = move || {
            let prepared = value.find_digest();
            if let Err(failed) = &prepared {
                site.is_damaged(version, &failed.reason);
            }
            site.prepares().remove(&version);
        };
        match thread::Builder::new().name("encoder".to_owned()).spawn(prepare) {
            Ok(_) => Answer::Prepares,
            Err(error) => {
                tracing::warn!(%error, "no thread could be started that prepares data for another node");
                self.prepares().remove(&version);
                Answer::Absent
            }
        }
    }

    /// Takes in that a version that was here cannot be read any more.
    fn is_damaged(&self, version: VersionId, reason: &str) {
        let reason = self.here(reason);
        tracing::warn!(call = version.call, slot = version.slot, reason, "a version cannot be read any more");
        self.loses_rest(version, &reason);
        drop(self.forget(version));
        if let Some(report) = self.report() {
            report.tell(News::Damaged { version, reason });
        }
    }

    /// Forgets what is of no use without a version that cannot be read any more.
    pub(super) fn loses_rest(&self, version: VersionId, reason: &str) {
        for other in self.goes_with(version) {
            drop(self.forget(other));
            if let Some(report) = self.report() {
                report.tell(News::Damaged { version: other, reason: reason.to_owned() });
            }
        }
    }
}
