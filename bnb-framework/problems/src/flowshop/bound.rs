//! The lower bounds of all children of a partial order, at both ends at once.
//!
//! The bound of a single machine consists of the time at which it is done with the front, its work for the remaining
//! jobs, and the time that is needed after the last of them. At the end where the next job is not put, the jobs
//! already placed give a weak bound: some remaining job must come next there, so the minimum over the remaining jobs
//! counts. Pairs of machines are considered only if that does not prune, and if they are worth their time
//! (see [`Pairs`]).
//!
//! The loops run over blocks of jobs, without branches, so that the compiler vectorizes them.

use std::array;

use super::{
    FlowShop, Order,
    pairs::{Pairs, Spans},
    time::{Block, LANES, Time},
};

/// The number of further machines that may be combined with those before without pruning anything, except at the
/// root, where the bound is that of the whole search.
const PATIENCE: usize = 3;

/// The data of a shop that the bounds need, independent of any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tables<T> {
    /// The time of each job on each machine, machine by machine.
    pub(super) times: Vec<T>,
    pub(super) pairs: Pairs<T>,
}

impl<T: Time> Tables<T> {
    /// Computes the tables of a shop from its times, job by job.
    pub(super) fn new(machines: usize, by_job: &[u32]) -> Self {
        let of_machine = |machine| by_job.iter().skip(machine).step_by(machines).copied();
        let times = (0..machines).flat_map(of_machine).map(T::from_u32).collect();
        Self { times, pairs: Pairs::new(machines, by_job) }
    }
}

/// The remaining jobs of a partial order, and lower bounds on the makespan if they come next. The tables
/// have a row for each machine, with an entry for each remaining job in blocks; the last is filled up with
/// the first job. They are kept for the next partial order, but only as room.
#[derive(Debug, Default)]
pub(super) struct Ends<T> {
    pub(super) jobs: Vec<u16>,
    /// The job of each entry of a row.
    columns: Vec<usize>,
    times: Vec<Block<T>>,
    /// The earliest time at which another job can start if this one comes next at the front.
    front: Vec<Block<T>>,
    /// The least time after another job if this one comes next at the back, with the job itself.
    back: Vec<Block<T>>,
    /// The earliest time at which any remaining job can start.
    heads: Vec<T>,
    /// The least time after any remaining job.
    tails: Vec<T>,
    work: Vec<T>,
    /// The bounds, with the next job at the front and at the back.
    lows: [Vec<Block<T>>; 2],
    /// When each job is done with a machine.
    reached: Vec<Block<T>>,
    busy: Vec<(T, usize)>,
    spans: Spans<T>,
}

impl<T: Time> Ends<T> {
    /// Returns the bounds of the remaining jobs at one end.
    pub(super) fn lows(&self, at_front: bool) -> &[T] {
        &self.lows[usize::from(!at_front)].as_flattened()[..self.jobs.len()]
    }

    /// Computes the bounds of all children, each machine alone.
    pub(super) fn look(&mut self, shop: &FlowShop, tables: &Tables<T>, order: &Order) {
        let left = order.left.iter().zip(0_u16..).filter(|(left, _)| **left);
        self.jobs.clear();
        self.jobs.extend(left.map(|(_, job)| job));
        let blocks = self.jobs.len().div_ceil(LANES);
        for table in [&mut self.times, &mut self.front, &mut self.back] {
            table.resize(shop.machines * blocks, Block::default());
        }
        self.columns.clear();
        self.columns.extend(self.jobs.iter().map(|&job| usize::from(job)));
        let first = self.columns.first().copied().unwrap_or(0);
        self.columns.resize(blocks * LANES, first);
        let rows = self.times.chunks_exact_mut(blocks.max(1));
        for (times, row) in tables.times.chunks_exact(shop.jobs.max(1)).zip(rows) {
            for (entry, &job) in row.as_flattened_mut().iter_mut().zip(&self.columns) {
                *entry = times[job];
            }
        }
        let (done, needed) = (order.done(shop), order.needed(shop));
        for (row, times) in
            [(&mut self.heads, done), (&mut self.tails, needed), (&mut self.work, &order.work)]
        {
            row.clear();
            row.extend(times.iter().copied().map(T::from_u32));
        }
        let done = if order.front.is_empty() { &shop.nothing } else { done };
        let needed = if order.back.is_empty() { &shop.nothing } else { needed };
        self.look_from(0..shop.machines, done, true);
        self.look_from((0..shop.machines).rev(), needed, false);
        let low = T::from_u32(order.low);
        for lows in &mut self.lows {
            lows.clear();
            lows.resize(blocks, [low; LANES]);
        }
        self.each_machine();
    }

    /// Computes the times after each possible next job at one end, machine by machine.
    fn look_from(&mut self, order: impl Iterator<Item = usize>, limits: &[u32], at_front: bool) {
        let (blocks, others) = (self.jobs.len().div_ceil(LANES), self.jobs.len() > 1);
        let (table, least) =
            if at_front { (&mut self.front, &mut self.heads) } else { (&mut self.back, &mut self.tails) };
        self.reached.clear();
        self.reached.resize(blocks, Block::default());
        let (mut shortest, mut before) = (T::default(), None);
        for machine in order {
            let limit = T::from_u32(limits[machine]);
            let (mut start, mut next_shortest) = ([T::MAX; LANES], [T::MAX; LANES]);
            for (block, reached) in self.reached.iter_mut().enumerate() {
                let times = &self.times[machine * blocks + block];
                // Others cannot start before one of them has gone through the machine before.
                let opens =
                    before.map_or([T::default(); LANES], |before: usize| table[before * blocks + block]);
                let begins: Block<T> = array::from_fn(|lane| limit.max(reached[lane]));
                start = array::from_fn(|lane| start[lane].min(begins[lane]));
                next_shortest = array::from_fn(|lane| next_shortest[lane].min(times[lane]));
                *reached = array::from_fn(|lane| begins[lane] + times[lane]);
                table[machine * blocks + block] =
                    array::from_fn(|lane| (opens[lane] + shortest).max(reached[lane]));
            }
            before = Some(machine);
            // The last job meets the other end itself.
            if others {
                let of_all = |lanes: Block<T>| lanes.into_iter().min().unwrap_or(T::MAX);
                (least[machine], shortest) = (of_all(start), of_all(next_shortest));
            }
        }
    }

    fn each_machine(&mut self) {
        let blocks = self.jobs.len().div_ceil(LANES);
        let [at_front, at_back] = &mut self.lows;
        for (machine, &work) in self.work.iter().enumerate() {
            let row = machine * blocks..(machine + 1) * blocks;
            let (head, tail) = (self.heads[machine], self.tails[machine]);
            let lows = at_front.iter_mut().zip(at_back.iter_mut());
            let ends = self.front[row.clone()].iter().zip(&self.back[row.clone()]);
            for (((at_front, at_back), (front, back)), times) in lows.zip(ends).zip(&self.times[row]) {
                let others: Block<T> = array::from_fn(|lane| work - times[lane]);
                *at_front = array::from_fn(|lane| at_front[lane].max(front[lane] + others[lane] + tail));
                *at_back = array::from_fn(|lane| at_back[lane].max(head + others[lane] + back[lane]));
            }
        }
    }

    /// Returns the number of children that may be better than `best`, at the front and at the back.
    fn hopeful(&self, best: T) -> [usize; 2] {
        [true, false].map(|at_front| self.lows(at_front).iter().filter(|&&low| low < best).count())
    }

    /// Raises the bounds by pairs of machines while that prunes, and children are left to prune at
    /// both ends.
    pub(super) fn each_pair(&mut self, pairs: &Pairs<T>, best: u32) {
        if self.jobs.len() < 2 || best == u32::MAX {
            return;
        }
        let best = T::from_u32(best);
        let (mut hopeful, mut in_vain) = (self.hopeful(best), 0);
        let patience = if self.jobs.len() == pairs.jobs() { usize::MAX } else { PATIENCE };
        // Machines that are busy for long decide.
        self.busy.clear();
        let busy = |m: usize| self.heads[m] + self.work[m] + self.tails[m];
        self.busy.extend((0..self.work.len()).map(|m| (busy(m), m)));
        self.busy.sort_unstable_by(|a, b| b.cmp(a));
        self.busy.truncate(self.work.len() / 2 + 1);
        self.spans.of(pairs.jobs(), &self.jobs);
        for second in 1..self.busy.len() {
            if hopeful.contains(&0) || in_vain == patience {
                return;
            }
            for first in 0..second {
                let (one, other) = (self.busy[first].1, self.busy[second].1);
                let (a, b) = (one.min(other), one.max(other));
                pairs.spans(a, b, &mut self.spans);
                self.raise(a, b);
            }
            let before = std::mem::replace(&mut hopeful, self.hopeful(best));
            in_vain = if hopeful == before { in_vain + 1 } else { 0 };
        }
    }

    /// Raises the bounds by the spans of a pair of machines.
    fn raise(&mut self, a: usize, b: usize) {
        let blocks = self.jobs.len().div_ceil(LANES);
        let (head, tail) = (self.heads[a], self.tails[b]);
        let [at_front, at_back] = &mut self.lows;
        let ends = self.front[a * blocks..][..blocks].iter().zip(&self.back[b * blocks..][..blocks]);
        for (((at_front, at_back), (front, back)), span) in
            at_front.iter_mut().zip(at_back).zip(ends).zip(&self.spans.without)
        {
            *at_front = array::from_fn(|lane| at_front[lane].max(front[lane] + span[lane] + tail));
            *at_back = array::from_fn(|lane| at_back[lane].max(head + span[lane] + back[lane]));
        }
    }
}
