//! What the framework has of its node beside the runtime: a clock, and a thread for the program. In the simulator both
//! are the simulator's.

mod bell;

use std::{
    io, thread,
    time::{SystemTime, UNIX_EPOCH},
};

pub(crate) use self::bell::Bell;
use crate::node::Peer;
#[cfg(feature = "simulation")]
use crate::simulation::{Seen, Simulated};

/// The clock and the threads of a node. Clones are the same.
#[derive(Clone, Default)]
pub(crate) enum Platform {
    #[default]
    Machine,
    #[cfg(feature = "simulation")]
    Simulated(std::sync::Arc<Simulated>),
}

impl Platform {
    /// Returns the one of a node that begins to work on a job on this thread.
    pub(crate) fn current() -> Self {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = Simulated::current() {
            return Self::Simulated(simulated);
        }
        Self::Machine
    }

    /// Notes which node it is.
    pub(crate) fn is_of(&self, node: Peer) {
        match self {
            // All nodes of a machine have its clock.
            Self::Machine => _ = node,
            #[cfg(feature = "simulation")]
            Self::Simulated(simulated) => simulated.is_of(node),
        }
    }

    /// Returns the time by the clock of the node, in microseconds since 1970.
    pub(crate) fn now_us(&self) -> u64 {
        match self {
            Self::Machine => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
            }
            #[cfg(feature = "simulation")]
            Self::Simulated(simulated) => simulated.clock_us(),
        }
    }

    /// Runs a program on a thread of its own, since it waits.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start_program(&self, program: impl FnOnce() + Send + 'static) -> io::Result<()> {
        match self {
            Self::Machine => thread::Builder::new().name("program".to_owned()).spawn(program).map(drop),
            #[cfg(feature = "simulation")]
            Self::Simulated(simulated) => simulated.start_program(program),
        }
    }

    /// Shows the simulator what happens.
    #[cfg(feature = "simulation")]
    pub(crate) fn see(&self, seen: impl FnOnce() -> Seen) {
        if let Self::Simulated(simulated) = self {
            simulated.see(&seen());
        }
    }
}
