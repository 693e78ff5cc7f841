//! Benchmarks within one process: workers, compared with programs without the runtime.

pub mod clique;
pub mod polls;
pub mod queens;
pub mod tsp;
pub mod uts;
