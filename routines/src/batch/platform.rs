//! The surroundings of a task: time, runtimes and the writer of results. Those of a node are real; simulations have others.

use std::{
    fmt, io,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::value::RawValue;

use super::combine::{Partials, Stage};
use crate::{
    host::Host,
    order::Order,
    ranges::Ranges,
    resource::Files,
    runtime::{Event, Installed, Request, Runtime},
    store::{Outcome, Writer},
    tenant::Tenant,
    usage::Consumption,
    wire::{Exchange, FrameError},
};

pub(crate) trait Platform: fmt::Debug {
    type Runtime: CallRuntime;
    fn now(&self) -> Instant;
    /// Waits while the task has nothing to do, at most until another file has arrived.
    fn pause(&self, time: Duration);
    /// Returns the files for the arguments of a frame; `None` if arguments have none.
    fn files(&self) -> Option<Files<'_>>;
    fn installed(&self) -> &Installed;
    /// Returns the results that the calls combine; `None` for the calls of the job.
    fn partials(&self) -> Option<&Partials>;
    /// Returns the calls of the job that users have cancelled.
    fn cancelled(&self) -> io::Result<Ranges>;
    /// Returns an idle runtime, or starts one.
    fn start(&self) -> Result<Self::Runtime, String>;
    /// Keeps a runtime without calls for other tasks.
    fn keep(&self, runtime: Self::Runtime);
    /// Returns whether a runtime must not get more calls.
    fn has_used_up(&self, runtime: &Self::Runtime) -> bool;
    /// These functions are those of the [`Writer`].
    fn has_room(&self) -> bool;
    fn put(&self, results: &[(u64, Outcome)]) -> u64;
    fn durable(&self) -> u64;
    fn hurry(&self);
    fn wait(&self, number: u64, most: Duration);
}

/// A process with a loaded routine.
pub(crate) trait CallRuntime: fmt::Debug {
    fn exchange(&self) -> &Exchange;
    /// Returns the number of calls that it was sent.
    fn calls(&self) -> u64;
    fn consumption(&self) -> Consumption;
    fn call(&mut self, calls: &[(u64, Box<RawValue>)], state: Option<&[u8]>) -> Result<(), FrameError>;
    fn request(&self, request: Request);
    fn poll(&mut self, wait: Duration) -> Vec<Event>;
    /// Returns the reason if it should have loaded its routine by now.
    fn late_load(&self) -> Option<String>;
    /// Returns the message about a call that has exceeded its time limit.
    fn exceeded(&self, limit: Duration) -> String;
}

/// The platform of a task on a node.
#[derive(Debug)]
pub(crate) struct Node {
    host: &'static Host,
    installed: Arc<Installed>,
    writer: Arc<Writer>,
    tenant: Tenant,
    /// The key of the job.
    key: String,
    partials: Option<Arc<Partials>>,
}

impl Node {
    /// # Errors
    /// The reason for which no node can run the job.
    pub(super) fn new(host: &'static Host, order: &Order, stage: Stage) -> Result<Self, String> {
        let (digest, partials) = match (stage, &order.reduce.routine) {
            (Stage::Round { number, inputs }, Some(digest)) => {
                let partials = host.partials(&order.key, number, inputs);
                let unread = |error| format!("the results to combine cannot be read: {error}");
                (digest, Some(partials.map_err(unread)?))
            }
            _ => (&order.digest, None),
        };
        let installed = host.packages.get(&host.store, digest);
        let installed = installed.map_err(|error| format!("the package cannot be used: {error}"))?;
        let writer = host.writer(&stage.key(&order.key));
        let writer = writer.map_err(|error| format!("results cannot be written: {error}"))?;
        let (tenant, key) = (order.tenant.clone(), order.key.clone());
        Ok(Self { host, installed, writer, tenant, key, partials })
    }
}

impl Platform for Node {
    type Runtime = Runtime;

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn pause(&self, time: Duration) {
        self.host.resources.wait(time);
    }

    fn files(&self) -> Option<Files<'_>> {
        Some(Files::new(&self.host.resources, &self.host.store, self.tenant.clone()))
    }

    fn installed(&self) -> &Installed {
        &self.installed
    }

    fn partials(&self) -> Option<&Partials> {
        self.partials.as_deref()
    }

    fn cancelled(&self) -> io::Result<Ranges> {
        self.host.store.cancelled(&self.key)
    }

    fn start(&self) -> Result<Runtime, String> {
        self.host.runtime(&self.installed.package, &self.tenant).map_err(|error| error.to_string())
    }

    fn keep(&self, runtime: Runtime) {
        self.host.keep(&self.installed, runtime);
    }

    fn has_used_up(&self, runtime: &Runtime) -> bool {
        self.installed.has_used_up(runtime)
    }

    fn has_room(&self) -> bool {
        self.writer.has_room()
    }

    fn put(&self, results: &[(u64, Outcome)]) -> u64 {
        self.writer.put(results)
    }

    fn durable(&self) -> u64 {
        self.writer.durable()
    }

    fn hurry(&self) {
        self.writer.hurry();
    }

    fn wait(&self, number: u64, most: Duration) {
        self.writer.wait(number, most);
    }
}

impl CallRuntime for Runtime {
    fn exchange(&self) -> &Exchange {
        Self::exchange(self)
    }

    fn calls(&self) -> u64 {
        self.used().1
    }

    fn consumption(&self) -> Consumption {
        Self::consumption(self)
    }

    fn call(&mut self, calls: &[(u64, Box<RawValue>)], state: Option<&[u8]>) -> Result<(), FrameError> {
        Self::call(self, calls, state, 0)
    }

    fn request(&self, request: Request) {
        Self::request(self, Some(request));
    }

    fn poll(&mut self, wait: Duration) -> Vec<Event> {
        Self::poll(self, wait)
    }

    fn late_load(&self) -> Option<String> {
        Self::late_load(self)
    }

    fn exceeded(&self, limit: Duration) -> String {
        Self::exceeded(self, limit)
    }
}
