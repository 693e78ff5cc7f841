//! The flow of calls that the program on this thread makes.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use super::engine::Engine;
use crate::{
    core::{CallId, VersionId},
    node::Store,
    task::{TaskDef, Tasks},
};

/// The calls of a program, in their order. It stays on the thread of the program, so that calls have an order.
pub(crate) struct Flow {
    pub(crate) engine: Arc<Engine>,
    /// The tasks that it may call; `None` for any.
    tasks: Option<Arc<Tasks>>,
    /// The number of the next call.
    next: Cell<CallId>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Flow>>> = const { RefCell::new(None) };
}

impl Flow {
    pub(crate) fn new(engine: Arc<Engine>, tasks: Option<Arc<Tasks>>) -> Rc<Self> {
        Rc::new(Self { engine, tasks, next: Cell::new(0) })
    }

    /// Returns the flow of this thread. Outside of a workflow it is one whose calls are run at once.
    pub(crate) fn current() -> Rc<Self> {
        let at_once = || Self::new(Engine::new(Arc::default(), Store::default(), 0, usize::MAX), None);
        CURRENT.with_borrow_mut(|current| Rc::clone(current.get_or_insert_with(at_once)))
    }

    /// Makes it the flow of this thread, until the result is dropped.
    pub(crate) fn enter(self: &Rc<Self>) -> Entered {
        Entered { before: CURRENT.replace(Some(Rc::clone(self))) }
    }

    /// Returns the number that the next call will have.
    pub(crate) fn next(&self) -> CallId {
        self.next.get()
    }

    /// Gives a number to the next call.
    pub(crate) fn number(&self) -> CallId {
        self.next.replace(self.next.get() + 1)
    }

    /// Returns the number of a task in the program's table; `None` if it may not be called.
    pub(crate) fn number_of(&self, task: &TaskDef) -> Option<u32> {
        self.tasks.as_ref().map_or(Some(0), |tasks| tasks.number(task))
    }
}

/// Makes the flow before that of this thread again when it is dropped.
pub(crate) struct Entered {
    before: Option<Rc<Flow>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
    }
}

/// A handle of a version.
pub(crate) struct Handle {
    pub(crate) flow: Rc<Flow>,
    pub(crate) version: VersionId,
}

impl Handle {
    /// Takes over a handle that the graph counts already.
    pub(crate) fn counted(flow: &Rc<Flow>, version: VersionId) -> Self {
        Self { flow: Rc::clone(flow), version }
    }

    /// Moves to another version, whose handle the graph counts already, and returns the one before, whose handle
    /// the graph counts still.
    pub(crate) fn advance(&mut self, to: VersionId) -> VersionId {
        std::mem::replace(&mut self.version, to)
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.flow.engine.retain(self.version);
        Self::counted(&self.flow, self.version)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.flow.engine.release(self.version);
    }
}
