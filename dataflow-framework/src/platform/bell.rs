//! A condition variable that also works in virtual time.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::world::World;

/// A condition variable. Programs of a world wait for it in virtual time.
#[derive(Default)]
pub(crate) struct Bell {
    condition: Condvar,
    simulated: Option<Simulated>,
}

/// The virtual part of a bell.
struct Simulated {
    world: Arc<dyn World>,
    notifier: Arc<Notify>,
}

impl Bell {
    pub(crate) fn simulated(world: Arc<dyn World>) -> Self {
        Self { simulated: Some(Simulated { world, notifier: Arc::default() }), ..Self::default() }
    }

    /// Wakes one waiting thread.
    pub(crate) fn ring(&self) {
        self.condition.notify_one();
        if let Some(Simulated { notifier, .. }) = &self.simulated {
            notifier.notify_one();
        }
    }

    /// Wakes all waiting threads.
    pub(crate) fn ring_for_all(&self) {
        self.condition.notify_all();
        if let Some(Simulated { notifier, .. }) = &self.simulated {
            notifier.notify_waiters();
        }
    }

    /// Unlocks the mutex, waits, and locks it again. May return spuriously.
    pub(crate) fn wait<'a, T>(&self, of: &'a Mutex<T>, locked: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        if let Some(Simulated { world, notifier }) = self.of_program() {
            drop(locked);
            let _ = world.wait(notifier, None);
            return of.lock().unwrap_or_else(PoisonError::into_inner);
        }
        self.condition.wait(locked).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the condition holds, but no longer than this time.
    pub(crate) fn wait_while<'a, T>(
        &self,
        of: &'a Mutex<T>,
        mut locked: MutexGuard<'a, T>,
        longest: Duration,
        condition: impl Fn(&T) -> bool,
    ) -> MutexGuard<'a, T> {
        if let Some(Simulated { world, notifier }) = self.of_program() {
            let until = Instant::now() + longest;
            while condition(&locked) {
                drop(locked);
                let in_time = world.wait(notifier, Some(until));
                locked = of.lock().unwrap_or_else(PoisonError::into_inner);
                if !in_time {
                    break;
                }
            }
            return locked;
        }
        let waited = self.condition.wait_timeout_while(locked, longest, |locked| condition(locked));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Returns the virtual part if a program of that world runs on this thread.
    fn of_program(&self) -> Option<&Simulated> {
        self.simulated.as_ref().filter(|simulated| simulated.world.is_program())
    }

    /// Returns the notifier for virtual time.
    pub(crate) fn notifier(&self) -> Option<&Notify> {
        self.simulated.as_ref().map(|simulated| &*simulated.notifier)
    }
}
