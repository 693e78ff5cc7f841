//! The permutation flow shop (E. Taillard, Benchmarks for basic scheduling problems, 1993).
//!
//! An order is built from both ends: the next job is put after those at the front, or before those at the
//! back, whichever leaves less to search (J. Gmys, M. Mezmaz, N. Melab and D. Tuyttens, A computationally
//! efficient branch-and-bound algorithm for the permutation flow-shop scheduling problem, 2020). The bound
//! considers each machine alone: its time for the front, all remaining jobs one after another, and the time
//! for the back. If that does not prune, pairs of machines are considered as well, while that prunes; with
//! few jobs relative to the machines, only near the root.

mod bound;
mod greedy;
mod pairs;
mod program;
mod read;
#[cfg(test)]
mod tests;
mod time;

use std::ops::RangeInclusive;

use bnb_framework::{Children, Hooks, InPlace, Moves, Problem, Tree};
use serde::{Deserialize, Serialize};

pub use self::program::{Arguments, main};
pub use self::read::{FILE_BYTES_MAX, JOBS_MAX, MACHINES_MAX, parse};
use self::{
    bound::{Ends, Tables},
    time::Time,
};

/// An instance. Only the times are sent; the rest is computed from them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Given", into = "Given")]
pub struct FlowShop {
    jobs: usize,
    machines: usize,
    /// The time of each job on each machine, job by job.
    times: Vec<u32>,
    /// The earliest time at which any job can reach each machine.
    heads: Vec<u32>,
    /// The minimum time after any job on each machine.
    tails: Vec<u32>,
    bounds: Bounds,
    /// The least number of remaining jobs for which pairs of machines are considered.
    pairs_from: usize,
    /// No time on any machine.
    nothing: Vec<u32>,
}

/// The instance data of a flow shop.
#[derive(Serialize, Deserialize)]
#[serde(rename = "FlowShop")]
struct Given {
    machines: usize,
    /// The time of each job on each machine, job by job.
    times: Vec<u32>,
}

impl From<Given> for FlowShop {
    fn from(Given { machines, times }: Given) -> Self {
        Self::by_job(machines, times)
    }
}

impl From<FlowShop> for Given {
    fn from(FlowShop { machines, times, .. }: FlowShop) -> Self {
        Self { machines, times }
    }
}

/// The input of the bounds, in the narrowest number type that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Bounds {
    Narrow(Tables<i16>),
    Wide(Tables<u32>),
}

/// A partial order: some jobs are at the front, some at the back. There is one state for a whole search,
/// changed in place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    front: Vec<u16>,
    /// From the last job on.
    back: Vec<u16>,
    /// Whether each job is left.
    left: Vec<bool>,
    /// The total time of the remaining jobs on each machine.
    work: Vec<u32>,
    /// The time at which each machine is done with the front; one row for each job at the front, stacked.
    done: Vec<u32>,
    /// The time that each machine and those after it still need from the beginning of the back, likewise.
    needed: Vec<u32>,
    /// A lower bound on the makespan.
    low: u32,
    /// The makespan of the best order known when the bound was last computed.
    best: u32,
    /// Room for the bounds of the children.
    #[serde(skip)]
    room: Option<Box<Room>>,
}

/// Buffers for the bounds of the children; only one is in use.
#[derive(Debug, Default)]
struct Room {
    narrow: Ends<i16>,
    wide: Ends<u32>,
}

/// Clones are empty: only capacity is kept.
impl Clone for Room {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The jobs that were not tried yet at one end, each with a lower bound on the makespan if it comes next;
/// the worst first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Next {
    at_front: bool,
    jobs: Vec<(u32, u16)>,
}

/// The least number of remaining jobs for which pairs of machines are worth their time.
const PAIRS_FROM: usize = 8;
/// The end of the range of the generator's seeds.
const SEED_END: u32 = i32::MAX as u32;

impl FlowShop {
    /// Creates an instance from the times of each machine.
    pub fn new(jobs: usize, machines: usize, by_machine: Vec<u32>) -> Self {
        let times: Vec<u32> = (0..jobs)
            .flat_map(|job| (0..machines).map(move |m| (job, m)))
            .map(|(job, m)| by_machine[m * jobs + job])
            .collect();
        drop(by_machine);
        Self::by_job(machines, times)
    }

    fn by_job(machines: usize, times: Vec<u32>) -> Self {
        let jobs = times.len() / machines.max(1);
        let least = |sum: &dyn Fn(&[u32], usize) -> u32| -> Vec<u32> {
            (0..machines).map(|m| times.chunks(machines).map(|job| sum(job, m)).min().unwrap_or(0)).collect()
        };
        let heads = least(&|job, m| job[..m].iter().sum());
        let tails = least(&|job, m| job[m + 1..].iter().sum());
        // No bound is longer than a way over all jobs and, before, between and after them, all machines.
        let longest = times.iter().max().map_or(0, |time| (jobs + 3 * machines) * *time as usize);
        let bounds = if i16::try_from(longest).is_ok() {
            Bounds::Narrow(Tables::new(machines, &times))
        } else {
            Bounds::Wide(Tables::new(machines, &times))
        };
        // If there are few jobs for the machines, pairs cost more than they save: 20 jobs on 20 machines took 1.3 times
        // as long, 20 jobs on 10 machines 0.65 times. Near the root they cost next to nothing.
        let pairs_from =
            if jobs < 2 * machines { (jobs * 9).div_ceil(10).max(PAIRS_FROM) } else { PAIRS_FROM };
        Self { jobs, machines, times, heads, tails, bounds, pairs_from, nothing: vec![0; machines] }
    }

    /// Creates Taillard's instance of a seed: times from 1 to 99 by his generator.
    pub fn generate(jobs: usize, machines: usize, seed: u32) -> Self {
        let mut seed = i64::from(seed);
        let mut next = || {
            let (rounds, rest) = (seed / 127_773, seed % 127_773);
            seed = 16_807 * rest - 2_836 * rounds;
            if seed < 0 {
                seed += i64::from(SEED_END);
            }
            u32::try_from(1 + seed * 99 / i64::from(SEED_END)).unwrap_or(99)
        };
        Self::new(jobs, machines, (0..jobs * machines).map(|_| next()).collect())
    }

    fn job(&self, job: u16) -> &[u32] {
        &self.times[usize::from(job) * self.machines..][..self.machines]
    }

    fn makespan(&self, order: &[u16]) -> u32 {
        let mut done = vec![0; self.machines];
        for &job in order {
            let mut before = 0;
            for (done, time) in done.iter_mut().zip(self.job(job)) {
                *done = before.max(*done) + time;
                before = *done;
            }
        }
        done.last().copied().unwrap_or(0)
    }

    /// Returns the range of possible makespans: from the bound of each machine alone to all jobs one after
    /// another.
    fn makespans(&self) -> RangeInclusive<u32> {
        let load = |m: usize| self.times.iter().skip(m).step_by(self.machines).sum::<u32>();
        let least = (0..self.machines).map(|m| self.heads[m] + load(m) + self.tails[m]).max();
        least.unwrap_or(0)..=self.times.iter().sum()
    }
}

impl FlowShop {
    /// Branches at the end where fewer jobs could lead to a better order; if equal, where the bounds are
    /// worse.
    fn bounded<T: Time>(&self, tables: &Tables<T>, ends: &mut Ends<T>, order: &Order) -> Next {
        ends.look(self, tables, order);
        if !tables.pairs.is_empty() && ends.jobs.len() >= self.pairs_from {
            ends.each_pair(&tables.pairs, order.best);
        }
        let is_hopeful = |low: u32| low < order.best || order.best == u32::MAX;
        let worth = |at_front: bool| {
            let lows = || ends.lows(at_front).iter().map(|low| low.to_u32());
            let sum: u64 = lows().map(u64::from).sum();
            (lows().filter(|low| is_hopeful(*low)).count(), std::cmp::Reverse(sum))
        };
        let at_front = worth(true) <= worth(false);
        let lows = ends.lows(at_front).iter().map(|low| low.to_u32());
        let children = lows.zip(ends.jobs.iter().copied());
        let mut jobs: Vec<(u32, u16)> = children.filter(|(low, _)| is_hopeful(*low)).collect();
        jobs.sort_unstable_by(|a, b| b.cmp(a));
        Next { at_front, jobs }
    }
}

impl Order {
    /// Returns the earliest time at which each machine is done with the front.
    fn done<'a>(&'a self, shop: &'a FlowShop) -> &'a [u32] {
        if self.front.is_empty() { &shop.heads } else { &self.done[self.done.len() - shop.machines..] }
    }

    /// Returns the minimum time that each machine and those after it need for the back.
    fn needed<'a>(&'a self, shop: &'a FlowShop) -> &'a [u32] {
        if self.back.is_empty() { &shop.tails } else { &self.needed[self.needed.len() - shop.machines..] }
    }

    fn put(&mut self, shop: &FlowShop, job: u16, at_front: bool) {
        let times = shop.job(job);
        self.left[usize::from(job)] = false;
        self.work.iter_mut().zip(times).for_each(|(work, time)| *work -= time);
        let (row, jobs) =
            if at_front { (&mut self.done, &mut self.front) } else { (&mut self.needed, &mut self.back) };
        let (start, first) = (row.len(), jobs.is_empty());
        row.resize(start + shop.machines, 0);
        let mut beside = 0;
        for step in 0..shop.machines {
            let machine = if at_front { step } else { shop.machines - 1 - step };
            let before = if first { 0 } else { row[start - shop.machines + machine] };
            beside = before.max(beside) + times[machine];
            row[start + machine] = beside;
        }
        jobs.push(job);
    }

    fn take_back(&mut self, shop: &FlowShop, at_front: bool) {
        let (row, jobs) =
            if at_front { (&mut self.done, &mut self.front) } else { (&mut self.needed, &mut self.back) };
        let Some(job) = jobs.pop() else { return };
        row.truncate(row.len() - shop.machines);
        self.left[usize::from(job)] = true;
        self.work.iter_mut().zip(shop.job(job)).for_each(|(work, time)| *work += time);
    }
}

impl Tree for FlowShop {
    type State = Order;
    type Children = Next;

    fn root(&self) -> Order {
        let work =
            (0..self.machines).map(|m| self.times.iter().skip(m).step_by(self.machines).sum()).collect();
        let (front, back, done, needed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Order {
            front,
            back,
            left: vec![true; self.jobs],
            work,
            done,
            needed,
            low: 0,
            best: u32::MAX,
            room: None,
        }
    }

    fn branch(&self, order: &mut Order) -> Next {
        let mut room = order.room.take().unwrap_or_default();
        let next = match &self.bounds {
            Bounds::Narrow(tables) => self.bounded(tables, &mut room.narrow, order),
            Bounds::Wide(tables) => self.bounded(tables, &mut room.wide, order),
        };
        order.room = Some(room);
        next
    }
}

impl Children<FlowShop> for Next {
    type Step = Moves;

    fn next(&mut self, shop: &FlowShop, parent: &Order) -> Option<Order> {
        let mut child = parent.clone();
        self.descend(shop, &mut child).then_some(child)
    }

    /// Splits off the half that looks worse.
    fn split(&mut self, _: &FlowShop, _: &Order) -> Option<Self> {
        let kept = self.jobs.split_off(self.jobs.len().div_ceil(2));
        let away = Self { at_front: self.at_front, jobs: std::mem::replace(&mut self.jobs, kept) };
        (!away.jobs.is_empty()).then_some(away)
    }

    fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    fn is_single(&self, _: &FlowShop, _: &Order) -> bool {
        self.jobs.len() == 1
    }

    fn count(&self, _: &FlowShop, _: &Order) -> u64 {
        self.jobs.len() as u64
    }
}

impl InPlace<FlowShop> for Next {
    fn descend(&mut self, shop: &FlowShop, order: &mut Order) -> bool {
        let Some((low, job)) = self.jobs.pop() else { return false };
        order.low = low;
        order.put(shop, job, self.at_front);
        true
    }

    fn ascend(&self, shop: &FlowShop, order: &mut Order) {
        order.take_back(shop, self.at_front);
    }
}

impl Problem for FlowShop {
    /// The time at which the last machine is done.
    type Cost = u32;
    /// The jobs in order, from 0.
    type Solution = Vec<u16>;
    const WORST_LAST: bool = true;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new()
        .construct(|shop, seed, stops| Some(shop.inserted(seed, stops)))
        .improve(|shop, order, seed, stops| shop.bettered(order, seed, stops));

    fn leaf(&self, order: &Order) -> Option<u32> {
        if order.front.len() + order.back.len() < self.jobs {
            return None;
        }
        if order.back.is_empty() {
            return order.done(self).last().copied();
        }
        if order.front.is_empty() {
            return order.needed(self).first().copied();
        }
        order.done(self).iter().zip(order.needed(self)).map(|(done, needed)| done + needed).max()
    }

    fn bound(&self, order: &mut Order, best: Option<u32>) -> Option<u32> {
        order.best = best.unwrap_or(u32::MAX);
        Some(order.low)
    }

    fn solution(&self, order: &Order) -> Vec<u16> {
        order.front.iter().chain(order.back.iter().rev()).copied().collect()
    }

    fn cost_of(&self, order: &Vec<u16>) -> Option<u32> {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sorted.iter().map(|&job| usize::from(job)).eq(0..self.jobs).then(|| self.makespan(order))
    }
}
