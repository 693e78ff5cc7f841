//! Detects that the tasks for which this node's tasks wait are complete, if some of them went to other nodes.
//!
//! The source is the global task list. A stale list is safe: the completion of a scope is permanent, and the
//! waiting task is not in the list before its spawned tasks are.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use zk::accounting;

use super::Coordination;
use crate::{scope, shell::roster::Roster};

/// The pause before the list is read. It doubles while the list shows no completion: most tasks wait for others in
/// the same pool, for which the list is not needed. The list is not read for a task that has waited for less than
/// one pause.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The minimum pause per member: all nodes together read the list at most 500 times per second.
const PAUSE_EACH: Duration = Duration::from_millis(2);

impl Coordination {
    /// Reads the list periodically while tasks wait.
    pub(super) async fn end_waits(self: Arc<Self>) {
        let others = || u32::try_from(self.others.look(Roster::others).1).unwrap_or(0);
        let pause_first = || PAUSE_FIRST.max(PAUSE_EACH * others());
        let mut pause = pause_first();
        let mut before = BTreeSet::new();
        loop {
            if self.pool.awaited_scopes().is_empty() {
                self.waits.notified().await;
            }
            tokio::time::sleep(pause).await;
            let now = self.pool.awaited_scopes();
            let awaited: Vec<_> = now.iter().copied().filter(|scope| before.contains(scope)).collect();
            before = now.into_iter().collect();
            if awaited.is_empty() {
                pause = pause_first();
                continue;
            }
            let paths = self.job_paths().attempt(self.attempt_seen());
            let read = || async {
                match accounting::list(&*self.store, &paths).await {
                    // The attempt is over.
                    Err(zk::Error::NoNode { .. }) => Ok(Vec::new()),
                    other => other,
                }
            };
            let Some(list) = self.persist("reading the list of tasks", read).await else { return };
            let complete = scope::complete(&awaited, &list);
            if !complete.is_empty() {
                // Completed tasks improved variables before they completed, and the waiting tasks rely on these values.
                let Some(()) = self.persist("reading the variables", || self.load_variables()).await else {
                    return;
                };
                self.pool.wake(&complete);
            }
            pause =
                if complete.is_empty() { PAUSE_MAX.max(pause_first()).min(2 * pause) } else { pause_first() };
        }
    }
}
