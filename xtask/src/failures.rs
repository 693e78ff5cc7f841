//! The failures among the lines that a test harness prints, to repeat them at the end of a long log.

/// The maximum number of lines of one failure.
const LINES_MAX: usize = 12;

/// The maximum number of characters of one line.
const LINE_MAX: usize = 300;

/// Collects the names and first messages of failed tests from the output of libtest.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    lines: Vec<String>,
    /// The number of further lines of the current panic.
    left: usize,
    /// Whether the current lines belong to a failed test.
    in_section: bool,
}

impl Failures {
    /// Reads the next line.
    pub(crate) fn read(&mut self, line: &str) {
        let name = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----"));
        if let Some(name) = name {
            (self.in_section, self.left) = (true, 0);
            self.lines.push(name.trim_end_matches(" stdout").to_owned());
        } else if line == "failures:" || line.starts_with("test result:") {
            (self.in_section, self.left) = (false, 0);
        } else if self.in_section && (line.starts_with("Error: ") || is_panic(line)) {
            self.left = LINES_MAX;
        }
        if self.left > 0 && !line.is_empty() {
            self.left -= 1;
            self.lines.push(format!("    {}", line.chars().take(LINE_MAX).collect::<String>()));
        }
    }

    /// Returns the collected lines; empty if no test failed.
    pub(crate) fn text(&self) -> String {
        self.lines.join("\n")
    }
}

fn is_panic(line: &str) -> bool {
    line.starts_with("thread '") && line.contains("panicked at")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(output: &str) -> String {
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.read(line));
        failures.text()
    }

    #[test]
    fn failed_test_keeps_name_and_panic() {
        let output = "test good ... ok\ntest bad ... FAILED\n\nfailures:\n\n---- bad stdout ----\nnoise\n\n\
                      thread 'bad' panicked at a.rs:1:2:\none of two\nnote: set a variable\n\n\nfailures:\n    bad\n\n\
                      test result: FAILED. 1 passed; 1 failed\n";
        assert_eq!(
            text(output),
            "bad\n    thread 'bad' panicked at a.rs:1:2:\n    one of two\n    note: set a variable"
        );
    }

    #[test]
    fn failed_test_keeps_returned_error() {
        assert_eq!(
            text("---- bad stdout ----\nnoise\nError: no room\n\nfailures:\n"),
            "bad\n    Error: no room"
        );
    }

    #[test]
    fn long_panic_is_cut() {
        let output = format!(
            "---- bad stdout ----\nthread 'bad' panicked at a.rs:1:2:\n{}{}\n",
            "line\n".repeat(50),
            "x".repeat(5_000)
        );
        assert_eq!(text(&output).lines().count(), 1 + LINES_MAX);
        let output = format!("---- bad stdout ----\nthread 'bad' panicked at {}\n", "x".repeat(5_000));
        assert_eq!(text(&output).len(), "bad\n    ".len() + LINE_MAX);
    }

    #[test]
    fn passed_tests_leave_no_text() {
        assert_eq!(text("test good ... ok\n\ntest result: ok. 1 passed; 0 failed\n"), "");
        assert_eq!(text("thread 'worker' panicked at a.rs:1:2:\nan expected panic\n"), "");
    }
}
