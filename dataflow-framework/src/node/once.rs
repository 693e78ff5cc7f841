//! By what the outside recognises a call that is executed a second time.

use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<Option<u128>> = const { Cell::new(None) };
}

/// Runs a task of which this is the token.
pub(super) fn during<R>(token: Option<u128>, task: impl FnOnce() -> R) -> R {
    let before = CURRENT.replace(token);
    // The task does not panic: that was caught.
    let result = task();
    CURRENT.set(before);
    result
}

/// Returns a number that is the same in all executions of the call that this thread runs, and in no other call of any
/// program; `None` if its task is neither `effect` nor `nondeterministic`, or the thread runs no call.
///
/// A call of a task with `effect` is not run again when it has ended, but it is if its node is lost before, or if it has
/// failed and is tried again. Whatever it does outside of its data can then be recognised as the same: as the key of a
/// payment, or as the name of a file.
///
/// # Examples
/// ```
/// use dataflow_framework::{Failure, Workflow, once_token, task, tasks};
///
/// #[task(effect)]
/// fn pay(cents: u64) -> String {
///     let key = once_token().expect("the task has an effect");
///     // The bank takes no order with the same key twice.
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
