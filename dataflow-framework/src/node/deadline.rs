//! The deadlines of calls.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    failure::{Failed, FailureKind},
    platform::Platform,
};

thread_local! {
    static CURRENT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Runs a task that should complete before the deadline, if it has one.
pub(super) fn during<R>(deadline: Option<Instant>, task: impl FnOnce() -> R) -> R {
    let before = CURRENT.replace(deadline);
    // The task does not panic: its panics are caught inside.
    let result = task();
    CURRENT.set(before);
    result
}

/// Returns the remaining time of the call that this thread runs; `None` if the call has no timeout, or the thread
/// runs no call.
///
/// A task with a `timeout` should check this regularly and return when it is zero, so that it does not occupy its
/// thread any longer.
pub fn time_left() -> Option<Duration> {
    CURRENT.get().map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// Returns the failure of a call that has exceeded its timeout.
pub(crate) fn exceeded(timeout: Duration) -> Failed {
    Failed::of_kind(
        FailureKind::Timeout,
        format!("it has taken longer than {timeout:?}, the timeout of the call"),
    )
}

/// Calls functions when deadlines pass, on a thread that is started with the first deadline.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The function of each deadline; the number distinguishes equal deadlines.
    set: BTreeMap<(Instant, u64), Box<dyn FnOnce() + Send>>,
    next: u64,
    has_thread: bool,
    is_over: bool,
}

/// A deadline that was set.
#[derive(Debug)]
pub(super) struct Deadline {
    of: Arc<Deadlines>,
    key: (Instant, u64),
}

impl Deadlines {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a function at this time, on another thread, unless the deadline is [met](Deadline::meet) before.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(super) fn set(
        self: &Arc<Self>,
        platform: &Platform,
        at: Instant,
        passed: impl FnOnce() + Send + 'static,
    ) -> io::Result<Deadline> {
        let mut state = self.lock();
        let key = (at, state.next);
        match platform {
            Platform::Machine if state.has_thread => {}
            Platform::Machine => {
                let deadlines = Arc::clone(self);
                thread::Builder::new().name("deadlines".to_owned()).spawn(move || deadlines.watch())?;
                state.has_thread = true;
            }
            Platform::Simulated(_) => drop(tokio::spawn(Arc::clone(self).pass(key))),
        }
        state.next += 1;
        state.set.insert(key, Box::new(passed));
        let is_first = state.set.first_key_value().is_some_and(|(first, _)| *first == key);
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
        Ok(Deadline { of: Arc::clone(self), key })
    }

    fn watch(&self) {
        let mut state = self.lock();
        while !state.is_over {
            let Some((at, _)) = state.set.first_key_value().map(|(key, _)| *key) else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = at.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                let waited = self.changed.wait_timeout(state, left);
                (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let passed = state.set.pop_first();
            drop(state);
            if let Some((_, passed)) = passed {
                passed();
            }
            state = self.lock();
        }
    }

    /// Calls the function of a deadline when it passes, in virtual time.
    async fn pass(self: Arc<Self>, key: (Instant, u64)) {
        tokio::time::sleep_until(key.0).await;
        let passed = self.lock().set.remove(&key);
        if let Some(passed) = passed {
            passed();
        }
    }

    /// Stops the thread and removes all deadlines.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        let set = std::mem::take(&mut state.set);
        drop(state);
        self.changed.notify_one();
        drop(set);
    }
}

impl Deadline {
    /// Removes the deadline, and returns whether it had not passed.
    pub(super) fn meet(self) -> bool {
        let removed = self.of.lock().set.remove(&self.key);
        removed.is_some()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("set", &self.set.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc},
        time::Duration,
    };

    use tokio::time::Instant;

    use super::{Deadlines, Platform};

    #[test]
    fn deadlines_call_functions_in_order_unless_met() {
        let deadlines = Arc::new(Deadlines::default());
        let (tell, told) = mpsc::channel();
        let now = Instant::now();
        let set = |ms: u64| {
            let tell = tell.clone();
            let passed = move || tell.send(ms).expect("the receiver exists");
            deadlines
                .set(&Platform::Machine, now + Duration::from_millis(ms), passed)
                .expect("a thread can be started")
        };
        let (late, soon, far) = (set(20), set(10), set(1_000_000));
        assert_eq!([told.recv().expect("it passes"), told.recv().expect("it passes")], [10, 20]);
        assert!(!late.meet() && !soon.meet() && far.meet());
        let last = set(1_000_000);
        deadlines.end();
        // A deadline that was removed by `end` does not count as met.
        assert!(!last.meet());
        drop(tell);
        told.recv().expect_err("all senders are dropped");
    }
}
