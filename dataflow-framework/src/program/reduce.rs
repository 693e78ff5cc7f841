//! Reductions: many data merged into one.

use std::{fmt, rc::Rc};

use super::{
    data::Data,
    flow::{Flow, Freedom},
};
use crate::value::Datum;

/// Merges all data into one, by a task that merges its second argument into its first. No call is made before
/// the result is requested: `None` if there are no parts.
///
/// Neighbours are merged, then their results, and so on: a tree whose shape depends only on the number of
/// parts. So sums of floating-point numbers are the same in every run. See [`any_order`](Reduction::any_order)
/// for parts that become available at very different times.
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
pub fn reduce<T: Datum, M: Fn(&mut Data<T>, &Data<T>)>(
    parts: impl IntoIterator<Item = Data<T>>,
    merge: M,
) -> Reduction<T, M> {
    Reduction { parts: parts.into_iter().collect(), merge, is_in_any_order: false }
}

/// A reduction of many data to one. See [`reduce`].
#[must_use = "nothing is merged before its data is asked for"]
pub struct Reduction<T, M> {
    parts: Vec<Data<T>>,
    merge: M,
    is_in_any_order: bool,
}

impl<T: Datum, M: Fn(&mut Data<T>, &Data<T>)> Reduction<T, M> {
    /// Merges parts as they become available: a call starts as soon as any two parts or intermediate results
    /// exist. So one late part delays only the last call, and data of one node is merged on that node.
    ///
    /// The merge has to be commutative and associative. If it is so only up to rounding, as a sum of
    /// floating-point numbers, the result may differ between runs of the program in the last digits. Within one
    /// run it does not: each pair is recorded before it is merged, so data that is recomputed is the same, even
    /// after the program restarts on another node. On a cluster each call therefore starts some milliseconds
    /// later.
    ///
    /// The merge has to be a single call, which updates its first argument and reads its second; its output
    /// must have no other reader. A sequential program (`--sequential`) merges the parts one after another, in
    /// the order of the list. A task, whose output may depend only on its inputs, uses the tree.
    ///
    /// # Examples
    /// ```
    /// use dataflow_framework::{Data, Failure, Workflow, reduce, task, tasks};
    ///
    /// #[task]
    /// fn count(text: String) -> u64 {
    ///     text.split_whitespace().count() as u64
    /// }
    ///
    /// #[task]
    /// fn add(sum: &mut u64, part: &u64) {
    ///     *sum += part;
    /// }
    ///
    /// let words = Workflow::new(tasks![count, add])?.run(|| {
    ///     let counts = ["to be", "or", "not to be"].map(|text| count(text.to_owned()));
    ///     let words = reduce(counts, add).any_order().expect("there are three");
    ///     Ok::<_, Failure>(*words.get()?)
    /// })?;
    /// assert_eq!(words, 6);
    /// # Ok::<(), dataflow_framework::WorkflowError>(())
    /// ```
    pub fn any_order(mut self) -> Self {
        self.is_in_any_order = true;
        self
    }

    /// Makes the calls, and returns the resulting data; `None` if there are no parts.
    #[must_use]
    pub fn data(self) -> Option<Data<T>> {
        let Self { parts, merge, is_in_any_order } = self;
        if !is_in_any_order {
            return in_tree(parts, merge);
        }
        let flow = Flow::current("reduce");
        match flow.freedom() {
            Freedom::None => in_tree(parts, merge),
            Freedom::OrderOfList => in_order(parts, merge),
            Freedom::AnyOrder => in_any_order(&flow, parts, merge),
        }
    }

    /// Makes the calls, and returns the resulting data.
    ///
    /// # Panics
    /// Panics with this message if there are no parts.
    #[must_use]
    #[track_caller]
    pub fn expect(self, message: &str) -> Data<T> {
        self.data().expect(message)
    }
}

impl<T, M> fmt::Debug for Reduction<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parts, is_in_any_order, .. } = self;
        f.debug_struct("Reduction")
            .field("parts", parts)
            .field("is_in_any_order", is_in_any_order)
            .finish_non_exhaustive()
    }
}

/// Merges neighbours, then the results.
fn in_tree<T>(mut parts: Vec<Data<T>>, merge: impl Fn(&mut Data<T>, &Data<T>)) -> Option<Data<T>> {
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

/// Merges all into the first, one after another.
fn in_order<T>(parts: Vec<Data<T>>, merge: impl Fn(&mut Data<T>, &Data<T>)) -> Option<Data<T>> {
    let mut parts = parts.into_iter();
    let mut first = parts.next()?;
    parts.for_each(|part| merge(&mut first, &part));
    Some(first)
}

/// Merges available parts, by calls that are made like those of a tree.
fn in_any_order<T: Datum>(
    flow: &Rc<Flow>,
    parts: Vec<Data<T>>,
    merge: impl Fn(&mut Data<T>, &Data<T>),
) -> Option<Data<T>> {
    let reduction = flow.next();
    // A call may merge other data than its own arguments, so all data is kept until all calls are made.
    let kept = std::cell::RefCell::new(Vec::with_capacity(2 * parts.len()));
    let merged = in_tree(parts, |first, second| {
        kept.borrow_mut().extend([first.clone(), second.clone()]);
        flow.set_merge(reduction, [first.handle.version, second.handle.version]);
        merge(first, second);
    });
    flow.start_reduction();
    merged
}
