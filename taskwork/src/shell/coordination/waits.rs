//! Finds out when everything is complete for which tasks of this node wait, if a part of it went to other nodes.
//!
//! The global task list tells. How old it is does not matter: what it has once said of a scope stays true, and
//! before the spawned tasks are named in it the waiting task is not in it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use zk::accounting;

use super::Coordination;
use crate::{scope, shell::roster::Roster};

/// The pause before the list is read. It doubles as long as it tells nothing: most tasks wait for others in the same
/// pool, for which the list is not needed. It is not read for a task that has waited for less than a pause.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The same for each member: all nodes together read the list 500 times a second at most.
const PAUSE_EACH: Duration = Duration::from_millis(2);

impl Coordination {
    /// Reads the list from time to time while tasks wait.
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
                // What has completed has improved variables before, and who has waited for it relies on that.
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
