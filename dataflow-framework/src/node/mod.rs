//! What runs calls: the versions that are here, those that are on their way, and the threads on which tasks run.

mod attempt;
mod begun;
mod deadline;
mod fetches;
mod invocation;
mod once;
mod queue;
mod site;
mod small;
mod store;

/// Another node, as the runtime names it.
pub(crate) use taskwork::NodeId as Peer;

#[cfg(feature = "simulation")]
pub(crate) use self::queue::Continues;
pub use self::{deadline::time_left, invocation::Invocation, once::once_token};
pub(crate) use self::{
    fetches::{Ask, Missing, Piece},
    queue::{Crew, Queue},
    site::{Inventory, Report, Site},
    small::Told,
};
