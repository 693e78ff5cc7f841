//! The figures of a run of a program.

/// The figures of a run of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Figures {
    /// The calls of tasks.
    pub calls: u64,
    /// The edges of the graph: reads of the output of one call by another.
    pub dependencies: u64,
    /// The number of calls of the longest chain in which each call reads the output of the previous one.
    pub depth: u64,
    /// The retries of failed calls.
    pub retries: u64,
    /// The failed calls whose failure was ignored.
    pub ignored: u64,
    /// The repetitions of calls whose output was lost.
    pub repeated: u64,
}
