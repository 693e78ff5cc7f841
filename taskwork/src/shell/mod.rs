//! The shell: performs the actions of the protocol core, and passes events to it.
//!
//! ```text
//!            ┌──────────── driver ────────────┐
//!   pool ───▶│ select the next event          │───▶ pool          put, take, stop …
//!   peers ──▶│ core.handle(now, view, event)  │───▶ transport     send
//!   znodes ─▶│ perform the actions            │───▶ coordination  enrol, transact, fail
//!            └────────────────────────────────┘
//! ```
//!
//! The driver waits for one event at a time and then performs everything that follows from it without
//! waiting: there is no `.await` between an event and its actions, so no transition is ever half done.

pub(crate) mod clock;
mod companion;
pub(crate) mod coordination;
pub(crate) mod dispatch;
pub(crate) mod driver;
pub(crate) mod embedded;
pub(crate) mod errors;
pub(crate) mod givers;
pub(crate) mod kept;
pub(crate) mod platform;
mod process;
pub(crate) mod pulse;
mod reading;
pub(crate) mod node;
pub(crate) mod roster;
pub(crate) mod seat;
pub(crate) mod kinds;
mod latch;
pub(crate) mod lingering;
pub(crate) mod mail;
pub(crate) mod memory;
pub(crate) mod observe;
#[cfg(test)]
mod observe_tests;
#[cfg(test)]
mod merge_tests;
pub(crate) mod timeline;
pub(crate) mod serve;
mod work;
pub(crate) mod shared;
#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod serve_tests;
pub(crate) mod submit;
pub(crate) mod transport;
