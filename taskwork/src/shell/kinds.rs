//! The types of task of a program, each with a name, so that a node can run every job of its program.

use std::{collections::BTreeMap, fmt, marker::PhantomData, sync::Arc};

use thiserror::Error;

use crate::{
    erased::{Kind, OpenError, PoolOpening, PoolSetup},
    pool::{Pool, Work},
    task::Task,
    wire::large,
};

/// The types of task that a program's nodes can run.
///
/// A program with one type of task has one kind. A program that chooses among several types, for example by the
/// size of the problem, has one kind for each. The name of a kind is part of the job's record, so it must not
/// change within a version of the program.
#[derive(Default)]
pub struct Kinds {
    kinds: BTreeMap<&'static str, Arc<dyn Kind>>,
}

/// A kind whose tasks run on threads.
pub(crate) struct Of<T>(PhantomData<fn() -> T>);

impl<T> Default for Of<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl Kinds {
    /// Adds a type of task under a name.
    ///
    /// # Panics
    /// If the name is used twice.
    pub fn add<T: Task>(&mut self, name: &'static str) -> &mut Self {
        self.add_kind(name, Of::<T>::default())
    }

    pub(crate) fn add_kind(&mut self, name: &'static str, kind: impl Kind + 'static) -> &mut Self {
        let before = self.kinds.insert(name, Arc::new(kind));
        assert!(before.is_none(), "kind {name:?} is added twice");
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns the kind of a job's tasks.
    ///
    /// # Errors
    /// If no kind has this name, or it has another type of task. An empty type matches any.
    pub(crate) fn find(&self, name: &str, task_type: &str) -> Result<&dyn Kind, NoSuchKind> {
        let Some(kind) = self.kinds.get(name) else {
            let known: Vec<String> = self.kinds.keys().map(|name| format!("{name:?}")).collect();
            return Err(NoSuchKind::Name { name: name.to_owned(), known: known.join(", ") });
        };
        let here = kind.task_type();
        if !task_type.is_empty() && task_type != here {
            return Err(NoSuchKind::Type { name: name.to_owned(), there: task_type.to_owned(), here });
        }
        Ok(&**kind)
    }
}

/// The reasons why a node cannot run a job of its own program.
#[derive(Debug, Error)]
pub(crate) enum NoSuchKind {
    #[error(
        "this node has no kind of task {name:?}; it has {known}. Submit the job with Job::kind, under a name that the \
         nodes have added by Kinds::add"
    )]
    Name { name: String, known: String },
    #[error(
        "this node has no task of type {there}; it has {here}, under the same name {name:?}. Give each type of task a \
         name of its own: NodeBuilder::kinds and Job::kind"
    )]
    Type { name: String, there: String, here: &'static str },
}

impl<T: Task> Kind for Of<T> {
    fn task_type(&self) -> &'static str {
        std::any::type_name::<T>()
    }

    fn open(&self, setup: PoolSetup) -> PoolOpening<'_> {
        Box::pin(async move {
            let PoolSetup { node, workers, limits, tasks_made, shared, .. } = setup;
            // Decoded by the program's own code, and possibly large, so not on the thread that maintains the session.
            // The program may also prepare its companion.
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

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::{context::Context, task::Outcome};

    #[derive(Serialize, Deserialize)]
    struct Other;

    impl Task for Other {
        type Shared = ();
        type Output = u64;

        fn search(&mut self, _: &mut Context<'_, Self>) -> Outcome {
            Outcome::Complete
        }

        fn split(&mut self, (): &()) -> Option<Self> {
            None
        }
    }

    #[test]
    fn job_of_another_type_is_refused_by_name() {
        let mut kinds = Kinds::default();
        kinds.add::<Other>("task");
        let refused = |name, of| kinds.find(name, of).map(|_| ()).map_err(|error| error.to_string());
        let here = std::any::type_name::<Other>();
        assert_eq!(refused("task", here), Ok(()));
        assert_eq!(refused("task", ""), Ok(()), "the record of a submitter that does not name it");
        let error = refused("task", "misc::Thousand").unwrap_err();
        let expected = format!("this node has no task of type misc::Thousand; it has {here}");
        assert!(error.starts_with(&expected), "{error}");
        let error = refused("count", here).unwrap_err();
        assert!(error.starts_with("this node has no kind of task \"count\"; it has \"task\""), "{error}");
    }
}
