//! The state of a search on its node: its runtime, and the request to it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    host::Host,
    order::Order,
    runtime::{Event, Installed, LOADS_MAX, Request, Runtime},
    wire::{SearchStage, Step},
};

/// The time to the next request for a part, after so many requests in a row without one.
const PART_WAIT: Duration = Duration::from_millis(1);
const PART_WAIT_MAX: Duration = Duration::from_millis(64);

/// The state of a search on its node.
#[derive(Debug)]
pub(super) struct Live {
    host: &'static Host,
    installed: Arc<Installed>,
    runtime: Option<Runtime>,
    /// Whether the runtime has the search of this task, and not a paused one of another.
    is_sent: bool,
    /// The request that the running search has not answered.
    request: Option<Request>,
    bound: f64,
    /// The number of runtimes in a row that have not loaded the routine.
    failed_loads: u32,
    /// The time from which a part may be requested, and the time to wait after the next refusal.
    parts_from: Instant,
    part_wait: Duration,
}

impl Live {
    /// # Errors
    /// The reason for which no node can run the job.
    pub(super) fn new(host: &'static Host, order: &Order) -> Result<Self, String> {
        let installed = host.packages.get(&host.store, &order.digest);
        let installed = installed.map_err(|error| format!("the package cannot be used: {error}"))?;
        Ok(Self {
            host,
            installed,
            runtime: None,
            is_sent: false,
            request: None,
            bound: f64::INFINITY,
            failed_loads: 0,
            parts_from: Instant::now(),
            part_wait: PART_WAIT,
        })
    }

    pub(super) fn name(&self) -> String {
        self.installed.package.name()
    }

    pub(super) fn is_running(&self) -> bool {
        self.runtime.as_ref().is_some_and(|runtime| runtime.exchange().search() == SearchStage::Running)
    }

    /// Starts a runtime, the search in it, or continues the paused search.
    ///
    /// # Errors
    /// The reason if the job fails.
    pub(super) fn advance(&mut self, state: Option<&[u8]>, order: &Order) -> Result<(), String> {
        let runtime = match &mut self.runtime {
            Some(runtime) => runtime,
            none => {
                let started = self.host.runtime(&self.installed.package, &order.tenant);
                none.insert(started.map_err(|error| error.to_string())?)
            }
        };
        if !runtime.exchange().is_loaded() {
            return Ok(());
        }
        let sent = match runtime.exchange().search() {
            SearchStage::Running => return Ok(()),
            SearchStage::Paused if self.is_sent => runtime.go(),
            SearchStage::Paused | SearchStage::Idle => {
                self.is_sent = true;
                runtime.search(&order.space.argument(0)?, state, self.bound)
            }
        };
        sent.map_err(|error| error.to_string())
    }

    /// Makes a request to the search, if it runs and has no more important one.
    pub(super) fn request(&mut self, request: Request) {
        if self.is_running() && self.request < Some(request) {
            self.request = Some(request);
        }
        self.repeat_request();
    }

    /// Requests a part, unless the search has recently had none to give away.
    pub(super) fn request_split(&mut self) {
        if Instant::now() >= self.parts_from {
            self.request(Request::Split);
        }
    }

    /// Writes the request, which the runtime may have overwritten.
    fn repeat_request(&self) {
        if let (Some(request), Some(runtime)) = (self.request, &self.runtime) {
            runtime.request(Some(request));
        }
    }

    /// Sets the bound, and makes the search read it.
    pub(super) fn set_bound(&mut self, bound: f64) {
        if self.improve_bound(bound)
            && self.is_running()
            && self.request.is_none()
            && let Some(runtime) = &self.runtime
        {
            runtime.request(Some(Request::Bound));
        }
    }

    fn improve_bound(&mut self, bound: f64) -> bool {
        let is_better = bound < self.bound;
        if is_better {
            self.bound = bound;
            self.runtime.iter().for_each(|runtime| runtime.set_bounds([bound; 2]));
        }
        is_better
    }

    /// Notes the cost of an offer of the search, which knows it.
    pub(super) fn on_offer(&mut self, cost: f64) {
        self.improve_bound(cost);
    }

    /// Notes that the search waits, and whether it has given away a part.
    pub(super) fn on_paused(&mut self, has_part: bool) {
        let was_split = self.request.take() == Some(Request::Split);
        if has_part {
            self.part_wait = PART_WAIT;
        } else if was_split {
            self.parts_from = Instant::now() + self.part_wait;
            self.part_wait = (self.part_wait * 2).min(PART_WAIT_MAX);
        }
    }

    /// Waits for events of the runtime at most so long.
    ///
    /// # Errors
    /// The reason if the job fails.
    pub(super) fn wait(&mut self, most: Duration) -> Result<Vec<Event>, String> {
        self.repeat_request();
        let Some(runtime) = &mut self.runtime else { return Ok(Vec::new()) };
        let events = runtime.poll(most);
        if events.iter().any(|event| matches!(event, Event::Step(Step::Loaded))) {
            self.failed_loads = 0;
        } else if let Some(reason) = runtime.late_load() {
            self.on_broken(&reason)?;
        }
        Ok(events)
    }

    /// Handles the loss of the runtime. Returns whether it was lost with the search.
    ///
    /// # Errors
    /// The reason if the job fails.
    pub(super) fn on_broken(&mut self, reason: &str) -> Result<bool, String> {
        (self.request, self.is_sent) = (None, false);
        let Some(runtime) = self.runtime.take() else { return Ok(false) };
        if runtime.exchange().is_loaded() {
            return Ok(true);
        }
        self.failed_loads += 1;
        if self.failed_loads >= LOADS_MAX {
            return Err(format!("routine {} cannot be loaded: {reason}", self.name()));
        }
        Ok(false)
    }
}

impl Drop for Live {
    /// Keeps a runtime without a running search for other tasks. A running one is stopped: its state is elsewhere.
    fn drop(&mut self) {
        if !self.is_running()
            && let Some(runtime) = self.runtime.take()
        {
            self.host.keep(&self.installed, runtime);
        }
    }
}
