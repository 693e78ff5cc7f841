//! Events of a node, for an observer of its platform. The simulator checks its invariants by them.

use super::{Assignment, Mark, Outcome};
use crate::ids::{Argument, CallId, VersionId};

/// A version of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The number of the call.
    pub call: u64,
    /// Which of the call's versions it is.
    pub slot: u32,
}

/// A run of the program, as [`Seen`] names it: how often it was started before, and when.
pub type Run = (u64, u64);

/// How a call has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Its task has written everything.
    Written,
    /// Its task has failed, and it has written defaults.
    Ignored,
    /// It has failed.
    Failed,
}

/// An event on a node. Values are identified by their hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A run of the program begins here.
    Leads {
        /// The run.
        run: Run,
        /// The number of workers.
        workers: u32,
    },
    /// The node begins to run calls for a run of the program on another node.
    Follows {
        /// The run.
        run: Run,
        /// The number of workers.
        workers: u32,
    },
    /// The companion has ended.
    Ends,
    /// A call begins.
    Begins {
        /// Its number.
        call: u64,
        /// The hash of all calls up to it.
        mark: u64,
        /// What it reads, in the order of its arguments.
        reads: Vec<(Version, u64)>,
    },
    /// A call has run to its end.
    Ran {
        /// Its number.
        call: u64,
        /// How it has ended.
        how: How,
    },
    /// The program's node has assigned a call, or takes over one that was assigned in an earlier run.
    Assigns {
        /// Its number.
        call: u64,
        /// The member, by the number that it has there.
        to: u32,
    },
    /// The program's node has a call wait for what it reads: it is assigned to no member, or no longer.
    Waits {
        /// Its number.
        call: u64,
    },
    /// The program's node has taken in how a call has ended.
    TakesIn {
        /// Its number.
        call: u64,
        /// The member that has told it, by the number that it has there.
        from: u32,
    },
    /// A version is here now: written, brought in by the program, or fetched from another node.
    Holds {
        /// The version.
        version: Version,
        /// The hash of all calls up to the one that writes it.
        mark: u64,
        /// The hash of its value.
        value: u64,
    },
    /// The program has read a value.
    Reads {
        /// The number of the read.
        number: u64,
        /// What it should have read.
        expected: u64,
        /// What it has read.
        read: u64,
    },
}

impl Version {
    pub(crate) fn of(VersionId { call, slot }: VersionId) -> Self {
        Self { call, slot }
    }
}

impl Seen {
    /// Returns the event that a call begins whose inputs have these hashes.
    pub(crate) fn begins(assignment: &Assignment, inputs: impl Iterator<Item = u64>) -> Self {
        let Assignment { call, mark, arguments, .. } = assignment;
        let versions = arguments.iter().flat_map(Argument::versions);
        let reads = versions.zip(inputs).map(|(version, value)| (Version::of(*version), value));
        Self::Begins { call: *call, mark: mark.hash(), reads: reads.collect() }
    }

    /// Returns the event that a call has run.
    pub(crate) fn ran(call: CallId, outcome: &Outcome) -> Self {
        let how = match outcome {
            Outcome::Written { .. } | Outcome::Durable { .. } => How::Written,
            Outcome::Ignored { .. } => How::Ignored,
            Outcome::Failed(_) | Outcome::Unfit(_) => How::Failed,
        };
        Self::Ran { call, how }
    }

    /// Returns the event that a version is here whose value has this hash.
    pub(crate) fn holds(version: VersionId, mark: Mark, value: u64) -> Self {
        Self::Holds { version: Version::of(version), mark: mark.hash(), value }
    }
}
