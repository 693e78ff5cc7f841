//! Waits for groups of calls.

use std::{fmt, ops::Range, rc::Rc};

use super::flow::Flow;
use crate::failure::Failure;

/// Waits until all calls that the program has made so far have completed.
///
/// # Errors
/// Returns the first failure that the program has not received yet; all of them then count as received.
///
/// # Panics
/// Panics outside of a workflow.
///
/// # Examples
/// ```
/// use dataflow_framework::{Failure, Workflow, barrier, task, tasks};
///
/// #[task]
/// fn even(number: u64) -> Result<(), String> {
///     if number % 2 == 0 { Ok(()) } else { Err(format!("{number} is odd")) }
/// }
///
/// Workflow::new(tasks![even])?.run(|| {
///     let first = [even(2), even(4), even(7), even(9)];
///     let failure = barrier().expect_err("two are odd");
///     assert_eq!(failure.reason(), "7 is odd");
///     let second = even(8);
///     barrier()
/// })?;
/// # Ok::<(), dataflow_framework::WorkflowError>(())
/// ```
pub fn barrier() -> Result<(), Failure> {
    Flow::current("barrier").wait_for_all()
}

/// Makes the calls of a closure a group, and returns it with the result of the closure. Groups may be nested.
///
/// # Panics
/// Panics outside of a workflow.
///
/// # Examples
/// ```
/// use dataflow_framework::{Data, Failure, Workflow, group, task, tasks};
///
/// #[task]
/// fn try_it(number: u64) -> Result<u64, String> {
///     if number == 20 { Err("20 is not tried".to_owned()) } else { Ok(number) }
/// }
///
/// let found = Workflow::new(tasks![try_it])?.run(|| {
///     let (tries, numbers) = group(|| (0..100).map(try_it).collect::<Vec<Data<u64>>>());
///     // Other calls end, or will not run.
///     let first = *numbers[3].get()?;
///     tries.cancel();
///     // Some calls have failed, or did not run; that is acceptable here.
///     let _ = tries.wait();
///     Ok::<u64, Failure>(first)
/// })?;
/// assert_eq!(found, 3);
/// # Ok::<(), dataflow_framework::WorkflowError>(())
/// ```
///
/// A call may cancel its group when it fails:
///
/// ```
/// use dataflow_framework::{Workflow, WorkflowError, group, task, tasks};
///
/// #[task(on_failure = cancel_group)]
/// fn check(number: u64) -> Result<u64, String> {
///     if number == 20 { Err("20 is not allowed".to_owned()) } else { Ok(number) }
/// }
///
/// let ended = Workflow::new(tasks![check])?.run(|| {
///     let (checks, _) = group(|| (0..1_000).map(check).collect::<Vec<_>>());
///     // The unfinished calls are cancelled.
///     checks.wait()
/// });
/// let Err(WorkflowError::Call(failure)) = ended else { panic!("one has failed") };
/// assert_eq!(failure.reason(), "20 is not allowed");
/// # Ok::<(), WorkflowError>(())
/// ```
pub fn group<R>(calls: impl FnOnce() -> R) -> (Group, R) {
    let flow = Flow::current("group");
    let start = flow.next();
    flow.open_group();
    let opened = Opened { flow: &flow, start };
    let returned = calls();
    let calls = start..flow.next();
    drop(opened);
    (Group { flow, calls }, returned)
}

/// A group whose calls are being made, until the drop.
struct Opened<'a> {
    flow: &'a Flow,
    start: u64,
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.flow.close_group(self.start..self.flow.next());
    }
}

/// Calls to wait for, or to cancel, together. See [`group`].
pub struct Group {
    flow: Rc<Flow>,
    calls: Range<u64>,
}

impl Group {
    /// Waits until all calls of the group have completed.
    ///
    /// # Errors
    /// Returns the first failure that cancelled other calls of the group
    /// ([`OnFailure::CancelGroup`](crate::OnFailure::CancelGroup)), or else the first of all; all of them then
    /// count as received. Cancelled calls have not failed.
    pub fn wait(&self) -> Result<(), Failure> {
        self.flow.wait_for(self.calls.clone())
    }

    /// Cancels the unfinished calls of the group, and with them all calls that depend on them: reading their output fails.
    /// Calls that have not started do not start. The process of a running isolated call or external program is killed, and
    /// the future of an `async` task is dropped. Other tasks that run can check [`is_cancelled`](crate::is_cancelled); they occupy
    /// their workers until they return. This does not wait for them.
    pub fn cancel(&self) {
        self.flow.cancel(self.calls.clone());
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("calls", &self.calls).finish_non_exhaustive()
    }
}
