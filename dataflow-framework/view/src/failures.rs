//! The failed calls of a program, with their reasons.

use serde::{Deserialize, Serialize};
use taskwork::display::{Column, Row, Table, Unit};

/// The maximum number of failed calls with reasons.
pub const FAILURES_MAX: usize = 20;

/// The maximum length of a reason, in characters: that of a cell of a display.
const REASON_CHARS_MAX: usize = 300;

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCall {
    /// Its number, for a nested call with the positions that lead to it, such as `7.0.2`.
    pub call: String,
    /// The name of its task.
    pub task: String,
    /// The error, on one line.
    pub reason: String,
}

impl FailedCall {
    /// Creates a failed call of the program, or with a `path` a nested one.
    pub fn new(call: u64, path: &[u64], task: &str, reason: &str) -> Self {
        let call = path.iter().fold(call.to_string(), |call, position| format!("{call}.{position}"));
        let mut reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((end, _)) = reason.char_indices().nth(REASON_CHARS_MAX) {
            reason.truncate(end);
        }
        Self { call, task: task.to_owned(), reason }
    }
}

/// Returns the table of failed calls, of which there are `number`.
pub(crate) fn table(failures: &[FailedCall], number: u64) -> Table {
    let columns = vec![
        Column::new("call", "call", Unit::Text),
        Column::new("task", "task", Unit::Text),
        Column::new("reason", "reason", Unit::Text),
    ];
    let row = |FailedCall { call, task, reason }: &FailedCall| {
        Row::new().with("call", call.as_str()).with("task", task.as_str()).with("reason", reason.as_str())
    };
    let mut table =
        failures.iter().map(row).fold(Table::new("failures", "Failed calls", columns), Table::row);
    table.omitted = number.saturating_sub(failures.len() as u64);
    table
}

#[cfg(test)]
mod tests {
    use super::{FailedCall, REASON_CHARS_MAX, table};

    #[test]
    fn failed_calls_have_path_and_reason_on_one_line() {
        let failed = FailedCall::new(7, &[0, 2], "read", "no such file:\n  a.txt");
        assert_eq!((failed.call.as_str(), failed.reason.as_str()), ("7.0.2", "no such file: a.txt"));
        let long = FailedCall::new(8, &[], "read", &"é".repeat(REASON_CHARS_MAX + 1));
        assert_eq!(long.reason.chars().count(), REASON_CHARS_MAX);
        let table = table(&[failed], 3);
        assert_eq!(
            table.to_string(),
            "CALL   TASK  REASON\n7.0.2  read  no such file: a.txt\nand 2 more rows\n"
        );
    }
}
