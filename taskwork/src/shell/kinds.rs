//! The types of task of a program, each under a name, so that a node can run every job of its program.

use std::{collections::BTreeMap, fmt, marker::PhantomData, sync::Arc};

use crate::{
    erased::{Kind, OpenError, PoolOpening, PoolSetup},
    pool::{Pool, Work},
    task::Task,
    wire::large,
};

/// The types of task that a program's nodes can run.
///
/// A program with one type of task has one kind; one that chooses among several, for example by the size of
/// the problem, has a kind for each. The name of a kind is part of the job's record, so it must not change
/// within a version of the program.
#[derive(Default)]
pub struct Kinds {
    kinds: BTreeMap<&'static str, Arc<dyn Kind>>,
}

/// A kind whose tasks run on threads.
struct Of<T>(PhantomData<fn() -> T>);

impl Kinds {
    /// Adds a type of task under a name.
    ///
    /// # Panics
    /// If the name is used twice, which is a mistake in the program.
    pub fn add<T: Task>(&mut self, name: &'static str) -> &mut Self {
        self.add_kind(name, Of::<T>(PhantomData))
    }

    pub(crate) fn add_kind(&mut self, name: &'static str, kind: impl Kind + 'static) -> &mut Self {
        let before = self.kinds.insert(name, Arc::new(kind));
        assert!(before.is_none(), "kind {name:?} is added twice");
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&dyn Kind> {
        self.kinds.get(name).map(|kind| &**kind)
    }
}

impl<T: Task> Kind for Of<T> {
    fn open(&self, setup: PoolSetup) -> PoolOpening<'_> {
        Box::pin(async move {
            let PoolSetup { node, workers, limits, tasks_made, shared, .. } = setup;
            // Decoded by the program's own code, and possibly large: not on the thread that maintains the
            // session. The program may also prepare its companion.
            let opening = tokio::task::spawn_blocking(move || {
                let shared =
                    large::decode::<T::Shared>(&shared).map_err(|error| OpenError::unreadable(&error))?;
                let pool = Pool::<T>::new(node, Arc::new(shared), workers, limits).numbered(tasks_made);
                Ok(Arc::new(pool) as Arc<dyn Work>)
            });
            opening.await.unwrap_or_else(|panic| Err(OpenError::Shared { reason: panic.to_string() }))
        })
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.kinds.keys()).finish()
    }
}
