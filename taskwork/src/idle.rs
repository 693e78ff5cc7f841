//! An idle worker's view of the runtime.

use std::{any::TypeId as RustType, fmt, sync::Arc, time::Duration};

use crate::{
    context::undeclared,
    id::NodeId,
    pool::{Pool, Source},
    task::Task,
    variable::Variable,
};

/// The view of a worker without a task, for [`Hooks::idle`](crate::Hooks::idle).
pub struct Idle<'a, T: Task> {
    pool: &'a Pool<T>,
    stops: &'a dyn Fn() -> bool,
}

impl<'a, T: Task> Idle<'a, T> {
    pub(crate) fn new(pool: &'a Pool<T>, stops: &'a dyn Fn() -> bool) -> Self {
        Self { pool, stops }
    }

    /// Returns whether the worker is needed: there is a task for it, or the job is over. Once true, it remains
    /// true. One load while nothing changes.
    pub fn stops(&self) -> bool {
        (self.stops)()
    }

    /// Returns the read-only data of the job.
    pub fn shared(&self) -> &'a T::Shared {
        &self.pool.shared
    }

    /// Returns the worker's node.
    pub fn node(&self) -> NodeId {
        self.pool.node
    }

    /// Returns the value of a variable, if it has one yet.
    ///
    /// # Panics
    /// If the program did not declare the variable in [`Task::variables`].
    pub fn get_var<V: Variable>(&self) -> Option<Arc<V::Value>> {
        let value = self.pool.variables.read(self.slot::<V>())?;
        Some(value.downcast().expect("a slot holds only values of the variable it was declared for"))
    }

    /// Offers a new value of a variable, which is adopted and published if it improves on the value known to the node.
    /// Returns whether it was adopted.
    ///
    /// # Panics
    /// If the program did not declare the variable in [`Task::variables`].
    pub fn set_var<V: Variable>(&self, value: V::Value) -> bool {
        let slot = self.slot::<V>();
        let taken = self.pool.variables.offer(slot, Arc::new(value), Source::Node, &self.pool.signals);
        if taken {
            self.pool.notify_changed();
        }
        taken
    }

    fn slot<V: Variable>(&self) -> usize {
        let slot = self.pool.variables.slot_of(RustType::of::<V>());
        slot.unwrap_or_else(|| undeclared::<V>())
    }
}

impl<T: Task> fmt::Debug for Idle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idle").field("node", &self.pool.node).finish_non_exhaustive()
    }
}

/// The function that runs on a worker without a task: see [`Hooks::idle`](crate::Hooks::idle).
pub(crate) type IdleWork<'a> = &'a dyn Fn(&dyn Fn() -> bool) -> Option<Duration>;
