//! How many machines a cluster should have: from an observation to a wish, and why.
//!
//! Pure: no clock, no I/O, no chance. The same observations give the same decisions, also after a [`Policy`] has been
//! written down and read again in another process.
//!
//! ```text
//! observation ──▶ spending · starts · windows ──▶ efficiency · parallelism ─┐
//!      │                                                                    ├─▶ forecasts ──▶ choice ──▶ decision
//!      └────────▶ progress of the jobs, totals of earlier ones ──▶ work left┘
//! ```
//!
//! # What was taken from others
//!
//! That the number of processors is sought with the least total of what they cost and of what the delay of the result
//! costs, while the program runs, since its scalability depends on the input: J. Haussmann, W. Blochinger and
//! W. Küchlin, Cost-efficient parallel processing of irregularly structured problems in cloud computing environments,
//! Cluster Computing 22 (2019), 887 to 909. That a controller reasons about how the program scales at run time, and
//! keeps thresholds of cost and efficiency that the user sets: S. Kehrer and W. Blochinger, Equilibrium: an elasticity
//! controller for parallel tree search in the cloud, The Journal of Supercomputing 76 (2020), 9211 to 9245. Both were
//! at hand by their abstracts only: formulas, estimators and rules are not theirs.

mod observation;
mod decision;
mod steps;
mod window;
mod model;
mod parallelism;
mod estimate;
mod prior;
mod starts;
mod spending;
mod forecast;
mod choose;
mod victims;
mod explain;
mod normal;
#[cfg(test)]
mod tests;

pub use decision::{Bound, Candidate, Decision, Goals, GoalsError};
pub use observation::{JobSeen, JobUnserved, MachineSeen, MachineState, Observation, OfferSeen, Place};
pub(crate) use spending::AHEAD_MAX_MS;
pub use steps::Policy;
pub use victims::victims;
