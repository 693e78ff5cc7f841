//! Detection of requests that a server answers by breaking the connection, as it does when they exceed its
//! `jute.maxbuffer`.

use crate::error::Error;

/// The minimum size of a request that may be the cause, in bytes.
const SUSPICIOUS_BYTES: usize = 4 << 10;
/// The number of consecutive broken connections after which a warning is due; each further one is due when
/// the number has doubled.
const LOSSES_WARNED: u32 = 3;

/// Counts the connections that broke while something large was being written.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// The smallest write that was lost since one of its size was answered.
    bytes: usize,
    count: u32,
    told: u32,
}

impl Losses {
    /// Records the outcome of a write. If a warning is due, returns the number of lost connections and the
    /// size in bytes.
    pub(crate) fn note(&mut self, bytes: usize, lost: Option<&Error>) -> Option<(u32, usize)> {
        if lost != Some(&Error::ConnectionLost) {
            // A write of at least that size succeeded, so the size is not the cause.
            if bytes >= self.bytes {
                *self = Self::default();
            }
            return None;
        }
        if bytes < SUSPICIOUS_BYTES {
            return None;
        }
        self.bytes = if self.count == 0 { bytes } else { self.bytes.min(bytes) };
        self.count += 1;
        if self.count < LOSSES_WARNED.max(2 * self.told) {
            return None;
        }
        self.told = self.count;
        Some((self.count, self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_losses_of_large_writes_warn_at_doubling_counts() {
        let mut losses = Losses::default();
        let mut told = Vec::new();
        for _ in 0..13 {
            told.extend(losses.note(9000, Some(&Error::ConnectionLost)));
            // The loss of small writes does not implicate large ones.
            assert_eq!(losses.note(100, None), None);
            assert_eq!(losses.note(100, Some(&Error::ConnectionLost)), None);
        }
        assert_eq!(told, [(3, 9000), (6, 9000), (12, 9000)]);
        // A server that is restarted occasionally also loses some writes.
        for _ in 0..10 {
            assert_eq!(losses.note(9000, None), None);
            assert_eq!(losses.note(9000, Some(&Error::ConnectionLost)), None);
            assert_eq!(losses.note(9000, Some(&Error::ConnectionLost)), None);
        }
    }
}
