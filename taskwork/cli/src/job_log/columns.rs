//! The columns of the log: their names, widths and contents.

use std::time::Duration;

use taskwork::{
    display::{Cell, Unit},
    report::Figures,
};

use super::numbers::{UNKNOWN, cell_text, per_cent, seconds};

/// A column of the log that a framework adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogColumn {
    label: &'static str,
    unit: Unit,
    width: usize,
    is_marked: bool,
}

impl LogColumn {
    /// Creates a column with its width in characters. The label is one word.
    pub const fn new(label: &'static str, unit: Unit, width: usize) -> Self {
        Self { label, unit, width, is_marked: false }
    }

    /// Makes each new value due at once, with a mark at the end of its line.
    #[must_use]
    pub const fn marked(self) -> Self {
        Self { is_marked: true, ..self }
    }

    fn title(&self) -> String {
        let unit = match self.unit {
            Unit::Share => "[%]",
            Unit::Seconds => "[s]",
            Unit::Bytes => "[B]",
            _ => "",
        };
        format!("{}{unit}", self.label)
    }
}

/// The columns of a kind of job.
pub(super) struct Columns {
    /// The unit of work; without one there are no columns about work.
    work: Option<&'static str>,
    own: Vec<LogColumn>,
}

/// The values for a line.
pub(super) struct Moment {
    pub(super) elapsed: Duration,
    figures: Figures,
    nodes: Option<usize>,
    share: Option<f64>,
    own: Vec<Option<Cell>>,
}

impl Moment {
    pub(super) fn new(
        elapsed: Duration,
        figures: &Figures,
        nodes: Option<usize>,
        own: Vec<Option<Cell>>,
    ) -> Self {
        Self { elapsed, figures: *figures, nodes, share: figures.share(), own }
    }

    /// Sets the share that is done, for jobs that do not report it in their figures.
    pub(super) fn with_share(self, share: Option<f64>) -> Self {
        Self { share, ..self }
    }

    /// Returns the share that is done.
    pub(super) fn share(&self) -> Option<f64> {
        self.share
    }
}

impl Columns {
    pub(super) fn new(work: Option<&'static str>, own: Vec<LogColumn>) -> Self {
        Self { work, own }
    }

    /// Returns the value of the marked column.
    pub(super) fn marked<'a>(&self, moment: &'a Moment) -> Option<&'a Cell> {
        let at = self.own.iter().position(|column| column.is_marked)?;
        moment.own.get(at)?.as_ref()
    }

    /// Returns the names and widths. With a framework's columns those about work are narrower, so that a line of a search
    /// fits into 80 characters.
    fn all(&self) -> Vec<(String, usize)> {
        let is_narrow = !self.own.is_empty();
        let width = |wide, narrow| if is_narrow { narrow } else { wide };
        let column = |name: &str, width| Some((name.to_owned(), width));
        let work = |name, width| self.work.and_then(|_| column(name, width));
        let own = self.own.iter().map(|own| Some((own.title(), own.width)));
        let is_marked = self.own.iter().any(|own| own.is_marked);
        let before =
            [column("time[s]", 8), work(self.work.unwrap_or(""), width(14, 11)), work("open", width(7, 6))];
        let after = [
            work("done[%]", width(8, 7)),
            column("nodes", width(6, 5)),
            work("steals", width(8, 6)),
            if is_marked { column("new", 3) } else { None },
        ];
        before.into_iter().chain(own).chain(after).flatten().collect()
    }

    /// Returns the value of each column; `None` if it is unknown.
    fn values(&self, moment: &Moment, is_new: bool) -> Vec<Option<String>> {
        let figures = &moment.figures;
        let own = |(at, column): (usize, &LogColumn)| {
            let cell = moment.own.get(at).and_then(Option::as_ref);
            Some(cell.map(|cell| cell_text(cell, column.unit)))
        };
        let work = |value: Option<String>| self.work.map(|_| value);
        let is_marked = self.own.iter().any(|own| own.is_marked);
        let before = [
            Some(Some(seconds(moment.elapsed))),
            work(Some(figures.worked.to_string())),
            work(figures.open_tasks.map(|open| open.to_string())),
        ];
        let after = [
            work(moment.share.map(|share| per_cent(share, 1))),
            Some(moment.nodes.map(|nodes| nodes.to_string())),
            work(Some(figures.steals.to_string())),
            is_marked.then(|| is_new.then(|| "*".to_owned())),
        ];
        before.into_iter().chain(self.own.iter().enumerate().map(own)).chain(after).flatten().collect()
    }

    /// Returns the names. Scripts skip lines that start with `#`.
    pub(super) fn header(&self) -> String {
        let names = self.all().into_iter().map(|(name, _)| Some(name)).collect();
        let line = self.aligned(names);
        // The first column has room for it.
        format!("#{}", &line[1..])
    }

    pub(super) fn line(&self, moment: &Moment, is_new: bool) -> String {
        self.aligned(self.values(moment, is_new))
    }

    fn aligned(&self, values: Vec<Option<String>>) -> String {
        let all = self.all();
        debug_assert_eq!(values.len(), all.len(), "each column has a value");
        let columns = all.iter().zip(values).map(|((_, width), value)| {
            let value = value.unwrap_or_else(|| UNKNOWN.to_owned());
            format!("{value:>width$}")
        });
        columns.collect::<Vec<_>>().join(" ") + "\n"
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the columns of a search for the best solution.
    pub(crate) fn search() -> Columns {
        let own = vec![
            LogColumn::new("best", Unit::Number, 10).marked(),
            LogColumn::new("bound", Unit::Number, 10),
            LogColumn::new("gap", Unit::Share, 6),
        ];
        Columns::new(Some("states"), own)
    }

    fn figures() -> Figures {
        let mut figures = Figures::default();
        (figures.worked, figures.steals, figures.open_tasks) = (1_234_567, 12, Some(3));
        figures
    }

    #[test]
    fn columns_are_aligned_and_unknown_values_are_dashes() {
        let search = search();
        let own = vec![Some(Cell::Text("18707".to_owned())), Some(18_600.0.into()), Some(0.00572.into())];
        let at = |s, own| Moment::new(Duration::from_secs(s), &figures(), Some(4), own);
        let text =
            search.header() + &search.line(&at(1, own), true) + &search.line(&at(12_345, Vec::new()), false);
        assert_eq!(
            text,
            "#time[s]      states   open       best      bound gap[%] done[%] nodes steals new\n\
             \x20    1.0     1234567      3      18707      18600   0.57       -     4     12   *\n\
             \x2012345.0     1234567      3          -          -      -       -     4     12   -\n"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 81), "it fits into a terminal");
    }

    #[test]
    fn job_has_columns_about_work_or_of_its_framework() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let at = |own| Moment::new(Duration::from_secs(2), &figures(), Some(2), own);
        let work = Columns::new(Some("states"), Vec::new());
        assert_eq!(words(&work.header()), ["#time[s]", "states", "open", "done[%]", "nodes", "steals"]);
        assert_eq!(words(&work.line(&at(Vec::new()), false)), ["2.0", "1234567", "3", "-", "2", "12"]);
        let own = Columns::new(None, vec![LogColumn::new("calls", Unit::Count, 8)]);
        assert_eq!(words(&own.header()), ["#time[s]", "calls", "nodes"]);
        assert_eq!(words(&own.line(&at(vec![Some(10_u64.into())]), false)), ["2.0", "10", "2"]);
        assert_eq!(words(&own.line(&at(vec![None, Some(1_u64.into())]), false)), ["2.0", "-", "2"]);
    }
}
