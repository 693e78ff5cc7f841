//! The calls of a program by task and state, and their costs.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::units::{bytes, count, time};

/// The calls of a program so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Its tasks, in the order in which they were first called.
    pub tasks: Vec<TaskSummary>,
    /// The nodes that run calls.
    pub nodes: u32,
    /// Their workers.
    pub workers: u32,
}

/// The calls of one task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskSummary {
    /// The name of the task.
    pub task: String,
    /// The calls with missing inputs.
    pub waiting: u64,
    /// The calls that wait for a worker.
    pub ready: u64,
    /// The calls assigned to a node: they run, or are next.
    pub running: u64,
    /// The completed calls, including those completed before a restart of the program.
    pub ended: u64,
    /// The calls that failed permanently, except for ignored failures.
    pub failed: u64,
    /// The calls that were not run because a dependency failed or they were cancelled.
    pub cancelled: u64,
    /// The calls with ignored failures.
    pub ignored: u64,
    /// The number of retries.
    pub retries: u64,
    /// The number of calls repeated because their outputs were lost.
    pub repeated: u64,
    /// The number of completed and timed runs.
    pub runs: u64,
    /// The total time of all runs, in nanoseconds.
    pub total_ns: u64,
    /// The longest time of a run, in nanoseconds.
    pub max_ns: u64,
    /// The amount of data moved to the nodes of calls, in bytes.
    pub moved_bytes: u64,
}

impl TaskSummary {
    /// Returns the number of calls.
    pub fn calls(&self) -> u64 {
        self.unfinished() + self.ended + self.failed + self.cancelled
    }

    /// Returns the number of calls without an outcome.
    pub fn unfinished(&self) -> u64 {
        self.waiting + self.ready + self.running
    }

    /// Returns the mean time of a run, in nanoseconds; 0 if there was none.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.runs).unwrap_or(0)
    }

    fn add(&mut self, other: &Self) {
        self.waiting += other.waiting;
        self.ready += other.ready;
        self.running += other.running;
        self.ended += other.ended;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.ignored += other.ignored;
        self.retries += other.retries;
        self.repeated += other.repeated;
        self.runs += other.runs;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.moved_bytes += other.moved_bytes;
    }

    /// Formats the states with their numbers of calls.
    fn states(&self) -> String {
        let states = [
            (self.waiting, "waiting"),
            (self.ready, "ready"),
            (self.running, "running"),
            (self.ended, "ended"),
            (self.failed, "failed"),
            (self.cancelled, "cancelled"),
        ];
        let states = states.iter().filter(|(number, _)| *number > 0);
        let states: Vec<_> = states.map(|(number, state)| format!("{} {state}", count(*number))).collect();
        if states.is_empty() { "none".to_owned() } else { states.join(", ") }
    }
}

impl Summary {
    /// Returns the sums over all tasks.
    pub fn total(&self) -> TaskSummary {
        let mut total = TaskSummary { task: "all".to_owned(), ..TaskSummary::default() };
        for task in &self.tasks {
            total.add(task);
        }
        total
    }

    /// Returns the summary that a node published for a program.
    pub fn shown(sight: &Value) -> Option<Self> {
        Self::deserialize(&sight["workflow"]["summary"]).ok()
    }

    /// Returns the tasks as JSON, for scripts.
    pub fn json(&self) -> Value {
        json!(self.tasks)
    }

    /// Returns a line of progress: the calls by their states.
    pub fn line(&self) -> String {
        let nodes = if self.nodes > 1 { format!(" on {} nodes", self.nodes) } else { String::new() };
        format!("{} calls{nodes}: {}", count(self.total().calls()), self.total().states())
    }

    /// Returns a line of progress by task, for tasks with unfinished or failed calls.
    pub fn line_by_task(&self) -> String {
        let tasks = self.tasks.iter().filter(|task| task.unfinished() > 0 || task.failed > 0);
        let tasks: Vec<_> = tasks.map(|task| format!("{}: {}", task.task, task.states())).collect();
        if tasks.is_empty() { self.line() } else { tasks.join("; ") }
    }

    /// Returns a table with a line for each task, and one for all of them if there are several.
    pub fn table(&self) -> String {
        const COLUMNS: [&str; 11] = [
            "TASK", "CALLS", "WAITING", "READY", "RUNNING", "FAILED", "REPEATED", "MEAN", "MAX", "TOTAL",
            "MOVED",
        ];
        let total = self.total();
        let several = self.tasks.len() > 1;
        let rows = self.tasks.iter().chain(several.then_some(&total));
        let rows = rows.map(|task| {
            let again = task.repeated + task.retries;
            let failed = task.failed + task.cancelled + task.ignored;
            let numbers = [task.calls(), task.waiting, task.ready, task.running, failed, again].map(count);
            let times = [task.mean_ns(), task.max_ns, task.total_ns].map(time);
            let mut row = vec![task.task.clone()];
            row.extend(numbers.into_iter().chain(times).chain([bytes(task.moved_bytes)]));
            row
        });
        let head = COLUMNS.map(str::to_owned).to_vec();
        columns(&[head].into_iter().chain(rows).collect::<Vec<_>>())
    }
}

/// Aligns the columns of a table: the first one to the left, all others to the right.
fn columns(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing into a string cannot fail.
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Summary, TaskSummary};

    fn summary() -> Summary {
        let block = TaskSummary {
            task: "block".to_owned(),
            ended: 100,
            runs: 101,
            repeated: 1,
            total_ns: 101_000_000,
            max_ns: 5_000_000,
            ..TaskSummary::default()
        };
        let multiply = TaskSummary {
            task: "multiply".to_owned(),
            waiting: 900,
            ready: 90,
            running: 4,
            failed: 2,
            cancelled: 4,
            moved_bytes: 3 << 20,
            ..TaskSummary::default()
        };
        Summary { tasks: vec![block, multiply], nodes: 3, workers: 4 }
    }

    #[test]
    fn progress_line_counts_calls_by_state() {
        let line =
            "1,100 calls on 3 nodes: 900 waiting, 90 ready, 4 running, 100 ended, 2 failed, 4 cancelled";
        assert_eq!(summary().line(), line);
        assert_eq!(
            summary().line_by_task(),
            "multiply: 900 waiting, 90 ready, 4 running, 2 failed, 4 cancelled",
            "completed tasks are omitted"
        );
        assert_eq!(Summary::default().line(), "0 calls: none");
    }

    #[test]
    fn table_has_line_per_task_and_total() {
        let table = "\
TASK      CALLS  WAITING  READY  RUNNING  FAILED  REPEATED     MEAN      MAX   TOTAL     MOVED
block       100        0      0        0       0         1  1.00 ms  5.00 ms  101 ms       0 B
multiply  1,000      900     90        4       6         0     0 ns     0 ns    0 ns  3.00 MiB
all       1,100      900     90        4       6         1  1.00 ms  5.00 ms  101 ms  3.00 MiB
";
        assert_eq!(summary().table(), table);
    }
}
