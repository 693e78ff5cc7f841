//! The arguments of jobs and calls: their kinds, their schemas, and the files in them.

use std::{collections::HashMap, sync::Arc};

use super::{Service, ServiceError, blocking};
use crate::{
    order::Work,
    package::Package,
    resource::{LIST_BYTES_MAX, Resource, has_references},
    runtime::Installed,
    signature::Parameters,
    space::{self, Space},
    store::Store,
    wire::EntryKind,
};

impl Service {
    /// Reads the files of a space.
    pub(crate) async fn with_files(&self, work: Work) -> Result<Work, ServiceError> {
        let (space, reduce) = match work {
            Work::Calls { space, reduce } if space.any(&|part| matches!(part, Space::File(_))) => {
                (space, reduce)
            }
            work => return Ok(work),
        };
        let mut left = LIST_BYTES_MAX;
        let read = move |store: &Store, part, depth| match part {
            Space::File(name) => {
                let text = store.list_of(&name, &mut left)?;
                space::lines(&name, &text, depth).map_err(ServiceError::Invalid)
            }
            part => Ok(part),
        };
        Ok(Work::Calls { space: self.mapped(space, read).await?, reduce })
    }

    /// Replaces the names of resources in arguments by their present contents.
    pub(super) async fn referred(&self, space: Space, kind: EntryKind) -> Result<Space, ServiceError> {
        let has_any = |part: &Space| matches!(part, Space::List(values) if values.iter().any(|value| has_references(value)));
        if !space.any(&has_any) {
            return Ok(space);
        }
        if kind == EntryKind::Search {
            let reason = "a search moves between nodes, so its argument contains no resource";
            return Err(ServiceError::Invalid(reason.to_owned()));
        }
        let mut known = HashMap::<String, Resource>::new();
        let refer = move |store: &Store, part, _| match part {
            Space::List(values) => {
                let values = values.into_iter().map(|value| store.refer(value, &mut known));
                Ok(Space::List(values.collect::<Result<_, _>>()?))
            }
            part => Ok(part),
        };
        self.mapped(space, refer).await
    }

    /// Replaces parts of a space, as [`Space::try_map`] does, by means of the store.
    async fn mapped(
        &self,
        space: Space,
        mut with: impl FnMut(&Store, Space, usize) -> Result<Space, ServiceError> + Send + 'static,
    ) -> Result<Space, ServiceError> {
        self.with_store(move |store| Ok(space.try_map(&mut |part, depth| with(store, part, depth)))).await?
    }
}

/// Checks that work is of the kind of a package.
pub(super) fn check_kind(work: &Work, package: &Package) -> Result<(), ServiceError> {
    let name = package.name();
    match (work, package.description.kind) {
        (Work::Calls { .. }, EntryKind::Function) | (Work::Search(_), EntryKind::Search) => Ok(()),
        (Work::Calls { .. }, EntryKind::Search) => Err(wrong_kind(package)),
        (Work::Search(_), EntryKind::Function) => Err(ServiceError::Invalid(format!(
            "{name} is a function, not a search: submit a job with `arguments`, or use the command call or map"
        ))),
    }
}

/// Checks arguments against the parameters of their routine, and returns them.
pub(super) async fn checked<T: Send + 'static>(
    installed: &Arc<Installed>,
    arguments: T,
    check: impl FnOnce(&Parameters, &T) -> Result<(), String> + Send + 'static,
) -> Result<T, ServiceError> {
    if installed.package.description.parameters.is_none() {
        return Ok(arguments);
    }
    let of = Arc::clone(installed);
    blocking(move || {
        let parameters = of.package.description.parameters.as_ref();
        let checked = parameters.map_or(Ok(()), |parameters| check(parameters, &arguments));
        let refused = |reason| ServiceError::Invalid(format!("{}: {reason}", of.package.name()));
        checked.map(|()| arguments).map_err(refused)
    })
    .await?
}

/// Checks the groups of work, and returns it.
pub(super) async fn checked_groups(work: Work) -> Result<Work, ServiceError> {
    blocking(move || {
        let checked = match &work {
            Work::Calls { space, reduce } => reduce.check(space),
            Work::Search(_) => Ok(()),
        };
        checked.map(|()| work).map_err(ServiceError::Invalid)
    })
    .await?
}

pub(super) fn wrong_kind(package: &Package) -> ServiceError {
    let name = package.name();
    ServiceError::Invalid(format!(
        "{name} is a search, not a function: submit a job with its `argument`, or use the command search"
    ))
}
