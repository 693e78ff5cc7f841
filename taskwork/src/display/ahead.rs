//! The work ahead of a job, as its framework expects it. It determines the number of machines (`taskwork scale`).

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The number of equal parts of the longest chain in the sum of two outlooks.
const SLICES: usize = 32;
/// The maximum number of parts of the longest chain. Outlooks with more are refused.
const SLICES_MAX: usize = 64;
/// The maximum numbers of demands, and of labels in each. Further ones are dropped.
const DEMANDS_MAX: usize = 32;
const LABELS_MAX: usize = 16;
/// The maximum length of a label, in bytes. A demand with a longer one is dropped.
const LABEL_BYTES_MAX: usize = 200;

/// The work ahead of a job, in items such as the calls of a workflow. A companion provides it with its display
/// ([`JobDisplay::ahead`](super::JobDisplay::ahead)).
///
/// All times are those of one worker; an item that takes several workers counts its time once for each.
///
/// ```
/// use taskwork::display::{JobDisplay, WorkAhead};
///
/// let mut ahead = WorkAhead::default();
/// (ahead.left_ns, ahead.items, ahead.ready) = (Some(2_000), 2, 2);
/// (ahead.longest_ns, ahead.slices_ns) = (1_000, vec![2_000]);
/// let mut both = ahead.clone();
/// both.add(&ahead);
/// assert_eq!((both.left_ns, both.ready, both.longest_ns), (Some(4_000), 4, 1_000));
/// assert_eq!(JobDisplay::new().ahead(ahead).ahead.map(|ahead| ahead.items), Some(2));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WorkAhead {
    /// The expected time of all unfinished items, in nanoseconds; `None` if it cannot be estimated.
    pub left_ns: Option<u64>,
    /// The standard deviation of that time, in nanoseconds.
    pub deviation_ns: u64,
    /// The number of unfinished items.
    pub items: u64,
    /// The workers for the items that wait only for a worker.
    pub ready: u64,
    /// The workers of the running items.
    pub running: u64,
    /// The time of the longest chain of dependent items, in nanoseconds.
    pub longest_ns: u64,
    /// The work in equal parts of that chain, the first one first, if each item starts as late as the items after it
    /// allow; in nanoseconds. With one part, nothing depends on anything.
    pub slices_ns: Vec<u64>,
    /// Whether the program may still add items.
    pub is_open: bool,
    /// The demands of the items, without those that any worker satisfies.
    pub demands: Vec<WorkDemand>,
}

/// What items need from their node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WorkDemand {
    /// The workers on one node; 0 and 1 are satisfied by any node.
    pub workers: u32,
    /// The memory, in bytes.
    pub memory_bytes: u64,
    /// The labels of the node, each as `NAME` or `NAME=VALUE`.
    pub labels: Vec<String>,
    /// The number of unfinished items with this demand.
    pub items: u64,
    /// The number of these items that wait only for a worker. A machine starts for them if none has a place.
    pub ready: u64,
    /// The expected time of these items, in nanoseconds.
    pub left_ns: u64,
    /// Whether a present node satisfies the demand.
    pub has_place: bool,
}

impl WorkAhead {
    /// Reads the outlook of another process; `None` if it is missing or invalid.
    pub(super) fn read(content: &Value) -> Option<Self> {
        let mut ahead = Self::deserialize(content).ok().filter(|_| content.is_object())?;
        if ahead.slices_ns.len() > SLICES_MAX {
            return None;
        }
        let is_short = |demand: &WorkDemand| {
            demand.labels.len() <= LABELS_MAX
                && demand.labels.iter().all(|label| label.len() <= LABEL_BYTES_MAX)
        };
        ahead.demands.retain(is_short);
        ahead.demands.truncate(DEMANDS_MAX);
        Some(ahead)
    }

    /// Adds independent work. The chains of both end at the same time.
    pub fn add(&mut self, other: &Self) {
        self.left_ns = self.left_ns.zip(other.left_ns).map(|(own, more)| own.saturating_add(more));
        self.deviation_ns = rounded((self.deviation_ns as f64).hypot(other.deviation_ns as f64));
        for (sum, more) in [
            (&mut self.items, other.items),
            (&mut self.ready, other.ready),
            (&mut self.running, other.running),
        ] {
            *sum = sum.saturating_add(more);
        }
        let longest_ns = self.longest_ns.max(other.longest_ns);
        let mut sums = [0.0; SLICES];
        self.spread(longest_ns, &mut sums);
        other.spread(longest_ns, &mut sums);
        (self.longest_ns, self.slices_ns) = (longest_ns, sums.into_iter().map(rounded).collect());
        self.is_open |= other.is_open;
        for demand in &other.demands {
            match self.demands.iter().position(|own| own.is_like(demand)) {
                Some(own) => self.demands[own].add(demand),
                None if self.demands.len() < DEMANDS_MAX => self.demands.push(demand.clone()),
                None => {}
            }
        }
    }

    /// Adds the work to equal parts of a longer chain that ends at the same time.
    fn spread(&self, longest_ns: u64, sums: &mut [f64; SLICES]) {
        // As shares of the longer chain.
        let own = self.longest_ns as f64 / longest_ns.max(1) as f64;
        let part = own / self.slices_ns.len().max(1) as f64;
        let width = 1.0 / SLICES as f64;
        for (at, work) in self.slices_ns.iter().enumerate() {
            let from = 1.0 - own + part * at as f64;
            for (slice, sum) in sums.iter_mut().enumerate() {
                let (start, is_last) = (width * slice as f64, slice + 1 == SLICES);
                let overlap = (from + part).min(start + width) - from.max(start);
                // A chain without duration belongs to the end.
                let share = if part > 0.0 { overlap.max(0.0) / part } else { f64::from(u8::from(is_last)) };
                *sum += *work as f64 * share;
            }
        }
    }
}

impl WorkDemand {
    /// Returns whether any node with a worker satisfies the demand.
    pub fn is_plain(&self) -> bool {
        self.workers <= 1 && self.memory_bytes == 0 && self.labels.is_empty()
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.workers, self.memory_bytes, &self.labels) == (other.workers, other.memory_bytes, &other.labels)
    }

    fn add(&mut self, other: &Self) {
        self.items = self.items.saturating_add(other.items);
        self.ready = self.ready.saturating_add(other.ready);
        self.left_ns = self.left_ns.saturating_add(other.left_ns);
        self.has_place &= other.has_place;
    }
}

/// Rounds an amount, which is not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and none is below 0")]
fn rounded(amount: f64) -> u64 {
    amount.round() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chain(longest_ns: u64, slices_ns: &[u64]) -> WorkAhead {
        let left_ns = Some(slices_ns.iter().sum());
        WorkAhead { left_ns, longest_ns, slices_ns: slices_ns.to_vec(), ..WorkAhead::default() }
    }

    #[test]
    fn sum_aligns_chains_at_their_ends() {
        let mut sum = chain(3_200, &[3_200]);
        sum.add(&chain(800, &[80, 720]));
        assert_eq!((sum.longest_ns, sum.left_ns), (3_200, Some(4_000)));
        assert_eq!(sum.slices_ns[..24], [100; 24]);
        assert_eq!((sum.slices_ns[24], sum.slices_ns[31]), (120, 280));
        assert_eq!(sum.slices_ns.iter().sum::<u64>(), 4_000);
        sum.add(&WorkAhead { ready: 1, ..WorkAhead::default() });
        assert_eq!((sum.left_ns, sum.ready), (None, 1), "the time of a part is unknown");
    }

    #[test]
    fn sum_joins_equal_demands() {
        let demand = |label: &str, has_place| WorkDemand {
            labels: vec![label.to_owned()],
            items: 2,
            has_place,
            ..WorkDemand::default()
        };
        let mut sum = WorkAhead { demands: vec![demand("gpu", true)], ..WorkAhead::default() };
        sum.add(&WorkAhead {
            demands: vec![demand("gpu", false), demand("disk", true)],
            ..WorkAhead::default()
        });
        let seen = sum.demands.iter().map(|demand| (&*demand.labels[0], demand.items, demand.has_place));
        assert_eq!(seen.collect::<Vec<_>>(), [("gpu", 4, false), ("disk", 2, true)]);
    }

    #[test]
    fn invalid_outlook_is_skipped_and_demands_are_bounded() {
        for invalid in
            [json!(null), json!(7), json!([]), json!({"ready": -1}), json!({"slices_ns": vec![0; 65]})]
        {
            assert_eq!(WorkAhead::read(&invalid), None, "{invalid}");
        }
        let labels = [vec!["x"; 17], vec!["gpu"]];
        let demands: Vec<_> = labels.iter().map(|labels| json!({"labels": labels, "unknown": 1})).collect();
        let read = WorkAhead::read(&json!({"ready": 3, "later": {}, "demands": demands})).unwrap();
        assert_eq!((read.ready, read.demands.len(), &*read.demands[0].labels[0]), (3, 1, "gpu"));
        let many = vec![json!({"workers": 2}); 100];
        assert_eq!(WorkAhead::read(&json!({"demands": many})).unwrap().demands.len(), DEMANDS_MAX);
    }
}
