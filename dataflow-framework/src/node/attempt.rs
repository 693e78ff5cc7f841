//! One attempt to run the task of a call.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::time::Instant;

use super::{cancellation::cancelled, context::Context, deadline, futures, nesting::Nesting};
use crate::{
    core::{Assignment, Failing},
    failure::Failed,
    invocation::{Invocation, Put},
    isolated,
    task::{Body, RunTask},
    value::Value,
};

/// The output of a call, in the order of its versions.
pub(super) enum Written {
    ByTask(Vec<Put>),
    /// The task has failed, and the failure is ignored: default outputs, and the reason.
    Defaults(Vec<Put>, String),
}

const FAILED_BEFORE: &str = "it has failed before";

type Result<T> = std::result::Result<T, Failed>;

/// Runs the task of a call on its inputs. It should complete before the deadline.
pub(super) fn run(
    assignment: &Assignment,
    inputs: Vec<Value>,
    context: &Context,
    nesting: &dyn Nesting,
) -> Result<Written> {
    if assignment.manner.failing == Failing::HasFailed {
        return default_outputs(assignment, inputs, Failed::of(FAILED_BEFORE), nesting);
    }
    let kept = if ignores(assignment) { inputs.clone() } else { Vec::new() };
    match by_task(assignment, inputs, context, nesting) {
        Ok(written) => Ok(Written::ByTask(written)),
        Err(failed) => default_outputs(assignment, kept, failed, nesting),
    }
}

/// Runs the `async` task of a call on its inputs, until the deadline.
pub(super) async fn run_future(
    assignment: &Assignment,
    inputs: Vec<Value>,
    context: &Context,
    nesting: &dyn Nesting,
) -> Result<Written> {
    if assignment.manner.failing == Failing::HasFailed {
        return default_outputs(assignment, inputs, Failed::of(FAILED_BEFORE), nesting);
    }
    let kept = if ignores(assignment) { inputs.clone() } else { Vec::new() };
    let run = async {
        if !assignment.manner.is_checked {
            return futures::run_once(assignment, inputs, context).await;
        }
        let before = fingerprints(&inputs);
        let first = futures::run_once(assignment, inputs.clone(), context).await?;
        let second = futures::run_once(assignment, inputs.clone(), context).await.map_err(in_second_run)?;
        compared(before, &inputs, first, &second)
    };
    // The future is dropped when the call is cancelled.
    let written = tokio::select! {
        biased;
        () = context.cancellation.cancelled() => return Err(cancelled()),
        written = run => written,
    };
    match written {
        Ok(written) => Ok(Written::ByTask(written)),
        Err(failed) => default_outputs(assignment, kept, failed, nesting),
    }
}

pub(super) fn ignores(assignment: &Assignment) -> bool {
    assignment.manner.failing != Failing::Nothing
}

/// Returns the default outputs of a call whose task has failed, or the failure if it is not ignored.
pub(super) fn default_outputs(
    assignment: &Assignment,
    inputs: Vec<Value>,
    failed: Failed,
    nesting: &dyn Nesting,
) -> Result<Written> {
    match assignment.task().default_outputs.filter(|_| ignores(assignment)) {
        Some(default_outputs) => {
            // The calls made by the failed task no longer matter.
            nesting.restart();
            Ok(Written::Defaults(run_on_thread(assignment, inputs, default_outputs, nesting)?, failed.reason))
        }
        None => Err(failed),
    }
}

fn by_task(
    assignment: &Assignment,
    inputs: Vec<Value>,
    context: &Context,
    nesting: &dyn Nesting,
) -> Result<Vec<Put>> {
    let written = run_here_or_isolated(assignment, inputs, context, nesting);
    match (context.deadline, assignment.manner.timeout) {
        (Some(deadline), Some(timeout)) if Instant::now() > deadline => Err(deadline::exceeded(timeout)),
        _ => written,
    }
}

fn run_here_or_isolated(
    assignment: &Assignment,
    inputs: Vec<Value>,
    context: &Context,
    nesting: &dyn Nesting,
) -> Result<Vec<Put>> {
    if assignment.manner.is_isolated && !isolated::is_child() {
        let run = |inputs: Vec<Value>| {
            let written = isolated::run(assignment, &inputs)?;
            Ok(written.into_iter().map(Put::Value).collect())
        };
        let is_checked = assignment.manner.is_checked;
        let (written, _) =
            context.during(|| if is_checked { twice(&inputs, run, nesting) } else { run(inputs) });
        return written;
    }
    run_here(assignment, inputs, context, nesting)
}

/// Runs the task of a call in this process.
pub(crate) fn run_here(
    assignment: &Assignment,
    inputs: Vec<Value>,
    context: &Context,
    nesting: &dyn Nesting,
) -> Result<Vec<Put>> {
    let run = |inputs| match assignment.task().run {
        Body::Thread(run) => run_on_thread(assignment, inputs, run, nesting),
        Body::Future(_) => futures::wait_for(futures::run_once(assignment, inputs, context)),
    };
    let is_checked = assignment.manner.is_checked;
    let (written, in_trouble) =
        context.during(|| if is_checked { twice(&inputs, run, nesting) } else { run(inputs) });
    // If the task could not read or write a file, it may succeed on another node.
    written.map_err(|failed| if in_trouble { failed.in_trouble() } else { failed })
}

fn run_on_thread(
    assignment: &Assignment,
    inputs: Vec<Value>,
    run: RunTask,
    nesting: &dyn Nesting,
) -> Result<Vec<Put>> {
    let put = |value| nesting.put(value);
    let mut call = Invocation::new(&assignment.arguments, inputs, &put);
    // The task changes only data of this call, which is dropped after a panic.
    let run = AssertUnwindSafe(|| run(&mut call));
    catch_unwind(run).unwrap_or_else(|panic| {
        // The task was stopped by `nesting::end`.
        let ended = panic.downcast::<Failed>().map(|failed| *failed);
        Err(ended.unwrap_or_else(|panic| Failed::panicked(&*panic)))
    })?;
    Ok(call.into_written())
}

/// Runs the task twice, and compares the outputs.
fn twice(
    inputs: &[Value],
    run: impl Fn(Vec<Value>) -> Result<Vec<Put>>,
    nesting: &dyn Nesting,
) -> Result<Vec<Put>> {
    let before = fingerprints(inputs);
    let first = run(inputs.to_vec())?;
    nesting.restart();
    let second = run(inputs.to_vec()).map_err(in_second_run)?;
    compared(before, inputs, first, &second)
}

fn fingerprints(inputs: &[Value]) -> Vec<(u64, u128)> {
    inputs.iter().map(Value::fingerprint_now).collect()
}

fn in_second_run(Failed { reason, kind, .. }: Failed) -> Failed {
    Failed::of_kind(kind, format!("it was run twice, and the second run failed: {reason}"))
}

/// Compares the outputs of two runs, and the inputs with those `before`. Returns the output.
fn compared(before: Vec<(u64, u128)>, inputs: &[Value], first: Vec<Put>, second: &[Put]) -> Result<Vec<Put>> {
    let after = fingerprints(inputs).into_iter();
    if let Some(changed) = before.into_iter().zip(after).position(|(before, after)| before != after) {
        let number = changed + 1;
        return Err(Failed::of(format!(
            "it has changed its read-only input {number} of {}. Other tasks may read that at the same time",
            inputs.len()
        )));
    }
    let all = first.len();
    let differs = |(first, second): (&Put, &Put)| match (first, second) {
        (Put::Value(first), Put::Value(second)) => first.fingerprint_now() != second.fingerprint_now(),
        (Put::HandedOn(first), Put::HandedOn(second)) => first != second,
        _ => true,
    };
    match first.iter().zip(second).position(differs) {
        Some(differs) => Err(Failed::of(format!(
            "it was run twice on the same data, and output {} of {all} differs. A task has \
             to be a function of its inputs; the usual causes are clocks, random numbers, and the iteration order of \
             a `HashMap`",
            differs + 1
        ))),
        None => Ok(first),
    }
}
