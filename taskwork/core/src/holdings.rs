//! The holdings of a node, as written to `ZooKeeper`: enough for any other node to continue from.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    envelope::Envelope,
    id::{IdError, NodeId, TaskId},
    toggles::Toggles,
};

/// Tasks, and ids that their holder has yet to toggle.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Holdings {
    pub tasks: Vec<Envelope>,
    /// Ids of tasks with committed output.
    pub owed: Toggles,
    /// The task to blame if the holder is lost.
    pub suspect: Option<Suspect>,
    /// Whether the holder has more than is written here, because it is too large to be written: if the holder is lost,
    /// the attempt is over.
    pub unprotected: bool,
}

/// A task that is blamed for the loss of its holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    pub task: TaskId,
    /// The cause as far as known, for display; empty if only the holder is lost.
    pub reason: String,
    /// Whether it is certain that no other task caused the loss.
    pub is_certain: bool,
}

impl Holdings {
    pub fn of(tasks: Vec<Envelope>) -> Self {
        Self { tasks, ..Self::default() }
    }

    /// The holdings of a node that does not write its tasks.
    pub fn unprotected() -> Self {
        Self { unprotected: true, ..Self::default() }
    }

    /// Counts the loss of the holder, which may condemn the suspect. No other task is condemned, because it may be
    /// innocent. If the suspect is certain, and it need not be among these tasks, the loss counts for no other task.
    /// 0 means no limit.
    pub fn count_loss(&mut self, crashes_max: u32) {
        let suspect = self.suspect.take();
        if crashes_max == 0 {
            return;
        }
        let named = suspect.as_ref().map(|suspect| suspect.task);
        let of_named = self.tasks.iter().find(|task| Some(task.id) == named).map(|task| task.crashes);
        // A task that was condemned before waits to be set aside, and has not run.
        let is_certain = of_named.is_none_or(|crashes| crashes < crashes_max)
            && suspect.as_ref().is_some_and(|suspect| suspect.is_certain);
        for task in &mut self.tasks {
            if Some(task.id) == named {
                task.crashes = crashes_max.min(task.crashes.saturating_add(1));
            } else if !is_certain && task.crashes.saturating_add(1) < crashes_max {
                task.crashes += 1;
            }
        }
        // The reason stays with the task until the task is set aside.
        let is_condemned = of_named.is_some_and(|crashes| crashes.saturating_add(1) >= crashes_max);
        self.suspect = suspect.filter(|_| is_condemned);
    }
}

/// The origin of tasks that a node has but has not written yet; local to the node. Completions of such tasks
/// are not committed before the tasks themselves belong to the node in `ZooKeeper`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Basis(pub u64);

impl Basis {
    /// The tasks belong to the node unconditionally.
    pub const FIRM: Self = Self(0);
}

/// The znode of tasks in transit from one node to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transit {
    pub from: NodeId,
    pub number: TransitNumber,
    pub to: NodeId,
}

/// The origin of a transit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransitNumber {
    /// A grant of the sender.
    Grant(u64),
    /// A claim, with tasks in transit from the claiming node to itself.
    Claim(u64),
}

/// An object that a node can claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    Parked(TaskId),
    /// Tasks in transit to a node that can no longer receive them.
    Transit(Transit),
    /// Tasks that this node had given away, and that were refused.
    Returned(Transit),
    /// All holdings of a node that is gone.
    Held(NodeId),
}

impl Source {
    /// Returns the lost node that may have worked on the claimed tasks, if there is one.
    pub fn lost_at(self, claimer: NodeId) -> Option<NodeId> {
        match self {
            Self::Held(holder) => Some(holder),
            Self::Transit(transit) => Some(transit.to).filter(|&to| to != claimer),
            Self::Parked(_) | Self::Returned(_) => None,
        }
    }
}

impl Transit {
    pub fn grant(from: NodeId, grant: u64, to: NodeId) -> Self {
        Self { from, number: TransitNumber::Grant(grant), to }
    }

    pub fn claim(node: NodeId, txn: u64) -> Self {
        Self { from: node, number: TransitNumber::Claim(txn), to: node }
    }
}

impl fmt::Display for Transit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            TransitNumber::Grant(number) => write!(f, "{}-g{number}~{}", self.from, self.to),
            TransitNumber::Claim(number) => write!(f, "{}-c{number}~{}", self.from, self.to),
        }
    }
}

impl FromStr for Transit {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let parse = || {
            let (way, to) = text.split_once('~')?;
            let (from, number) = way.split_once('-')?;
            let digits = number.get(1..)?;
            let number = match number.as_bytes().first()? {
                b'g' => TransitNumber::Grant(digits.parse().ok()?),
                b'c' => TransitNumber::Claim(digits.parse().ok()?),
                _ => return None,
            };
            let transit = Self { from: from.parse().ok()?, number, to: to.parse().ok()? };
            // A number has several spellings, a name only one.
            (transit.to_string() == text).then_some(transit)
        };
        parse().ok_or_else(|| IdError::new("transit", text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Blob;

    fn task(number: u64, crashes: u32) -> Envelope {
        let id = TaskId { node: NodeId(1), number };
        Envelope { crashes, ..Envelope::new(id, Blob::default(), Blob::default()) }
    }

    fn crashes(held: &Holdings) -> Vec<u32> {
        held.tasks.iter().map(|task| task.crashes).collect()
    }

    fn suspect(number: u64, is_certain: bool) -> Suspect {
        Suspect { task: task(number, 0).id, reason: "it panicked".to_owned(), is_certain }
    }

    fn after_loss(suspect: Option<Suspect>, crashes_max: u32) -> Holdings {
        let tasks = vec![task(1, 0), task(2, 1), task(3, 2)];
        let mut held = Holdings { suspect, ..Holdings::of(tasks) };
        held.count_loss(crashes_max);
        held
    }

    #[test]
    fn loss_counts_for_all_tasks_and_condemns_only_the_suspect() {
        let held = after_loss(None, 3);
        assert_eq!((crashes(&held), &held.suspect), (vec![1, 2, 2], &None));
        let held = after_loss(Some(suspect(3, false)), 3);
        assert_eq!((crashes(&held), &held.suspect), (vec![1, 2, 3], &Some(suspect(3, false))));
        let held = after_loss(Some(suspect(9, false)), 3);
        assert_eq!((crashes(&held), &held.suspect), (vec![1, 2, 2], &None), "it was given away");
        let held = after_loss(Some(suspect(1, true)), 0);
        assert_eq!((crashes(&held), &held.suspect), (vec![0, 1, 2], &None), "there is no limit");
    }

    #[test]
    fn loss_with_a_certain_suspect_counts_for_no_other_task() {
        let held = after_loss(Some(suspect(1, true)), 3);
        assert_eq!((crashes(&held), &held.suspect), (vec![1, 1, 2], &None), "it gets another chance");
        let mut held = after_loss(Some(suspect(3, true)), 3);
        assert_eq!((crashes(&held), &held.suspect), (vec![0, 1, 3], &Some(suspect(3, true))));
        // The condemned task is not blamed for the next loss.
        held.count_loss(3);
        assert_eq!((crashes(&held), &held.suspect), (vec![1, 2, 3], &Some(suspect(3, true))));
    }

    #[test]
    fn transit_name_round_trips() {
        for transit in [Transit::grant(NodeId(1), 42, NodeId(2)), Transit::claim(NodeId(3), 0)] {
            assert_eq!(transit.to_string().parse(), Ok(transit));
        }
        let name = "n0000000000000001-g42~n0000000000000002";
        assert_eq!(Transit::grant(NodeId(1), 42, NodeId(2)).to_string(), name);
        for garbage in ["", "~", "-~", &name.replace('g', "x"), &name.replace("42", "+42"), &name[1..]] {
            assert!(garbage.parse::<Transit>().is_err(), "{garbage}");
        }
    }
}
