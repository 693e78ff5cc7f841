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

/// A handle of data that tasks read and write: of a value that is there, or will be when the call is done that writes
/// it.
///
/// A clone is a snapshot: when a task updates the data of one of two handles, the other one still names the value
/// before. A handle stays on the thread of the program, so that all calls have an order.
///
/// ```compile_fail
/// use dataflow_framework::Data;
///
/// let data = Data::new(1);
/// std::thread::spawn(move || data.get());
/// ```
///
/// Nor is it data of a task, which has handles of nothing but what it has brought in and called itself. So no task can
/// wait for what another one will write that waits for it.
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

    /// Brings a value in. Assigned to a handle, it replaces what that named, without waiting for it.
    pub fn new(value: T) -> Self {
        let flow = Flow::current();
        let version = flow.bring(Value::new(value));
        Self::of(Handle::counted(&flow, version))
    }

    /// Waits for the value, and returns it.
    ///
    /// # Errors
    /// If it will never be there, because a call has failed; or a [`File`](crate::File) that was made elsewhere cannot
    /// be written here.
    pub fn get(&self) -> Result<Ref<T>, Failure> {
        self.handle.take_commuting();
        let value = self.handle.flow.get(self.handle.version)?;
        Ok(Ref(value.read().map_err(|failed| self.unreadable(failed))?))
    }

    /// Returns the value if it is there, and `None` if it has to be waited for.
    ///
    /// Whether it was there is recorded before the program goes on, so that a program that begins anew on another node
    /// is told the same. In a task it waits, since a task has to be a function of what it reads.
    ///
    /// # Errors
    /// As [`get`](Self::get).
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

    /// Waits for the value, and returns it to be changed. The handle then names what it was changed to; other handles
    /// and calls made before keep the value before.
    ///
    /// # Errors
    /// If it will never be there, because a call has failed; or it cannot be copied.
    pub fn get_mut(&mut self) -> Result<RefMut<'_, T>, Failure> {
        self.handle.take_commuting();
        let value = self.handle.flow.get(self.handle.version)?;
        let value = value.own().map_err(|failed| self.unreadable(failed))?;
        Ok(RefMut { value: Some(value), data: self })
    }

    /// Hands it on as a result of the task on this thread.
    ///
    /// # Errors
    /// If another task has made it; or its call has failed, and it is needed at once.
    #[doc(hidden)]
    pub fn hand_on(&self, call: &mut Invocation<'_>) -> Result<(), Failed> {
        if !Rc::ptr_eq(&self.handle.flow, &Flow::current()) {
            return Err(Failed::of("it returns data that was not made by it, or what it has called"));
        }
        call.hand_on(self.handle.flow.hand_on(self.handle.version)?);
        Ok(())
    }

    /// Does something with the value outside of the program's data, unless it was done before the program began anew, and
    /// returns what has come of it.
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

/// Waits until one of the values is there, or never will be, and returns which one; `None` if there are none. Of several
/// it is the first.
///
/// Which one it was is recorded before the program goes on, so that a program that begins anew on another node is told
/// the same. In a task it is always the first, since a task has to be a function of what it reads.
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
///     // In the order in which they end.
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
    // If the program differs from its earlier run, that is noticed elsewhere.
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

/// A value that was read.
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

/// A value that is changed by the program. See [`Data::get_mut`].
pub struct RefMut<'a, T: Datum> {
    /// There until it is dropped.
    value: Option<T>,
    data: &'a mut Data<T>,
}

impl<T: Datum> Deref for RefMut<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until this is dropped")
    }
}

impl<T: Datum> DerefMut for RefMut<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is there until this is dropped")
    }
}

impl<T: Datum> Drop for RefMut<'_, T> {
    fn drop(&mut self) {
        let flow = Rc::clone(&self.data.handle.flow);
        let version = flow.bring(Value::new(self.value.take().expect("it is there until now")));
        self.data.handle = Handle::counted(&flow, version);
    }
}

impl<T: Datum + fmt::Debug> fmt::Debug for RefMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
