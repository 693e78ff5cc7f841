//! The calls of a program by task and state, and their costs.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use taskwork::display::{Column, Field, JobDisplay, Row, Table, Unit, count};

use crate::failures::{self, FailedCall};

/// The name of the table of tasks in a display.
const TASKS: &str = "tasks";

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
    /// The first failed calls, at most [`FAILURES_MAX`](crate::FAILURES_MAX).
    pub failures: Vec<FailedCall>,
}

/// The calls of one task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskSummary {
    /// The name of the task.
    pub task: String,
    /// The calls with missing inputs.
    pub waiting: u64,
    /// The calls that wait for a worker, assigned to a node or not.
    pub ready: u64,
    /// The calls that run: they have a worker of the node to which they are assigned, or wait for calls that they made.
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
    /// The number of calls that did not run, because their outputs were in a cache.
    pub cached: u64,
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
        let over = [self.ended, self.failed, self.cancelled];
        over.into_iter().fold(self.unfinished(), u64::saturating_add)
    }

    /// Returns the number of calls without an outcome.
    pub fn unfinished(&self) -> u64 {
        self.waiting.saturating_add(self.ready).saturating_add(self.running)
    }

    /// Returns the mean time of a run, in nanoseconds; 0 if there was none.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.runs).unwrap_or(0)
    }

    /// Adds another summary, which may come from another process.
    fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.waiting, other.waiting),
            (&mut self.ready, other.ready),
            (&mut self.running, other.running),
            (&mut self.ended, other.ended),
            (&mut self.failed, other.failed),
            (&mut self.cancelled, other.cancelled),
            (&mut self.ignored, other.ignored),
            (&mut self.retries, other.retries),
            (&mut self.repeated, other.repeated),
            (&mut self.cached, other.cached),
            (&mut self.runs, other.runs),
            (&mut self.total_ns, other.total_ns),
            (&mut self.moved_bytes, other.moved_bytes),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Returns its row in the table of the tasks.
    fn row(&self) -> Row {
        let seconds = |ns: u64| ns as f64 * 1e-9;
        let counts = [
            ("calls", self.calls()),
            ("waiting", self.waiting),
            ("ready", self.ready),
            ("running", self.running),
            ("ended", self.ended),
            ("failed", self.failed),
            ("cancelled", self.cancelled),
            ("ignored", self.ignored),
            ("retries", self.retries),
            ("repeated", self.repeated),
            ("cached", self.cached),
            ("runs", self.runs),
            ("moved_bytes", self.moved_bytes),
        ];
        let row = counts.into_iter().fold(Row::new(), |row, (name, count)| row.with(name, count));
        let row = row.with("task", self.task.as_str());
        let row = match self.calls() {
            0 => row,
            calls => row.with("done", (calls - self.unfinished()) as f64 / calls as f64),
        };
        match self.runs {
            0 => row,
            _ => row
                .with("mean_s", seconds(self.mean_ns()))
                .with("max_s", seconds(self.max_ns))
                .with("total_s", seconds(self.total_ns)),
        }
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
        let cached = match self.cached {
            0 => String::new(),
            cached => format!(" ({} from the cache)", count(cached)),
        };
        if states.is_empty() { "none".to_owned() } else { states.join(", ") + &cached }
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

    /// Returns the description for displays: the calls by state, and the tables of the failures, if any, and the tasks.
    pub fn display(&self) -> JobDisplay {
        let total = self.total();
        let values = [
            ("calls", total.calls()),
            ("waiting", total.waiting),
            ("ready", total.ready),
            ("running", total.running),
            ("ended", total.ended),
            ("failed", total.failed),
            ("cancelled", total.cancelled),
            ("nodes", self.nodes.into()),
            ("workers", self.workers.into()),
        ];
        let values = values.map(|(name, count)| Field::new(name, name, Unit::Count, count));
        let display = values.into_iter().fold(JobDisplay::new(), JobDisplay::value);
        let failed = self.failures.first().map(|_| failures::table(&self.failures, total.failed));
        failed.into_iter().fold(display, JobDisplay::table).table(self.table())
    }

    /// Reads a summary, without its failures, from a display; `None` if the table of tasks or a number is missing.
    pub fn of_display(display: &JobDisplay) -> Option<Self> {
        let count = |name| u32::try_from(display.count_of(name)?).ok();
        let table = display.tables.iter().find(|table| table.name == TASKS)?;
        let task = |row: &Row| TaskSummary::deserialize(json!(row)).ok();
        let tasks = table.rows.iter().filter_map(task).collect();
        Some(Self { tasks, nodes: count("nodes")?, workers: count("workers")?, failures: Vec::new() })
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

    /// Returns a table with a row for each task, and the sums if there are several.
    pub fn table(&self) -> Table {
        let count = |name| Column::new(name, name, Unit::Count);
        let seconds = |name, label| Column::new(name, label, Unit::Seconds);
        let columns = vec![
            Column::new("task", "task", Unit::Text),
            Column::new("done", "done", Unit::Share),
            count("calls"),
            count("waiting"),
            count("ready"),
            count("running"),
            count("ended"),
            count("failed"),
            count("cancelled").rare(),
            count("ignored").rare(),
            count("retries").rare(),
            count("repeated").rare(),
            count("cached").rare(),
            count("runs"),
            seconds("mean_s", "mean"),
            seconds("max_s", "max"),
            seconds("total_s", "total"),
            Column::new("moved_bytes", "moved", Unit::Bytes),
        ];
        let table = Table::new(TASKS, "Calls by task", columns);
        let table = self.tasks.iter().map(TaskSummary::row).fold(table, Table::row);
        if self.tasks.len() > 1 { table.total(self.total().row()) } else { table }
    }
}

#[cfg(test)]
mod tests {
    use taskwork::display::JobDisplay;

    use super::{FailedCall, Summary, TaskSummary};

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
        let failures = vec![FailedCall::new(3, &[], "multiply", "it panicked")];
        Summary { tasks: vec![block, multiply], nodes: 3, workers: 4, failures }
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
        let all = TaskSummary { ended: 1_200, cached: 1_000, ..TaskSummary::default() };
        let all = Summary { tasks: vec![all], ..Summary::default() };
        assert_eq!(all.line(), "1,200 calls: 1,200 ended (1,000 from the cache)");
    }

    #[test]
    fn table_has_line_per_task_and_total() {
        let table = "\
TASK         DONE  CALLS  WAITING  READY  RUNNING  ENDED  FAILED  CANCELLED  REPEATED  RUNS     MEAN      MAX   TOTAL     MOVED
block     100.0 %    100        0      0        0    100       0          0         1   101  1.00 ms  5.00 ms  101 ms       0 B
multiply    0.6 %  1,000      900     90        4      0       2          4         0     0        -        -       -  3.00 MiB
all         9.6 %  1,100      900     90        4    100       2          4         1   101  1.00 ms  5.00 ms  101 ms  3.00 MiB
";
        assert_eq!(summary().table().to_string(), table);
    }

    #[test]
    fn display_contains_calls_by_state_and_task() {
        let summary = summary();
        let display = summary.display();
        assert_eq!((display.count_of("calls"), display.count_of("running")), (Some(1_100), Some(4)));
        assert_eq!((display.tables[0].name.as_str(), display.tables[0].omitted), ("failures", 1));
        let read = Summary::of_display(&display).unwrap();
        assert_eq!((read.line(), read.line_by_task()), (summary.line(), summary.line_by_task()));
        assert_eq!(Summary::of_display(&JobDisplay::new()), None);
    }
}
