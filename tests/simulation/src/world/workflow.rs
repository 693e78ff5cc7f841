//! The world of workflows: the durations of calls and of the program's steps, and the clocks of nodes.

use std::{io, sync::Arc, time::Duration};

use dataflow_framework::simulation::{Passing, Seen as Step, World as FlowWorld};
use taskwork::NodeId;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use super::{
    World,
    turn::{self, Turn},
};
use crate::{
    invariants::Seen,
    workload::{mix, workflow::ENDLESS},
};

/// The time of the simulated clocks at the start, in microseconds since 1970.
const BEGINNING_US: u64 = 1_800_000_000_000_000;

/// The maximum difference between two clocks, in microseconds.
const SKEW_US: u64 = 5_000_000;

impl World {
    /// Waits on a node, longer if its machine is frozen, and forever if it is dead.
    pub(super) async fn wait_on(self, node: NodeId, ms: u64) {
        sleep(Duration::from_millis(ms)).await;
        loop {
            if !self.lock().machines.knows(node) {
                // Its process was killed.
                return std::future::pending().await;
            }
            let thawed = self.with(|state| state.machines.thawed(node));
            let Some(thawed) = thawed else { return };
            // A dead machine never thaws.
            let _ = thawed.await;
        }
    }
}

impl FlowWorld for World {
    fn clock_us(&self, node: NodeId) -> u64 {
        BEGINNING_US + 1_000 * self.now() + mix(node.0, 17) % SKEW_US
    }

    fn call(&self, node: NodeId, task: &'static str, call: u64) -> Passing {
        if task == ENDLESS {
            return Box::pin(std::future::pending());
        }
        // Each try has its own duration.
        let ms = self.with(|state| {
            let mean = state.slice_ms;
            mix(call, state.now) % (2 * mean) + 1 + state.machines.take_stuck(node)
        });
        Box::pin(self.clone().wait_on(node, ms))
    }

    fn start_program(&self, node: NodeId, program: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        turn::start(self, node, program)
    }

    fn is_program(&self) -> bool {
        Turn::current().is_some()
    }

    fn wait(&self, notifier: &Arc<Notify>, at_the_latest: Option<Instant>) -> bool {
        let turn = Turn::current().expect("it is called by the program of a simulated node");
        turn.pass(notifier, at_the_latest)
    }

    fn see(&self, node: NodeId, step: &Step) {
        self.with(|state| {
            let is_dead = state.machines.of(node).is_none_or(|machine| state.machines.is_dead(machine));
            if !is_dead {
                state.note(format_args!("{node} {step:?}"));
                state.see(&Seen::Workflow { node, step });
            }
        });
    }
}
