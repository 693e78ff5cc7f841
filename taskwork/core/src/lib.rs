//! The protocol between nodes as a pure state machine: events in, actions out.
//!
//! ```text
//!                    ┌──────────────── Node ────────────────┐
//!   pool changed  ──▶│ stealing    asks, serves, grants:    │──▶ Send   a message
//!   message       ──▶│   thief     requests, and their times│──▶ Put    tasks into the pool
//!   member joined ──▶│   victim    thieves, open grants     │──▶ Take   tasks out of it
//!   attempt began ──▶│   receipts  grants taken, once each  │──▶ Cut    the node's own tasks
//!   task parked   ──▶│ flushing    writes the holdings      │──▶ Transact
//!   timer         ──▶│   given, bases  unwritten grants     │
//!                    │ accounting  one transaction at a time│
//!                    │ parked, orphans  order of claims     │
//!   drain request ──▶│ leaving     hands over, then leaves  │──▶ Leave
//!                    └──────────────────────────────────────┘
//! ```
//!
//! A [`Node`] is in a phase; its work on an attempt is a `Run` (`run.rs`), whose steps use the node's
//! `Surroundings`.
//!
//! The core never waits, reads a clock, uses other randomness or touches a thread: the time comes with each
//! event, and the randomness from the node's seed. So the same events result in the same actions, and a whole
//! cluster can be replayed from one number.
//!
//! The crate `taskwork` drives it; programs use that crate. This interface changes without notice.

#![allow(
    missing_docs,
    reason = "internal: types are documented, and comments on most fields would repeat their names"
)]

pub mod config;
pub mod envelope;
pub mod holdings;
pub mod id;
pub mod scope;
pub mod toggles;

mod counts;
mod node;
mod event;
mod action;
mod message;
mod pool_view;
mod surroundings;
mod attempt;
mod run;
mod stealing;
mod thief;
mod victim;
mod receipts;
mod given;
mod bases;
mod accounting;
mod pace;
mod flushing;
mod trials;
mod ledger;
mod parked;
mod orphans;
mod drain;
mod leaving;
mod check;
#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod drain_tests;
#[cfg(test)]
mod flushing_tests;
#[cfg(test)]
mod properties_tests;
#[cfg(test)]
mod stealing_tests;
#[cfg(test)]
mod transactions_tests;

pub use self::{
    action::{Action, Condemned, Departure, Flush, Transaction, TransactionKind},
    counts::Counts,
    event::{Cut, Event, TransactionResult},
    given::Gift,
    ledger::LedgerState,
    message::Message,
    node::Node,
    pool_view::PoolView,
};
