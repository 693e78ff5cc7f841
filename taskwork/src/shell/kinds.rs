//! The types of task that a program has, each under a name: so that a node can run whatever job of its program comes.

use std::{collections::BTreeMap, fmt, future::Future, marker::PhantomData, pin::Pin, sync::Arc};

use super::{
    node::{JobSetup, RunningNode},
    seat::Seat,
};
use crate::{config::Limits, id::JobId, report::JobError, task::Task, wire::codec};

/// The types of task that a program's nodes can run.
///
/// A program with one type of task has one kind; one that chooses among several, say by the size of the problem, has a kind for
/// each. The name of a kind stands in the job's record, so it must not change within a version of the program.
#[derive(Default)]
pub struct Kinds {
    kinds: BTreeMap<&'static str, Arc<dyn Kind>>,
}

pub(crate) type Starting<'a> = Pin<Box<dyn Future<Output = Result<RunningNode, JobError>> + Send + 'a>>;

/// A type of task with the type forgotten.
pub(crate) trait Kind: Send + Sync {
    /// Begins to work on a job of this kind.
    fn start<'a>(&'a self, seat: &'a mut Seat, job: &'a JobId, limits: &'a Limits) -> Starting<'a>;
}

struct Of<T>(PhantomData<fn() -> T>);

impl Kinds {
    /// Adds a type of task under a name.
    ///
    /// # Panics
    /// If the name is given twice: a mistake in the program.
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
    fn start<'a>(&'a self, seat: &'a mut Seat, job: &'a JobId, limits: &'a Limits) -> Starting<'a> {
        Box::pin(async move {
            let bytes = zk::job::shared(&*seat.store, &seat.cluster, &job.0).await?;
            // The program's own code reads it, and it may be large: not on the thread that keeps the session.
            let reading = tokio::task::spawn_blocking(move || codec::decode::<T::Shared>(&bytes));
            let unreadable = |reason: String| JobError::Shared { reason };
            let shared = reading.await.map_err(|panic| unreadable(panic.to_string()))?;
            let shared = shared.map_err(|error| unreadable(error.to_string()))?;
            let setup = JobSetup::<T> {
                job: job.clone(),
                shared: Arc::new(shared),
                limits: limits.clone(),
                seen: true,
            };
            RunningNode::start(seat, setup)
        })
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.kinds.keys()).finish()
    }
}
