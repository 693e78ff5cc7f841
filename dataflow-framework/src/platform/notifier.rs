//! A condition variable that also works in virtual time.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::world::World;

/// A condition variable. Programs of a world wait for it in virtual time.
#[derive(Default)]
pub(crate) struct Notifier {
    condition: Condvar,
    simulated: Option<Simulated>,
}

/// The virtual part of a notifier.
struct Simulated {
    world: Arc<dyn World>,
    notify: Arc<Notify>,
}

impl Notifier {
    pub(crate) fn simulated(world: Arc<dyn World>) -> Self {
        Self { simulated: Some(Simulated { world, notify: Arc::default() }), ..Self::default() }
    }

    /// Wakes one waiting thread.
    pub(crate) fn notify_one(&self) {
        self.condition.notify_one();
        if let Some(Simulated { notify, .. }) = &self.simulated {
            notify.notify_one();
        }
    }

    /// Wakes all waiting threads.
    pub(crate) fn notify_all(&self) {
        self.condition.notify_all();
        if let Some(Simulated { notify, .. }) = &self.simulated {
            notify.notify_waiters();
        }
    }

    /// Unlocks the mutex, waits, and locks it again. May return spuriously.
    pub(crate) fn wait<'a, T>(&self, of: &'a Mutex<T>, locked: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        if let Some(Simulated { world, notify }) = self.of_program() {
            drop(locked);
            let _ = world.wait(notify, None);
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
        if let Some(Simulated { world, notify }) = self.of_program() {
            let until = Instant::now() + longest;
            while condition(&locked) {
                drop(locked);
                let in_time = world.wait(notify, Some(until));
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

    /// Returns the notification in virtual time.
    pub(crate) fn notify(&self) -> Option<&Notify> {
        self.simulated.as_ref().map(|simulated| &*simulated.notify)
    }
}
