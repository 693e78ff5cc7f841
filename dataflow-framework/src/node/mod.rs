//! The execution of calls: the versions on this node, the fetching of others, and the threads that run tasks.

mod answers;
mod assignments;
mod attempt;
mod brought;
mod cancellation;
mod context;
mod deadline;
mod executor;
mod fetches;
#[cfg(test)]
mod fetches_tests;
mod futures;
mod ledger;
#[cfg(test)]
mod ledger_tests;
mod lending;
mod messages;
mod nesting;
mod once;
mod outcome;
mod queue;
mod receiving;
mod reporting;
mod room;
mod running_call;
mod seat;
mod small;
mod stopwatch;
mod store;
#[cfg(test)]
mod store_tests;
mod waits;

pub(crate) use self::room::set_store;
pub(crate) use self::{
    answers::Answer,
    attempt::run_here,
    cancellation::{Cancellation, LOOK, cancelled},
    context::Context,
    deadline::exceeded,
    executor::{Executor, Inventory, Network},
    fetches::Missing,
    messages::{Coded, News, Order, Report, Returned},
    nesting::{Nesting, Running, end},
    outcome::CACHED_CALLS,
    queue::{Crew, Queue},
    room::Room,
    stopwatch::Timing,
    store::Store,
    waits::Given,
};
pub use self::{cancellation::is_cancelled, deadline::time_left, once::once_token};
