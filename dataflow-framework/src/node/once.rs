//! The idempotency token by which external systems detect a repeated execution of a call.

use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<Option<u128>> = const { Cell::new(None) };
}

/// Runs a task with this token.
pub(super) fn during<R>(token: Option<u128>, task: impl FnOnce() -> R) -> R {
    let before = CURRENT.replace(token);
    // The task does not panic: its panics are caught inside.
    let result = task();
    CURRENT.set(before);
    result
}

/// Returns a number that is the same in all executions of the call that this thread runs, and different in every
/// other call of any program; `None` if the task is neither `effect` nor `nondeterministic`, or if the thread runs no
/// call.
///
/// A call of an `effect` task is not run again after it has completed, but it is if its node is lost before, or if it
/// fails and is retried. With the token as the key of a payment or the name of a file, external systems can detect
/// that its effect is the same.
///
/// # Examples
/// ```
/// use dataflow_framework::{Failure, Workflow, once_token, task, tasks};
///
/// #[task(effect)]
/// fn pay(cents: u64) -> String {
///     let key = once_token().expect("the task has an effect");
///     // The bank does not accept two orders with the same key.
///     format!("{cents} with key {key:032x}")
/// }
///
/// let orders = Workflow::new(tasks![pay])?.run(|| {
///     let (first, second) = (pay(100), pay(100));
///     Ok::<_, Failure>([first.get()?.clone(), second.get()?.clone()])
/// })?;
/// assert_ne!(orders[0], orders[1]);
/// assert_eq!(once_token(), None);
/// # Ok::<(), dataflow_framework::WorkflowError>(())
/// ```
pub fn once_token() -> Option<u128> {
    CURRENT.get()
}
