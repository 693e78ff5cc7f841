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
pub fn group<R>(calls: impl FnOnce() -> R) -> (Group, R) {
    let flow = Flow::current();
    let start = flow.next();
    let returned = calls();
    let calls = start..flow.next();
    (Group { flow, calls }, returned)
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
    /// The first failure of a call of the group; the program counts as told of all of them. What was cancelled has not
    /// failed.
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
