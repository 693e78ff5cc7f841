//! The invariants of a node. Tests and the simulator check them after each event.

use std::collections::BTreeSet;

use super::node::{Node, Phase};
use crate::{holdings::Basis, id::TaskId};

impl Node {
    /// Returns the tasks that the protocol itself holds, outside the pool.
    #[cfg(test)]
    pub fn held(&self) -> Vec<TaskId> {
        let open = match &self.phase {
            Phase::Active(run) => run.victim.tasks().map(|envelope| envelope.id).collect(),
            _ => Vec::new(),
        };
        open.into_iter().chain(self.piled().map(|(_, task)| task)).collect()
    }

    /// Returns the tasks that the current transaction parks.
    #[cfg(test)]
    pub fn parks(&self) -> Vec<TaskId> {
        let Phase::Active(run) = &self.phase else { return Vec::new() };
        run.accounting.parks().iter().map(|envelope| envelope.id).collect()
    }

    fn piled(&self) -> impl Iterator<Item = (Basis, TaskId)> + '_ {
        self.around.drain.iter().flat_map(|drain| drain.tasks().map(|(basis, task)| (basis, task.id)))
    }

    /// Checks the invariants of a single node.
    ///
    /// # Errors
    /// A description of the violated invariant.
    pub fn check(&self) -> Result<(), String> {
        // An open grant may hold a task that was taken, handed over and returned before its acknowledgement
        // arrived; and a task may come back from a lost node while a copy on a basis that is not yet known to
        // be void is still here. Otherwise a task that only this node can give away is held once.
        let piled: Vec<(Basis, TaskId)> = self.piled().collect();
        let distinct: BTreeSet<_> = piled.iter().collect();
        if distinct.len() != piled.len() {
            return Err(format!("{}: a task is held twice: {piled:?}", self.around.id));
        }
        let Phase::Active(run) = &self.phase else { return Ok(()) };
        if run.victim.open() > self.around.limits.open_grants_max {
            return Err(format!("{}: {} open grants", self.around.id, run.victim.open()));
        }
        let (one_max, all_max) =
            (self.around.limits.grant_bytes_max, self.around.limits.open_grant_bytes_max);
        if let Some((tasks, bytes)) = run.victim.sizes().find(|&(tasks, bytes)| tasks > 1 && bytes > one_max)
        {
            return Err(format!("{}: a grant of {tasks} tasks has {bytes} bytes", self.around.id));
        }
        let largest = run.victim.sizes().map(|(_, bytes)| bytes).max().unwrap_or(0);
        if run.victim.open_bytes() > all_max + largest.max(one_max) {
            return Err(format!("{}: open grants have {} bytes", self.around.id, run.victim.open_bytes()));
        }
        if run.victim.waiting() > self.around.limits.waiting_thieves_max {
            return Err(format!("{}: {} waiting thieves", self.around.id, run.victim.waiting()));
        }
        if self.around.members.contains(&self.around.id) {
            return Err(format!("{}: is its own neighbour", self.around.id));
        }
        Ok(())
    }
}
