//! What runs calls: the versions that are here, and the threads on which tasks run.

mod invocation;
mod queue;
mod store;

pub use self::invocation::Invocation;
pub(crate) use self::{queue::Queue, store::Store};
