//! The critical path of a program: the chain of dependent calls with the longest run time. The program cannot be
//! faster than this chain, however many workers it has.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
};

use serde::Serialize;
use taskwork::display::{Column, Field, JobDisplay, Picture, Row, Table, Unit};

use crate::{Diagram, Observation, Span};

/// The maximum number of steps, which bounds the size of displays and documents. The longest ones are kept.
const STEPS_MAX: usize = 100;

/// The chain of dependent calls with the longest run time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CriticalPath {
    /// Its calls, each of which reads an output of the one before: at most 100, those with the longest run times.
    pub steps: Vec<PathStep>,
    /// The number of its other calls.
    pub omitted: u64,
    /// The sum of the run times of all its calls, in microseconds.
    pub run_us: u64,
}

/// A call of the critical path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathStep {
    /// The number of the call.
    pub call: u64,
    /// The name of its task.
    pub task: String,
    /// The node that ran it; empty if it has not run yet.
    pub node: String,
    /// Its run time, in microseconds.
    pub run_us: u64,
    /// The time to move its inputs and to wait for a worker before, in microseconds.
    pub delay_us: u64,
}

impl Observation {
    /// Returns the critical path of the runs so far. `None` unless all calls with their dependencies and all runs were
    /// recorded.
    pub fn critical_path(&self) -> Option<CriticalPath> {
        let (calls, trace) = (self.calls.as_ref()?, self.trace.as_ref()?);
        let Chain { calls: chain, runs, run_us } = self.critical_chain()?;
        let step = |at: usize| {
            let (call, span) = (&calls.calls[at], runs.get(&calls.calls[at].number));
            let node = span.and_then(|span| trace.nodes.get(usize::from(span.node)));
            PathStep {
                call: call.number,
                task: calls.tasks.get(usize::from(call.task)).cloned().unwrap_or_default(),
                node: node.cloned().unwrap_or_default(),
                run_us: span.map_or(0, |span| span.run_us),
                delay_us: span.map_or(0, |span| span.transfer_us.saturating_add(span.wait_us)),
            }
        };
        let (steps, omitted) = longest(&chain.into_iter().map(step).collect::<Vec<_>>());
        Some(CriticalPath { steps, omitted, run_us })
    }

    /// Returns the graph of the calls, with the critical path if it is known; `None` if the calls were not recorded.
    pub fn diagram(&self) -> Option<Diagram> {
        let chain = self.critical_chain().map(|chain| chain.calls).unwrap_or_default();
        Some(self.calls.as_ref()?.drawn(&chain))
    }

    /// Returns the timeline of all workers as SVG, with the runs of the critical path if it is known; `None` if no run was
    /// recorded.
    pub fn timeline(&self) -> Option<String> {
        Some(self.trace.as_ref()?.timeline(&self.critical_calls()))
    }

    /// Returns the timeline in a size that can be published; `None` if no run was recorded.
    pub fn timeline_picture(&self) -> Option<Picture> {
        Some(self.trace.as_ref()?.timeline_picture(&self.critical_calls()))
    }

    /// Returns the numbers of the calls of the critical path.
    fn critical_calls(&self) -> BTreeSet<u64> {
        let (Some(calls), Some(chain)) = (&self.calls, self.critical_chain()) else { return BTreeSet::new() };
        chain.calls.into_iter().map(|at| calls.calls[at].number).collect()
    }

    /// Returns the critical path. `None` unless all calls with their dependencies and all runs were recorded.
    fn critical_chain(&self) -> Option<Chain<'_>> {
        let (calls, trace) = (self.calls.as_ref()?, self.trace.as_ref()?);
        if calls.omitted > 0 || trace.omitted > 0 {
            return None;
        }
        // The last run of a call counts, if it was repeated.
        let runs: HashMap<u64, &Span> = trace.spans.iter().map(|span| (span.call, span)).collect();
        let run_us = |at: usize| runs.get(&calls.calls[at].number).map_or(0, |span| span.run_us);
        let mut longest_us = vec![0_u64; calls.calls.len()];
        let mut before = vec![None; calls.calls.len()];
        // Calls are in the order in which they were made, so writers precede readers.
        let mut reads = calls.reads.iter().peekable();
        for at in 0..calls.calls.len() {
            while let Some(&(writer, _)) = reads.next_if(|(_, reader)| *reader as usize == at) {
                let writer = writer as usize;
                if writer < at && longest_us[writer] > longest_us[at] {
                    (longest_us[at], before[at]) = (longest_us[writer], Some(writer));
                }
            }
            longest_us[at] = longest_us[at].saturating_add(run_us(at));
        }
        // The earliest of several calls, so that the path of a running program ends with a call that has run.
        let mut next = (0..longest_us.len()).rev().max_by_key(|at| longest_us[*at]);
        let run_us = next.map_or(0, |at| longest_us[at]);
        let mut chain = Vec::new();
        while let Some(at) = next {
            chain.push(at);
            next = before[at];
        }
        chain.reverse();
        Some(Chain { calls: chain, runs, run_us })
    }
}

/// The positions of the calls of the critical path, the last run of each call, and the sum of the run times of the path.
struct Chain<'a> {
    calls: Vec<usize>,
    runs: HashMap<u64, &'a Span>,
    run_us: u64,
}

impl CriticalPath {
    /// Adds the length of the path and the table of its calls to a display.
    pub fn add_to(&self, display: JobDisplay) -> JobDisplay {
        let length = Field::new("critical_path_s", "critical path", Unit::Seconds, seconds(self.run_us));
        display.value(length).table(self.table())
    }

    /// Returns the table of its calls.
    pub fn table(&self) -> Table {
        let columns = vec![
            Column::new("call", "call", Unit::Text),
            Column::new("task", "task", Unit::Text),
            Column::new("node", "node", Unit::Text),
            Column::new("run_s", "run", Unit::Seconds),
            Column::new("delay_s", "delay", Unit::Seconds),
            Column::new("share", "share", Unit::Share),
        ];
        let row = |step: &PathStep| {
            Row::new()
                .with("call", step.call.to_string().as_str())
                .with("task", step.task.as_str())
                .with("node", step.node.as_str())
                .with("run_s", seconds(step.run_us))
                .with("delay_s", seconds(step.delay_us))
                .with("share", step.run_us as f64 / self.run_us.max(1) as f64)
        };
        let empty = Table::new("critical_path", "Critical path", columns);
        let mut table = self.steps.iter().map(row).fold(empty, Table::row);
        table.omitted = self.omitted;
        table
    }
}

/// Returns the longest steps in their order, and the number of the others.
fn longest(steps: &[PathStep]) -> (Vec<PathStep>, u64) {
    let mut kept: Vec<usize> = (0..steps.len()).collect();
    kept.sort_by_key(|at| Reverse(steps[*at].run_us));
    kept.truncate(STEPS_MAX);
    kept.sort_unstable();
    let omitted = (steps.len() - kept.len()) as u64;
    (kept.into_iter().map(|at| steps[at].clone()).collect(), omitted)
}

fn seconds(us: u64) -> f64 {
    us as f64 * 1e-6
}

#[cfg(test)]
mod tests {
    use super::{CriticalPath, STEPS_MAX};
    use crate::{Call, Calls, Observation, Span, State, Trace};

    /// Returns calls with these run times and reads.
    fn observed(run_us: &[u64], reads: &[(u32, u32)]) -> Observation {
        let call = |number| Call { number, task: 0, level: 0, state: State::Ended };
        let span = |(call, run_us): (u64, &u64)| Span {
            call,
            task: 0,
            node: 0,
            worker: 0,
            end_us: 0,
            transfer_us: 3,
            wait_us: 4,
            run_us: *run_us,
            is_well: true,
        };
        let calls = Calls {
            tasks: vec!["add".to_owned()],
            calls: (0..run_us.len() as u64).map(call).collect(),
            reads: reads.to_vec(),
            omitted: 0,
        };
        let spans = (0..).zip(run_us).map(span).collect();
        let (tasks, nodes) = (vec!["add".to_owned()], vec!["n-1".to_owned()]);
        let trace = Trace { tasks, nodes, spans, ..Trace::default() };
        Observation { calls: Some(calls), trace: Some(trace), ..Observation::default() }
    }

    #[test]
    fn critical_path_is_the_longest_chain() {
        //  0(5) ─▶ 2(10) ─▶ 4(1)
        //  1(9) ─▶ 3(7)  ─▶ 4
        let path = observed(&[5, 9, 10, 7, 1], &[(0, 2), (1, 3), (2, 4), (3, 4)]).critical_path().unwrap();
        assert_eq!(path.steps.iter().map(|step| step.call).collect::<Vec<_>>(), [1, 3, 4]);
        assert_eq!((path.run_us, path.steps[1].run_us, path.steps[1].delay_us), (17, 7, 7));
        assert_eq!((path.steps[0].task.as_str(), path.steps[0].node.as_str()), ("add", "n-1"));
    }

    #[test]
    fn critical_path_is_marked_in_graph_and_timeline() {
        let mut observed = observed(&[5, 9, 10, 7, 1], &[(0, 2), (1, 3), (2, 4), (3, 4)]);
        for (span, end_us) in observed.trace.as_mut().unwrap().spans.iter_mut().zip([5, 20, 15, 27, 28]) {
            span.end_us = end_us;
        }
        assert_eq!(observed.diagram().unwrap().path, [1, 3, 4]);
        let dot = observed.diagram().unwrap().dot();
        assert!(dot.contains("g1 -> g3 [penwidth=3") && dot.contains("g2 -> g4;"), "{dot}");
        let svg = observed.diagram().unwrap().svg();
        assert_eq!(
            svg.matches("stroke-width=\"3\"").count(),
            3 + 2 + 1,
            "boxes, arrows and the legend: {svg}"
        );
        let timeline = observed.timeline().unwrap();
        let marks = timeline.lines().find(|line| line.contains("critical")).unwrap();
        assert_eq!(marks.matches('M').count(), 3, "{marks}");
        // A call that has not run yet is no step.
        let unfinished = self::observed(&[5, 0], &[(0, 1)]).critical_path().unwrap();
        assert_eq!(unfinished.steps.iter().map(|step| step.call).collect::<Vec<_>>(), [0]);
        // Without all runs, the path is unknown.
        observed.trace.as_mut().unwrap().omitted = 1;
        assert!(observed.diagram().unwrap().path.is_empty());
        assert!(!observed.timeline().unwrap().contains("critical"));
    }

    #[test]
    fn critical_path_of_incomplete_record_is_unknown() {
        assert_eq!(Observation::default().critical_path(), None);
        let mut observed = observed(&[1], &[]);
        observed.trace.as_mut().unwrap().omitted = 1;
        assert_eq!(observed.critical_path(), None);
        assert_eq!(self::observed(&[], &[]).critical_path().map(|path| path.steps.len()), Some(0));
    }

    /// Returns the critical path of a chain of calls.
    fn chain(run_us: &[u64]) -> CriticalPath {
        let calls = u32::try_from(run_us.len()).unwrap();
        let reads: Vec<_> = (1..calls).map(|at| (at - 1, at)).collect();
        observed(run_us, &reads).critical_path().unwrap()
    }

    #[test]
    fn critical_path_keeps_the_longest_steps() {
        let run_us: Vec<u64> = (1..=2 * STEPS_MAX as u64).collect();
        let path = chain(&run_us);
        assert_eq!((path.steps.len(), path.omitted), (STEPS_MAX, STEPS_MAX as u64));
        assert_eq!(path.run_us, run_us.iter().sum::<u64>());
        let table = path.table();
        assert_eq!((table.rows.len(), table.omitted), (STEPS_MAX, STEPS_MAX as u64));
        assert!(table.to_string().lines().nth(1).unwrap().starts_with("100 "), "{table}");
    }

    #[test]
    fn critical_path_of_many_equal_calls_is_a_small_document() {
        let path = chain(&vec![7; 20_000]);
        assert_eq!((path.steps.len(), path.omitted, path.run_us), (STEPS_MAX, 19_900, 140_000));
        assert!(path.steps.is_sorted_by_key(|step| step.call));
        let bytes = serde_json::to_vec(&path).unwrap().len();
        assert!(bytes < 16 << 10, "{bytes} bytes");
    }
}
