//! The platform of a node: its clock and its threads. On a machine these are the system's; in a
//! [`World`] they are that world's.

mod notifier;
mod world;

use std::{
    io,
    sync::Arc,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use taskwork::NodeId;

pub use self::world::{Passing, World, enter};
pub(crate) use self::{notifier::Notifier, world::Simulated};
use crate::core::Seen;

/// The clock and the threads of a node. Clones share them.
#[derive(Clone, Default)]
pub(crate) enum Platform {
    #[default]
    Machine,
    Simulated(Arc<Simulated>),
}

impl Platform {
    /// Returns the platform of a node that joins a job on this thread.
    pub(crate) fn current() -> Self {
        Simulated::current().map_or(Self::Machine, Self::Simulated)
    }

    /// Sets the node, once.
    pub(crate) fn set_node(&self, node: NodeId) {
        match self {
            // All nodes of a machine share its clock.
            Self::Machine => {}
            Self::Simulated(simulated) => simulated.set_node(node),
        }
    }

    /// Returns the clock time of the node, in microseconds since 1970.
    pub(crate) fn now_us(&self) -> u64 {
        match self {
            Self::Machine => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
            }
            Self::Simulated(simulated) => simulated.clock_us(),
        }
    }

    /// Creates a notifier for the threads of the node.
    pub(crate) fn notifier(&self) -> Notifier {
        match self {
            Self::Machine => Notifier::default(),
            Self::Simulated(simulated) => simulated.notifier(),
        }
    }

    /// Runs a program on its own thread, since it blocks.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(crate) fn start_program(&self, program: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        match self {
            Self::Machine => thread::Builder::new().name("program".to_owned()).spawn(program).map(drop),
            Self::Simulated(simulated) => simulated.start_program(program),
        }
    }

    pub(crate) fn is_observed(&self) -> bool {
        matches!(self, Self::Simulated(_))
    }

    /// Shows an event to the observer, if there is one.
    pub(crate) fn see(&self, seen: impl FnOnce() -> Seen) {
        if let Self::Simulated(simulated) = self {
            simulated.see(&seen());
        }
    }
}
