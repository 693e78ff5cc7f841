//! Good orders without the tree: jobs are inserted one by one where the makespan is least (M. Nawaz, E.
//! Enscore and I. Ham, 1983), and then taken out and inserted again, again and again (R. Ruiz and T.
//! Stützle, A simple and effective iterated greedy algorithm for the permutation flowshop scheduling
//! problem, 2007).
//!
//! The makespans of all places for a job come from one pass over the order (E. Taillard, Some efficient
//! heuristic methods for the flow shop sequencing problem, 1990).

use std::cmp::Reverse;

use super::FlowShop;
use crate::random::Random;

/// The number of jobs that are taken out at a time.
const TAKEN_OUT: usize = 4;
/// The work of a round, in steps of about a nanosecond: one for each machine and place that is looked at.
const ROUND_STEPS: u64 = 20_000_000;
/// The work to build an order; any further jobs are put at its end.
const BUILD_STEPS: u64 = 300_000_000;
/// The work to improve the order that a search starts with.
const START_STEPS: u64 = 30_000_000;

/// Inserts jobs, and counts the work.
struct Inserter<'a> {
    shop: &'a FlowShop,
    stops: &'a dyn Fn() -> bool,
    random: Random,
    steps_left: u64,
    /// For each place, when each machine is done with the jobs before it, and the time from there on.
    done: Vec<u32>,
    needed: Vec<u32>,
    /// The makespan if the job is inserted at each place.
    makespans: Vec<u32>,
}

impl FlowShop {
    /// Returns an order to start with, in a time that is limited however large the instance is.
    pub(super) fn start_order(&self) -> (u32, Vec<u16>) {
        let mut inserter = Inserter::new(self, 0, BUILD_STEPS, &|| false);
        let order = inserter.build(0);
        inserter.steps_left = START_STEPS;
        let order = inserter.iterate(&order);
        (self.makespan(&order), order)
    }

    /// Returns an order that is built by insertion, a different one for each seed.
    pub(super) fn inserted(&self, seed: u64, stops: &dyn Fn() -> bool) -> Vec<u16> {
        Inserter::new(self, seed, BUILD_STEPS, stops).build(seed)
    }

    /// Returns a better order if a round of the iterated greedy algorithm finds one.
    pub(super) fn bettered(&self, order: &[u16], seed: u64, stops: &dyn Fn() -> bool) -> Option<Vec<u16>> {
        let better = Inserter::new(self, seed, ROUND_STEPS, stops).iterate(order);
        (self.makespan(&better) < self.makespan(order)).then_some(better)
    }
}

impl<'a> Inserter<'a> {
    fn new(shop: &'a FlowShop, seed: u64, steps_left: u64, stops: &'a dyn Fn() -> bool) -> Self {
        let (done, needed, makespans) = (Vec::new(), Vec::new(), Vec::new());
        Self { shop, stops, random: Random::new(seed), steps_left, done, needed, makespans }
    }

    /// Inserts the jobs one by one, the longest first; for a seed other than 0, only approximately so. If it is
    /// stopped, the remaining jobs are appended.
    fn build(&mut self, seed: u64) -> Vec<u16> {
        let length = |job: u16| self.shop.job(job).iter().map(|time| u64::from(*time)).sum::<u64>();
        let mut jobs: Vec<(u64, u16)> =
            (0_u16..).take(self.shop.jobs).map(|job| (length(job) * 100, job)).collect();
        if seed != 0 {
            for (length, _) in &mut jobs {
                *length = *length / 100 * (100 + self.random.below(16) as u64);
            }
        }
        jobs.sort_by_key(|&(length, _)| Reverse(length));
        let mut order = Vec::with_capacity(jobs.len());
        for (_, job) in jobs {
            if self.insert(&mut order, job).is_none() {
                order.push(job);
            }
        }
        order
    }

    /// Takes jobs out and inserts them again until the work is done, and returns the best order on the way.
    fn iterate(&mut self, start: &[u16]) -> Vec<u16> {
        let mut order = start.to_vec();
        let mut makespan = self.shop.makespan(&order);
        let (mut best, mut least) = (order.clone(), makespan);
        if order.len() < 2 {
            return best;
        }
        let all: u64 = self.shop.times.iter().map(|time| u64::from(*time)).sum();
        loop {
            let mut next = order.clone();
            let Some(reached) = self.renew(&mut next) else { return best };
            if reached < least {
                (best, least) = (next.clone(), reached);
            }
            // Worse orders are accepted as by annealing at a temperature of a 25th of the mean time: powers
            // of two are as likely as those of e if the exponent is smaller by ln 2, about 7 / 10.
            let worse = u64::from(reached.saturating_sub(makespan));
            let luck = u64::from(self.random.next().trailing_zeros());
            if worse * 250 * self.shop.times.len() as u64 <= luck * 7 * all {
                (order, makespan) = (next, reached);
            }
        }
    }

    /// Removes some jobs from an order, inserts them again, and then reinserts each job while that helps.
    /// Returns the makespan, or `None` if the work budget is exhausted before.
    fn renew(&mut self, order: &mut Vec<u16>) -> Option<u32> {
        let taken = TAKEN_OUT.min(order.len() - 1);
        let out: Vec<u16> = (0..taken).map(|_| order.remove(self.random.below(order.len()))).collect();
        let mut makespan = 0;
        for job in out {
            makespan = self.insert(order, job)?;
        }
        let mut jobs = order.clone();
        loop {
            let before = makespan;
            self.random.shuffle(&mut jobs);
            for &job in &jobs {
                let place = order.iter().position(|&other| other == job)?;
                order.remove(place);
                let reached = self.insert(order, job)?;
                makespan = makespan.min(reached);
            }
            if makespan == before {
                return Some(makespan);
            }
        }
    }

    /// Inserts a job at the position with the lowest makespan. Returns the makespan, or `None`
    /// if it was stopped.
    fn insert(&mut self, order: &mut Vec<u16>, job: u16) -> Option<u32> {
        let steps = 3 * (order.len() as u64 + 1) * self.shop.machines as u64;
        self.steps_left = self.steps_left.checked_sub(steps)?;
        if (self.stops)() {
            return None;
        }
        self.look_at_places(order, job);
        let least = self.makespans.iter().copied().min()?;
        let places: Vec<usize> = (0..=order.len()).filter(|&place| self.makespans[place] == least).collect();
        order.insert(places[self.random.below(places.len())], job);
        Some(least)
    }

    /// Computes the makespans with a job at each place.
    fn look_at_places(&mut self, order: &[u16], job: u16) {
        let (shop, machines) = (self.shop, self.shop.machines);
        let size = (order.len() + 1) * machines;
        self.done.resize(size, 0);
        self.needed.resize(size, 0);
        self.done[..machines].fill(0);
        self.needed[order.len() * machines..size].fill(0);
        for (place, &other) in order.iter().enumerate() {
            let (before, after) = self.done[..size].split_at_mut((place + 1) * machines);
            let before = &before[place * machines..];
            let mut reached = 0;
            for ((after, &before), &time) in after.iter_mut().zip(before).zip(shop.job(other)) {
                reached = before.max(reached) + time;
                *after = reached;
            }
        }
        for (place, &other) in order.iter().enumerate().rev() {
            let (before, after) = self.needed[..size].split_at_mut((place + 1) * machines);
            let before = &mut before[place * machines..];
            let mut reached = 0;
            for ((before, &after), &time) in before.iter_mut().zip(&*after).zip(shop.job(other)).rev() {
                reached = after.max(reached) + time;
                *before = reached;
            }
        }
        self.makespans.clear();
        let rows = self.done[..size].chunks_exact(machines).zip(self.needed[..size].chunks_exact(machines));
        let times = shop.job(job);
        self.makespans.extend(rows.map(|(done, needed)| {
            let (mut reached, mut makespan) = (0, 0);
            for ((&done, &needed), &time) in done.iter().zip(needed).zip(times) {
                reached = done.max(reached) + time;
                makespan = makespan.max(reached + needed);
            }
            makespan
        }));
    }
}
