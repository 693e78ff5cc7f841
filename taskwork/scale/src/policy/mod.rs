//! Decides how many machines a cluster should have, with a reason.
//!
//! Pure: no clock, no I/O, no randomness. The same observations give the same decisions, also after a [`Policy`] has
//! been serialised and read by another process.
//!
//! ```text
//! observation ──▶ spending · starts · windows ──▶ efficiency · parallelism ─┐
//!      │                                                                    ├─▶ forecasts ──▶ choice ──▶ decision
//!      └────────▶ progress of the jobs, totals of earlier ones, ──▶ work left┘
//!                 work ahead that frameworks report
//! ```
//!
//! # Related work
//!
//! J. Haussmann, W. Blochinger and W. Küchlin (Cost-efficient parallel processing of irregularly structured problems
//! in cloud computing environments, Cluster Computing 22, 2019, 887 to 909) choose the number of processors while the
//! program runs, since its scalability depends on the input, and minimise the sum of the cost of processors and of
//! delay. S. Kehrer and W. Blochinger (Equilibrium: an elasticity controller for parallel tree search in the cloud,
//! The Journal of Supercomputing 76, 2020, 9211 to 9245) have a controller that models the scalability at run time
//! and keeps the user's thresholds of cost and efficiency. Only the abstracts of both were available: the formulas,
//! estimators and rules here are different.

mod ahead;
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
mod ahead_tests;
#[cfg(test)]
mod tests;

pub use decision::{Bound, Candidate, Decision, Goals, GoalsError};
pub use observation::{JobSeen, JobUnserved, MachineSeen, MachineState, Observation, OfferSeen, Place};
pub(crate) use spending::AHEAD_MAX_MS;
pub use steps::Policy;
pub use victims::victims;
