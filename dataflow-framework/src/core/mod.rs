//! Which call may run when, and which data is still needed: a state machine without threads, clocks and I/O. The same
//! events produce the same actions.

mod call;
mod graph;
mod levels;
mod line;
mod lineage;
mod members;
mod ready;
mod version;
#[cfg(test)]
mod graph_tests;
#[cfg(test)]
mod properties_tests;

pub(crate) use self::{
    call::{Argument, CallId, NewCall, Outcome},
    graph::{Action, Assignment, Graph, Input},
    line::{Frame, Line},
    members::Member,
    version::VersionId,
};
