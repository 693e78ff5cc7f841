//! The task of a job: calls that have not ended.
//!
//! ```text
//!            take             answer               durable
//!   open ───────────▶ frame ──────────▶ unsynced ───────────▶ ended, in the tally
//!    ▲                  │ crash, timeout
//!    └──────────────────┘
//! ```
//!
//! A call is *open* for every other node until its result is durable: the encoded task contains the calls of the
//! current frame, and those with unsynced results, as open. So each call of the job is always open in a task, or its
//! result is durable and it counts in the output of exactly one task. If a node is lost, the calls that it has ended since
//! its last flush are repeated; the manifest counts each index once.

mod combine;
mod live;
mod platform;
mod status;
#[cfg(test)]
mod checkpoint_tests;
#[cfg(test)]
mod combine_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use taskwork::{Context, Hooks, Job, Outcome, Task, Variables};

use self::{
    combine::Stage,
    live::{Live, cancel},
    platform::{Node, Platform},
    status::Calls,
};
use crate::{host::Host, order::Order, ranges::Ranges, tally::Tally};

pub(crate) use self::{
    combine::{Partials, reduced_name},
    live::cancel::Cancelled,
};

pub(crate) const KIND: &str = "batch";

/// The maximum time between two checks for requests, and that after long waiting.
const WAIT: Duration = Duration::from_millis(1);
const LONG_WAIT: Duration = Duration::from_millis(5);

/// The number of waits after which they are long.
const SHORT_WAITS: u32 = 50;

/// Calls of a job.
#[derive(Debug)]
pub(crate) struct Batch<P: Platform = Node> {
    /// The calls that no runtime has.
    open: Ranges,
    /// The numbers of crashes of runtimes with these calls.
    crashed: BTreeMap<u64, u32>,
    /// The number of calls that are sent singly, because one of them may have crashed its runtime.
    careful: u64,
    /// The last state of a call, until its result is durable. No later call starts before that, so there is one.
    checkpoint: Option<Checkpoint>,
    stage: Stage,
    /// The state on this node; `None` until the task is searched here.
    live: Option<Box<Live<P>>>,
}

/// A state from which a call continues, which only its routine can read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Checkpoint {
    index: u64,
    state: Vec<u8>,
}

/// A task as it is sent and written.
#[derive(Debug, Serialize, Deserialize)]
struct Encoded {
    open: Ranges,
    crashed: BTreeMap<u64, u32>,
    careful: u64,
    checkpoint: Option<Checkpoint>,
    stage: Stage,
}

impl<P: Platform> Batch<P> {
    /// Creates the task of all calls of a job.
    fn of(calls: u64) -> Self {
        let (crashed, stage) = (BTreeMap::new(), Stage::default());
        Self { open: (0..calls).into(), crashed, careful: 0, checkpoint: None, stage, live: None }
    }

    /// Returns the calls without durable results.
    fn unfinished(&self) -> Ranges {
        let mut unfinished = self.open.clone();
        if let Some(live) = &self.live {
            live.add_unfinished(&mut unfinished);
        }
        unfinished
    }

    /// Gives away half of the open calls, never those of the current frame.
    fn give(&mut self) -> Option<Self> {
        let is_busy = self.live.as_ref().is_some_and(|live| live.has_frame());
        let calls = if is_busy { self.open.len().div_ceil(2) } else { self.open.len() / 2 };
        if calls == 0 {
            return None;
        }
        let open = self.open.take_back(calls);
        let given = self.crashed.keys().copied().filter(|&index| open.contains(index)).collect::<Vec<_>>();
        let crashed = given.iter().filter_map(|index| self.crashed.remove_entry(index)).collect();
        let careful = self.careful.saturating_sub(self.open.len());
        let checkpoint = self.checkpoint.take_if(|last| open.contains(last.index));
        Some(Self { open, crashed, careful, checkpoint, stage: self.stage, live: None })
    }
}

impl Batch {
    pub(crate) fn job(order: Order, name: String) -> Job<Self> {
        let root = match order.reduce.routine {
            Some(_) => Self { stage: Stage::Rounds { next: 0, inputs: 0 }, ..Self::of(0) },
            None => Self { open: order.calls(), ..Self::of(0) },
        };
        Job::new(root, order).kind(KIND).name(name)
    }

    /// Works until the task is complete or interrupted.
    ///
    /// # Errors
    /// The reason if the job fails, or its results are not combined.
    fn work(&mut self, cx: &mut Context<'_, Self>) -> Result<Outcome, String> {
        let host =
            Host::current().ok_or("this process is not a node of routines: start it by routines node")?;
        if let Stage::Rounds { next, inputs } = self.stage {
            return self.next_round(host, (next, inputs), cx);
        }
        let makes_calls = self.stage == Stage::Calls;
        let counts = || cx.companion().map(Calls::counts).unwrap_or_default();
        let mut live = match self.live.take() {
            Some(live) => live,
            None => Box::new(Live::new(Node::new(host, cx.shared(), self.stage)?, counts())),
        };
        let mut waits = 0;
        if makes_calls && !cx.shared().reduce.is_empty() {
            // A job without calls has the numbers of no results.
            let tally = Tally::of(&cx.shared().reduce);
            taskwork::Output::merge(cx.output(), tally);
        }
        loop {
            self.settle(&mut live, cx);
            if cx.has_requests() {
                if cx.migrate() {
                    live.hurry_before_cut();
                    self.settle(&mut live, cx);
                    self.live = Some(live);
                    return Ok(Outcome::Migrate);
                }
                self.live = Some(live);
                cx.potential_split(self);
                live = self.live.take().ok_or("a split keeps the state of the task")?;
            }
            if let Some(&number) = cx.get_var::<Cancelled>() {
                live.read_cancelled(number);
            }
            let order = cx.shared();
            live.advance(self, order)?;
            if self.open.is_empty() && live.is_done() {
                return Ok(Outcome::Complete);
            }
            let wait = if waits < SHORT_WAITS { WAIT } else { LONG_WAIT };
            let answered = live.wait(self, order, wait)?;
            waits = if answered == 0 { waits + 1 } else { 0 };
            if makes_calls {
                cx.worked(answered);
                cx.progressed(answered as f64 / order.len().max(1) as f64);
            }
        }
    }

    /// Counts the results that have become durable.
    fn settle(&mut self, live: &mut Live<Node>, cx: &mut Context<'_, Self>) {
        for tally in live.settled(self) {
            taskwork::Output::merge(cx.output(), tally);
        }
    }
}

impl Task for Batch {
    type Shared = Order;
    type Output = Tally;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new()
        .companion(|order| Some(Calls::companion(order.len())))
        .suggest(cancel::suggested);

    fn variables(declare: &mut Variables) {
        declare.declare::<Cancelled>();
    }

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        self.work(cx).unwrap_or_else(|reason| {
            match self.stage.round() {
                // The calls have their results, although these are not combined.
                Some(round) => {
                    let tally = Tally { uncombined: Some((round, reason)), ..Tally::default() };
                    taskwork::Output::merge(cx.output(), tally);
                }
                None => cx.fail(reason),
            }
            Outcome::Complete
        })
    }

    fn split(&mut self, _: &Order) -> Option<Self> {
        self.give()
    }
}

impl<P: Platform> Serialize for Batch<P> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (open, crashed, checkpoint) = (self.unfinished(), self.crashed.clone(), self.checkpoint.clone());
        Encoded { open, crashed, careful: self.careful, checkpoint, stage: self.stage }.serialize(to)
    }
}

impl<'de, P: Platform> Deserialize<'de> for Batch<P> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Encoded { open, crashed, careful, checkpoint, stage } = Encoded::deserialize(from)?;
        Ok(Self { open, crashed, careful, checkpoint, stage, live: None })
    }
}
