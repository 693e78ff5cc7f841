//! The columns of the log: their names, widths and contents.

use std::time::Duration;

use taskwork::Figures;

use super::{
    numbers::{UNKNOWN, per_cent, seconds},
    telling::{Calls, Own},
};

/// The columns of a kind of job: names and widths.
pub(super) struct Columns(Vec<(&'static str, usize)>);

/// The values for a line.
pub(super) struct Moment {
    pub(super) elapsed: Duration,
    figures: Figures,
    nodes: Option<usize>,
    share: Option<f64>,
    own: Own,
}

impl Moment {
    pub(super) fn new(elapsed: Duration, figures: &Figures, nodes: Option<usize>, own: Own) -> Self {
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

    /// Returns the cost of the best solution.
    pub(super) fn best(&self) -> Option<&str> {
        match &self.own {
            Own::Search(quality) => quality.best.as_deref(),
            Own::Nothing | Own::Calls(_) => None,
        }
    }

    /// Returns the value of each column; `None` if it is unknown.
    fn values(&self, improved: bool) -> Vec<Option<String>> {
        let figures = &self.figures;
        let time = Some(seconds(self.elapsed));
        let nodes = self.nodes.map(|nodes| nodes.to_string());
        let done = self.share.map(|share| per_cent(share, 1));
        let work = [Some(figures.worked.to_string()), figures.open_tasks.map(|open| open.to_string())];
        let steals = Some(figures.steals.to_string());
        match &self.own {
            Own::Nothing => [time].into_iter().chain(work).chain([done, nodes, steals]).collect(),
            Own::Search(quality) => {
                let gap = quality.gap.map(|gap| per_cent(gap, 2));
                let found = [quality.best.clone(), quality.bound.clone(), gap];
                let new = improved.then(|| "*".to_owned());
                [time].into_iter().chain(work).chain(found).chain([done, nodes, steals, new]).collect()
            }
            Own::Calls(calls) => {
                let count = |of: fn(&Calls) -> u64| calls.as_ref().map(|calls| of(calls).to_string());
                let counts: [fn(&Calls) -> u64; 5] =
                    [|c| c.made, |c| c.ended, |c| c.running, |c| c.waiting, |c| c.failed];
                [time].into_iter().chain(counts.map(count)).chain([nodes]).collect()
            }
        }
    }
}

impl Columns {
    /// Returns the columns of any job.
    pub(super) fn work(unit: &'static str) -> Self {
        Self(vec![("time[s]", 8), (unit, 14), ("open", 7), ("done[%]", 8), ("nodes", 6), ("steals", 8)])
    }

    /// Returns the columns of a search for the best solution: at most 80 characters.
    pub(super) fn search(unit: &'static str) -> Self {
        Self(vec![
            ("time[s]", 8),
            (unit, 11),
            ("open", 6),
            ("best", 10),
            ("bound", 10),
            ("gap[%]", 6),
            ("done[%]", 7),
            ("nodes", 5),
            ("steals", 6),
            ("new", 3),
        ])
    }

    /// Returns the columns of a workflow.
    pub(super) fn calls() -> Self {
        Self(vec![
            ("time[s]", 8),
            ("calls", 8),
            ("ended", 8),
            ("running", 8),
            ("waiting", 8),
            ("failed", 7),
            ("nodes", 6),
        ])
    }

    /// Returns the names. Scripts skip lines that start with `#`.
    pub(super) fn header(&self) -> String {
        let names = self.0.iter().map(|(name, _)| Some((*name).to_owned())).collect();
        let line = self.aligned(names);
        // The first column has room for it.
        format!("#{}", &line[1..])
    }

    pub(super) fn line(&self, moment: &Moment, improved: bool) -> String {
        self.aligned(moment.values(improved))
    }

    fn aligned(&self, values: Vec<Option<String>>) -> String {
        debug_assert_eq!(values.len(), self.0.len(), "each column has a value");
        let columns = self.0.iter().zip(values).map(|(&(_, width), value)| {
            let value = value.unwrap_or_else(|| UNKNOWN.to_owned());
            format!("{value:>width$}")
        });
        columns.collect::<Vec<_>>().join(" ") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::course::Quality;

    fn figures() -> Figures {
        let mut figures = Figures::default();
        (figures.worked, figures.steals, figures.open_tasks) = (1_234_567, 12, Some(3));
        figures
    }

    #[test]
    fn columns_are_aligned_and_unknown_values_are_dashes() {
        let search = Columns::search("states");
        let quality = Quality::new(Some("18707"), Some(18_600.0), Some(0.00572));
        let at = |s, own| Moment::new(Duration::from_secs(s), &figures(), Some(4), own);
        let text = search.header()
            + &search.line(&at(1, Own::Search(quality)), true)
            + &search.line(&at(12_345, Own::Search(Quality::default())), false);
        assert_eq!(
            text,
            "#time[s]      states   open       best      bound gap[%] done[%] nodes steals new\n\
             \x20    1.0     1234567      3      18707      18600   0.57       -     4     12   *\n\
             \x2012345.0     1234567      3          -          -      -       -     4     12   -\n"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 81), "it fits into a terminal");
    }

    #[test]
    fn counting_has_no_cost_columns_and_workflow_has_calls() {
        let work = Columns::work("states");
        let line = work.line(&Moment::new(Duration::from_secs(2), &figures(), None, Own::Nothing), false);
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["2.0", "1234567", "3", "-", "-", "12"]);
        assert!(!work.header().contains("best") && work.header().contains("states"));
        let calls = Calls { made: 10, ended: 4, running: 2, waiting: 3, failed: 1 };
        let moment = |calls| Moment::new(Duration::from_secs(2), &figures(), Some(2), Own::Calls(calls));
        let line = Columns::calls().line(&moment(Some(calls)), false);
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["2.0", "10", "4", "2", "3", "1", "2"]);
        let line = Columns::calls().line(&moment(None), false);
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["2.0", "-", "-", "-", "-", "-", "2"]);
    }
}
