//! Waits for many calls at once.

use std::{fmt, ops::Range, rc::Rc};

use super::flow::Flow;
use crate::failure::Failure;

/// Waits until all calls have ended that the program has made so far.
///
/// # Errors
/// The first failure of a call of which the program was not told before; it counts as told of all of them.
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
    Flow::current().wait_for_all()
}

/// Makes the calls of a closure a group, and returns it beside what the closure returns. Groups may contain others.
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
///     // What has not begun is not run any more.
///     let first = *numbers[3].get()?;
///     tries.cancel();
///     // Some have failed, or were not run; that is all right here.
///     let _ = tries.wait();
///     Ok::<u64, Failure>(first)
/// })?;
/// assert_eq!(found, 3);
/// # Ok::<(), dataflow_framework::WorkflowError>(())
/// ```
///
/// A call may be one with whose failure the others of its group are of no use:
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
///     // Those after it that have not begun are not run.
///     checks.wait()
/// });
/// let Err(WorkflowError::Call(failure)) = ended else { panic!("one has failed") };
/// assert_eq!(failure.reason(), "20 is not allowed");
/// # Ok::<(), WorkflowError>(())
/// ```
pub fn group<R>(calls: impl FnOnce() -> R) -> (Group, R) {
    let flow = Flow::current();
    let start = flow.next();
    flow.open_group();
    let opened = Opened { flow: &flow, start };
    let returned = calls();
    let calls = start..flow.next();
    drop(opened);
    (Group { flow, calls }, returned)
}

/// A group whose calls are being made, until it is dropped.
struct Opened<'a> {
    flow: &'a Flow,
    start: u64,
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.flow.close_group(self.start..self.flow.next());
    }
}

/// Calls that are waited for, or cancelled, together. See [`group`].
pub struct Group {
    flow: Rc<Flow>,
    calls: Range<u64>,
}

impl Group {
    /// Waits until all calls of the group have ended.
    ///
    /// # Errors
    /// The first failure of a call of the group by which the others were cancelled
    /// ([`OnFailure::CancelGroup`](crate::OnFailure::CancelGroup)), or else of any; the program counts as told of all of
    /// them. What was cancelled has not failed.
    pub fn wait(&self) -> Result<(), Failure> {
        self.flow.wait_for(self.calls.clone())
    }

    /// Cancels the calls of the group that have not begun, and with them all that depends on them: whoever reads what
    /// they would have written is told so. Calls that run go on to their end.
    pub fn cancel(&self) {
        self.flow.cancel(self.calls.clone());
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("calls", &self.calls).finish_non_exhaustive()
    }
}
