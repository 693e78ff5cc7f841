//! Calls of `async` tasks: their futures run on a thread of the node that is not a worker, at most [`FUTURES_MAX`] at a time.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Poll, ready},
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    task::block_in_place,
    time::{Instant, timeout_at},
};

use super::{
    context::Context,
    deadline::{self, Deadline},
    executor::Executor,
    queue::{Queue, Started, State, Waiting},
};
use crate::{
    core::{Assignment, FUTURES_MAX},
    failure::Failed,
    invocation::{Invocation, Outputs, Put},
    platform::Platform,
    task::{Body, CallFuture},
    value::Value,
};

/// The time after its deadline from which on an existing future counts as one that blocks its thread.
const BLOCKS_AFTER: Duration = Duration::from_secs(1);

/// The futures of a node.
#[derive(Default)]
pub(super) struct Futures {
    /// The calls that have not begun.
    pub(super) waiting: VecDeque<Waiting>,
    /// The number of calls that run, except those that have blocked a thread beyond their timeouts.
    running: u64,
    /// The threads that run futures, by number.
    runners: BTreeMap<u64, Runner>,
    /// The one that the next calls use, unless a call has blocked it beyond its timeout. Started with the first call.
    current: Option<u64>,
    /// The number of threads that were started.
    started: u64,
}

/// A thread that runs futures.
struct Runner {
    /// `None` for the runtime of this thread, in a simulated node.
    runtime: Option<Runtime>,
    /// The number of calls that run on it.
    calls: u64,
}

impl Runner {
    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(match &self.runtime {
            Some(runtime) => runtime.spawn(future),
            None => tokio::spawn(future),
        });
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // It may be dropped by a future, which must not block.
            runtime.shutdown_background();
        }
    }
}

/// Starts a runtime with one thread, which suffices for futures, since they do not compute.
fn start_runtime() -> io::Result<Runtime> {
    let start = || {
        Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(BLOCKING_MAX)
            .thread_name("task futures")
            .enable_all()
            .build()
    };
    // It panics if the thread cannot be started.
    catch_unwind(start).unwrap_or_else(|panic| Err(io::Error::other(Failed::panicked(&*panic).reason)))
}

impl Futures {
    /// Stops all futures.
    pub(super) fn end(&mut self) {
        self.waiting.clear();
        self.current = None;
        self.runners.clear();
    }

    /// Returns the number of the thread that the next calls use.
    fn runner(&mut self, platform: &Platform) -> io::Result<u64> {
        if let Some(current) = self.current {
            return Ok(current);
        }
        let runtime = match platform {
            Platform::Machine => Some(start_runtime()?),
            Platform::Simulated(_) => None,
        };
        self.started += 1;
        self.runners.insert(self.started, Runner { runtime, calls: 0 });
        self.current = Some(self.started);
        Ok(self.started)
    }
}

/// A place among the running futures, which the next waiting call takes on drop.
pub(super) struct Place {
    queue: Arc<Queue>,
    started: Started,
    /// The number of the thread.
    runner: u64,
    /// Whether another call may have it. It changes only while the queue is locked.
    is_left: Arc<AtomicBool>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.on_stopped(self.started);
        let Futures { runners, current, .. } = &mut state.futures;
        if let Some(runner) = runners.get_mut(&self.runner) {
            runner.calls -= 1;
            if runner.calls == 0 && *current != Some(self.runner) {
                runners.remove(&self.runner);
            }
        }
        if !self.is_left.swap(true, Relaxed) {
            state.futures.running -= 1;
            self.queue.start_futures(&mut state, 1);
        }
    }
}

impl Queue {
    /// Starts the future of a call, now or when fewer run.
    pub(super) fn push_future(self: &Arc<Self>, state: &mut State, waiting: Waiting) {
        state.futures.waiting.push_back(waiting);
        self.start_futures(state, 1);
    }

    /// Starts at most this number of waiting calls. A call stays in the list until the thread takes it: if another call
    /// blocks that thread, it starts on the next one.
    fn start_futures(self: &Arc<Self>, state: &mut State, most: usize) {
        let places = usize::try_from(FUTURES_MAX.saturating_sub(state.futures.running)).unwrap_or(usize::MAX);
        let number = most.min(places).min(state.futures.waiting.len());
        if number == 0 {
            return;
        }
        match state.futures.runner(&self.platform) {
            Ok(runner) => {
                let on = &state.futures.runners[&runner];
                (0..number).for_each(|_| on.spawn(Arc::clone(self).run_next_future(runner)));
            }
            Err(error) => {
                tracing::error!(%error, "cannot start the thread that runs `async` tasks: workers wait for the tasks");
                for waiting in std::mem::take(&mut state.futures.waiting) {
                    state.push(waiting);
                }
                self.report(state);
                self.changed.notify_all();
            }
        }
    }

    async fn run_next_future(self: Arc<Self>, runner: u64) {
        if let Some((waiting, place)) = self.take_future(runner) {
            waiting.run_as_future(&place).await;
        }
    }

    /// Takes a waiting call, if it may run on this thread.
    fn take_future(self: &Arc<Self>, runner: u64) -> Option<(Waiting, Place)> {
        let mut state = self.lock();
        let Futures { waiting, running, runners, current, .. } = &mut state.futures;
        if *current != Some(runner) || *running >= FUTURES_MAX {
            return None;
        }
        let on = runners.get_mut(&runner)?;
        let waiting = waiting.pop_front()?;
        *running += 1;
        on.calls += 1;
        let started = state.start(&waiting);
        Some((waiting, Place { queue: Arc::clone(self), started, runner, is_left: Arc::default() }))
    }

    /// Calls `passed` if the future in this place still exists some time after its deadline, since it blocks its thread.
    /// Then the next calls use another thread.
    pub(super) fn watch_future(
        self: &Arc<Self>,
        deadline: Instant,
        place: &Place,
        passed: impl FnOnce() + Send + 'static,
    ) -> Option<Deadline> {
        let (queue, runner, is_left) = (Arc::downgrade(self), place.runner, Arc::clone(&place.is_left));
        let passed = move || {
            let Some(queue) = queue.upgrade() else { return };
            let mut state = queue.lock();
            if !is_left.swap(true, Relaxed) {
                let futures = &mut state.futures;
                futures.running -= 1;
                futures.current = futures.current.filter(|current| *current != runner);
                queue.start_futures(&mut state, usize::MAX);
            }
            drop(state);
            passed();
        };
        self.set_deadline(deadline.checked_add(BLOCKS_AFTER)?, passed)
    }
}

/// The maximum number of threads for work that blocks.
const BLOCKING_MAX: usize = 32;

impl Executor {
    /// Returns whether the start and the end of a call may wait for the cache, so that other futures must run on another thread.
    fn may_block(&self, assignment: &Assignment) -> bool {
        let is_machine = matches!(self.queue.platform, Platform::Machine);
        is_machine && assignment.manner.is_cached && self.cache.get().is_some()
    }
}

impl Waiting {
    async fn run_as_future(self, place: &Place) {
        let may_block = self.executor.may_block(&self.assignment);
        let begun = if may_block { block_in_place(|| self.begin()) } else { self.begin() };
        let Some(mut running) = begun else { return };
        match &place.queue.platform {
            Platform::Machine => running.watch_future(place),
            // Nothing blocks there.
            Platform::Simulated(simulated) => running.pass(simulated).await,
        }
        let (running, written) = running.run_as_future().await;
        if may_block {
            block_in_place(|| running.end(None, written));
        } else {
            running.end(None, written);
        }
    }
}

/// Runs the task of a call once, as a future.
pub(super) async fn run_once(
    assignment: &Assignment,
    inputs: Vec<Value>,
    context: &Context,
) -> Result<Vec<Put>, Failed> {
    let Body::Future(start) = assignment.task().run else { unreachable!("it is an `async` task") };
    let (started, in_trouble) = {
        let mut call = Invocation::new(&assignment.arguments, inputs, &Put::Value);
        let start = AssertUnwindSafe(|| start(&mut call));
        context.during(|| catch_unwind(start))
    };
    let started = started.unwrap_or_else(|panic| Err(Failed::panicked(&*panic)));
    let future = started.map_err(|failed| if in_trouble { failed.in_trouble() } else { failed })?;
    let running = Polled { future: Some(future), context: context.clone(), in_trouble };
    match context.deadline.zip(assignment.manner.timeout) {
        None => running.await,
        Some((deadline, timeout)) => {
            let ended = timeout_at(deadline, running).await;
            // It may have blocked its thread beyond the deadline, and then succeeded.
            let in_time = ended.ok().filter(|_| Instant::now() < deadline);
            in_time.unwrap_or_else(|| Err(deadline::exceeded(timeout)))
        }
    }
}

/// Runs a future on a thread of its own, and waits for it: for calls that occupy a worker, or have none.
pub(super) fn wait_for<R: Send>(future: impl Future<Output = Result<R, Failed>> + Send) -> Result<R, Failed> {
    let run = || {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.map_err(Failed::of_node)?.block_on(future)
    };
    // This thread may run a future, where another runtime cannot be entered.
    let ran = thread::scope(|scope| {
        let started = thread::Builder::new().name("task future".to_owned()).spawn_scoped(scope, run);
        started.map(thread::ScopedJoinHandle::join)
    });
    let ran =
        ran.map_err(|error| Failed::of_node(format!("cannot start a thread for an `async` task: {error}")))?;
    ran.unwrap_or_else(|panic| Err(Failed::panicked(&*panic)))
}

/// The future of a task, within the context of its call.
struct Polled {
    future: Option<CallFuture>,
    context: Context,
    /// Whether it had a file error.
    in_trouble: bool,
}

impl Polled {
    /// Runs a part of the task. Its panics fail the call.
    fn during<R>(&mut self, part: impl FnOnce() -> Result<R, Failed>) -> Result<R, Failed> {
        let part = AssertUnwindSafe(part);
        let (result, in_trouble) = self.context.during(|| catch_unwind(part));
        self.in_trouble |= in_trouble;
        result.unwrap_or_else(|panic| Err(Failed::panicked(&*panic)))
    }

    fn drop_task(&mut self, future: CallFuture) -> Result<(), Failed> {
        self.during(|| {
            drop(future);
            Ok(())
        })
    }

    fn poll_task(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Result<Outputs, Failed>> {
        let Some(mut future) = self.future.take() else {
            unreachable!("it is not polled after its end");
        };
        let polled = self.during(|| Ok(future.as_mut().poll(cx)));
        match polled {
            Ok(Poll::Pending) => {
                self.future = Some(future);
                Poll::Pending
            }
            Ok(Poll::Ready(ended)) => Poll::Ready(self.drop_task(future).and(ended)),
            Err(failed) => {
                // The first panic is the reason.
                let _ = self.drop_task(future);
                Poll::Ready(Err(failed))
            }
        }
    }
}

impl Future for Polled {
    type Output = Result<Vec<Put>, Failed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        let ended = ready!(self.poll_task(cx));
        // If the task could not read or write a file, it may succeed on another node.
        let ended = ended.map_err(|failed| if self.in_trouble { failed.in_trouble() } else { failed });
        Poll::Ready(ended.map(Outputs::into_written))
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        // The call has exceeded its timeout, or the node exits.
        if let Some(future) = self.future.take()
            && let Err(Failed { reason, .. }) = self.drop_task(future)
        {
            tracing::warn!(reason, "the future of an `async` task has panicked when it was dropped");
        }
    }
}
