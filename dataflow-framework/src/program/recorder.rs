//! Records the runs of calls for a trace.

use dataflow_view::{Instant, Span, Trace};

use crate::{core::Member, node::Timing};

/// The maximum number of events of nodes in a trace.
const INSTANTS_MAX: usize = 10_000;

/// The recorded runs of calls and events of members.
#[derive(Debug)]
pub(super) struct Recorder {
    /// The start of the program, in microseconds by the clock of its node.
    begun_us: u64,
    /// The maximum number of recorded runs.
    runs_max: usize,
    trace: Trace,
}

impl Recorder {
    pub(super) fn new(now_us: u64, runs_max: usize) -> Self {
        Self { begun_us: now_us, runs_max, trace: Trace::default() }
    }

    /// Records that a call has run.
    pub(super) fn ran(&mut self, now_us: u64, task: usize, member: Member, timing: Timing) {
        if self.trace.spans.len() >= self.runs_max {
            self.trace.omitted += 1;
            return;
        }
        let Timing { call, worker, transfer_us, wait_us, run_us, is_well } = timing;
        let task = u16::try_from(task).unwrap_or(u16::MAX);
        let (node, end_us) = (node(member), now_us.saturating_sub(self.begun_us));
        self.trace.spans.push(Span {
            call,
            task,
            node,
            worker,
            end_us,
            transfer_us,
            wait_us,
            run_us,
            is_well,
        });
    }

    /// Returns whether runs were left out because of the limit.
    pub(super) fn is_full(&self) -> bool {
        self.trace.omitted > 0
    }

    /// Records an event of a member.
    pub(super) fn happened(&mut self, now_us: u64, member: Member, what: &str) {
        if self.trace.instants.len() < INSTANTS_MAX {
            let at_us = now_us.saturating_sub(self.begun_us);
            self.trace.instants.push(Instant { at_us, node: node(member), what: what.to_owned() });
        }
    }

    /// Returns the trace, with the names of tasks and members.
    pub(super) fn trace(&self, tasks: Vec<String>, name: impl Fn(Member) -> String) -> Trace {
        let nodes = self.trace.spans.iter().map(|span| span.node);
        let nodes = nodes.chain(self.trace.instants.iter().map(|instant| instant.node)).max().unwrap_or(0);
        let nodes = (0..=nodes).map(|node| name(Member(u32::from(node)))).collect();
        Trace { tasks, nodes, ..self.trace.clone() }
    }
}

fn node(Member(number): Member) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
