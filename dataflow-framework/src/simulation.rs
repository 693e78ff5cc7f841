//! Support for the project's simulator: the framework in virtual time, as a function of one seed.
//!
//! Everything is the production code: the graph, the lines between nodes, stores, fetches, the companion, and
//! the handles of the program. Only the clock and the threads come from a [`World`]: calls take virtual time on
//! workers that are loops on the runtime of the simulator, and the program has a thread that runs only while
//! everything else is suspended.

use std::{
    cell::RefCell,
    future::Future,
    io,
    panic::resume_unwind,
    pin::Pin,
    sync::{Arc, OnceLock},
};

use taskwork::NodeId;
use tokio::{sync::Notify, time::Instant};

pub use crate::core::{How, Run, Seen, Version};
use crate::{
    cluster::{Main, Program, Returned},
    node::{Continues, Queue},
    platform::Bell,
    program::Stopped,
};

/// A future that takes virtual time in a world.
pub type Passing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The world of the simulated nodes, as far as the framework is concerned.
pub trait World: Send + Sync + 'static {
    /// Returns the clock time of a node, in microseconds since 1970.
    fn clock_us(&self, node: NodeId) -> u64;
    /// Waits for the duration of a call that starts on a node; never returns if the node dies.
    fn call(&self, node: NodeId, task: &'static str, call: u64) -> Passing;
    /// Runs the program of a node on a thread that runs only while everything else is suspended.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    fn start_program(&self, node: NodeId, program: Box<dyn FnOnce() + Send>) -> io::Result<()>;
    /// Returns whether this thread runs the program of a node.
    fn is_program(&self) -> bool;
    /// Suspends the program on this thread until it is notified, or until this time. Returns whether it was
    /// notified in time. Unwinds with [`stop`] when the world ends.
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

/// Puts the nodes that join a job on this thread into a world, until the next call.
pub fn enter(world: Option<Arc<dyn World>>) {
    WORLD.set(world);
}

/// Returns the task of a job that runs a program.
pub fn root<P: Program>() -> Main<P> {
    Main::root()
}

/// Returns the encoded output of a program, or the reason of its failure.
pub fn result(returned: Returned) -> Option<Result<Vec<u8>, String>> {
    returned.into_result()
}

/// Unwinds the program on this thread, which has neither returned nor failed.
pub fn stop() -> ! {
    resume_unwind(Box::new(Stopped))
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
        *self.node.get().expect("a companion gets its node first")
    }

    pub(crate) fn clock_us(&self) -> u64 {
        self.world.clock_us(self.node())
    }

    pub(crate) fn bell(&self) -> Bell {
        Bell::simulated(Arc::clone(&self.world))
    }

    pub(crate) fn see(&self, seen: &Seen) {
        self.world.see(self.node(), seen);
    }

    pub(crate) fn start_program(&self, program: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        self.world.start_program(self.node(), program)
    }

    /// Starts a worker, which runs one call after another in virtual time.
    pub(crate) fn start_worker(self: &Arc<Self>, queue: &Arc<Queue>) {
        tokio::spawn(work(Arc::clone(self), Arc::clone(queue)));
    }
}

async fn work(simulated: Arc<Simulated>, queue: Arc<Queue>) {
    while let Some(next) = queue.next_in_time().await {
        if let Some(begun) = next.begin() {
            simulated.world.call(simulated.node(), begun.task(), begun.call()).await;
            if begun.run() == Continues::Elsewhere {
                return;
            }
        }
        queue.leaves_call();
    }
    queue.ends_thread();
}
