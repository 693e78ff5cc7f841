//! What is counted while a program runs.

/// What was counted while a program ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Figures {
    /// The calls of tasks.
    pub calls: u64,
    /// How often a call has read what another one has written: the edges of the graph.
    pub dependencies: u64,
    /// The number of calls of the longest chain in which each needs what the one before has written.
    pub depth: u64,
    /// How often a call was tried again.
    pub retries: u64,
    /// The calls that have failed, which was ignored.
    pub ignored: u64,
    /// How often a call was run again because what it had written was lost.
    pub repeated: u64,
}
