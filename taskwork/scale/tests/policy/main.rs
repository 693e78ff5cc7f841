//! The policy with a simulated cluster in a cloud: its cost, its bounds, and a comparison with other policies.
//!
//! `TASKWORK_LONG=1` runs 200 seeds of each scenario, or `TASKWORK_SEEDS` of them, and asserts all bounds. The
//! figures are printed (`--nocapture`).
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times and numbers of a simulation, which are small"
)]

mod chance;
mod recorded;
mod trees;
mod cloud;
mod world;
mod rivals;
mod oracle;
mod figures;
mod costs;
mod bounds;
mod steadiness;
mod workflows;
mod calls;
mod genes;
