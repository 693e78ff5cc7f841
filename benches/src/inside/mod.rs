//! Within one process: workers, against programs without the runtime.

pub mod clique;
pub mod polls;
pub mod queens;
pub mod tsp;
pub mod uts;
