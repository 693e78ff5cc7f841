//! What has happened to a node in a job, and when: for people who look at the job later.

use std::sync::{Mutex, PoisonError};

use zk::figures::{Moment, What};

use super::clock::unix_ms;

/// A bounded record of a node's life in a job.
#[derive(Debug, Default)]
pub(crate) struct Moments(Mutex<Vec<Moment>>);

/// How many moments are kept: of more, the first half and the latest.
const MOMENTS_MAX: usize = 64;

impl Moments {
    /// Notes that something happens now.
    pub(crate) fn note(&self, what: What, detail: impl Into<String>) {
        self.note_at(unix_ms(), what, detail);
    }

    /// Notes that something happened then.
    pub(crate) fn note_at(&self, at_ms: u64, what: What, detail: impl Into<String>) {
        let mut moments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if moments.len() >= MOMENTS_MAX {
            moments.remove(MOMENTS_MAX / 2);
        }
        moments.push(Moment { at_ms, what, detail: detail.into() });
    }

    /// Everything that was noted.
    pub(crate) fn all(&self) -> Vec<Moment> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_bounded_and_keeps_its_ends() {
        let moments = Moments::default();
        for at in 0..1000 {
            moments.note_at(at, What::Improved, "");
        }
        let kept: Vec<u64> = moments.all().iter().map(|moment| moment.at_ms).collect();
        assert_eq!((kept.len(), kept[0], kept[31], kept[63]), (MOMENTS_MAX, 0, 31, 999));
    }
}
