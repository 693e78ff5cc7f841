//! The requirements of calls, and the capacities of members.

use std::fmt;

use serde::{Deserialize, Serialize};
use taskwork::Labels;

use super::members::Member;
use crate::{options::Options, size::shown};

/// The requirements of a call on its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Demand {
    /// The number of workers; 0 for a future.
    pub(crate) cores: u32,
    /// The memory, in bytes.
    pub(crate) memory: u64,
    /// The size of the inputs, in bytes, if a store was too small for them; otherwise 0.
    pub(crate) store: u64,
    /// The required labels, each as a name, or as a name with a value (`name=value`).
    pub(crate) needs: &'static [&'static str],
    /// The limits on the running calls of all members, each as `NAME=CALLS`.
    pub(crate) limits: &'static [&'static str],
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Capacity {
    pub(crate) workers: u32,
    /// The memory, in bytes; 0 if it is unknown, which satisfies any requirement.
    pub(crate) memory: u64,
    /// The size of inputs for which its store was too small, in bytes; 0 as long as there were none.
    #[serde(skip)]
    pub(crate) store_exceeded: u64,
    pub(crate) labels: Labels,
}

/// A requirement that no member satisfies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// A number of workers.
    Cores {
        demanded: u32,
        most: u32,
    },
    /// An amount of memory, in bytes.
    Memory {
        demanded: u64,
        most: u64,
    },
    /// A store for inputs of this size, in bytes.
    Store(u64),
    Label(&'static str),
    /// Each requirement is satisfied by some member, but not all by the same one.
    Together,
}

/// The properties of a call that determine the members that can run it. Calls of one class wait in one queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    pub(super) demand: Demand,
    pub(super) is_spread: bool,
    /// The members on which the calls could not run, in order.
    pub(super) shunned: Vec<Member>,
    /// The member on which the calls have failed last: while another member has a free worker, they run there.
    pub(super) failed_on: Option<Member>,
}

impl Class {
    /// Returns whether its calls have met faults of members, so that few other calls will be of this class.
    pub(super) fn is_troubled(&self) -> bool {
        !self.shunned.is_empty() || self.failed_on.is_some()
    }
}

impl Demand {
    /// The requirements of a call that may run anywhere.
    pub(crate) const NONE: Self = Self { cores: 1, memory: 0, store: 0, needs: &[], limits: &[] };

    pub(crate) fn of(options: &Options) -> Self {
        let Options { cores, memory, needs, limits, .. } = *options;
        Self { cores, memory, needs, limits, ..Self::NONE }
    }

    /// Returns whether its calls are never assigned ahead: they start as soon as they are assigned.
    pub(super) fn is_immediate(self) -> bool {
        self.cores > 1 || (!self.limits.is_empty() && !self.is_of_future())
    }

    /// Returns whether its calls are futures, which occupy no worker.
    pub(super) fn is_of_future(self) -> bool {
        self.cores == 0
    }
}

impl Capacity {
    /// The capacity of a member with this number of workers and nothing else known.
    pub(crate) fn of_workers(workers: u32) -> Self {
        Self { workers, ..Self::default() }
    }

    /// Returns whether an idle member can run a call.
    pub(super) fn can_take(&self, demand: Demand) -> bool {
        self.has_memory(demand.memory)
            && self.has_store(demand.store)
            && self.workers >= demand.cores
            && demand.needs.iter().all(|label| self.has(label))
    }

    pub(super) fn has_memory(&self, bytes: u64) -> bool {
        self.memory == 0 || bytes <= self.memory
    }

    fn has_store(&self, bytes: u64) -> bool {
        self.store_exceeded == 0 || bytes < self.store_exceeded
    }

    fn has(&self, label: &str) -> bool {
        match label.split_once('=') {
            Some((name, value)) => self.labels.get(name) == Some(value),
            None => self.labels.get(label).is_some(),
        }
    }
}

impl Lack {
    /// Returns the requirement that none of these members satisfies; `None` if a member satisfies all, or there
    /// are no members.
    pub(crate) fn of<'a>(demand: Demand, all: impl Iterator<Item = &'a Capacity> + Clone) -> Option<Self> {
        if all.clone().any(|one| one.can_take(demand)) {
            return None;
        }
        let most = all.clone().map(|one| one.workers).max()?;
        if most < demand.cores {
            return Some(Self::Cores { demanded: demand.cores, most });
        }
        if !all.clone().any(|one| one.has_memory(demand.memory)) {
            let most = all.map(|one| one.memory).max().unwrap_or(0);
            return Some(Self::Memory { demanded: demand.memory, most });
        }
        if !all.clone().any(|one| one.has_store(demand.store)) {
            return Some(Self::Store(demand.store));
        }
        let label = demand.needs.iter().find(|label| !all.clone().any(|one| one.has(label)));
        Some(label.map_or(Self::Together, |label| Self::Label(label)))
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        match *self {
            Self::Cores { demanded, most } => {
                write!(f, "{demanded} workers on one node, and none has more than {most}")
            }
            Self::Memory { demanded, most } => {
                let (demanded, most) = (gib(demanded), gib(most));
                write!(f, "{demanded:.1} GiB of memory on one node, and none has more than {most:.1}")
            }
            Self::Store(bytes) => {
                write!(f, "a store for {} of inputs (`--store`), and no node has one", shown(bytes))
            }
            Self::Label(label) => write!(f, "the label {label}, and no node has it"),
            Self::Together => f.write_str(
                "cores, memory, store and labels that are all there, but not together on one node",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(workers: u32, memory: u64, labels: &str) -> Capacity {
        let labels =
            if labels.is_empty() { Labels::default() } else { labels.parse().expect("they are labels") };
        Capacity { workers, memory, labels, ..Capacity::default() }
    }

    #[test]
    fn unsatisfied_requirement_is_named() {
        let members = [capacity(4, 8 << 30, "blast=2.9"), capacity(2, 32 << 30, "gpu=yes,zone=a")];
        let lack = |demand: Demand| Lack::of(demand, members.iter()).map(|lack| lack.to_string());
        for (demand, expected) in [
            (Demand::NONE, None),
            (Demand { cores: 4, memory: 8 << 30, needs: &["blast"], ..Demand::NONE }, None),
            (Demand { needs: &["blast=2.9"], ..Demand::NONE }, None),
            (Demand { needs: &["gpu", "zone=a"], cores: 2, memory: 1, ..Demand::NONE }, None),
            (Demand { cores: 8, ..Demand::NONE }, Some("8 workers on one node, and none has more than 4")),
            (
                Demand { memory: 64 << 30, ..Demand::NONE },
                Some("64.0 GiB of memory on one node, and none has more than 32.0"),
            ),
            (
                Demand { needs: &["gpu", "blast=3"], ..Demand::NONE },
                Some("the label blast=3, and no node has it"),
            ),
            (
                Demand { needs: &["gpu", "blast"], ..Demand::NONE },
                Some("cores, memory, store and labels that are all there, but not together on one node"),
            ),
        ] {
            assert_eq!(lack(demand).as_deref(), expected, "{demand:?}");
        }
        assert_eq!(Lack::of(Demand { cores: 8, ..Demand::NONE }, [].iter()), None, "nobody is there");
    }

    #[test]
    fn member_with_unknown_memory_takes_any_call() {
        assert!(capacity(1, 0, "").can_take(Demand { memory: u64::MAX, ..Demand::NONE }));
    }
}
