//! Calls of `async` tasks: their futures run on a thread of the node that is not a worker, at most [`FUTURES_MAX`] at a time.

use std::{
    collections::VecDeque,
    future::Future,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Poll, ready},
    thread,
};

use tokio::{
    runtime::{Builder, Runtime},
    task::block_in_place,
    time::timeout_at,
};

use super::{
    context::Context,
    deadline,
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

/// The futures of a node.
#[derive(Default)]
pub(super) struct Futures {
    /// The calls that wait, since too many run.
    pub(super) waiting: VecDeque<Waiting>,
    running: u64,
    /// Started with the first call.
    runtime: Option<Runtime>,
}

impl Futures {
    /// Stops all futures.
    pub(super) fn end(&mut self) {
        self.waiting.clear();
        if let Some(runtime) = self.runtime.take() {
            // It may be called by a future of another runtime, which must not block.
            runtime.shutdown_background();
        }
    }

    /// Returns where futures run; `None` for the runtime of this thread, in a simulated node.
    fn runtime(&mut self, platform: &Platform) -> io::Result<Option<&Runtime>> {
        if let Platform::Simulated(_) = platform {
            return Ok(None);
        }
        if self.runtime.is_none() {
            // One thread suffices for futures, which do not compute.
            let mut builder = Builder::new_multi_thread();
            builder
                .worker_threads(1)
                .max_blocking_threads(BLOCKING_MAX)
                .thread_name("task futures")
                .enable_all();
            // It panics if the thread cannot be started.
            let runtime = catch_unwind(AssertUnwindSafe(|| builder.build()));
            self.runtime =
                Some(runtime.unwrap_or_else(|panic| Err(io::Error::other(Failed::panicked(&*panic).reason)))?);
        }
        Ok(self.runtime.as_ref())
    }
}

/// A place among the running futures, which the next waiting call takes on drop.
struct Place(Arc<Queue>, Started);

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.futures.running -= 1;
        state.on_stopped(self.1);
        if let Some(next) = state.futures.waiting.pop_front() {
            self.0.begin_future(&mut state, next);
        }
    }
}

impl Queue {
    /// Starts the future of a call, now or when fewer run.
    pub(super) fn push_future(self: &Arc<Self>, state: &mut State, waiting: Waiting) {
        if state.futures.running < FUTURES_MAX {
            self.begin_future(state, waiting);
        } else {
            state.futures.waiting.push_back(waiting);
        }
    }

    fn begin_future(self: &Arc<Self>, state: &mut State, waiting: Waiting) {
        let started = state.start(&waiting);
        let runtime = match state.futures.runtime(&self.platform) {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "cannot start the thread that runs `async` tasks: a worker waits for the task");
                state.on_stopped(started);
                state.push(waiting);
                self.report(state);
                return self.changed.notify_one();
            }
        };
        let place = Place(Arc::clone(self), started);
        let run = async move {
            let place = place;
            waiting.run_as_future(&place.0.platform).await;
        };
        drop(match runtime {
            Some(runtime) => runtime.spawn(run),
            None => tokio::spawn(run),
        });
        state.futures.running += 1;
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
    async fn run_as_future(self, platform: &Platform) {
        let may_block = self.executor.may_block(&self.assignment);
        let begun = if may_block { block_in_place(|| self.begin()) } else { self.begin() };
        let Some(running) = begun else { return };
        if let Platform::Simulated(simulated) = platform {
            running.pass(simulated).await;
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
            ended.unwrap_or_else(|_| Err(deadline::exceeded(timeout)))
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
        started.map(|thread| thread.join())
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
