//! Tasks that other tasks have spawned and may wait for.
//!
//! All tasks that a task spawns before it waits are in one *scope*, and so are their split-off parts. When the task
//! waits, it is renewed: its old id completes, with the spawned tasks among its children, and the task is called
//! again, under its new id, when everything in the scope is complete.
//!
//! Ids in a scope are toggled under names that contain the scope. So a node that sees the new id in the global
//! task list, and no name of the scope, knows that the scope is complete, even if its copy of the list is old.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::id::{IdError, TaskId};

/// The tasks that a task spawns before it waits, and their split-off parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scope(pub TaskId);

/// The id of a task as it is toggled: with the scope that the task is in, if it is in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mark {
    pub scope: Option<Scope>,
    pub task: TaskId,
}

/// A task's relation to a scope of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Spawned {
    /// It has no scope.
    #[default]
    Nothing,
    /// It has spawned these tasks, which are named when it waits or completes.
    Tasks { scope: Scope, tasks: Vec<TaskId> },
    /// It waits until the scope is complete. All tasks that it has spawned there are named.
    Awaited { scope: Scope, then: Then },
}

/// The action of a task when its scope is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    /// It is searched again.
    GoesOn,
    /// It is complete, too.
    Completes,
}

/// The ids that one completion toggles.
#[derive(Debug, Clone, Copy)]
pub struct Completed<'a> {
    pub id: TaskId,
    /// The scope of the task, and of its children.
    pub scope: Option<Scope>,
    pub children: &'a [TaskId],
    /// The new id of a task that waits.
    pub renewed: Option<TaskId>,
    pub spawned: &'a Spawned,
}

impl<'a> Completed<'a> {
    /// Returns a completion without any scope.
    pub fn plain(id: TaskId, children: &'a [TaskId]) -> Self {
        Self { id, scope: None, children, renewed: None, spawned: &Spawned::Nothing }
    }

    pub fn own(&self) -> Mark {
        Mark { scope: self.scope, task: self.id }
    }

    /// Returns the children and the spawned tasks.
    pub fn named(&self) -> impl Iterator<Item = Mark> + 'a {
        let scope = self.scope;
        let children = self.children.iter().map(move |&task| Mark { scope, task });
        let spawned = match self.spawned {
            Spawned::Tasks { scope, tasks } => Some((*scope, tasks)),
            Spawned::Nothing | Spawned::Awaited { .. } => None,
        };
        children.chain(
            spawned
                .into_iter()
                .flat_map(|(scope, tasks)| tasks.iter().map(move |&task| Mark { scope: Some(scope), task })),
        )
    }

    /// Returns the renewed task with the scope that it waits for.
    pub fn renewed(&self) -> Option<(Mark, Scope)> {
        Some((Mark { scope: self.scope, task: self.renewed? }, self.spawned.scope()?))
    }
}

impl Spawned {
    /// Returns the scope that the task has opened, if there is one.
    pub fn scope(&self) -> Option<Scope> {
        match self {
            Self::Nothing => None,
            Self::Tasks { scope, .. } | Self::Awaited { scope, .. } => Some(*scope),
        }
    }

    /// Returns the scope that the task waits for.
    pub fn awaited(&self) -> Option<Scope> {
        match self {
            Self::Nothing | Self::Tasks { .. } => None,
            Self::Awaited { scope, .. } => Some(*scope),
        }
    }

    /// Returns the number of ids in it.
    pub fn ids(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Tasks { tasks, .. } => 1 + tasks.len(),
            Self::Awaited { .. } => 1,
        }
    }
}

impl From<TaskId> for Mark {
    fn from(task: TaskId) -> Self {
        Self { scope: None, task }
    }
}

impl PartialEq<TaskId> for Mark {
    fn eq(&self, other: &TaskId) -> bool {
        *self == Self::from(*other)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Some(Scope(scope)) => write!(f, "{}~{scope}", self.task),
            None => self.task.fmt(f),
        }
    }
}

impl FromStr for Mark {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        match text.split_once('~') {
            Some((task, scope)) => Ok(Self { scope: Some(Scope(scope.parse()?)), task: task.parse()? }),
            None => Ok(Self::from(text.parse::<TaskId>()?)),
        }
    }
}

/// Returns the complete scopes according to the names in the global task list. Each scope comes with the id of the
/// task that waits for it. The list may be out of date.
pub fn complete(awaited: &[(Mark, Scope)], list: &[String]) -> Vec<Scope> {
    // Other names were not created by tasks.
    let marks: Vec<Mark> = list.iter().filter_map(|name| name.parse().ok()).collect();
    let open: std::collections::BTreeSet<Scope> = marks.iter().filter_map(|mark| mark.scope).collect();
    let listed: std::collections::BTreeSet<Mark> = marks.into_iter().collect();
    let is_complete = |(waiting, scope): &&(Mark, Scope)| listed.contains(waiting) && !open.contains(scope);
    awaited.iter().filter(is_complete).map(|(_, scope)| *scope).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::NodeId;

    fn task(number: u64) -> TaskId {
        TaskId { node: NodeId(1), number }
    }

    #[test]
    fn mark_round_trips() {
        let plain = Mark::from(task(7));
        let scoped = Mark { scope: Some(Scope(task(3))), ..plain };
        assert_eq!(plain.to_string(), "n0000000000000001-7");
        assert_eq!(scoped.to_string(), "n0000000000000001-7~n0000000000000001-3");
        for mark in [plain, scoped] {
            assert_eq!(mark.to_string().parse(), Ok(mark));
        }
        for garbage in ["", "~", "open", "n0000000000000001-7~", "n0000000000000001-7~x"] {
            assert!(garbage.parse::<Mark>().is_err(), "{garbage}");
        }
    }

    #[test]
    fn scope_is_complete_when_its_tasks_were_named_and_none_is_listed() {
        let scope = Scope(task(3));
        let awaited = [(Mark::from(task(9)), scope)];
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let of = |names: &[&str]| complete(&awaited, &list(names));
        let (waiting, open) = ("n0000000000000001-9", "n0000000000000001-5~n0000000000000001-3");
        assert_eq!(of(&[]), [], "it is not named yet");
        assert_eq!(of(&[open]), []);
        assert_eq!(of(&[waiting, open]), []);
        assert_eq!(of(&[waiting, "n0000000000000001-5", "open"]), [scope]);
    }
}
