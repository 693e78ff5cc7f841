//! Which call may run when, and which data is still needed: a state machine without threads, clocks and I/O. The same
//! events produce the same actions.

mod call;
mod calls;
mod durable;
mod earlier;
mod fact;
mod failing;
mod graph;
mod history;
mod levels;
mod line;
mod lineage;
mod mark;
mod members;
mod nearness;
mod ready;
mod rescue;
mod version;
#[cfg(test)]
mod durable_tests;
#[cfg(test)]
mod earlier_tests;
#[cfg(test)]
mod graph_tests;
#[cfg(test)]
mod properties_tests;
#[cfg(test)]
mod schedule_tests;
#[cfg(test)]
mod virtual_cluster;
#[cfg(test)]
mod virtual_ideal;
#[cfg(test)]
mod virtual_program;

pub(crate) use self::{
    call::{Argument, CallId, Failing, Manner, NewCall, Outcome},
    earlier::{Divergence, Held},
    fact::{Choice, Decision, Fact},
    graph::{Action, Assignment, Graph, Input},
    history::History,
    line::{Frame, HOLD_MS, Line},
    mark::Mark,
    members::Member,
    version::{Source, VersionId},
};
