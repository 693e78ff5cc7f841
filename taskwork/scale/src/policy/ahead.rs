//! The work ahead that frameworks report: the workers that it can use, and the machines that it needs.
//!
//! The parallel time of dependent work has a lower bound (E. Fernandez and B. Bussell, 1973): if each item starts as late
//! as the longest chain allows, the work W(x) that lies more than x before the end is done before the last x seconds, so
//!
//! ```text
//! T(p) = max over x of x + W(x) / p
//! ```
//!
//! For x = 0 this is all work on p workers, and without work before x it is the longest chain. A schedule that starts the
//! longest chains first comes near it.

use taskwork::display::{WorkAhead, WorkDemand};

use super::{Observation, OfferSeen, estimate::Guess};

/// The additional standard deviation of the logarithm of the work while the program may add items.
const OPEN_SIGMA: f64 = 0.3;
/// If the standard deviation of the work is a larger share of it, the work is not known yet.
const EARLY_SHARE: f64 = 0.8;
/// The maximum standard deviation of the logarithm of such work: the first completed items tell more than machines that
/// are started for the case of much work.
const EARLY_SIGMA: f64 = 0.5;
const NS: f64 = 1e-9;

/// The work ahead of all jobs.
#[derive(Debug)]
pub(super) struct Ahead(WorkAhead);

impl Ahead {
    /// Adds the work ahead of all jobs; `None` unless each running job reports it.
    pub(super) fn of(seen: &Observation) -> Option<Self> {
        let mut jobs = seen.jobs.iter().map(|job| job.ahead.as_ref());
        let mut sum = jobs.next()??.clone();
        for job in jobs {
            sum.add(job?);
        }
        Some(Self(sum))
    }

    /// Whether items wait only for a worker.
    pub(super) fn has_ready(&self) -> bool {
        self.0.ready > 0
    }

    /// Returns the number of workers that could be busy at present.
    pub(super) fn busy(&self) -> f64 {
        self.0.ready as f64 + self.0.running as f64
    }

    fn work_s(&self) -> f64 {
        self.0.slices_ns.iter().map(|ns| *ns as f64).sum::<f64>() * NS
    }

    /// Returns the time that this many workers need, in seconds.
    fn time_s(&self, workers: f64) -> f64 {
        let slices = self.0.slices_ns.len();
        let width_s = self.0.longest_ns as f64 * NS / slices.max(1) as f64;
        let (mut work_s, mut longest) = (0.0, width_s * slices as f64);
        for (at, ns) in self.0.slices_ns.iter().enumerate() {
            work_s += *ns as f64 * NS;
            longest = longest.max((slices - at - 1) as f64 * width_s + work_s / workers);
        }
        longest
    }

    /// Returns the mean number of busy workers of this many. Before the first item one worker is busy, which makes them.
    pub(super) fn fed(&self, workers: f64) -> f64 {
        let work_s = self.work_s();
        if workers <= 0.0 || work_s <= 0.0 {
            return workers.clamp(0.0, 1.0);
        }
        (work_s / self.time_s(workers)).min(workers)
    }

    /// Returns the maximum mean number of busy workers.
    pub(super) fn width(&self) -> f64 {
        self.fed(f64::MAX)
    }

    /// Returns half of the mean time of an item, in seconds: the loss while the last items end.
    pub(super) fn tail_s(&self) -> f64 {
        let items = self.0.items.max(1) as f64;
        self.0.left_ns.map_or(0.0, |left_ns| left_ns as f64 * NS / items / 2.0)
    }

    /// Returns the demands of unfinished items.
    pub(super) fn demands(&self) -> impl Iterator<Item = &WorkDemand> {
        self.0.demands.iter().filter(|demand| demand.items > 0)
    }

    /// Returns the share of the work that the machines of an offer can do.
    pub(super) fn share(&self, offer: &OfferSeen) -> f64 {
        let other_ns = self.demands().filter(|demand| !serves(offer, demand)).map(|demand| demand.left_ns);
        let other_s = other_ns.fold(0.0, |sum, ns| sum + ns as f64) * NS;
        (1.0 - other_s / self.work_s().max(NS)).clamp(0.0, 1.0)
    }
}

/// Returns the remaining work of a job, in seconds; `None` if no duration is known.
pub(super) fn left(ahead: &WorkAhead) -> Option<Guess> {
    let mean = (ahead.left_ns? as f64 * NS).max(NS);
    let square = (ahead.deviation_ns as f64 * NS / mean).powi(2).ln_1p();
    let open: f64 = if ahead.is_open { OPEN_SIGMA } else { 0.0 };
    let sigma = square.sqrt().hypot(open);
    let sigma = if is_early(ahead) { sigma.min(EARLY_SIGMA) } else { sigma };
    Some(Guess { median: mean * (-square / 2.0).exp(), sigma })
}

/// Whether it is too early to estimate the remaining work: most of it is guessed.
pub(super) fn is_early(ahead: &WorkAhead) -> bool {
    let left = ahead.left_ns.map(|left_ns| left_ns as f64);
    left.is_none_or(|left| ahead.deviation_ns as f64 > EARLY_SHARE * left)
}

/// Returns whether the machines of an offer satisfy a demand. An unknown memory satisfies each.
pub(super) fn serves(offer: &OfferSeen, demand: &WorkDemand) -> bool {
    let has = |label: &String| match label.split_once('=') {
        Some((name, value)) => offer.labels.get(name).is_some_and(|has| has == value),
        None => offer.labels.contains_key(label),
    };
    offer.workers >= demand.workers
        && offer.memory_bytes.is_none_or(|bytes| bytes >= demand.memory_bytes)
        && demand.labels.iter().all(has)
}

/// Describes a demand for users.
pub(super) fn described(demand: &WorkDemand) -> String {
    let mut needs = Vec::new();
    if demand.workers > 1 {
        needs.push(format!("{} workers", demand.workers));
    }
    if demand.memory_bytes > 0 {
        needs.push(format!("{:.1} GiB of memory", demand.memory_bytes as f64 / f64::from(1 << 30)));
    }
    needs.extend(demand.labels.iter().map(|label| format!("the label {label}")));
    needs.join(" and ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::JobSeen;

    fn ahead(longest_s: f64, slices_s: &[f64]) -> Ahead {
        let ns =
            |seconds: f64| u64::try_from(std::time::Duration::from_secs_f64(seconds).as_nanos()).unwrap();
        let slices: Vec<u64> = slices_s.iter().map(|seconds| ns(*seconds)).collect();
        Ahead(
            serde_json::from_value(json!({
                "left_ns": slices.iter().sum::<u64>(), "longest_ns": ns(longest_s), "items": 100, "slices_ns": slices,
            }))
            .unwrap(),
        )
    }

    #[test]
    fn time_is_bounded_by_work_and_chain_and_both_together() {
        // A chain of 10 s, and 100 s of independent work.
        let independent = ahead(10.0, &[5.0, 105.0]);
        assert!((independent.time_s(1.0) - 110.0).abs() < 1e-6);
        assert!((independent.time_s(11.0) - 10.0).abs() < 1e-6);
        assert!((independent.fed(5.0) - 5.0).abs() < 1e-6);
        assert!((independent.width() - 11.0).abs() < 1e-6);
        // The work comes first, and a chain of 5 s follows.
        let before = ahead(10.0, &[100.0, 5.0]);
        assert!((before.time_s(10.0) - 15.0).abs() < 1e-6);
        assert!((before.fed(10.0) - 7.0).abs() < 1e-6);
    }

    #[test]
    fn work_without_items_occupies_one_worker() {
        let nothing = Ahead(WorkAhead::default());
        assert!((nothing.fed(8.0) - 1.0).abs() < 1e-9 && nothing.fed(0.0) <= 0.0);
        assert!(left(&nothing.0).is_none());
    }

    #[test]
    fn work_ahead_is_known_only_if_all_jobs_report_it() {
        let job =
            |ahead: Option<Ahead>| JobSeen { ahead: ahead.map(|Ahead(ahead)| ahead), ..JobSeen::default() };
        let seen = |jobs| Observation { jobs, ..Observation::default() };
        let one = || job(Some(ahead(1.0, &[4.0])));
        assert!(Ahead::of(&seen(vec![])).is_none());
        assert!(Ahead::of(&seen(vec![one(), job(None)])).is_none());
        assert!((Ahead::of(&seen(vec![one(), one()])).unwrap().width() - 8.0).abs() < 1e-6);
    }

    #[test]
    fn offer_serves_demand_by_workers_memory_and_labels() {
        let demand = |value| serde_json::from_value::<WorkDemand>(value).unwrap();
        let offer = OfferSeen {
            workers: 4,
            memory_bytes: Some(8 << 30),
            labels: [("gpu".to_owned(), "a100".to_owned())].into(),
            ..OfferSeen::default()
        };
        for (needs, is_served) in [
            (json!({"workers": 4, "memory_bytes": 8_u64 << 30, "labels": ["gpu"]}), true),
            (json!({"labels": ["gpu=a100"]}), true),
            (json!({"labels": ["gpu=h100"]}), false),
            (json!({"labels": ["disk"]}), false),
            (json!({"workers": 5}), false),
            (json!({"memory_bytes": 9_u64 << 30}), false),
        ] {
            assert_eq!(serves(&offer, &demand(needs.clone())), is_served, "{needs}");
        }
        let unknown = OfferSeen { memory_bytes: None, ..offer };
        assert!(serves(&unknown, &demand(json!({"memory_bytes": u64::MAX}))));
        let text = described(&demand(json!({"workers": 8, "memory_bytes": 64_u64 << 30, "labels": ["gpu"]})));
        assert_eq!(text, "8 workers and 64.0 GiB of memory and the label gpu");
    }
}
