//! Forecasts for a cluster of a given size: the end of the jobs, and their cost.
//!
//! With work W left, p workers at price c and r(p) = p·E(p) useful workers, the jobs take
//!
//! ```text
//! T(p) = start(p) + W / r(p) + tail,   and cost   C(p) = T(p)·(p·c + w) + begun quanta
//! ```
//!
//! where w is the price of an hour of delay. While new machines start, the present ones continue. As long as start
//! and tail are short, C = W·(p·c + w) / r(p): the best p does not depend on W.

use super::{
    Goals, MachineSeen, MachineState, Observation, OfferSeen, Place,
    ahead::{Ahead, described, serves},
    estimate::Guess,
    model::Curves,
    normal::{Z90, cdf},
    parallelism,
    spending::{HOUR_MS, Tariff, used_ms},
    starts::Starts,
    victims::ordered,
};

/// The time from the end of the last task to the end of the job, with the loss while the last tasks end, in seconds.
const TAIL_S: f64 = 3.0;
/// The error of the speed, as the standard deviation of its logarithm.
const SPEED_SIGMA: f64 = 0.015;
/// A paid quantum is used up only if it is longer than this.
pub(super) const QUANTUM_FINE_MS: u64 = 90_000;
/// The minimum useful share of the first such quantum of a new machine, for the median duration of the jobs.
const QUANTUM_USED_MIN: f64 = 0.25;
/// The maximum predicted duration, in seconds: thirty years.
const FOREVER_S: f64 = 1e9;
/// Points and weights of a normal distribution with the same first moments (E. Pearson and J. Tukey, 1965, rounded by
/// R. Swanson).
const POINTS: [(f64, f64); 3] = [(-Z90, 0.3), (0.0, 0.4), (Z90, 0.3)];

/// The input of all forecasts.
#[derive(Debug)]
pub(super) struct Outlook<'a> {
    pub(super) seen: &'a Observation,
    pub(super) goals: &'a Goals,
    pub(super) curves: Curves,
    /// The number of workers beyond which more are useless, from idle workers.
    pub(super) cap: Option<f64>,
    /// The work ahead, if all jobs report it: then it replaces the cap.
    ahead: Option<Ahead>,
    /// The remaining work, in seconds of a busy worker; `None` without a job.
    pub(super) left: Option<Guess>,
    /// Whether it is too early to estimate the end of the jobs.
    pub(super) is_early: bool,
    /// The known spending, and the time from which it is counted.
    pub(super) spent: f64,
    pub(super) spent_since_ms: u64,
    /// The machines that stay, the last victim first.
    machines: Vec<(&'a MachineSeen, Option<Tariff>, Source)>,
    /// The machines that can run none of the jobs and do not leave yet, the first victim first.
    unsuited: Vec<(&'a MachineSeen, Option<Tariff>)>,
    /// The available offers, the cheapest first.
    sources: Vec<Source>,
    /// Workers of members that no connector has started.
    base: f64,
    /// The offers, by their index, of which one machine each is started for demands that no node satisfies.
    required: Vec<usize>,
    /// The demands that no node and no available offer satisfies.
    unplaced: Vec<String>,
}

/// An offer with derived values.
#[derive(Debug, Clone, Copy)]
struct Source {
    /// Its index in the list of offers.
    index: usize,
    workers: f64,
    tariff: Option<Tariff>,
    start_s: f64,
    late_s: f64,
    minimum_s: f64,
    /// The number of further machines available.
    room: u32,
}

/// A size of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Size {
    /// The number of machines.
    pub(super) nodes: u32,
    /// The number of present machines that stay.
    pub(super) kept: usize,
    /// The machines to start: index in the list of offers, and number.
    pub(super) started: Vec<(usize, u32)>,
    /// All workers in the end.
    pub(super) workers: f64,
    /// The workers at present.
    now: f64,
    /// The mean time until the other workers arrive, in seconds.
    arrive_s: f64,
    /// The longest start time of the new machines, and their largest minimum bill, in seconds.
    start_s: f64,
    minimum_s: f64,
    /// The longest quantum of the new machines, of those longer than [`QUANTUM_FINE_MS`], in seconds.
    quantum_s: f64,
}

/// The forecast for a size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Forecast {
    /// The time until the jobs are finished, in seconds: the quantiles of 10, 50 and 90 %.
    pub(super) takes_s: [f64; 3],
    pub(super) mean_s: f64,
    /// The future cost of the machines: the mean, and the quantile of 90 %. `None` if a price is unknown.
    pub(super) money: Option<(f64, f64)>,
    /// The mean cost with the price of the delay.
    pub(super) total: Option<f64>,
    /// The probability of meeting the deadline; `None` without a deadline.
    pub(super) in_time: Option<f64>,
    /// E(p), with the idle time of workers for which the search has no tasks.
    pub(super) efficiency: f64,
}

impl<'a> Outlook<'a> {
    pub(super) fn new(
        seen: &'a Observation,
        goals: &'a Goals,
        starts: &Starts,
        curves: Curves,
        (spent, spent_since_ms): (f64, u64),
    ) -> Self {
        let source = |(index, offer): (usize, &OfferSeen)| {
            let have = seen.machines.iter().filter(|machine| machine.offer == offer.name).count();
            let room = offer.max.saturating_sub(u32::try_from(have).unwrap_or(u32::MAX));
            Source {
                index,
                workers: f64::from(offer.workers.max(1)),
                tariff: Tariff::of(offer),
                start_s: starts.median_s(offer),
                late_s: starts.late_s(offer),
                minimum_s: offer.minimum_ms as f64 / 1000.0,
                room: if offer.refused || offer.unsuited { 0 } else { room },
            }
        };
        let mut all: Vec<Source> = seen.offers.iter().enumerate().map(source).collect();
        let ahead = Ahead::of(seen);
        let share =
            |source: &Source| ahead.as_ref().map_or(1.0, |ahead| ahead.share(&seen.offers[source.index]));
        for source in &mut all {
            source.room = if share(source) > 0.0 { source.room } else { 0 };
        }
        let mut machines: Vec<_> = ordered(seen)
            .into_iter()
            .filter(|machine| !machine.noticed)
            .filter_map(|machine| {
                let place = seen.offers.iter().position(|offer| offer.name == machine.offer)?;
                Some((machine, all[place].tariff, all[place]))
            })
            .collect();
        machines.reverse();
        let (unsuited, machines): (Vec<_>, Vec<_>) =
            machines.into_iter().partition(|(machine, ..)| machine.unsuited);
        let unsuited = unsuited.into_iter().rev().map(|(machine, tariff, _)| (machine, tariff)).collect();
        let mut sources = all;
        // A worker counts by the share of the work that it can do.
        sources.sort_by(|one, two| {
            let price = |source: &Source| {
                effective_price(&seen.offers[source.index], source.start_s) / share(source).max(1e-9)
            };
            price(one).total_cmp(&price(two)).then(share(two).total_cmp(&share(one)))
        });
        let (required, unplaced) = required(seen, ahead.as_ref(), &sources);
        let ours: u32 = seen
            .machines
            .iter()
            .filter(|machine| machine.state == MachineState::Working && !machine.unsuited)
            .fold(0, |sum, machine| sum.saturating_add(machine.workers));
        let base = f64::from(seen.workers.saturating_sub(ours));
        Self {
            seen,
            goals,
            curves,
            cap: None,
            ahead,
            left: None,
            is_early: true,
            spent,
            spent_since_ms,
            machines,
            unsuited,
            sources,
            base,
            required,
            unplaced,
        }
    }

    /// The number of machines that stay, have no preemption notice and can run one of the jobs.
    pub(super) fn nodes_now(&self) -> u32 {
        u32::try_from(self.machines.len()).unwrap_or(u32::MAX)
    }

    /// The maximum number of machines available.
    pub(super) fn nodes_max(&self) -> u32 {
        self.sources.iter().fold(self.nodes_now(), |sum, source| sum.saturating_add(source.room))
    }

    /// The number of machines to start for demands that no node satisfies.
    pub(super) fn required(&self) -> u32 {
        u32::try_from(self.required.len()).unwrap_or(u32::MAX)
    }

    /// The number of present machines without which a demand of unfinished work would have no place.
    pub(super) fn indispensable(&self) -> u32 {
        let mut demands: Vec<_> = self.ahead.iter().flat_map(Ahead::demands).collect();
        let mut count = 0;
        for (machine, _, source) in self.machines.iter().filter(|_| self.base <= 0.0) {
            let before = demands.len();
            if machine.state == MachineState::Working {
                demands.retain(|demand| !serves(&self.seen.offers[source.index], demand));
            }
            count += u32::from(demands.len() < before);
        }
        count
    }

    /// The number of present machines, the last victims, that the ready and running items could keep busy.
    pub(super) fn occupied(&self) -> u32 {
        let mut busy = self.ahead.as_ref().map_or(0.0, Ahead::busy) - self.base;
        let mut count = 0;
        for (_, _, source) in &self.machines {
            if busy <= 0.0 {
                break;
            }
            busy -= source.workers;
            count += 1;
        }
        count
    }

    /// The demands that no node and no available offer satisfies.
    pub(super) fn unplaced(&self) -> &[String] {
        &self.unplaced
    }

    /// The number of workers beyond which more are useless, if known.
    pub(super) fn useful(&self) -> Option<f64> {
        self.ahead.as_ref().map(Ahead::width).or(self.cap)
    }

    /// Whether the number of useful workers is that of the work ahead.
    pub(super) fn is_reported(&self) -> bool {
        self.ahead.is_some()
    }

    /// The machines counted by [`nodes_now`](Self::nodes_now), the last victim first.
    pub(super) fn staying(&self) -> impl Iterator<Item = (&'a MachineSeen, Option<Tariff>)> {
        self.machines.iter().map(|(machine, tariff, _)| (*machine, *tariff))
    }

    /// The machines that can run none of the jobs and do not leave yet.
    pub(super) fn unsuited(&self) -> impl Iterator<Item = (&'a MachineSeen, Option<Tariff>)> {
        self.unsuited.iter().copied()
    }

    /// Returns how a number of machines is composed; `None` if there are not enough.
    pub(super) fn size(&self, nodes: u32) -> Option<Size> {
        // At the maximum, a required machine replaces another one.
        let replaced = if nodes >= self.goals.max { self.required() } else { 0 };
        let kept = self.machines.len().min(nodes.saturating_sub(replaced) as usize);
        let mut size = Size {
            nodes,
            kept,
            started: Vec::new(),
            workers: self.base,
            now: self.base,
            arrive_s: 0.0,
            start_s: 0.0,
            minimum_s: 0.0,
            quantum_s: 0.0,
        };
        let (mut arriving, mut weighted) = (0.0, 0.0);
        for (machine, _, source) in &self.machines[..kept] {
            if machine.state == MachineState::Working {
                size.now += f64::from(machine.workers);
                continue;
            }
            let for_s = self.seen.at_ms.saturating_sub(machine.requested_ms) as f64 / 1000.0;
            // A machine that is later than most is expected no sooner than a new one.
            let rest_s =
                if for_s < source.late_s { (source.start_s - for_s).max(5.0) } else { source.start_s };
            arriving += source.workers;
            weighted += source.workers * rest_s;
        }
        let mut missing = nodes - u32::try_from(kept).unwrap_or(u32::MAX);
        // One machine of each required offer first, then the cheapest ones.
        let mut others = missing.saturating_sub(self.required());
        missing -= others;
        for source in &self.sources {
            let required = u32::from(self.required.contains(&source.index)).min(missing);
            missing -= required;
            let count = required + others.min(source.room - required);
            if count == 0 {
                continue;
            }
            others -= count - required;
            size.started.push((source.index, count));
            arriving += source.workers * f64::from(count);
            weighted += source.workers * f64::from(count) * source.start_s;
            size.start_s = size.start_s.max(source.start_s);
            size.minimum_s = size.minimum_s.max(source.minimum_s);
            let quantum_ms = self.seen.offers[source.index].quantum_ms;
            if quantum_ms > QUANTUM_FINE_MS {
                size.quantum_s = size.quantum_s.max(quantum_ms as f64 / 1000.0);
            }
        }
        if missing + others > 0 {
            return None;
        }
        size.workers = size.now + arriving;
        size.arrive_s = if arriving > 0.0 { weighted / arriving } else { 0.0 };
        Some(size)
    }

    /// Whether no worker is a member, and all starting machines are later than the quantile of 90 %. A queued machine
    /// is not late: another one would wait behind it.
    pub(super) fn is_stuck(&self) -> bool {
        let is_late = |(machine, _, source): &(&MachineSeen, Option<Tariff>, Source)| {
            let for_s = self.seen.at_ms.saturating_sub(machine.requested_ms) as f64 / 1000.0;
            let is_queued = machine.place == Place::Queued;
            machine.state == MachineState::Starting && !is_queued && for_s > source.late_s
        };
        let is_known = self.seen.unread_members == 0;
        is_known && self.base <= 0.0 && !self.machines.is_empty() && self.machines.iter().all(is_late)
    }

    /// The number of workers that the search keeps busy. At the cap it is the number of workers that were busy: the
    /// cap divided by [`ROOM`](parallelism::ROOM).
    fn fed(&self, workers: f64) -> f64 {
        if let Some(ahead) = &self.ahead {
            return ahead.fed(workers);
        }
        let Some(cap) = self.cap else { return workers };
        let some = workers.min(cap);
        some * (1.0 - (1.0 - 1.0 / parallelism::ROOM) * some / cap)
    }

    /// The speed of a number of workers, in busy workers of the present cluster.
    pub(super) fn speed(&self, workers: f64) -> f64 {
        let fed = self.fed(workers);
        fed * self.curves.efficiency(fed) / self.curves.worth(f64::from(self.seen.workers.max(1)))
    }

    /// The useful share of a worker's time in a cluster of this many workers.
    pub(super) fn efficiency(&self, workers: f64) -> f64 {
        if workers <= 0.0 {
            return 1.0;
        }
        let fed = self.fed(workers);
        fed / workers * self.curves.efficiency(fed)
    }

    /// The useful share of the time of the last 13 % of the workers, at least one.
    pub(super) fn margin(&self, workers: f64) -> f64 {
        let fewer = (workers / 1.15).min(workers - 1.0).max(0.0);
        let one = self.speed(1.0).max(1e-9);
        (self.speed(workers) - self.speed(fewer)) / ((workers - fewer).max(1e-9) * one)
    }

    /// Forecasts a size; `None` without work.
    pub(super) fn forecast(&self, size: &Size) -> Option<Forecast> {
        let left = self.left?;
        let left = Guess { sigma: left.sigma.hypot(SPEED_SIGMA), ..left };
        let (before, after) = (self.speed(size.now), self.speed(size.workers));
        let tail_s = TAIL_S + self.ahead.as_ref().map_or(0.0, Ahead::tail_s);
        let takes = |work: f64| {
            let meanwhile = before * size.arrive_s;
            let seconds = if work <= meanwhile {
                work / before
            } else if after > 0.0 {
                size.arrive_s + (work - meanwhile) / after
            } else {
                FOREVER_S
            };
            (seconds + tail_s).min(FOREVER_S)
        };
        let takes_s = POINTS.map(|(z, _)| takes(left.at(z)));
        let mean =
            |values: [f64; 3]| values.iter().zip(POINTS).map(|(value, (_, weight))| value * weight).sum();
        let mean_s: f64 = mean(takes_s);
        let bills = takes_s.map(|seconds| self.bill(size, seconds));
        let money = match bills {
            [Some(short), Some(middle), Some(long)] => Some((mean([short, middle, long]), long)),
            _ => None,
        };
        let delay = self.goals.delay_price.unwrap_or(0.0) * mean_s * 1000.0 / HOUR_MS;
        let in_time = self.goals.deadline_ms.map(|deadline_ms| {
            let seconds = deadline_ms.saturating_sub(self.seen.at_ms) as f64 / 1000.0 - tail_s;
            let done =
                before * seconds.min(size.arrive_s).max(0.0) + after * (seconds - size.arrive_s).max(0.0);
            if done > 0.0 { cdf((done / left.median).ln() / left.sigma) } else { 0.0 }
        });
        Some(Forecast {
            takes_s,
            mean_s,
            money,
            total: money.map(|(money, _)| money + delay),
            in_time,
            efficiency: self.efficiency(size.workers),
        })
    }

    /// The future cost of the machines of a size that stay for a time; `None` if a price is unknown.
    pub(super) fn bill(&self, size: &Size, seconds: f64) -> Option<f64> {
        // Below 1e12, and not below 0.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded, see above")]
        let time_ms = (seconds * 1000.0) as u64;
        let mut bill = 0.0;
        for (machine, tariff, _) in &self.machines[..size.kept] {
            let tariff = (*tariff)?;
            bill += tariff.further(used_ms(machine, self.seen.at_ms), time_ms);
        }
        for (index, count) in &size.started {
            bill += Tariff::of(&self.seen.offers[*index])?.bill(time_ms) * f64::from(*count);
        }
        Some(bill)
    }

    /// Whether the new machines of a size would be useful for less time than they take to start or are billed for.
    /// The first machine is never too late, since no work is done without it.
    pub(super) fn comes_too_late(&self, size: &Size, forecast: &Forecast) -> bool {
        let is_first = size.nodes <= 1 && self.base <= 0.0;
        // The median, since a few very long jobs dominate the mean.
        let useful_s = forecast.takes_s[1] - size.start_s;
        // A started billing period is paid in full. Without a deadline, a machine starts only if the median forecast
        // of the jobs is at least a quarter of that period.
        let is_bound = self.goals.deadline_ms.is_some();
        let quantum_s = if is_bound { 0.0 } else { size.quantum_s * QUANTUM_USED_MIN };
        let is_short = useful_s < size.start_s.max(size.minimum_s) || forecast.takes_s[1] < quantum_s;
        !size.started.is_empty() && !is_first && is_short
    }
}

/// Returns the offers of which one machine each is started for ready work that no node can do, and the demands that no
/// available offer satisfies. A machine that starts satisfies the demands that its offer does. If one works and the demand is
/// still without a node, the offer promises more than its machines have, so no further one is started.
fn required(seen: &Observation, ahead: Option<&Ahead>, sources: &[Source]) -> (Vec<usize>, Vec<String>) {
    let exists = |index: usize, state: MachineState| {
        let machines = seen.machines.iter().filter(|machine| machine.state == state);
        machines.into_iter().any(|machine| machine.offer == seen.offers[index].name)
    };
    let (mut required, mut unplaced) = (Vec::new(), Vec::new());
    for demand in ahead.into_iter().flat_map(Ahead::demands).filter(|it| it.ready > 0 && !it.has_place) {
        let (tried, able): (Vec<&Source>, Vec<&Source>) = sources
            .iter()
            .filter(|source| serves(&seen.offers[source.index], demand))
            .partition(|source| exists(source.index, MachineState::Working));
        let comes = |source: &&Source| {
            required.contains(&source.index) || exists(source.index, MachineState::Starting)
        };
        if able.iter().any(comes) {
            continue;
        }
        match (able.iter().find(|source| source.room > 0), tried.first()) {
            (Some(source), _) => required.push(source.index),
            (None, None) => unplaced.push(described(demand)),
            (None, Some(source)) => unplaced.push(format!(
                "{} (correct the offer {:?}: its machines do not have it)",
                described(demand),
                seen.offers[source.index].name
            )),
        }
    }
    (required, unplaced)
}

/// The price of an hour of a worker, with the time lost when such a machine is taken away and its successor starts.
/// The unwritten work of a lost node, about a second, is neglected.
fn effective_price(offer: &OfferSeen, start_s: f64) -> f64 {
    let price = offer.price_per_hour.filter(|price| price.is_finite()).unwrap_or(f64::INFINITY);
    let losses = offer.losses_per_hour.filter(|losses| losses.is_finite() && *losses > 0.0).unwrap_or(0.0);
    price / f64::from(offer.workers.max(1)) * (1.0 + losses * start_s * 1000.0 / HOUR_MS)
}
