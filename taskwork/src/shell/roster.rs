//! The other members of the same release, as a seat knows them, for all of its jobs.
//!
//! Those that wait for a change are woken in the order in which they began to wait: in the simulator, a run can be
//! replayed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use zk::membership::Member;

use crate::id::NodeId;

/// The members at one moment.
pub(crate) type Roster = Arc<BTreeMap<NodeId, Arc<Member>>>;

/// The present members.
#[derive(Debug, Default)]
pub(crate) struct Members {
    now: Mutex<(u64, Roster)>,
    changed: Notify,
}

impl Members {
    /// Returns the members, and the number of changes so far.
    pub(crate) fn now(&self) -> (u64, Roster) {
        self.lock().clone()
    }

    /// Changes the members.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut BTreeMap<NodeId, Arc<Member>>) -> R) -> R {
        let mut now = self.lock();
        now.0 += 1;
        let done = change(Arc::make_mut(&mut now.1));
        drop(now);
        self.changed.notify_waiters();
        done
    }

    /// Waits until there have been more changes than these.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) async fn changed(&self, changes: u64) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.lock().0 > changes {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Roster)> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
