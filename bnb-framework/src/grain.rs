//! The choice and size of splits in the order of the sequential search.
//!
//! The next states in that order are deep in the tree, and are little work. The high ones are much work, but the
//! sequential search would visit them last, or never. So a task gives away the next states of the deepest level that is
//! worth the transfer:
//!
//! ```text
//!   root        children left: ── ▢ ▢ ▢
//!   ├─ state    children left: ── ▢ ▢       ◀─ to another node, as many as last a quarter of a second
//!   │  └─ state children left: ── ▢ ▢ ▢     ◀─ to a worker of the same node, one that lasts milliseconds
//!   │     └─ …  children left: ── ▢ ▢
//! ```
//!
//! For its own workers, each node measures how long such tasks last, and moves one level up or down. Other nodes do not
//! report the durations of their tasks, so the node estimates them from the time that it takes for its own shares of
//! the tree.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    frontier::{Frontier, Siblings},
    options::Split,
    tree::Tree,
};

/// Tasks for workers of the same node that last less on average are too small.
const NEAR_MIN: Duration = Duration::from_micros(500);
/// The average duration above which tasks are too large.
const NEAR_MAX: Duration = Duration::from_millis(5);
/// The number of tasks between two changes of the level.
const NEAR_TASKS: u32 = 8;
/// The desired duration of a task for another node, much longer than a steal takes.
const FAR: Duration = Duration::from_millis(250);
/// The time over which the estimate of shares is averaged.
const PACE_OVER: Duration = Duration::from_secs(2);

/// The time for which a task without a suitable part leaves the split to others; then it splits any part.
pub(crate) const PATIENCE: Duration = Duration::from_micros(100);

/// How far a split may deviate from the sequential order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reach {
    /// A small piece for a worker of this node.
    Near,
    /// A piece for another node.
    Far,
    #[default]
    Anything,
}

/// The size of a node's splits.
#[derive(Debug, Default)]
pub(crate) struct Grain(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    near: Near,
    pace: Pace,
}

/// The depth of the deepest states that are split off for workers of the same node.
#[derive(Debug, Clone, Copy)]
struct Near {
    depth: usize,
    /// For the tasks since the last change: their number, total time and maximum depth.
    tasks: u32,
    took: Duration,
    deepest: usize,
}

/// The time that was spent on shares of the tree.
#[derive(Debug, Default)]
struct Pace {
    took: Duration,
    share: f64,
}

impl Default for Near {
    /// Starts as deep as possible: too small tasks end soon.
    fn default() -> Self {
        Self { depth: usize::MAX, tasks: 0, took: Duration::ZERO, deepest: 0 }
    }
}

impl Near {
    /// Records the duration of a task that started at a depth.
    fn note(&mut self, depth: usize, took: Duration) {
        if depth > self.depth {
            // It was split off before the last change.
            return;
        }
        self.tasks += 1;
        self.took += took;
        self.deepest = self.deepest.max(depth);
        let is_long = self.took > NEAR_MAX * NEAR_TASKS;
        if self.tasks < NEAR_TASKS && !is_long {
            return;
        }
        let depth = if is_long {
            self.depth.saturating_add(1)
        } else if self.took < NEAR_MIN * NEAR_TASKS {
            self.deepest.saturating_sub(1).max(1)
        } else {
            self.depth
        };
        *self = Self { depth, ..Self::default() };
    }
}

impl Pace {
    fn note(&mut self, share: f64, took: Duration) {
        (self.share, self.took) = (self.share + share.max(0.0), self.took + took);
        if self.took > PACE_OVER {
            (self.share, self.took) = (self.share / 2.0, self.took / 2);
        }
    }

    /// Estimates the time for a share of the tree; `None` if nothing was done yet.
    fn time_for(&self, share: f64) -> Option<Duration> {
        let seconds = self.took.as_secs_f64() * share / self.share;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

impl Grain {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Splits off the next states of a task.
    pub(crate) fn split<T: Tree>(
        &self,
        frontier: &mut Frontier<T>,
        tree: &T,
        reach: Reach,
    ) -> Option<Frontier<T>> {
        match reach {
            Reach::Near => self.split_near(frontier, tree),
            Reach::Anything => self.split_near(frontier, tree).or_else(|| frontier.split_state(tree)),
            Reach::Far => self.split_far(frontier, tree),
        }
    }

    fn split_near<T: Tree>(&self, frontier: &mut Frontier<T>, tree: &T) -> Option<Frontier<T>> {
        let depth = self.state().near.depth;
        frontier.split_next(tree, depth, |_| Some(1))
    }

    fn split_far<T: Tree>(&self, frontier: &mut Frontier<T>, tree: &T) -> Option<Frontier<T>> {
        let wanted = |siblings: &Siblings| {
            let each = self.state().pace.time_for(siblings.share)?;
            let wanted = FAR.as_secs_f64() / each.as_secs_f64().max(1e-9);
            (1..=siblings.count).find(|&count| count as f64 >= wanted)
        };
        if let Some(away) = frontier.split_next(tree, usize::MAX, wanted) {
            return Some(away);
        }
        // Before anything is known most of the work lies high; later, if it is little, as much as possible.
        if self.state().pace.took.is_zero() { frontier.split_state(tree) } else { frontier.split(tree) }
    }
}

/// Measures how long a task lasts.
#[derive(Debug)]
pub(crate) struct Timing {
    /// The depth at which it started, if it was split off and has not run before.
    began: Option<usize>,
    at: Instant,
    stock_at: Instant,
}

impl Timing {
    pub(crate) fn begin(began: Option<usize>) -> Self {
        let now = Instant::now();
        Self { began, at: now, stock_at: now }
    }

    /// Leaves out some time in which nothing was searched.
    pub(crate) fn leave_out(&mut self, took: Duration) {
        (self.at, self.stock_at) = (self.at + took, self.stock_at + took);
    }

    /// Takes into account that a share of the tree was done since the last time.
    pub(crate) fn take_stock(&mut self, grain: &Grain, share: f64) {
        let now = Instant::now();
        let mut state = grain.state();
        state.pace.note(share, now - std::mem::replace(&mut self.stock_at, now));
        // It need not be over to be too long.
        if now - self.at > NEAR_MAX * NEAR_TASKS
            && let Some(depth) = self.began.take()
        {
            state.near.note(depth, now - self.at);
        }
    }

    /// Ends the measurement, with the share that was done since the last time.
    pub(crate) fn end(self, grain: &Grain, share: Option<f64>) {
        let mut state = grain.state();
        let Some(share) = share else { return };
        state.pace.note(share, self.stock_at.elapsed());
        if let Some(depth) = self.began {
            state.near.note(depth, self.at.elapsed());
        }
    }
}

/// Returns the [order](taskwork::Hooks::order) of a task that starts at `place`, from 0 to 1 in the order of the
/// sequential search, given the number of splits that led to it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the place is at least 0, and at most 1"
)]
pub(crate) fn order(split: Split, place: f64, splits: u16) -> u64 {
    /// Bits of the place.
    const PLACE_BITS: u32 = 48;
    let place = (place.clamp(0.0, 1.0) * (1_u64 << PLACE_BITS) as f64) as u64;
    match split {
        Split::InOrder | Split::Next => place,
        Split::Discrepancy => u64::from(splits) << PLACE_BITS | place.min((1 << PLACE_BITS) - 1),
        Split::Half | Split::Alternating => 0,
    }
}
