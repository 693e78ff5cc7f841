//! The order of calls and the lifetime of data: a state machine without threads, clocks and I/O. The same
//! events produce the same actions.

mod action;
mod ahead;
mod call;
mod calls;
mod chains;
mod data;
mod demand;
mod durations;
mod explain;
mod failures;
mod free_order;
mod graph;
mod groups;
mod journal;
mod levels;
mod line;
mod mark;
mod members;
mod nests;
mod observed;
mod pauses;
mod queues;
mod ready;
mod reductions;
mod replay;
mod seen;
mod steps;
mod stopping;
mod version;
#[cfg(test)]
mod commuting_tests;
#[cfg(test)]
mod durable_tests;
#[cfg(test)]
mod earlier_tests;
#[cfg(test)]
mod explain_tests;
#[cfg(test)]
mod graph_tests;
#[cfg(test)]
mod losses_tests;
#[cfg(test)]
mod nested_tests;
#[cfg(test)]
mod placing_tests;
#[cfg(test)]
mod properties_tests;
#[cfg(test)]
mod reducing_tests;
#[cfg(test)]
mod schedule_tests;
#[cfg(test)]
mod virtual_cluster;
#[cfg(test)]
mod virtual_ideal;
#[cfg(test)]
mod virtual_program;
#[cfg(test)]
mod virtual_stores;
#[cfg(test)]
mod trouble_tests;
#[cfg(test)]
mod waiting_tests;

pub use self::seen::{How, Run, Seen, Version};
pub(crate) use self::{
    action::{Action, Assignment, Input},
    call::{Cause, Commute, Failing, Manner, Merge, NewCall, Outcome, Unfit, Work},
    demand::{Capacity, Demand, Lack},
    durations::Estimate,
    graph::Graph,
    groups::first_of,
    journal::{
        fact::{Choice, Decision, Fact},
        history::History,
    },
    line::{Frame, HOLD_MS, Line},
    mark::Mark,
    members::{FUTURES_MAX, Member},
    replay::{Divergence, Held},
    steps::{Answer, Step, TaskCall},
    version::Source,
};
