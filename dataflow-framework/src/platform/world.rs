//! The world of a simulated node: its clock, its threads and its observer.

use std::{
    cell::RefCell,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, OnceLock},
};

use taskwork::NodeId;
use tokio::{sync::Notify, time::Instant};

use super::notifier::Notifier;
use crate::core::Seen;

/// A future that completes after simulated time.
pub type Passing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The world of the simulated nodes, as far as the framework is concerned.
pub trait World: Send + Sync + 'static {
    /// Returns the time by the clock of a node, in microseconds since 1970.
    fn clock_us(&self, node: NodeId) -> u64;
    /// Waits for the duration of a call that starts on a node; never returns if the node dies.
    fn call(&self, node: NodeId, task: &'static str, call: u64) -> Passing;
    /// Runs the program of a node on a thread that runs only while everything else stands still.
    ///
    /// # Errors
    /// If the thread cannot be started.
    fn start_program(&self, node: NodeId, program: Box<dyn FnOnce() + Send>) -> io::Result<()>;
    /// Returns whether this thread runs the program of a node.
    fn is_program(&self) -> bool;
    /// Suspends the program on this thread until it is notified, or until this time. Returns whether it was notified
    /// in time. It unwinds with [`stop`](crate::simulation::stop) when the world ends.
    fn wait(&self, notifier: &Arc<Notify>, at_the_latest: Option<Instant>) -> bool;
    /// Observes an event on a node.
    fn see(&self, node: NodeId, seen: &Seen);
}

/// A node in a world.
pub(crate) struct Simulated {
    world: Arc<dyn World>,
    node: OnceLock<NodeId>,
}

thread_local! {
    static WORLD: RefCell<Option<Arc<dyn World>>> = const { RefCell::new(None) };
}

/// Puts the nodes that begin to work on a job on this thread into a world, until the next call.
pub fn enter(world: Option<Arc<dyn World>>) {
    WORLD.set(world);
}

impl Simulated {
    /// Returns a node in the world of this thread, if there is one.
    pub(crate) fn current() -> Option<Arc<Self>> {
        let world = WORLD.with_borrow(Option::clone)?;
        Some(Arc::new(Self { world, node: OnceLock::new() }))
    }

    pub(crate) fn set_node(&self, node: NodeId) {
        // Further calls have no effect.
        let _ = self.node.set(node);
    }

    fn node(&self) -> NodeId {
        *self.node.get().expect("a companion knows its node before it does anything")
    }

    pub(crate) fn clock_us(&self) -> u64 {
        self.world.clock_us(self.node())
    }

    pub(crate) fn notifier(&self) -> Notifier {
        Notifier::simulated(Arc::clone(&self.world))
    }

    pub(crate) fn see(&self, seen: &Seen) {
        self.world.see(self.node(), seen);
    }

    pub(crate) fn start_program(&self, program: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        self.world.start_program(self.node(), program)
    }

    /// Returns the time that a call takes.
    pub(crate) fn passing(&self, task: &'static str, call: u64) -> Passing {
        self.world.call(self.node(), task, call)
    }
}
