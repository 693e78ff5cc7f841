//! Two machines at a time (B. Lageweg, J. Lenstra and A. Rinnooy Kan, A general bounding scheme for the
//! permutation flow-shop problem, 1978).
//!
//! Of the remaining jobs, only their times on two machines count, and the minimum time that each needs between
//! these: a time lag, during which jobs may overtake each other. The best order for two machines
//! with time lags is that of S. Johnson (1954), with the lag added to both times (L. Mitten, 1959). It is
//! the same for all sets of jobs, so it is sorted only once for each pair.
//!
//! The span is the longest path through an order: over some jobs on the first machine, one job with its lag,
//! and the jobs from there on the second machine. So the spans of a set without each of its jobs can be computed
//! in one pass from either side.

use super::time::{Block, LANES, Time};

/// The maximum number of entries in the orders of all pairs: more would take more memory than they are
/// worth.
const ENTRIES_MAX: usize = 1 << 20;

/// The orders and lags of all pairs of machines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pairs<T> {
    jobs: usize,
    machines: usize,
    /// The order for each pair, with the times and lags.
    steps: Vec<Step<T>>,
}

/// A job in the order for a pair of machines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Step<T> {
    job: u16,
    first: T,
    lag: T,
    second: T,
}

impl<T: Time> Pairs<T> {
    /// Sorts the jobs for each pair of machines; for none if there are too many. `times` are job by job.
    pub(super) fn new(machines: usize, times: &[u32]) -> Self {
        let jobs = times.len() / machines.max(1);
        if jobs * (machines * machines.saturating_sub(1) / 2) > ENTRIES_MAX {
            return Self::default();
        }
        let mut steps = Vec::new();
        for b in 1..machines {
            for a in 0..b {
                let step = |(job, times): (u16, &[u32])| Step {
                    job,
                    first: times[a],
                    lag: times[a + 1..b].iter().sum(),
                    second: times[b],
                };
                let mut order: Vec<Step<u32>> = (0_u16..).zip(times.chunks(machines)).map(step).collect();
                order.sort_by_key(|step| {
                    let (first, second) = (step.first + step.lag, step.lag + step.second);
                    if first < second { (false, i64::from(first)) } else { (true, -i64::from(second)) }
                });
                steps.extend(order.into_iter().map(|Step { job, first, lag, second }| {
                    let [first, lag, second] = [first, lag, second].map(T::from_u32);
                    Step { job, first, lag, second }
                }));
            }
        }
        Self { jobs, machines, steps }
    }

    pub(super) fn jobs(&self) -> usize {
        self.jobs
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Computes the spans of all jobs but one, for each of some jobs, on the machines `a` and `b`, where
    /// `a < b`: the least time from the start of the first on `a` to the end of the last on `b`.
    pub(super) fn spans(&self, a: usize, b: usize, spans: &mut Spans<T>) {
        let order = &self.steps[(b * (b - 1) / 2 + a) * self.jobs..][..self.jobs];
        let Spans { columns, line, without } = spans;
        let without = without.as_flattened_mut();
        let mut length = 0;
        for (index, step) in (0_u16..).zip(order) {
            // Overwritten by the next if it is not left. A branch could not be predicted.
            line[length].index = index;
            length += usize::from(columns[usize::from(step.job)] != GONE);
        }
        let (mut work, mut span) = (T::default(), T::default());
        for way in &mut line[..length] {
            let step = &order[usize::from(way.index)];
            (way.work, way.span) = (work, span);
            work = work + step.first;
            span = (span + step.second).max(work + step.lag + step.second);
        }
        let (mut work, mut span) = (T::default(), T::default());
        for way in line[..length].iter().rev() {
            let Step { job, first, lag, second } = order[usize::from(way.index)];
            without[usize::from(columns[usize::from(job)])] = (way.span + work).max(way.work + span);
            work = work + second;
            span = (span + first).max(first + lag + work);
        }
    }
}

/// The mark of a job that is not among those considered.
const GONE: u16 = u16::MAX;

/// Some jobs, and room to compute their spans.
#[derive(Debug, Default)]
pub(super) struct Spans<T> {
    /// The index of each job among those considered.
    columns: Vec<u16>,
    line: Vec<Way<T>>,
    /// The span without each of the jobs.
    pub(super) without: Vec<Block<T>>,
}

/// A remaining job, by its index in an order, with the work on the first machine and the span of the remaining jobs
/// before it.
#[derive(Debug, Clone, Copy, Default)]
struct Way<T> {
    index: u16,
    work: T,
    span: T,
}

impl<T: Time> Spans<T> {
    /// Considers some of all jobs.
    pub(super) fn of(&mut self, all: usize, jobs: &[u16]) {
        self.columns.clear();
        self.columns.resize(all, GONE);
        for (column, &job) in (0_u16..).zip(jobs) {
            self.columns[usize::from(job)] = column;
        }
        self.line.resize(jobs.len() + 1, Way::default());
        // The padding of the last block must not exceed the values considered now.
        self.without.clear();
        self.without.resize(jobs.len().div_ceil(LANES), Block::default());
    }
}
