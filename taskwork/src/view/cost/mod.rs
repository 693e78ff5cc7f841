//! The costs of nodes during the observation: their time by activity, and money if they have a price.
//!
//! ```text
//! members ──time since the last tick──▶ credit ──▶ total, hours, labels
//! reports ──time of workers since the last one, at most the credit──▶ busy, starting; the rest is idle
//! ```
//!
//! A node counts from its observed join to its observed departure, also during outages of ZooKeeper. The time since the
//! last tick, which may be long after an outage, counts in the hours in which it passed. Reports are not trusted: they
//! never make a node busier than its time as a member. The cost of a job is independent of that: nodes report all
//! their work for it.

mod price;
mod shown;
mod spent;
mod sums;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use zk::{Labels, figures::EventKind, job::JobState, membership::Member};

pub use self::spent::{Costs, CostsAbout, CostsDelta, JobCost, Money, Spent};
use self::{
    price::{Price, PriceError},
    shown::Shown,
    spent::pay,
    sums::{ByLabel, Part},
};
use super::{
    frozen::Frozen,
    raw::{Raw, RawJob},
};
use crate::figures::WorkerTimes;

/// The maximum number of remembered prices of departed nodes.
const GONE_MAX: usize = 16_384;
/// The number of hours that are kept separately.
const HOURS_MAX: usize = 31 * 24;
/// The maximum number of currencies.
const CURRENCIES_MAX: usize = 4;
const HOUR_MS: u64 = 3_600_000;

/// Accumulates the costs of nodes.
#[derive(Debug, Default)]
pub(super) struct CostCount {
    since_ms: Option<u64>,
    /// The time up to which everything is counted.
    counted_ms: u64,
    nodes: BTreeMap<String, Node>,
    /// The known worker times, by job and node.
    times: BTreeMap<String, BTreeMap<String, Known>>,
    /// The number of jobs that each node works on.
    at_work: BTreeMap<String, u32>,
    currencies: BTreeSet<String>,
    total: Spent,
    hours: BTreeMap<u64, Spent>,
    labels: ByLabel,
    shown: Shown,
}

/// A current or former member.
#[derive(Debug)]
struct Node {
    /// Its record; `None` once it is gone.
    member: Option<Frozen<Member>>,
    workers: u32,
    price: Result<Option<Price>, String>,
    /// The positions of its labels' sums.
    labels: Vec<usize>,
    /// Whether it was asked to leave.
    leaves: bool,
    /// The time as a member, not leaving, that no report has accounted for yet, in milliseconds.
    credit_ms: u64,
    /// The tick at which it was gone.
    gone: u64,
}

/// The times of a node's workers for a job.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    last: WorkerTimes,
    /// The times before the node took the job again, when its times restarted at 0.
    earlier: WorkerTimes,
}

impl CostCount {
    /// Accumulates the costs up to a tick. `is_first` is whether nothing was shown before: the nodes' work until then
    /// was not observed.
    pub(super) fn tick(&mut self, seq: u64, at_ms: u64, raw: &Raw, is_silent: bool, is_first: bool) {
        if is_silent {
            return;
        }
        let is_begun = self.since_ms.is_some();
        let from_ms = if is_begun { self.counted_ms } else { at_ms };
        self.since_ms.get_or_insert(at_ms);
        self.counted_ms = at_ms;
        self.count_members(from_ms, at_ms, raw, is_begun);
        self.count_departed(seq, from_ms, at_ms, raw);
        self.count_reports(from_ms, at_ms, raw, is_first);
        while self.hours.len() > HOURS_MAX {
            self.hours.pop_first();
        }
        self.show(seq, at_ms);
    }

    fn count_members(&mut self, from_ms: u64, at_ms: u64, raw: &Raw, is_begun: bool) {
        for (name, joined) in &raw.members {
            // Members without workers have submitted a job.
            let Some(member) = joined.member.as_ref().filter(|member| member.workers > 0) else { continue };
            let known = self.nodes.get(name).and_then(|node| node.member.as_ref());
            // Members from before the observation count from its start.
            let begin_ms = if known.is_some() || !is_begun { from_ms } else { from_ms.max(joined.since_ms) };
            if !known.is_some_and(|known| known.is_same(member)) {
                self.meet(name, member);
            }
            let Some(node) = self.nodes.get_mut(name) else { continue };
            let is_draining = node.leaves || raw.draining.contains(name);
            let there_ms = at_ms.saturating_sub(begin_ms);
            if !is_draining {
                node.credit_ms = node.credit_ms.saturating_add(there_ms);
            }
            self.add(name, begin_ms..at_ms, there_ms, Part::There { draining: is_draining });
        }
    }

    /// Records a member and its labels.
    fn meet(&mut self, name: &str, member: &Frozen<Member>) {
        let price = self.price_of(&member.labels);
        let labels = self.labels.places_of(&member.labels);
        let node = self.nodes.entry(name.to_owned()).or_insert(Node {
            member: None,
            workers: 0,
            price: Ok(None),
            labels: Vec::new(),
            leaves: false,
            credit_ms: 0,
            gone: 0,
        });
        (node.member, node.workers, node.price, node.labels) =
            (Some(member.clone()), member.workers, price, labels);
    }

    fn price_of(&mut self, labels: &Labels) -> Result<Option<Price>, String> {
        let price = Price::of(labels).map_err(|error: PriceError| error.to_string())?;
        let Some(price) = price else { return Ok(None) };
        if self.currencies.len() >= CURRENCIES_MAX && !self.currencies.contains(&price.currency) {
            let others: Vec<&str> = self.currencies.iter().map(String::as_str).collect();
            return Err(format!(
                "label currency={} exceeds the limit of currencies: other nodes have prices in {}",
                price.currency,
                others.join(", ")
            ));
        }
        self.currencies.insert(price.currency.clone());
        Ok(Some(price))
    }

    fn count_departed(&mut self, seq: u64, from_ms: u64, at_ms: u64, raw: &Raw) {
        let here = self.nodes.iter().filter(|(_, node)| node.member.is_some());
        let gone: Vec<String> =
            here.map(|(name, _)| name).filter(|name| !raw.members.contains_key(*name)).cloned().collect();
        for name in gone {
            let until_ms = raw.departed.get(&name).map_or(at_ms, |departed| departed.at_ms).min(at_ms);
            let there_ms = until_ms.saturating_sub(from_ms);
            let Some(node) = self.nodes.get_mut(&name) else { continue };
            (node.member, node.gone) = (None, seq);
            let is_draining = node.leaves;
            if !is_draining {
                node.credit_ms = node.credit_ms.saturating_add(there_ms);
            }
            self.add(&name, from_ms..until_ms, there_ms, Part::There { draining: is_draining });
        }
        let gone = || self.nodes.iter().filter(|(_, node)| node.member.is_none());
        let surplus = gone().count().saturating_sub(GONE_MAX);
        if surplus > 0 {
            let mut earliest: Vec<(u64, String)> =
                gone().map(|(name, node)| (node.gone, name.clone())).collect();
            earliest.sort();
            for (_, name) in earliest.into_iter().take(surplus) {
                self.nodes.remove(&name);
            }
        }
    }

    fn count_reports(&mut self, from_ms: u64, at_ms: u64, raw: &Raw, is_first: bool) {
        let mut spent: Vec<(String, u64, u64)> = Vec::new();
        self.at_work.clear();
        for (id, job) in &raw.jobs {
            if job.record.as_ref().is_some_and(|record| record.state == JobState::Running) {
                for (node, _) in job.at_work(raw) {
                    *self.at_work.entry(node.to_owned()).or_default() += 1;
                }
            }
            // Forgotten reports were counted before.
            if !job.dirty || job.forgotten {
                continue;
            }
            let known = self.times.entry(id.clone()).or_default();
            for (name, report) in &job.reports {
                let since = known.entry(name.clone()).or_default().note(report.figures.times);
                if report.timeline.iter().any(|event| event.kind == EventKind::ToldToLeave)
                    && let Some(node) = self.nodes.get_mut(name)
                {
                    node.leaves |= !report.last;
                }
                let ns = [since.searching_ns.saturating_add(since.handling_ns), since.starting_ns];
                if !is_first && ns != [0, 0] {
                    spent.push((name.clone(), ns[0], ns[1]));
                }
            }
            known.retain(|name, _| job.reports.contains_key(name));
        }
        self.times.retain(|id, _| raw.jobs.get(id).is_some_and(|job| !job.reports.is_empty()));
        for (name, busy_ns, starting_ns) in spent {
            let Some(node) = self.nodes.get_mut(&name) else { continue };
            let [busy_ms, starting_ms] = [busy_ns, starting_ns].map(|ns| node_ms(ns, node.workers));
            let whole_ms = busy_ms + starting_ms;
            let share = if whole_ms > node.credit_ms as f64 { node.credit_ms as f64 / whole_ms } else { 1.0 };
            let [busy_ms, starting_ms] = [busy_ms, starting_ms].map(|ms| rounded(ms * share));
            node.credit_ms = node.credit_ms.saturating_sub(busy_ms + starting_ms);
            // The work was done since the last tick, or earlier if that period is too short for it.
            let since_ms = from_ms.min(at_ms.saturating_sub(busy_ms + starting_ms));
            self.add(&name, since_ms..at_ms, busy_ms, Part::Busy);
            self.add(&name, since_ms..at_ms, starting_ms, Part::Starting);
        }
    }

    /// Adds a part of a node's time, spread evenly over a period, to all sums.
    fn add(&mut self, name: &str, between: Range<u64>, ms: u64, part: Part) {
        let Some(node) = self.nodes.get(name).filter(|_| ms > 0) else { return };
        let price = node.price.as_ref().ok().and_then(Option::as_ref);
        self.total.add(ms, part, price);
        for (hour, ms) in by_hours(between, ms) {
            self.hours.entry(hour).or_default().add(ms, part, price);
        }
        for &place in &node.labels {
            self.labels.sums[place].1.add(ms, part, price);
        }
    }

    /// Returns the costs of a job; `None` if no node has reported on it.
    pub(super) fn of_job(&self, id: &str, job: &RawJob, raw: &Raw) -> Option<JobCost> {
        let known = self.times.get(id).filter(|known| !known.is_empty())?;
        let mut cost =
            JobCost { nodes: u32::try_from(known.len()).unwrap_or(u32::MAX), ..JobCost::default() };
        let (mut busy, mut starting, mut whole, mut unpriced) = (0.0, 0.0, 0.0, 0.0);
        for (name, known) in known {
            let Some(node) = self.nodes.get(name) else {
                cost.unseen += 1;
                cost.unpriced += 1;
                continue;
            };
            let mut times = known.earlier;
            times += known.last;
            let ms = |ns| node_ms(ns, node.workers);
            let its = ms(times.total_ns());
            busy += ms(times.searching_ns.saturating_add(times.handling_ns));
            starting += ms(times.starting_ns);
            whole += its;
            if let Ok(Some(price)) = &node.price {
                pay(&mut cost.spent.money, &price.currency, price.of_ms(its));
            } else {
                cost.unpriced += 1;
                unpriced += its;
            }
        }
        let spent = &mut cost.spent;
        (spent.node_ms, spent.unpriced_ms) = (rounded(whole), rounded(unpriced));
        (spent.busy_ms, spent.starting_ms) = (rounded(busy), rounded(starting));
        if job.record.as_ref().is_some_and(|record| record.state == JobState::Running) {
            for (name, _) in job.at_work(raw) {
                let jobs = self.at_work.get(name).copied().unwrap_or(1).max(1);
                if let Some(Ok(Some(price))) = self.nodes.get(name).map(|node| &node.price) {
                    pay(&mut cost.an_hour, &price.currency, price.an_hour / f64::from(jobs));
                }
            }
        }
        Some(cost)
    }
}

/// Splits a time, spread evenly over a period, by hour; only the latest hours are kept.
fn by_hours(between: Range<u64>, ms: u64) -> impl Iterator<Item = (u64, u64)> {
    let Range { start, end } = between;
    let last = end.saturating_sub(1).max(start) / HOUR_MS;
    let first = (start / HOUR_MS).max(last.saturating_sub(HOURS_MAX as u64 - 1));
    let spent_until = move |at_ms: u64| match u128::from(end.saturating_sub(start)) {
        0 => u128::from(if at_ms > start { ms } else { 0 }),
        whole => u128::from(ms) * u128::from(at_ms.clamp(start, end) - start) / whole,
    };
    (first..=last).filter_map(move |hour| {
        let (from_ms, to_ms) = (hour * HOUR_MS, (hour + 1).saturating_mul(HOUR_MS));
        let its = u64::try_from(spent_until(to_ms) - spent_until(from_ms)).unwrap_or(u64::MAX);
        (its > 0).then_some((hour, its))
    })
}

/// Converts a time of workers to a time of their node, in milliseconds.
fn node_ms(ns: u64, workers: u32) -> f64 {
    ns as f64 / 1e6 / f64::from(workers.max(1))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a conversion of floats saturates"
)]
fn rounded(ms: f64) -> u64 {
    ms.round() as u64
}

impl Known {
    /// Records reported times. Returns the increase.
    fn note(&mut self, times: WorkerTimes) -> WorkerTimes {
        let last = std::mem::replace(&mut self.last, times);
        if times.total_ns() < last.total_ns() {
            self.earlier += last;
            return times;
        }
        WorkerTimes {
            searching_ns: times.searching_ns.saturating_sub(last.searching_ns),
            handling_ns: times.handling_ns.saturating_sub(last.handling_ns),
            looking_ns: times.looking_ns.saturating_sub(last.looking_ns),
            starting_ns: times.starting_ns.saturating_sub(last.starting_ns),
        }
    }
}
