//! The numbers of two jobs side by side, formatted.

use std::time::Duration;

use super::facts::Facts;
use crate::table::{self, count};

/// The text for an unknown number.
const UNKNOWN: &str = "-";

/// A row: a name, both values, and the second divided by the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) values: [String; 2],
    pub(super) times: String,
}

/// Returns the rows of two jobs.
pub(super) fn of(both: &[Facts; 2]) -> Vec<Row> {
    let mut rows = Rows { both, rows: Vec::new() };
    rows.text("job", |of| Some(of.id.clone()));
    rows.text("name", |of| Some(of.name.clone()));
    rows.text("seen by", |of| Some(of.source.clone()));
    rows.text("program", |of| of.program.clone());
    rows.text("state", |of| Some(of.state.to_owned()));
    rows.text("attempt", |of| of.attempt.map(|attempt| attempt.to_string()));
    rows.number("time from submission", |of| of.took_s, seconds);
    rows.number("time at work", |of| of.ran_s, seconds);
    rows.number("work done", |of| of.worked.map(|n| n as f64), whole);
    rows.number("rate, units a second", |of| of.rate, rate);
    rows.number("highest rate", |of| of.rate_most, rate);
    rows.number("nodes", |of| of.nodes.map(|n| n as f64), whole);
    rows.number("lost nodes", |of| of.nodes_lost.map(|n| n as f64), whole);
    rows.number("maximum workers", |of| of.workers_most.map(f64::from), whole);
    rows.number("total time of its nodes", |of| of.node_time_s, seconds);
    rows.text_if_known("cost", cost);
    rows.number("share done", |of| of.share, per_cent);
    rows.number("best", |of| of.best, number);
    rows.number("bound", |of| of.bound, number);
    rows.number("gap", |of| of.gap, per_cent);
    rows.number("first solution after", |of| of.first_solution_s, seconds);
    rows.number("within 1 % of its best after", |of| of.near_its_best_s, seconds);
    rows.number("within 1 % of the best of both", |of| of.near_best_of_both_s, seconds);
    rows.number("tasks", |of| of.tasks.map(|n| n as f64), whole);
    rows.number("steal requests", |of| of.steal_requests.map(|n| n as f64), whole);
    rows.number("steals granted", |of| of.steals.map(|n| n as f64), whole);
    rows.number("tasks stolen", |of| of.stolen_tasks.map(|n| n as f64), whole);
    rows.number("a steal takes (median)", |of| of.steal_median_s, seconds);
    rows.number("requests to ZooKeeper", |of| of.zookeeper_requests.map(|n| n as f64), whole);
    rows.number("transactions", |of| of.transactions.map(|n| n as f64), whole);
    rows.number("  repeated", |of| of.transactions_retried.map(|n| n as f64), whole);
    rows.number("  per thousand tasks", |of| of.transactions_per_thousand_tasks, number);
    rows.number("a write takes (median)", |of| of.write_median_s, seconds);
    rows.number("  99th percentile", |of| of.write_p99_s, seconds);
    rows.number("time spent searching", |of| of.searching, per_cent);
    rows.number("  starting and completing tasks", |of| of.handling, per_cent);
    rows.number("  looking for work", |of| of.looking, per_cent);
    rows.number("  starting", |of| of.starting, per_cent);
    rows.rows
}

/// Returns the rows as a table.
pub(super) fn text(rows: &[Row]) -> String {
    let cells = |row: &Row| {
        let [a, b] = row.values.clone().map(|value| short(&value));
        vec![row.name.to_owned(), a, b, row.times.clone()]
    };
    table::table(&["", "#A", "#B", "#B / A"], rows.iter().map(cells))
}

struct Rows<'a> {
    both: &'a [Facts; 2],
    rows: Vec<Row>,
}

impl Rows<'_> {
    fn text(&mut self, name: &'static str, of: impl Fn(&Facts) -> Option<String>) {
        let values = self.both.each_ref().map(|facts| of(facts).unwrap_or_else(|| UNKNOWN.to_owned()));
        self.rows.push(Row { name, values, times: String::new() });
    }

    /// Adds a text that at least one job has.
    fn text_if_known(&mut self, name: &'static str, of: impl Fn(&Facts) -> Option<String>) {
        if self.both.iter().any(|facts| of(facts).is_some()) {
            self.text(name, of);
        }
    }

    /// Adds a number that at least one job has.
    fn number(
        &mut self,
        name: &'static str,
        of: impl Fn(&Facts) -> Option<f64>,
        format: impl Fn(f64) -> String,
    ) {
        let [a, b] = self.both.each_ref().map(|facts| of(facts).filter(|number| number.is_finite()));
        if a.is_none() && b.is_none() {
            return;
        }
        let times = a.zip(b).filter(|(a, b)| *a > 0.0 && *b >= 0.0).map(|(a, b)| b / a);
        let times =
            times.filter(|times| times.is_finite()).map(|times| format!("{times:.2}")).unwrap_or_default();
        let values = [a, b].map(|value| value.map_or_else(|| UNKNOWN.to_owned(), &format));
        self.rows.push(Row { name, values, times });
    }
}

/// Truncates a text for a table.
fn short(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    let mut shown: String = text.chars().take(CHARS_MAX).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// Returns the cost of a job in each currency.
fn cost(of: &Facts) -> Option<String> {
    let amounts = of.cost.as_ref()?.iter().map(|(currency, amount)| format!("{amount:.4} {currency}"));
    Some(amounts.collect::<Vec<_>>().join(" + "))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count is a whole number")]
fn whole(number: f64) -> String {
    count(number as u64)
}

fn number(number: f64) -> String {
    let size = number.abs();
    match size {
        _ if number.fract() == 0.0 && size < 1e15 => {
            format!("{}{}", if number < 0.0 { "-" } else { "" }, whole(size))
        }
        1e6..1e15 => format!("{}{}", if number < 0.0 { "-" } else { "" }, whole(size.round())),
        1e-3..1e6 => {
            let text = format!("{number:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => format!("{number:.4e}"),
    }
}

fn rate(a_second: f64) -> String {
    number(if a_second.abs() < 1e3 { a_second } else { a_second.round() })
}

fn seconds(s: f64) -> String {
    if s == 0.0 {
        return "0 s".to_owned();
    }
    if s < 1e-3 {
        return format!("{:.0} µs", s * 1e6);
    }
    if s < 1.0 {
        return format!("{:.1} ms", s * 1e3);
    }
    if s < 60.0 {
        return format!("{s:.1} s");
    }
    let time = Duration::try_from_secs_f64(s.round()).unwrap_or(Duration::MAX);
    humantime::format_duration(time).to_string()
}

fn per_cent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_readers() {
        for (given, shown) in [
            (0.0, "0"),
            (-3.0, "-3"),
            (18_707.0, "18,707"),
            (18_706.123_456, "18706.1235"),
            (12_345_678.9, "12,345,679"),
            (1e-9, "1.0000e-9"),
        ] {
            assert_eq!(number(given), shown);
        }
        for (given, shown) in
            [(0.000_012, "12 µs"), (0.25, "250.0 ms"), (59.0, "59.0 s"), (3_601.2, "1h 1s"), (0.0, "0 s")]
        {
            assert_eq!(seconds(given), shown);
        }
        assert_eq!([381_507.492_7, 12.5].map(rate), ["381,507", "12.5"]);
        assert_eq!(per_cent(0.123_45), "12.35 %");
    }

    #[test]
    fn control_characters_in_name_are_replaced() {
        let row = |name: &str| {
            let values = [name.to_owned(), String::new()];
            text(&[Row { name: "name", values, times: String::new() }])
        };
        let shown = row("a\u{1b}[2J\nb\u{9b}31m\u{202e}c");
        assert!(shown.contains("a?[2J b?31m?c"), "{shown:?}");
        assert_eq!(row(&"x".repeat(500)).matches('x').count(), 40);
    }
}
