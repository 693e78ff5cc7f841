//! What a node holds, as it stands in `ZooKeeper`: enough for any other node to continue from.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    envelope::Envelope,
    id::{IdError, NodeId, TaskId},
    toggles::Toggles,
};

/// Tasks, and ids that their holder still has to toggle.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Holdings {
    pub(crate) tasks: Vec<Envelope>,
    /// Ids of tasks whose output is committed.
    pub(crate) owed: Toggles,
    /// Whether the holder has more than stands here, because it cannot be written: if the holder is lost, the
    /// attempt is over.
    pub(crate) unprotected: bool,
}

impl Holdings {
    pub(crate) fn of(tasks: Vec<Envelope>) -> Self {
        Self { tasks, ..Self::default() }
    }

    /// The holdings of a node that does not write its tasks.
    pub(crate) fn unprotected() -> Self {
        Self { unprotected: true, ..Self::default() }
    }
}

/// The origin of tasks that a node has, but has not written yet; local to the node. Completions of such tasks
/// are not committed before the tasks themselves are the node's own in `ZooKeeper`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Basis(pub(crate) u64);

impl Basis {
    /// The tasks are the node's own, without conditions.
    pub(crate) const FIRM: Self = Self(0);
}

/// The znode of tasks on their way from one node to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Transit {
    pub(crate) from: NodeId,
    pub(crate) number: TransitNumber,
    pub(crate) to: NodeId,
}

/// What brought tasks on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TransitNumber {
    /// A grant of the sender.
    Grant(u64),
    /// A claim, whose tasks are on their way from the claiming node to itself.
    Claim(u64),
}

/// What a node can claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// A parked task.
    Parked(TaskId),
    /// Tasks on their way to a node that cannot take them any more.
    Transit(Transit),
    /// Tasks that this node has given away, and that were refused.
    Returned(Transit),
    /// Everything that a node held which is gone.
    Held(NodeId),
}

impl Transit {
    pub(crate) fn grant(from: NodeId, grant: u64, to: NodeId) -> Self {
        Self { from, number: TransitNumber::Grant(grant), to }
    }

    pub(crate) fn claim(node: NodeId, txn: u64) -> Self {
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
            // A number can be written in several ways, a name only in one.
            (transit.to_string() == text).then_some(transit)
        };
        parse().ok_or_else(|| IdError::new("transit", text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transit_reads_back_as_it_is_written() {
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
