//! The program's side: its handles of data, its calls, and its waits.

mod calling;
mod commute;
mod data;
mod deciding;
mod engine;
mod flow;
mod group;
mod nested;
mod observing;
mod publish;
mod recorder;
mod records;
mod reduce;
pub mod surroundings;
mod workflow;

#[cfg(feature = "stores")]
pub(crate) use self::publish::is_publishing_restricted;
pub use self::{
    calling::Calling,
    commute::commute,
    data::{Data, Ref, RefMut, wait_any},
    group::{Group, barrier, group},
    observing::Observe,
    publish::PublishError,
    reduce::{Reduction, reduce},
    workflow::{Workflow, WorkflowError},
};
pub(crate) use self::{
    engine::{Engine, Others, Stopped},
    flow::{CallsOfTasks, Flow},
    publish::set_publish_dir,
    records::entries,
    workflow::CALLS_AHEAD_MAX,
};
