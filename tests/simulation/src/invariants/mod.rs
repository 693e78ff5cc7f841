//! The invariants of the architecture, which must hold at every step of every history. Each has its own file,
//! named by its number.
//!
//! They observe from outside: the states that tasks open and visit, every committed operation, every message.
//! None of them depends on the internal state of the code under test.

mod blame;
mod candidates;
mod companions;
mod durable;
mod facts;
mod i10_partition;
mod i1_once;
mod i2_end;
mod i3_answer;
mod i4_fence;
mod i5_autonomy;
mod i6_bounds;
mod i7_strangers;
mod i8_calm;
pub(crate) mod i9_history;
mod membership;
mod workflow;

use std::fmt;

use taskwork::NodeId;
use zk::{Op, tree::SessionId};

use self::facts::{Place, place, record};
pub(crate) use self::{
    facts::{Facts, JobFacts},
    i7_strangers::STRANGER,
};
use crate::{
    shares::Observed,
    workload::{Slice, companion::Step},
    world::Servers,
};

/// An observable event in a world.
#[derive(Debug)]
pub(crate) enum Seen<'a> {
    /// A node's worker has completed a slice of a task of the job with this number.
    Worked { node: NodeId, job: u64, done: &'a Slice },
    /// The companion of a job on a node has taken a step.
    Companion { node: NodeId, job: &'a str, step: Step },
    /// A node that works on a workflow has taken a step.
    Workflow { node: NodeId, step: &'a dataflow_framework::simulation::Seen },
    /// A session's operations are committed; an empty list means that the session has ended. `servers` is the
    /// state after that.
    Wrote { session: SessionId, ops: &'a [Op], servers: &'a Servers },
    /// A node has sent a message.
    Sent { from: NodeId, to: NodeId, payload: &'a [u8] },
    /// A message waits for its connection, in this many copies.
    Waits { from: NodeId, to: NodeId, copies: usize, bytes: usize },
    /// The servers become unavailable, or available again.
    ServersAway { away: bool },
    /// The servers stop committing, or commit again.
    Stalled { stalled: bool },
    /// No new faults occur from now on, but earlier ones may last.
    Calm,
    /// A node was asked to leave.
    ToldToLeave { node: NodeId },
    /// A node has detected a broken invariant in its own state.
    NodeBroken { what: &'a str },
    /// Code has panicked.
    Panicked { what: &'a str },
}

/// A condition that must always hold.
pub(crate) trait Invariant: Send {
    /// Returns its short name.
    fn name(&self) -> &'static str;
    /// Checks an event.
    ///
    /// # Errors
    /// If the invariant is broken, with a description.
    fn see(&mut self, facts: &Facts, now: u64, seen: &Seen<'_>) -> Result<(), String>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) at_ms: u64,
    pub(crate) invariant: &'static str,
    pub(crate) what: String,
}

/// All invariants, and the first few violations.
pub(crate) struct Invariants {
    pub(crate) facts: Facts,
    all: Vec<Box<dyn Invariant>>,
    pub(crate) violations: Vec<Violation>,
    are_checked: bool,
    /// The work of each job while all of them had tasks.
    pub(crate) shares: Observed,
}

/// The name of the invariant that is checked where the work is recorded.
const JOINED: &str = "waiting";

/// The maximum number of violations kept: the first one is the most informative.
const VIOLATIONS_MAX: usize = 8;

impl Invariants {
    pub(crate) fn new(facts: Facts) -> Self {
        let all: Vec<Box<dyn Invariant>> = vec![
            Box::new(i2_end::NeverTooEarly),
            Box::new(i3_answer::TheRightAnswer::default()),
            Box::new(i4_fence::OnlyMembersAndLeadersWrite::default()),
            Box::new(i5_autonomy::WorkGoesOn::default()),
            Box::new(i6_bounds::EverythingIsBounded),
            Box::new(i7_strangers::StrangersGetNothing),
            Box::new(i8_calm::NothingPanics),
            Box::new(i10_partition::NothingIsLost::default()),
            Box::new(blame::OnlyTheGuilty),
            Box::new(candidates::CandidatesCanLead::default()),
            Box::new(membership::EverybodyIsKnown::default()),
            Box::new(companions::CompanionsAreKept::default()),
            Box::new(workflow::f1_answer::AsSequential::default()),
            Box::new(workflow::f2_one_value::OneValue::default()),
            Box::new(workflow::f3_inputs::AllInputs::default()),
            Box::new(workflow::f4_taken_in::TakenInOnce::default()),
            Box::new(workflow::f5_needed::NothingTwice::default()),
            Box::new(workflow::f7_workers::WorkersAtMost::default()),
            Box::new(workflow::f8_stale::NeverBack::default()),
        ];
        Self { facts, all, violations: Vec::new(), are_checked: true, shares: Observed::default() }
    }

    /// Checks nothing, for measurements of large clusters: some checks examine all nodes at each write.
    pub(crate) fn unchecked(facts: Facts) -> Self {
        Self { are_checked: false, ..Self::new(facts) }
    }

    pub(crate) fn see(&mut self, now: u64, seen: &Seen<'_>) {
        if !self.are_checked {
            return;
        }
        if let Err(what) = self.facts.note(seen) {
            self.add(now, "I10 (partition)", what);
        }
        if let Seen::Worked { node, job, done } = seen {
            let unknown = self.facts.work(*node, *job, done);
            self.shares.note(&self.facts, now, *job);
            if let Some(broken) = i1_once::check(*node, &unknown) {
                self.add(now, i1_once::NAME, broken);
            }
            if let Some(state) = self.facts.joined_too_early(*node, *job, done) {
                let what = format!("{node} continues a waiting task before state {state:016x} is visited");
                self.add(now, JOINED, what);
            }
        }
        for place in 0..self.all.len() {
            if let Err(what) = self.all[place].see(&self.facts, now, seen) {
                let name = self.all[place].name();
                self.add(now, name, what);
            }
        }
    }

    pub(crate) fn add(&mut self, at_ms: u64, invariant: &'static str, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { at_ms, invariant, what });
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ms: {}", self.invariant, self.at_ms, self.what)
    }
}
