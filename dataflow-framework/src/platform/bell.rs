//! What a thread waits for, while others change what it has locked.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

#[cfg(feature = "simulation")]
use crate::simulation::Baton;

/// A condition variable. In the simulator, who waits for it does so in virtual time.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    condition: Condvar,
    #[cfg(feature = "simulation")]
    rung: std::sync::Arc<tokio::sync::Notify>,
}

impl Bell {
    /// Wakes one thread that waits.
    pub(crate) fn ring(&self) {
        self.condition.notify_one();
        #[cfg(feature = "simulation")]
        self.rung.notify_one();
    }

    /// Wakes all threads that wait.
    pub(crate) fn ring_for_all(&self) {
        self.condition.notify_all();
        #[cfg(feature = "simulation")]
        self.rung.notify_waiters();
    }

    /// Unlocks what is locked, waits, and locks it again. It may return without a reason.
    pub(crate) fn wait<'a, T>(&self, of: &'a Mutex<T>, locked: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        #[cfg(feature = "simulation")]
        if let Some(baton) = Baton::current() {
            drop(locked);
            let _ = baton.pass(&self.rung, None);
            return of.lock().unwrap_or_else(PoisonError::into_inner);
        }
        let _ = of;
        self.condition.wait(locked).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the condition holds, but no longer than this time.
    pub(crate) fn wait_while<'a, T>(
        &self,
        of: &'a Mutex<T>,
        locked: MutexGuard<'a, T>,
        longest: Duration,
        condition: impl Fn(&T) -> bool,
    ) -> MutexGuard<'a, T> {
        #[cfg(feature = "simulation")]
        if let Some(baton) = Baton::current() {
            let until = tokio::time::Instant::now() + longest;
            let mut locked = locked;
            while condition(&locked) {
                drop(locked);
                let in_time = baton.pass(&self.rung, Some(until));
                locked = of.lock().unwrap_or_else(PoisonError::into_inner);
                if !in_time {
                    break;
                }
            }
            return locked;
        }
        let _ = of;
        let waited = self.condition.wait_timeout_while(locked, longest, |locked| condition(locked));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Returns what is told when it is rung.
    #[cfg(feature = "simulation")]
    pub(crate) fn rung(&self) -> std::sync::Arc<tokio::sync::Notify> {
        std::sync::Arc::clone(&self.rung)
    }
}
