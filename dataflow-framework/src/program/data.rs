//! Handles of data.

use std::{
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    rc::Rc,
    sync::Arc,
};

use super::flow::{Flow, Handle};
use crate::{
    core::VersionId,
    failure::{Failed, Failure},
    node::Put,
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
        let value = self.handle.flow.get(self.handle.version)?;
        Ok(Ref(value.read().map_err(|failed| self.unreadable(failed))?))
    }

    /// Waits for the value, and returns it to be changed. The handle then names what it was changed to; other handles
    /// and calls made before keep the value before.
    ///
    /// # Errors
    /// If it will never be there, because a call has failed; or it cannot be copied.
    pub fn get_mut(&mut self) -> Result<RefMut<'_, T>, Failure> {
        let value = self.handle.flow.get(self.handle.version)?;
        let value = value.own().map_err(|failed| self.unreadable(failed))?;
        Ok(RefMut { value: Some(value), data: self })
    }

    /// Returns what the task on this thread hands on with it.
    ///
    /// # Errors
    /// If another one has made it; or it will never be there, and is needed at once.
    pub(crate) fn handed_on(&self) -> Result<Put, Failed> {
        if !Rc::ptr_eq(&self.handle.flow, &Flow::current()) {
            return Err(Failed::of("it returns data that was not made by it, or what it has called"));
        }
        self.handle.flow.hand_on(self.handle.version)
    }

    fn unreadable(&self, Failed { reason, .. }: Failed) -> Failure {
        Failure::new("Data::get", self.handle.version.call, reason)
    }
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
