//! Elastic machines: connectors to providers of machines, and the controller that decides how many a cluster needs.
//!
//! ```text
//! cluster ──observation──▶ policy ──wish──▶ fleet ──create, terminate──▶ connector ──▶ machines
//!    ▲                                                                                  │
//!    └──────────────────────────── members, each with its machine's id ◀────────────────┘
//! ```

pub mod connector;
pub mod fleet;
pub mod policy;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
