//! The description of a job, which all its tasks share.

use serde::{Deserialize, Serialize};

use crate::{ranges::Ranges, reduction::Reduce, space::Space, tenant::Tenant};

/// The calls of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The digest of the package.
    pub(crate) digest: String,
    /// The name of the folder for results, which no other job has.
    pub(crate) key: String,
    pub(crate) space: Space,
    /// The numbers that are computed from the results.
    pub(crate) reduce: Reduce,
    /// The calls that the job makes, if not all: failed calls of another job.
    pub(crate) only: Option<Ranges>,
    #[serde(default)]
    pub(crate) tenant: Tenant,
}

impl Order {
    /// Returns the order of all calls of a space, of the default tenant.
    pub(crate) fn new(digest: String, key: String, space: Space, reduce: Reduce) -> Self {
        Self { digest, key, space, reduce, only: None, tenant: Tenant::default() }
    }

    /// Returns the calls of the job.
    pub(crate) fn calls(&self) -> Ranges {
        self.only.clone().unwrap_or_else(|| (0..self.space.len()).into())
    }

    pub(crate) fn len(&self) -> u64 {
        self.only.as_ref().map_or_else(|| self.space.len(), Ranges::len)
    }
}

/// The requested work of a job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Work {
    Calls {
        space: Space,
        reduce: Reduce,
    },
    /// A search with this argument.
    Search(String),
}

impl Work {
    /// Returns a short digest of all arguments and reductions.
    pub(crate) fn digest(&self) -> String {
        match self {
            Self::Calls { space, reduce } if reduce.is_empty() && reduce.routine.is_none() => space.digest(),
            Self::Calls { space, reduce } => {
                let Reduce { numbers, by, routine } = reduce;
                let by = if by.is_empty() { String::new() } else { format!(" by {by:?}") };
                let routine = routine.as_ref().map_or_else(String::new, |name| format!(" routine {name}"));
                Space::List(vec![space.digest(), format!("{numbers:?}{by}{routine}")]).digest()
            }
            // The word is no JSON, so it differs from an argument.
            Self::Search(argument) => Space::List(vec!["search".to_owned(), argument.clone()]).digest(),
        }
    }

    /// Returns the number of calls; `None` for a search.
    pub(crate) fn calls(&self) -> Option<u64> {
        match self {
            Self::Calls { space, .. } => Some(space.len()),
            Self::Search(_) => None,
        }
    }
}
