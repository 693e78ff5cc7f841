//! A run of a task for a call.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::time::Instant;

use super::{deadline, invocation::Invocation, once};
use crate::{
    core::{Assignment, Failing},
    failure::Failed,
    task::TaskDef,
    value::Value,
};

/// What a call has written, in the order of its versions.
pub(super) enum Written {
    ByTask(Vec<Value>),
    /// Its task has failed, which is to be ignored.
    Defaults(Vec<Value>, String),
}

type Result<T> = std::result::Result<T, Failed>;

/// Runs the task of a call on what it reads. It should end before the deadline.
pub(super) fn run(assignment: &Assignment, inputs: Vec<Value>, deadline: Option<Instant>) -> Result<Written> {
    if assignment.manner.failing == Failing::HasFailed {
        return otherwise(assignment, inputs, Failed::of("it has failed before"));
    }
    let kept = if ignores(assignment) { inputs.clone() } else { Vec::new() };
    match by_task(assignment, inputs, deadline) {
        Ok(written) => Ok(Written::ByTask(written)),
        Err(failed) => otherwise(assignment, kept, failed),
    }
}

/// Returns whether a failure of the call is to be ignored.
pub(super) fn ignores(assignment: &Assignment) -> bool {
    assignment.manner.failing != Failing::Nothing
}

/// Returns what a call writes whose task has failed.
pub(super) fn otherwise(assignment: &Assignment, inputs: Vec<Value>, failed: Failed) -> Result<Written> {
    match assignment.task.otherwise.filter(|_| ignores(assignment)) {
        Some(otherwise) => Ok(Written::Defaults(run_once(assignment, inputs, otherwise)?, failed.reason)),
        None => Err(failed),
    }
}

fn by_task(assignment: &Assignment, inputs: Vec<Value>, deadline: Option<Instant>) -> Result<Vec<Value>> {
    let run = assignment.task.run;
    let written = deadline::during(deadline, || {
        once::during(assignment.manner.once_token, || {
            if assignment.manner.is_checked {
                twice(assignment, &inputs)
            } else {
                run_once(assignment, inputs, run)
            }
        })
    });
    match (deadline, assignment.manner.timeout) {
        (Some(deadline), Some(timeout)) if Instant::now() > deadline => Err(deadline::exceeded(timeout)),
        _ => written,
    }
}

fn run_once(
    assignment: &Assignment,
    inputs: Vec<Value>,
    run: fn(&mut Invocation<'_>) -> Result<()>,
) -> Result<Vec<Value>> {
    let mut call = Invocation::new(assignment, inputs);
    // What it changes is its own, and dropped with it.
    let run = AssertUnwindSafe(|| run(&mut call));
    catch_unwind(run).unwrap_or_else(|panic| Err(Failed::panicked(&*panic)))?;
    Ok(call.into_written())
}

/// Runs the task twice, and compares what it writes.
fn twice(assignment: &Assignment, inputs: &[Value]) -> Result<Vec<Value>> {
    let TaskDef { run, .. } = *assignment.task;
    let before: Vec<_> = inputs.iter().map(Value::fingerprint_now).collect();
    let first = run_once(assignment, inputs.to_vec(), run)?;
    let second = run_once(assignment, inputs.to_vec(), run).map_err(|Failed { reason }| {
        Failed::of(format!("it was run twice, and failed the second time: {reason}"))
    })?;
    let after = inputs.iter().map(Value::fingerprint_now);
    if let Some(changed) = before.into_iter().zip(after).position(|(before, after)| before != after) {
        let number = changed + 1;
        return Err(Failed::of(format!(
            "it has changed what it only reads: number {number} of {} data. Others may read that at the same time",
            inputs.len()
        )));
    }
    let all = first.len();
    let differs = |(first, second): (&Value, &Value)| first.fingerprint_now() != second.fingerprint_now();
    match first.iter().zip(&second).position(differs) {
        Some(differs) => Err(Failed::of(format!(
            "it was run twice on the same data, and number {} of the {all} values that it writes is not the same. It has \
             to be a function of what it reads; clocks, random numbers, and the order of a `HashMap` are usual reasons \
             why it is not",
            differs + 1
        ))),
        None => Ok(first),
    }
}
