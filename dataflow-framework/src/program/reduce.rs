//! Many data into one.

use super::data::Data;
use crate::value::Datum;

/// Merges all data into one, by a task that merges its second argument into its first. `None` if there are none.
///
/// Merged are neighbours, then neighbours of what has come of that, and so on: a tree whose shape depends on nothing
/// but the number of parts. So sums of floating-point numbers are the same in every run.
///
/// # Examples
/// ```
/// use dataflow_framework::{Data, Failure, Workflow, reduce, task, tasks};
///
/// #[task]
/// fn add(sum: &mut u64, part: &u64) {
///     *sum += part;
/// }
///
/// let sum = Workflow::new(tasks![add])?.run(|| {
///     let parts: Vec<_> = (1..=100).map(Data::new).collect();
///     let sum = reduce(parts, add).expect("there are some");
///     Ok::<_, Failure>(*sum.get()?)
/// })?;
/// assert_eq!(sum, 5050);
/// # Ok::<(), dataflow_framework::WorkflowError>(())
/// ```
pub fn reduce<T: Datum>(
    parts: impl IntoIterator<Item = Data<T>>,
    merge: impl Fn(&mut Data<T>, &Data<T>),
) -> Option<Data<T>> {
    let mut parts: Vec<_> = parts.into_iter().collect();
    while parts.len() > 1 {
        let mut merged = Vec::with_capacity(parts.len().div_ceil(2));
        let mut rest = parts.into_iter();
        while let Some(mut first) = rest.next() {
            if let Some(second) = rest.next() {
                merge(&mut first, &second);
            }
            merged.push(first);
        }
        parts = merged;
    }
    parts.pop()
}
