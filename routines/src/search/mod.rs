//! The task of a search in another language: a part of a tree, as a state that only its class can read.
//!
//! ```text
//!   state ──search──▶ runtime searches ──result {counts}──▶ complete
//!     ▲                 │ request: split, or pause
//!     │                 ▼
//!     └── rest ◀── child {part, rest, counts}, paused {rest, counts}, then go
//!                   │ part
//!                   ▼ sibling
//! ```
//!
//! The task has the last state that its runtime has sent, and its output has the numbers that were counted until then. Both
//! change together, with the part that is given away. So a part of the tree is searched again if a runtime or a node is
//! lost, and its numbers count once.

mod alone;
mod found;
mod live;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use taskwork::{Context, Hooks, Job, Outcome, Task, Variables};

use self::live::Live;
pub(crate) use self::{
    alone::search_alone,
    found::{Best, Counts, result_of},
};
use crate::{
    host::Host,
    order::Order,
    progress::Progress,
    runtime::{Event, Request},
    wire::Step,
};

pub(crate) const KIND: &str = "search";

/// The maximum time between two checks for requests, and that after long waiting.
const WAIT: Duration = Duration::from_millis(1);
const LONG_WAIT: Duration = Duration::from_millis(5);

/// The number of waits after which they are long.
const SHORT_WAITS: u32 = 50;

/// The maximum time that a cut of the pool, or a leaving node, waits for the state of a search. After that the last
/// state counts.
const PAUSE_WAIT: Duration = Duration::from_millis(100);

/// The number of crashes of runtimes with the same state that a search survives.
const CRASHES_MAX: u32 = 3;

/// A part of a search.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Foreign {
    /// The last state; `None` before the first one, when the argument of the job is searched.
    state: Option<Vec<u8>>,
    /// The number of crashes of runtimes with this state.
    crashes: u32,
    /// The state on this node.
    #[serde(skip)]
    live: Option<Box<Live>>,
}

impl Foreign {
    fn of(state: Option<Vec<u8>>) -> Self {
        Self { state, crashes: 0, live: None }
    }

    /// Creates a job, whose order has one argument.
    pub(crate) fn job(order: Order, name: String) -> Job<Self> {
        Job::new(Self::of(None), order).kind(KIND).name(name)
    }

    /// Works until the task is complete or interrupted.
    ///
    /// # Errors
    /// The reason if the job fails.
    fn work(&mut self, cx: &mut Context<'_, Self>) -> Result<Outcome, String> {
        let host =
            Host::current().ok_or("this process is not a node of routines: start it by routines node")?;
        let mut live = match self.live.take() {
            Some(live) => live,
            None => Box::new(Live::new(host, cx.shared())?),
        };
        let _running = progress(cx).run(1);
        let mut waits = 0;
        loop {
            if let Some(best) = cx.get_var::<Best>() {
                live.set_bound(best.cost);
            }
            if cx.has_requests() {
                if cx.migrate() {
                    if self.pause(&mut live, cx)? {
                        return Ok(Outcome::Complete);
                    }
                    self.live = Some(live);
                    return Ok(Outcome::Migrate);
                }
                // After a crash, only a cut changes the state, so that a search that always crashes soon fails.
                if self.crashes == 0 && cx.hunger().is_some() {
                    live.request_split();
                }
            }
            live.advance(self.state.as_deref(), cx.shared())?;
            let events = live.wait(if waits < SHORT_WAITS { WAIT } else { LONG_WAIT })?;
            waits = if events.is_empty() { waits + 1 } else { 0 };
            if self.on_events(events, &mut live, cx)? {
                return Ok(Outcome::Complete);
            }
        }
    }

    /// Requests the state and waits for it. Returns whether the task has completed.
    fn pause(&mut self, live: &mut Live, cx: &mut Context<'_, Self>) -> Result<bool, String> {
        let deadline = Instant::now() + PAUSE_WAIT;
        live.request(Request::Pause);
        while live.is_running() && Instant::now() < deadline {
            let events = live.wait(WAIT)?;
            if self.on_events(events, live, cx)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Handles events of the runtime. Returns whether the task has completed.
    fn on_events(
        &mut self,
        events: Vec<Event>,
        live: &mut Live,
        cx: &mut Context<'_, Self>,
    ) -> Result<bool, String> {
        for event in events {
            match event {
                Event::Step(Step::Offered(offer)) => {
                    live.on_offer(offer.cost);
                    cx.set_var::<Best>(offer);
                }
                Event::Step(Step::Paused { part, rest, counts }) => {
                    live.on_paused(part.is_some());
                    (self.state, self.crashes) = (Some(rest), 0);
                    cx.worked(found::states(&counts));
                    cx.output().add(counts)?;
                    if let Some(part) = part {
                        cx.spawn_sibling(Self::of(Some(part)));
                    }
                }
                Event::Step(Step::Complete(counts)) => {
                    cx.worked(found::states(&counts));
                    cx.output().add(counts)?;
                    progress(cx).add(1, 0);
                    return Ok(true);
                }
                Event::Step(Step::Failed(error)) => {
                    return Err(format!(
                        "search {} has failed: {}\n{}",
                        live.name(),
                        error.message,
                        error.trace
                    ));
                }
                Event::Step(Step::NotLoaded(error)) => {
                    let (name, trace) = (live.name(), error.trace);
                    return Err(format!("routine {name} cannot be loaded: {}\n{trace}", error.message));
                }
                Event::Step(_) => {}
                Event::Broken(reason) | Event::Memory(reason) => {
                    let has_crashed = live.on_broken(&reason)?;
                    self.crashes += u32::from(has_crashed);
                    progress(cx).add(0, u64::from(has_crashed));
                    if self.crashes > CRASHES_MAX {
                        let (name, crashes) = (live.name(), self.crashes);
                        return Err(format!("search {name} has crashed {crashes} times in a row: {reason}"));
                    }
                    tracing::info!(reason, self.crashes, "a runtime was lost with a search");
                    return Ok(false);
                }
            }
        }
        Ok(false)
    }
}

/// Returns the numbers of parts: those that are searched, those without a rest, and crashes.
fn progress(cx: &Context<'_, Foreign>) -> Progress {
    cx.companion::<Progress>().cloned().unwrap_or_default()
}

impl Task for Foreign {
    type Shared = Order;
    type Output = Counts;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new().companion(|_| Some(Progress::companion()));

    fn variables(declare: &mut Variables) {
        declare.declare::<Best>();
    }

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        self.work(cx).unwrap_or_else(|reason| {
            cx.fail(reason);
            Outcome::Complete
        })
    }

    /// Parts are siblings: they arrive when the runtime has answered.
    fn split(&mut self, _: &Order) -> Option<Self> {
        None
    }
}
