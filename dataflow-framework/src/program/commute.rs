//! Updates in any order.

use super::data::Data;
use crate::value::Datum;

/// Passes data to a call that may update it before or after others that are passed it so: in the place of the `&mut` of
/// an update.
///
/// Such calls run one at a time, in the order in which what they read besides is there. So one whose input is late
/// holds up none of the others. Whoever reads the data, updates it otherwise, or keeps a snapshot of it, comes after all
/// of them that were called before, and before those that are called later.
///
/// The updates have to be commutative: the result must be the same in whichever order they come. If it is so up to
/// rounding only, it may differ from that of other runs of the program in the last digits. Within one run it does not:
/// the order is recorded before it is followed, so data that is made again, also by a program that begins anew on another
/// node, is the same. On a cluster a call therefore begins some milliseconds later, unless others are before it.
///
/// The call updates nothing else and returns nothing, since that would depend on the order; and it is neither an effect
/// nor nondeterministic. A failure names it by its place among them. Where the program runs each call itself
/// (`--sequential`), and in a task, which has to be a function of what it reads, the order is that of the calls.
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
///         // As they are measured.
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
