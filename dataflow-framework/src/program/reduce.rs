//! Many data into one.

use std::{fmt, rc::Rc};

use super::{
    data::Data,
    flow::{Flow, Freedom},
};
use crate::value::Datum;

/// Merges all data into one, by a task that merges its second argument into its first. Nothing is called before the
/// data is asked for: `None` if there are no parts.
///
/// Merged are neighbours, then neighbours of what has come of that, and so on: a tree whose shape depends on nothing
/// but the number of parts. So sums of floating-point numbers are the same in every run. See
/// [`any_order`](Reduction::any_order) for parts that are there at very different times.
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

/// How many data become one. See [`reduce`].
#[must_use = "nothing is merged before its data is asked for"]
pub struct Reduction<T, M> {
    parts: Vec<Data<T>>,
    merge: M,
    is_in_any_order: bool,
}

impl<T: Datum, M: Fn(&mut Data<T>, &Data<T>)> Reduction<T, M> {
    /// Has parts merged as they become available: a call begins when any two of them are there, or of what has come of
    /// them. So one part that is late holds up nothing but the last call, and what lies on one node is merged there.
    ///
    /// The merge has to be commutative and associative. If it is so up to rounding only, as a sum of floating-point
    /// numbers, the result may differ from that of other runs of the program in the last digits. Within one run it does
    /// not: what is merged is recorded before, so data that is made again, also by a program that begins anew on another
    /// node, is the same. On a cluster each call therefore begins some milliseconds later.
    ///
    /// The merge has to be one call, which updates its first argument and reads its second; nobody else may read what
    /// it writes. Where the program runs each call itself (`--sequential`) the parts are merged one after another, as
    /// they stand in the list. In a task, which has to be a function of what it reads, it is the tree.
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

    /// Makes the calls, and returns the data that comes of them; `None` if there are no parts.
    #[must_use]
    pub fn data(self) -> Option<Data<T>> {
        let Self { parts, merge, is_in_any_order } = self;
        if !is_in_any_order {
            return in_tree(parts, merge);
        }
        let flow = Flow::current();
        match flow.freedom() {
            Freedom::None => in_tree(parts, merge),
            Freedom::OrderOfList => in_order(parts, merge),
            Freedom::AnyOrder => in_any_order(&flow, parts, merge),
        }
    }

    /// Makes the calls, and returns the data that comes of them.
    ///
    /// # Panics
    /// With this message if there are no parts.
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

/// Merges neighbours, and neighbours of that.
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

/// Merges what is there, by calls that are made as those of a tree.
fn in_any_order<T: Datum>(
    flow: &Rc<Flow>,
    parts: Vec<Data<T>>,
    merge: impl Fn(&mut Data<T>, &Data<T>),
) -> Option<Data<T>> {
    let reduction = flow.next();
    // What a call merges may be what another one would have, so it is kept until all are made.
    let kept = std::cell::RefCell::new(Vec::with_capacity(2 * parts.len()));
    let merged = in_tree(parts, |first, second| {
        kept.borrow_mut().extend([first.clone(), second.clone()]);
        flow.merges(reduction, [first.handle.version, second.handle.version]);
        merge(first, second);
    });
    flow.has_reduced();
    merged
}
