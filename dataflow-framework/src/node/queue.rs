//! The calls that wait for a thread, and the threads.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use super::site::Site;
use crate::core::Assignment;

/// The calls that wait for a thread. Their number is bounded by the graph, which assigns them.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

/// A call of a site that waits for a thread.
struct Waiting {
    site: Arc<Site>,
    /// The run of the program that has assigned it.
    epoch: u64,
    assignment: Assignment,
}

impl Waiting {
    fn run(self) {
        self.site.run(self.epoch, self.assignment);
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// The number of threads that wait.
    idle: usize,
    is_over: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call of a site.
    pub(crate) fn push(&self, site: Arc<Site>, epoch: u64, assignment: Assignment) {
        let mut state = self.lock();
        state.waiting.push_back(Waiting { site, epoch, assignment });
        let is_awaited = state.idle > 0;
        drop(state);
        if is_awaited {
            self.changed.notify_one();
        }
    }

    /// Waits for a call. `None` if there will be no more.
    fn next(&self) -> Option<Waiting> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(next) = state.waiting.pop_front() {
                return Some(next);
            }
            state.idle += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Runs a call on this thread, if one waits. Returns whether that was so.
    pub(crate) fn run_one(&self) -> bool {
        let next = self.lock().waiting.pop_front();
        let is_one = next.is_some();
        if let Some(next) = next {
            next.run();
        }
        is_one
    }

    /// Removes the calls of a site, and returns them.
    pub(crate) fn take_back(&self, site: &Site) -> Vec<Assignment> {
        let mut state = self.lock();
        let (its, others) =
            state.waiting.drain(..).partition(|waiting| std::ptr::eq(Arc::as_ptr(&waiting.site), site));
        state.waiting = others;
        drop(state);
        let its: VecDeque<Waiting> = its;
        its.into_iter().map(|waiting| waiting.assignment).collect()
    }

    /// Ends the threads, each after the call that it runs.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }
}

/// The threads that run calls, until this is dropped.
pub(crate) struct Crew {
    queue: Arc<Queue>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Crew {
    /// Starts so many threads.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn start(queue: &Arc<Queue>, workers: usize) -> io::Result<Self> {
        let mut crew = Self { queue: Arc::clone(queue), threads: Vec::new() };
        for number in 0..workers {
            let queue = Arc::clone(queue);
            let work = move || {
                while let Some(next) = queue.next() {
                    next.run();
                }
            };
            crew.threads.push(thread::Builder::new().name(format!("task worker {number}")).spawn(work)?);
        }
        Ok(crew)
    }

    /// Ends the threads, and does not wait for the calls that they run.
    pub(crate) fn leave(mut self) {
        self.threads.clear();
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.queue.end();
        for thread in self.threads.drain(..) {
            // Tasks that panic do not end their thread.
            drop(thread.join());
        }
    }
}
