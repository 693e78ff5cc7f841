//! Updates in any order.

use super::data::Data;
use crate::value::Datum;

/// Passes data to a call that may update it before or after other calls that receive it this way. Use it in
/// place of the `&mut` of an update.
///
/// Such calls run one at a time, in the order in which their other inputs become available. So a call with a
/// late input delays no other. A call that reads the data, updates it in the usual way, or takes a snapshot
/// runs after all such updates called before it, and before those called later.
///
/// The updates have to be commutative: the result must be the same in every order. If it is so only up to
/// rounding, it may differ between runs of the program in the last digits. Within one run it does not: the
/// order is recorded before it is followed, so data that is recomputed is the same, even after the program
/// restarts on another node. On a cluster a call therefore starts some milliseconds later, unless others are
/// queued before it.
///
/// The call must update nothing else, return nothing (its result would depend on the order), and be neither an
/// effect nor nondeterministic. A failure identifies the call by its position in the order. In a sequential
/// program (`--sequential`), and in a task, whose output may depend only on its inputs, the order is that of
/// the calls.
///
/// # Examples
/// ```
/// use dataflow_framework::{Data, Failure, Workflow, commute, task, tasks};
///
/// #[task]
/// fn measure(number: u64) -> u64 {
///     number * number
/// }
///
/// #[task]
/// fn note(most: &mut u64, measured: &u64) {
///     *most = (*most).max(*measured);
/// }
///
/// let most = Workflow::new(tasks![measure, note])?.run(|| {
///     let mut most = Data::new(0);
///     for number in [3, 7, 5] {
///         // In the order in which they are measured.
///         note(commute(&mut most), &measure(number));
///     }
///     Ok::<_, Failure>(*most.get()?)
/// })?;
/// assert_eq!(most, 49);
/// # Ok::<(), dataflow_framework::WorkflowError>(())
/// ```
#[must_use = "it is passed to a call"]
pub fn commute<T: Datum>(data: &mut Data<T>) -> &mut Data<T> {
    data.handle.commute();
    data
}
