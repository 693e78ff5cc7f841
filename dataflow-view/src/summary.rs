//! The calls of a program by task and state, and what they have cost.

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
    /// The calls whose inputs are not all there.
    pub waiting: u64,
    /// The calls that wait for a worker.
    pub ready: u64,
    /// The calls that were given to a node: they run, or will do so next.
    pub running: u64,
    /// The calls that have ended; also those that were ended before the program was started anew.
    pub ended: u64,
    /// The calls that have failed for good. A failure that is ignored is not among them.
    pub failed: u64,
    /// The calls that were not run, since something failed that they depend on, or they were cancelled.
    pub cancelled: u64,
    /// The calls that have failed, which was ignored.
    pub ignored: u64,
    /// How often a call was tried again.
    pub retries: u64,
    /// How often a call was run again because what it had written was lost.
    pub repeated: u64,
    /// How often a call was run to its end, and timed.
    pub runs: u64,
    /// The time of all runs together, in nanoseconds.
    pub total_ns: u64,
    /// The longest time of a run, in nanoseconds.
    pub max_ns: u64,
    /// The size of what had to be brought to the nodes of calls, in bytes.
    pub moved_bytes: u64,
}

impl TaskSummary {
    /// Returns the number of calls.
    pub fn calls(&self) -> u64 {
        self.unfinished() + self.ended + self.failed + self.cancelled
    }

    /// Returns the number of calls that have not ended in any way.
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

    /// Returns the states that calls are in, in words.
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

    /// Returns what a node shows of a program.
    pub fn shown(sight: &Value) -> Option<Self> {
        Self::deserialize(&sight["workflow"]["summary"]).ok()
    }

    /// Returns the tasks for scripts.
    pub fn json(&self) -> Value {
        json!(self.tasks)
    }

    /// Returns a line of progress: the calls by their states.
    pub fn line(&self) -> String {
        let nodes = if self.nodes > 1 { format!(" on {} nodes", self.nodes) } else { String::new() };
        format!("{} calls{nodes}: {}", count(self.total().calls()), self.total().states())
    }

    /// Returns the same for each task whose calls have not all ended.
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
    fn a_line_tells_how_many_calls_are_in_which_state() {
        let line =
            "1,100 calls on 3 nodes: 900 waiting, 90 ready, 4 running, 100 ended, 2 failed, 4 cancelled";
        assert_eq!(summary().line(), line);
        assert_eq!(
            summary().line_by_task(),
            "multiply: 900 waiting, 90 ready, 4 running, 2 failed, 4 cancelled",
            "what has ended needs no attention"
        );
        assert_eq!(Summary::default().line(), "0 calls: none");
    }

    #[test]
    fn a_table_has_a_line_for_each_task_and_one_for_all() {
        let table = "\
TASK      CALLS  WAITING  READY  RUNNING  FAILED  REPEATED     MEAN      MAX   TOTAL     MOVED
block       100        0      0        0       0         1  1.00 ms  5.00 ms  101 ms       0 B
multiply  1,000      900     90        4       6         0     0 ns     0 ns    0 ns  3.00 MiB
all       1,100      900     90        4       6         1  1.00 ms  5.00 ms  101 ms  3.00 MiB
";
        assert_eq!(summary().table(), table);
    }
}
