//! The lower bounds of all children of a partial order, at both ends at once.
//!
//! Each machine alone: the time at which it is done with the front, its work for the remaining jobs, and
//! the time that is needed after the last of them. The end that the next job is not put at is known better
//! than by the jobs that are there: some remaining job has to meet it, so the least that any of them leads
//! to counts. Only if that does not prune, pairs of machines are considered (see [`Pairs`]).

use super::{
    FlowShop, Order,
    pairs::{Pairs, Spans},
};

/// The remaining jobs of a partial order, and lower bounds on the makespan if they come next. The tables
/// have a row for each machine, with an entry for each remaining job. They are kept for the next partial
/// order, but only as room.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) jobs: Vec<u16>,
    times: Vec<u32>,
    /// The earliest time at which another job can start if this one comes next at the front.
    front: Vec<u32>,
    /// The least time after another job if this one comes next at the back, with the job itself.
    back: Vec<u32>,
    /// The earliest time at which any remaining job can start.
    heads: Vec<u32>,
    /// The least time after any remaining job.
    tails: Vec<u32>,
    /// The bounds, with the next job at the front and at the back.
    pub(super) lows: [Vec<u32>; 2],
    /// For each job, what it has reached, and where others can start.
    reached: Vec<(u32, u32)>,
    busy: Vec<(u32, usize)>,
    spans: Spans,
}

/// What is kept is room only.
impl Clone for Ends {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Ends {
    /// Computes the bounds of all children, each machine alone.
    pub(super) fn look(&mut self, shop: &FlowShop, order: &Order) {
        let left = order.left.iter().zip(0_u16..).filter(|(left, _)| **left);
        self.jobs.clear();
        self.jobs.extend(left.map(|(_, job)| job));
        let (machines, count) = (shop.machines, self.jobs.len());
        for table in [&mut self.times, &mut self.front, &mut self.back] {
            table.resize(machines * count, 0);
        }
        for (column, &job) in self.jobs.iter().enumerate() {
            for (row, &time) in shop.job(job).iter().enumerate() {
                self.times[row * count + column] = time;
            }
        }
        self.heads.clear();
        self.heads.extend_from_slice(order.done(shop));
        self.tails.clear();
        self.tails.extend_from_slice(order.needed(shop));
        let done = if order.front.is_empty() { &shop.nothing } else { order.done(shop) };
        let needed = if order.back.is_empty() { &shop.nothing } else { order.needed(shop) };
        self.look_from(0..machines, done, true);
        self.look_from((0..machines).rev(), needed, false);
        for lows in &mut self.lows {
            lows.clear();
            lows.resize(count, order.low);
        }
        self.each_machine(&order.work);
    }

    /// Computes what each job leads to at one end, machine by machine.
    fn look_from(&mut self, order: impl Iterator<Item = usize>, limits: &[u32], at_front: bool) {
        let count = self.jobs.len();
        let (table, least) =
            if at_front { (&mut self.front, &mut self.heads) } else { (&mut self.back, &mut self.tails) };
        self.reached.clear();
        self.reached.resize(count, (0, 0));
        let (mut shortest, others) = (0, count > 1);
        for machine in order {
            let times = &self.times[machine * count..][..count];
            let row = &mut table[machine * count..][..count];
            let limit = limits[machine];
            let (mut start, mut next_shortest) = (u32::MAX, u32::MAX);
            for (((reached, opens), &time), entry) in self.reached.iter_mut().zip(times).zip(row.iter_mut()) {
                let begins = limit.max(*reached);
                start = start.min(begins);
                next_shortest = next_shortest.min(time);
                *reached = begins + time;
                // Others cannot start before one of them has gone through the machine before.
                *opens = (*opens + shortest).max(*reached);
                *entry = *opens;
            }
            // The last job meets the other end itself.
            if others {
                (least[machine], shortest) = (start, next_shortest);
            }
        }
    }

    fn each_machine(&mut self, work: &[u32]) {
        let count = self.jobs.len();
        let [at_front, at_back] = &mut self.lows;
        for (machine, &work) in work.iter().enumerate() {
            let row = machine * count..(machine + 1) * count;
            let (head, tail) = (self.heads[machine], self.tails[machine]);
            let lows = at_front.iter_mut().zip(at_back.iter_mut());
            let ends = self.front[row.clone()].iter().zip(&self.back[row.clone()]);
            for (((at_front, at_back), (&front, &back)), &time) in lows.zip(ends).zip(&self.times[row]) {
                let others = work - time;
                *at_front = (*at_front).max(front + others + tail);
                *at_back = (*at_back).max(head + others + back);
            }
        }
    }

    /// Returns the number of children that may be better than `best`, at the front and at the back.
    fn hopeful(&self, best: u32) -> [usize; 2] {
        [0, 1].map(|end| self.lows[end].iter().filter(|low| **low < best).count())
    }

    /// Raises the bounds by pairs of machines, as long as there is something left to prune at both ends.
    pub(super) fn each_pair(&mut self, pairs: &Pairs, work: &[u32], all: usize, best: u32) {
        if self.jobs.len() < 2 || best == u32::MAX || self.hopeful(best).contains(&0) {
            return;
        }
        // Machines that are busy for long decide.
        self.busy.clear();
        self.busy.extend((0..work.len()).map(|m| (self.heads[m] + work[m] + self.tails[m], m)));
        self.busy.sort_unstable_by(|a, b| b.cmp(a));
        self.busy.truncate(work.len() / 2 + 1);
        self.spans.of(all, &self.jobs);
        for second in 1..self.busy.len() {
            for first in 0..second {
                let (one, other) = (self.busy[first].1, self.busy[second].1);
                let (a, b) = (one.min(other), one.max(other));
                pairs.spans(a, b, &mut self.spans);
                self.raise(a, b);
            }
            if self.hopeful(best).contains(&0) {
                return;
            }
        }
    }

    /// Raises the bounds by the spans of a pair of machines.
    fn raise(&mut self, a: usize, b: usize) {
        let count = self.jobs.len();
        let (head, tail) = (self.heads[a], self.tails[b]);
        let [at_front, at_back] = &mut self.lows;
        let ends = self.front[a * count..][..count].iter().zip(&self.back[b * count..][..count]);
        for (((at_front, at_back), (&front, &back)), &span) in
            at_front.iter_mut().zip(at_back).zip(ends).zip(&self.spans.without)
        {
            *at_front = (*at_front).max(front + span + tail);
            *at_back = (*at_back).max(head + span + back);
        }
    }
}
