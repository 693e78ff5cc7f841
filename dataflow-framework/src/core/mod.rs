//! The order of calls and the lifetime of data: a state machine without threads, clocks and I/O. The same
//! events produce the same actions.

mod assigning;
mod call;
mod calls;
mod commuting;
mod demand;
mod durable;
mod durations;
mod earlier;
mod ending;
mod everywhere;
mod explain;
mod fact;
mod failing;
mod graph;
mod groups;
mod handing_on;
mod history;
mod levels;
mod line;
mod lineage;
mod mark;
mod members;
mod nearness;
mod nesting;
mod observed;
mod placing;
mod preserving;
mod ready;
mod recalling;
mod reducing;
mod rescue;
mod seen;
mod settling;
mod state;
mod trouble;
mod version;
mod waiting;
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
mod trouble_tests;
#[cfg(test)]
mod waiting_tests;

pub use self::seen::{How, Run, Seen, Version};
pub(crate) use self::{
    call::{Cause, Commute, Failing, Manner, Merge, NewCall, Outcome, Unfit},
    demand::{Capacity, Demand, Lack},
    fact::{Choice, Decision, Fact},
    graph::{Action, Assignment, Graph, Input},
    history::History,
    line::{Frame, HOLD_MS, Line},
    mark::Mark,
    members::Member,
    state::{
        earlier::{Divergence, Held},
        groups::first_of,
        nests::{Answer, Step, TaskCall},
    },
    version::Source,
    waiting::GET,
};
