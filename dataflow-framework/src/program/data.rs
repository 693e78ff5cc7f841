//! Handles of data.

use std::{
    convert::Infallible,
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    rc::Rc,
    sync::Arc,
};

use super::flow::{Flow, Handle};
use crate::{
    encoding::{decode, encode},
    failure::{Failed, Failure},
    ids::VersionId,
    invocation::Invocation,
    value::{Datum, Value},
};

/// A handle of data that tasks read and write: of a value that is available, or will be when its call
/// completes.
///
/// A clone is a snapshot: when a task updates the data of one of two handles, the other one still names the
/// previous value. A handle stays on the thread of the program, so that all calls have an order.
///
/// ```compile_fail
/// use dataflow_framework::Data;
///
/// let data = Data::new(1);
/// std::thread::spawn(move || data.get());
/// ```
///
/// A handle cannot be passed to a task as data: a task has handles only of data that it created and of results
/// of its own calls. So two tasks cannot wait for each other's output.
///
/// ```compile_fail
/// use dataflow_framework::{Data, Failure, task};
///
/// #[task]
/// fn waits(for_what: Data<u64>) -> Result<u64, Failure> {
///     Ok(*for_what.get()?)
/// }
/// ```
pub struct Data<T> {
    pub(super) handle: Handle,
    of: PhantomData<fn() -> T>,
}

impl<T: Datum> Data<T> {
    pub(super) fn of(handle: Handle) -> Self {
        Self { handle, of: PhantomData }
    }

    /// Adds a value to the workflow. Assigned to a handle, it replaces the handle's previous data without
    /// waiting for it.
    ///
    /// # Panics
    /// Panics outside of a workflow.
    pub fn new(value: T) -> Self {
        let flow = Flow::current("Data::new");
        let version = flow.bring(Value::new(value));
        Self::of(Handle::counted(&flow, version))
    }

    /// Waits for the value, and returns it.
    ///
    /// # Errors
    /// Fails if the value will never be available, because a call has failed; or if a [`File`](crate::File)
    /// from another node cannot be written here.
    pub fn get(&self) -> Result<Ref<T>, Failure> {
        self.handle.take_commuting();
        let value = self.handle.flow.get(self.handle.version)?;
        Ok(Ref(value.read().map_err(|failed| self.unreadable(failed))?))
    }

    /// Returns the value if it is available, and `None` otherwise.
    ///
    /// The answer is recorded before the program continues, so that a program that restarts on another node
    /// gets the same answer. In a task it waits, since the output of a task may depend only on its inputs.
    ///
    /// # Errors
    /// Fails like [`get`](Self::get).
    ///
    /// # Examples
    /// ```
    /// use dataflow_framework::{Data, Failure, Workflow, tasks};
    ///
    /// Workflow::new(tasks![])?.run(|| {
    ///     assert_eq!(Data::new(7).try_get()?.map(|value| *value), Some(7));
    ///     Ok::<_, Failure>(())
    /// })?;
    /// # Ok::<(), dataflow_framework::WorkflowError>(())
    /// ```
    pub fn try_get(&self) -> Result<Option<Ref<T>>, Failure> {
        self.handle.take_commuting();
        let Handle { flow, version, .. } = &self.handle;
        let ready = flow.decide("try_get", || Ok::<_, Infallible>(vec![u8::from(flow.is_ready(*version))]));
        let Ok(ready) = ready;
        if ready == [1] { self.get().map(Some) } else { Ok(None) }
    }

    /// Waits for the value, and returns it for modification. The handle then names the modified value; other
    /// handles and earlier calls keep the previous value.
    ///
    /// # Errors
    /// Fails if the value will never be available, because a call has failed; or if it cannot be copied.
    pub fn get_mut(&mut self) -> Result<RefMut<'_, T>, Failure> {
        self.handle.take_commuting();
        let value = self.handle.flow.get(self.handle.version)?;
        let value = value.own().map_err(|failed| self.unreadable(failed))?;
        Ok(RefMut { value: Some(value), data: self })
    }

    /// Returns the output that the task on this thread forwards with it.
    ///
    /// # Errors
    /// Fails if another task has made the data; or if it is needed immediately and will never be available.
    #[doc(hidden)]
    pub fn hand_on(&self, call: &mut Invocation<'_>) -> Result<(), Failed> {
        if !Rc::ptr_eq(&self.handle.flow, &Flow::current("Data")) {
            return Err(Failed::of("it returns data that neither it nor its calls have made"));
        }
        call.hand_on(self.handle.flow.hand_on(self.handle.version)?);
        Ok(())
    }

    /// Performs an external action with the value unless it was done before the program restarted, and returns
    /// its outcome.
    pub(crate) fn once(
        &self,
        what: &str,
        act: impl FnOnce(&T) -> Result<(), String>,
    ) -> Result<Result<(), String>, Failure> {
        let done = self.handle.flow.decide(what, || {
            let done = act(&*self.get()?);
            encode(&done).map_err(|failed| self.unreadable(failed))
        })?;
        decode(&done).map_err(|failed| self.unreadable(failed))
    }

    /// Returns a name of the next operation of the program: the same if the program runs again on another node.
    /// `None` in a task that may run at several places at the same time.
    pub(crate) fn operation(&self) -> Option<String> {
        self.handle.flow.operation()
    }

    fn unreadable(&self, Failed { reason, .. }: Failed) -> Failure {
        Failure::new("Data::get", self.handle.version.call, reason)
    }
}

/// Waits until one of the values is available or has failed, and returns its index; `None` if there are no
/// values. If there are several, returns the first.
///
/// The choice is recorded before the program continues, so that a program that restarts on another node gets
/// the same one. In a task it is always the first, since the output of a task may depend only on its inputs.
///
/// # Examples
/// ```
/// use dataflow_framework::{Data, Failure, Workflow, task, tasks, wait_any};
///
/// #[task]
/// fn double(number: u64) -> u64 {
///     2 * number
/// }
///
/// let sum = Workflow::new(tasks![double])?.run(|| {
///     let mut all: Vec<Data<u64>> = (0..10).map(double).collect();
///     let mut sum = 0;
///     // In the order of completion.
///     while let Some(next) = wait_any(&all) {
///         sum += *all.swap_remove(next).get()?;
///     }
///     Ok::<_, Failure>(sum)
/// })?;
/// assert_eq!(sum, 90);
/// # Ok::<(), dataflow_framework::WorkflowError>(())
/// ```
#[must_use]
pub fn wait_any<T: Datum>(data: &[Data<T>]) -> Option<usize> {
    let flow = &data.first()?.handle.flow;
    for one in data {
        one.handle.take_commuting();
    }
    let versions: Vec<_> = data.iter().map(|data| data.handle.version).collect();
    let chosen =
        flow.decide("wait_any", || Ok::<_, Infallible>(flow.wait_any(&versions).to_le_bytes().to_vec()));
    let Ok(chosen) = chosen;
    let chosen = chosen.try_into().map_or(0, usize::from_le_bytes);
    // If the program differs from its earlier run, that is detected elsewhere.
    Some(chosen.min(data.len() - 1))
}

impl<T> Clone for Data<T> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone(), of: PhantomData }
    }
}

impl<T> fmt::Debug for Data<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VersionId { call, slot } = self.handle.version;
        f.debug_struct("Data").field("call", &call).field("slot", &slot).finish()
    }
}

/// A value returned by [`Data::get`].
pub struct Ref<T>(Arc<T>);

impl<T> Deref for Ref<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A value that the program modifies. See [`Data::get_mut`].
pub struct RefMut<'a, T: Datum> {
    /// Set until the drop.
    value: Option<T>,
    data: &'a mut Data<T>,
}

impl<T: Datum> Deref for RefMut<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("the value is set until the drop")
    }
}

impl<T: Datum> DerefMut for RefMut<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("the value is set until the drop")
    }
}

impl<T: Datum> Drop for RefMut<'_, T> {
    fn drop(&mut self) {
        let flow = Rc::clone(&self.data.handle.flow);
        let version = flow.bring(Value::new(self.value.take().expect("the value is set until the drop")));
        self.data.handle = Handle::counted(&flow, version);
    }
}

impl<T: Datum + fmt::Debug> fmt::Debug for RefMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
