//! The protocol between nodes as a pure state machine: events in, actions out.
//!
//! ```text
//!                    ┌──────────────── Node ────────────────┐
//!   pool changed  ──▶│ thief       asks others for tasks    │──▶ Send   a message
//!   message       ──▶│ victim      serves others, grants    │──▶ Put    tasks into the pool
//!   member joined ──▶│ receipts    grants taken, once each  │──▶ Take   tasks out of it
//!   attempt began ──▶│ accounting  one transaction at a time│──▶ Transact
//!   task parked   ──▶│ parked      who claims which, when   │
//!   timer         ──▶│ drain       hands all on, leaves     │──▶ Leave
//!                    └──────────────────────────────────────┘
//! ```
//!
//! Nothing here waits, reads a clock, draws a random number of its own or touches a thread: the time comes with each event,
//! the randomness from the seed the node was made with. So the same events give the same actions, and a whole cluster can be
//! replayed from one number.

mod node;
mod event;
mod action;
mod message;
mod attempt;
mod thief;
mod victim;
mod receipts;
mod accounting;
mod parked;
mod drain;
#[cfg(any(test, feature = "simulation"))]
mod check;
#[cfg(test)]
mod cluster_test;
#[cfg(test)]
mod drain_test;
#[cfg(test)]
mod properties_test;

pub(crate) use self::{
    action::{Action, Departure, Transaction, TransactionKind},
    event::{Event, TransactionResult},
    message::{Message, Packet},
    node::Node,
};
