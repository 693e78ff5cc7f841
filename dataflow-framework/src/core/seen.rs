//! Events of a node, for an observer of its platform. The simulator checks its invariants with them.

use super::{Assignment, Mark, Outcome};
use crate::ids::{Argument, CallId, VersionId};

/// A version of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The number of the call.
    pub call: u64,
    /// The index among the versions of the call.
    pub slot: u32,
}

/// A run of the program in [`Seen`]: the number of its earlier starts, and its start time.
pub type Run = (u64, u64);

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Its task has written all its output.
    Written,
    /// Its task has failed, and it has written defaults.
    Ignored,
    /// It has failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// An event on a node. Values are identified by their hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A run of the program starts on this node.
    Leads {
        /// The run.
        run: Run,
        /// The number of workers.
        workers: u32,
    },
    /// The node starts to run calls for a run of the program on another node.
    Follows {
        /// The run.
        run: Run,
        /// The number of workers.
        workers: u32,
    },
    /// The companion has ended.
    Ends,
    /// A call starts.
    Begins {
        /// Its number.
        call: u64,
        /// The hash of all calls up to it.
        mark: u128,
        /// The versions that it reads, in the order of its arguments, with their hashes.
        reads: Vec<(Version, u128)>,
        /// Whether it occupies a worker.
        takes_worker: bool,
    },
    /// A call has run to completion.
    Ran {
        /// Its number.
        call: u64,
        /// Its outcome.
        how: How,
    },
    /// The program's node has assigned a call, or takes over an assignment of an earlier run.
    Assigns {
        /// Its number.
        call: u64,
        /// The member, by its number on that node.
        to: u32,
    },
    /// The program's node lets a call wait for its inputs: it is not assigned, or no longer.
    Waits {
        /// Its number.
        call: u64,
    },
    /// The program's node has received the outcome of a call.
    TakesIn {
        /// Its number.
        call: u64,
        /// The member that has reported it, by its number on that node.
        from: u32,
    },
    /// A version is on this node now: written, created by the program, or fetched from another node.
    Holds {
        /// The version.
        version: Version,
        /// The hash of all calls up to the one that writes it.
        mark: u128,
        /// The hash of its value.
        value: u128,
    },
    /// The program has read a value.
    Reads {
        /// The number of the read.
        number: u64,
        /// The hash of the expected value.
        expected: u64,
        /// The hash of the value.
        read: u64,
    },
}

impl Version {
    pub(crate) fn of(VersionId { call, slot }: VersionId) -> Self {
        Self { call, slot }
    }
}

impl Seen {
    /// Returns the event of the start of a call whose inputs have these hashes.
    pub(crate) fn begins(assignment: &Assignment, inputs: impl Iterator<Item = u128>) -> Self {
        let Assignment { call, mark, arguments, .. } = assignment;
        let versions = arguments.iter().flat_map(Argument::versions);
        let reads = versions.zip(inputs).map(|(version, value)| (Version::of(*version), value));
        let takes_worker = !assignment.is_future();
        Self::Begins { call: *call, mark: mark.hash(), reads: reads.collect(), takes_worker }
    }

    /// Returns the event of the end of a call.
    pub(crate) fn ran(call: CallId, outcome: &Outcome) -> Self {
        let how = match outcome {
            Outcome::Written { .. } | Outcome::Durable { .. } => How::Written,
            Outcome::Ignored { .. } => How::Ignored,
            Outcome::Failed(_) | Outcome::Unfit(_) => How::Failed,
        };
        Self::Ran { call, how }
    }

    /// Returns the event of the arrival of a version whose value has this hash.
    pub(crate) fn holds(version: VersionId, mark: Mark, value: u128) -> Self {
        Self::Holds { version: Version::of(version), mark: mark.hash(), value }
    }
}
