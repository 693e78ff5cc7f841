//! The threads of calls, which are reused: starting and ending one takes longer than an empty call.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
};

/// The maximum number of threads that wait for calls.
const IDLE_MAX: usize = 16;

type Run = Box<dyn FnOnce() + Send>;

static IDLE: Mutex<Vec<mpsc::Sender<Run>>> = Mutex::new(Vec::new());

pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

fn idle() -> MutexGuard<'static, Vec<mpsc::Sender<Run>>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a function on a thread of its own.
///
/// # Errors
/// If no thread is idle, and none can be started.
pub(crate) fn spawn_call(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let run: Run = Box::new(run);
    let thread = idle().pop();
    match thread {
        // An idle thread waits until its sender is used, so this does not fail.
        Some(thread) => thread.send(run).map_err(|error| io::Error::other(error.to_string())),
        None => spawn("call", || run_all(run)).map(drop),
    }
}

/// Runs a function, and then others as long as few threads are idle.
fn run_all(mut run: Run) {
    loop {
        run();
        let (sender, next) = mpsc::channel();
        {
            let mut idle = idle();
            if idle.len() >= IDLE_MAX {
                return;
            }
            idle.push(sender);
        }
        let Ok(next) = next.recv() else { return };
        run = next;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        sync::{Arc, Barrier},
        thread,
        time::Duration,
    };

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn calls_have_different_threads_at_a_time_and_reuse_idle_ones() {
        let (sent, ids) = mpsc::channel();
        let round = |calls: usize| {
            let all = Arc::new(Barrier::new(calls));
            for _ in 0..calls {
                let (sent, all) = (sent.clone(), Arc::clone(&all));
                spawn_call(move || {
                    // Passes only if the calls run at the same time.
                    all.wait();
                    sent.send(thread::current().id()).unwrap();
                })
                .unwrap();
            }
            (0..calls).map(|_| ids.recv_timeout(SOON).unwrap()).collect::<Vec<_>>()
        };
        let many = round(2 * IDLE_MAX);
        let mut seen: HashSet<_> = many.iter().copied().collect();
        assert_eq!(seen.len(), many.len());
        // A thread is idle soon after its call; tests of other modules use the same threads.
        assert!((0..10_000).any(|_| !seen.insert(round(1)[0])));
    }
}
