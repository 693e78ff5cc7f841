//! What must hold of a node after every event. Tests and simulations ask for it after each step.

use std::collections::BTreeSet;

use super::node::{Node, Phase};
use crate::id::TaskId;

impl Node {
    /// The tasks that the protocol itself holds, outside the pool.
    pub(crate) fn held(&self) -> Vec<TaskId> {
        let open = match &self.phase {
            Phase::Active(run) => run.victim.tasks().map(|envelope| envelope.id).collect(),
            _ => Vec::new(),
        };
        let piled = self.drain.iter().flat_map(|drain| drain.tasks().map(|envelope| envelope.id));
        open.into_iter().chain(piled).collect()
    }

    /// Checks the invariants of a single node.
    ///
    /// # Errors
    /// The one that is broken, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        let held = self.held();
        let distinct: BTreeSet<_> = held.iter().collect();
        if distinct.len() != held.len() {
            return Err(format!("{}: a task is held twice: {held:?}", self.id));
        }
        let Phase::Active(run) = &self.phase else { return Ok(()) };
        if run.victim.open() > self.limits.open_grants_max {
            return Err(format!("{}: {} open grants", self.id, run.victim.open()));
        }
        if run.victim.waiting() > self.limits.waiting_thieves_max {
            return Err(format!("{}: {} waiting thieves", self.id, run.victim.waiting()));
        }
        if self.members.contains(&self.id) {
            return Err(format!("{}: is its own neighbour", self.id));
        }
        Ok(())
    }
}
