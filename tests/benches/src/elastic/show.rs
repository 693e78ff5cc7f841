//! The measurements as tables and as JSON.

use comfy_table::{Table, presets::ASCII_MARKDOWN};
use serde_json::{Value, json};

use super::{
    ADDED, NODES, PHASES_S,
    change::{Grown, within},
    random::Survived,
    stage::{Growth, Joined, Run},
};
use crate::{
    machine,
    measure::Sample,
    row::{Row, Target, table},
};

/// The share of the added nodes that must be at work.
const MOST_NODES: f64 = 0.9;
/// The minimum share of an ideal runtime's change.
const REACHED_MIN: f64 = 0.9;
/// The maximum time until most of the added nodes are at work, in seconds.
const AT_WORK_S: f64 = 1.0;

/// All measurements.
pub struct Measured {
    /// The job without added nodes.
    pub(super) alone: Vec<Run>,
    /// The job with nodes that were added for a while.
    pub(super) grown: Vec<(Growth, Vec<Run>)>,
    pub(super) random: Vec<Survived>,
    pub(super) states: u64,
}

impl std::fmt::Debug for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Measured").field("states", &self.states).finish_non_exhaustive()
    }
}

/// The figures of one setting.
pub(super) struct Cell {
    pub(super) growth: Growth,
    pub(super) seconds: Sample,
    pub(super) change: Sample,
    pub(super) ideal: Sample,
    reached: Sample,
    missing_s: Sample,
    /// The time from the start of each process until this share of them are members, and at work.
    member_s: Sample,
    at_work_s: Sample,
    /// The time from membership to work.
    idle_s: Sample,
    /// The time since the start of the first process.
    all_at_work_s: Sample,
    /// The time from the signal to leave until the node is no longer a member.
    left_s: Sample,
    /// The share of the processors' time that was used in the first second.
    busy: Sample,
    again: Sample,
}

impl Cell {
    fn new(growth: Growth, alone_s: f64, runs: &[Run]) -> Self {
        let of = |value: &dyn Fn(&Run) -> f64| Sample::of(runs.iter().map(value));
        let grown = |run: &Run| {
            let Run { phase_s, seconds, .. } = *run;
            Grown { nodes: NODES, added: growth.added, phase_s, alone_s, seconds }
        };
        // A node that never did it counts as if it did it when it was asked to leave.
        let most = |run: &Run, time: &dyn Fn(&Joined) -> Option<f64>| {
            let times = run.joined.iter().filter_map(time).collect();
            within(times, growth.added, MOST_NODES).unwrap_or(run.phase_s)
        };
        let since_start = |time: Option<f64>, node: &Joined| time.map(|time| time - node.started);
        Self {
            growth,
            seconds: of(&|run| run.seconds),
            change: of(&|run| grown(run).change()),
            ideal: of(&|run| grown(run).ideal_change()),
            reached: of(&|run| grown(run).reached()),
            missing_s: of(&|run| grown(run).missing_s()),
            member_s: of(&|run| most(run, &|node| since_start(node.member, node))),
            at_work_s: of(&|run| most(run, &|node| since_start(node.first, node))),
            idle_s: of(&|run| most(run, &|node| Some(node.first? - node.member?))),
            all_at_work_s: of(&|run| most(run, &|node| node.first)),
            left_s: of(&|run| most(run, &|node| Some(node.left? - run.phase_s))),
            busy: of(&|run| run.busy),
            again: of(&|run| run.again as f64),
        }
    }

    /// Returns the figures of the largest growth, with their targets.
    fn rows(&self) -> Vec<Row> {
        let growth = self.growth;
        let row =
            |what: &str, unit, target, sample| Row::new(format!("{growth}: {what}"), unit, target, sample);
        vec![
            row(
                "change in speedup ÷ that of an ideal runtime",
                "",
                Target::AtLeast(REACHED_MIN),
                self.reached,
            ),
            row("work that is missing, by added node", "s", Target::Told, self.missing_s),
            row("90 % at work, each from its start", "s", Target::AtMost(AT_WORK_S), self.at_work_s),
            row("90 % at work, from the start of the first", "s", Target::Told, self.all_at_work_s),
            row("90 % are members, each from its start", "s", Target::Told, self.member_s),
            row("90 % at work, each since it is a member", "s", Target::AtMost(AT_WORK_S), self.idle_s),
            row("90 % have ended their last state and left, from the signal", "s", Target::Told, self.left_s),
            row("processors busy in the first second", "", Target::Told, self.busy),
            row("states visited more than once", "", Target::Told, self.again),
        ]
    }
}

impl Measured {
    fn alone_s(&self) -> Sample {
        Sample::of(self.alone.iter().map(|run| run.seconds))
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        let alone_s = self.alone_s().median;
        self.grown.iter().map(|(growth, runs)| Cell::new(*growth, alone_s, runs)).collect()
    }

    /// Returns the figures that have targets, and related figures.
    fn rows(&self) -> Vec<Row> {
        let largest = |cell: &&Cell| cell.growth == Growth { added: ADDED[3], phase_s: PHASES_S[3] };
        let mut rows = vec![Row::new(format!("{NODES} nodes, the job"), "s", Target::Told, self.alone_s())];
        rows.extend(self.cells().iter().find(largest).map(Cell::rows).into_iter().flatten());
        rows
    }

    /// Returns the share of the nodes' time in which ten undisturbed nodes would have done the same work.
    fn used(&self, run: &Survived) -> f64 {
        let state_s = self.alone_s().median * NODES as f64 / self.states as f64;
        run.states as f64 * state_s / run.nodes_s
    }

    /// Returns the tables.
    pub fn tables(&self) -> String {
        let mut grown = Table::new();
        grown.load_preset(ASCII_MARKDOWN).set_header([
            "added",
            "for, s",
            "job, s",
            "change, %",
            "ideal, %",
            "÷ ideal",
            "missing by node, s",
            "90 % members, s",
            "90 % at work, s",
        ]);
        for cell in self.cells() {
            grown.add_row([
                format!("+{}", cell.growth.added),
                cell.growth.phase_s.to_string(),
                format!("{:.1}", cell.seconds.median),
                format!("{:.1} ({:.1} to {:.1})", cell.change.median, cell.change.least, cell.change.most),
                format!("{:.1}", cell.ideal.median),
                format!("{:.3}", cell.reached.median),
                format!("{:.2}", cell.missing_s.median),
                format!("{:.2}", cell.member_s.median),
                format!("{:.2}", cell.at_work_s.median),
            ]);
        }
        let mut random = Table::new();
        random.load_preset(ASCII_MARKDOWN).set_header([
            "seed",
            "joined",
            "left",
            "killed",
            "job, s",
            "done again, states",
            "of the nodes' time used",
        ]);
        for run in &self.random {
            random.add_row([
                run.seed.to_string(),
                run.joined.to_string(),
                run.left.to_string(),
                run.killed.to_string(),
                format!("{:.1}", run.seconds),
                format!("{} of {}", run.again, run.states),
                format!("{:.3}", self.used(run)),
            ]);
        }
        let random = if self.random.is_empty() { String::new() } else { format!("\n\n{random}") };
        format!("{grown}\n\n{}{random}", table(&self.rows()))
    }

    /// Returns all figures as JSON.
    pub fn json(&self) -> Value {
        let cell = |cell: Cell| {
            json!({
                "added": cell.growth.added,
                "phase_s": cell.growth.phase_s,
                "job_s": cell.seconds,
                "change_percent": cell.change,
                "ideal_percent": cell.ideal,
                "share_of_ideal": cell.reached,
                "missing_by_added_node_s": cell.missing_s,
                "most_members_s": cell.member_s,
                "most_at_work_s": cell.at_work_s,
                "most_at_work_since_member_s": cell.idle_s,
                "most_at_work_since_first_start_s": cell.all_at_work_s,
                "most_left_since_signal_s": cell.left_s,
                "processors_busy": cell.busy,
                "done_again_states": cell.again,
            })
        };
        let random = |run: &Survived| {
            json!({
                "seed": run.seed, "job_s": run.seconds, "states": run.states, "joined": run.joined,
                "left": run.left, "killed": run.killed, "done_again_states": run.again,
                "nodes_s": run.nodes_s, "used": self.used(run),
            })
        };
        json!({
            "machine": machine::describe(),
            "nodes": NODES,
            "states": self.states,
            "alone_s": self.alone_s(),
            "grown": self.cells().into_iter().map(cell).collect::<Value>(),
            "at_random": self.random.iter().map(random).collect::<Value>(),
            "figures": self.rows(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_that_never_worked_counts() {
        let growth = Growth { added: 2, phase_s: 10 };
        let joined =
            |first: Option<f64>| Joined { started: 0.5, member: Some(1.0), first, left: Some(10.25) };
        let run = |first| Run {
            seconds: 100.0,
            phase_s: 10.0,
            joined: vec![joined(Some(2.0)), joined(first)],
            busy: 0.5,
            again: 0,
            at_work: Vec::new(),
        };
        let cell = Cell::new(growth, 101.0, &[run(None), run(Some(3.0)), run(Some(3.0))]);
        assert_eq!((cell.at_work_s.median, cell.at_work_s.most), (2.5, 10.0));
        assert_eq!((cell.idle_s.median, cell.member_s.median, cell.left_s.median), (2.0, 0.5, 0.25));
        assert!((cell.missing_s.median - 5.0).abs() < 1e-9, "one second of ten nodes, for two");
    }
}
