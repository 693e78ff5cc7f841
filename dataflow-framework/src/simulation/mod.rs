//! Support for the project's simulator: the framework in virtual time, as a function of one seed.
//!
//! Everything is the production code: the graph, the lines between nodes, stores, fetches, the companion, and the
//! handles of the program. Only the clock and the threads come from a [`World`]: calls take virtual time on workers
//! that are loops on the runtime of the simulator, and the program has a thread that runs only while everything else
//! stands still (`baton.rs`).

mod baton;
mod crew;
mod seen;

use std::{
    cell::RefCell,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use taskwork::NodeId;
use tokio::{sync::Notify, time::Instant};

pub use self::seen::{How, Run, Seen, Version};
pub(crate) use self::{baton::Baton, crew::start as start_worker};
use crate::cluster::{Main, Program, Returned};

/// What takes time in a world.
pub type Passing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The world of the simulated nodes, as far as the framework is concerned.
pub trait World: Send + Sync + 'static {
    /// Returns the time by the clock of a node, in microseconds since 1970.
    fn clock_us(&self, node: NodeId) -> u64;
    /// Waits as long as a call takes that begins on a node; for ever if the node dies.
    fn call(&self, node: NodeId, task: &'static str, call: u64) -> Passing;
    /// Waits until the program on a node goes on; for ever if the node dies.
    fn program(&self, node: NodeId) -> Passing;
    /// Is shown what happens on a node.
    fn see(&self, node: NodeId, seen: &Seen);
}

/// A node in a world.
pub(crate) struct Simulated {
    world: Arc<dyn World>,
    node: OnceLock<NodeId>,
}

thread_local! {
    static WORLD: RefCell<Option<Arc<dyn World>>> = const { RefCell::new(None) };
    static NODE: RefCell<Option<Arc<Simulated>>> = const { RefCell::new(None) };
}

/// Puts the nodes that begin to work on a job on this thread into a world, until the next call.
pub fn enter(world: Option<Arc<dyn World>>) {
    WORLD.set(world);
}

/// Returns the task of a job that runs a program.
pub fn root<P: Program>() -> Main<P> {
    Main::root()
}

/// Returns what a program has returned, encoded, or why it has failed.
pub fn result(returned: Returned) -> Option<Result<Vec<u8>, String>> {
    returned.into_result()
}

/// Has the program on this thread wait for a while.
///
/// # Panics
/// If this is not the program of a simulated node.
pub fn pause(time: Duration) {
    let baton = Baton::current().expect("it is called by the program of a simulated node");
    baton.pass(&Arc::new(Notify::new()), Some(Instant::now() + time));
}

/// Shows the world what the program on this thread has read: the number of the read, and what it should be and is.
/// Does nothing if this is not the program of a simulated node.
pub fn program_reads(number: u64, expected: u64, read: u64) {
    NODE.with_borrow(|node| {
        if let Some(node) = node {
            node.see(&Seen::Reads { number, expected, read });
        }
    });
}

impl Simulated {
    /// Returns a node in the world of this thread, if there is one.
    pub(crate) fn current() -> Option<Arc<Self>> {
        let world = WORLD.with_borrow(Option::clone)?;
        Some(Arc::new(Self { world, node: OnceLock::new() }))
    }

    /// Makes it the node of the program on this thread.
    fn enter(self: &Arc<Self>) {
        NODE.set(Some(Arc::clone(self)));
    }

    /// Notes which node it is.
    pub(crate) fn is_of(&self, node: NodeId) {
        // It is told once.
        let _ = self.node.set(node);
    }

    fn node(&self) -> NodeId {
        *self.node.get().expect("a companion knows its node before it does anything")
    }

    pub(crate) fn clock_us(&self) -> u64 {
        self.world.clock_us(self.node())
    }

    pub(crate) fn see(&self, seen: &Seen) {
        self.world.see(self.node(), seen);
    }

    pub(crate) fn start_program(self: &Arc<Self>, program: impl FnOnce() + Send + 'static) -> io::Result<()> {
        baton::start(self, program)
    }

    fn program_goes_on(&self) -> Passing {
        self.world.program(self.node())
    }

    fn call_runs(&self, task: &'static str, call: u64) -> Passing {
        self.world.call(self.node(), task, call)
    }
}
