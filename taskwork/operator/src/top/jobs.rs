//! The list of jobs for the selection.

use taskwork::view::Snapshot;

use super::{keys::Step, state::Window};

/// The state of the selection.
#[derive(Debug, Default)]
pub(super) struct Chooser {
    /// A part of an id, a name, a program or a stage.
    pub(super) filter: String,
    /// The id of the selected job; `None` is the first entry, which stands for the running job.
    selected: Option<String>,
    pub(super) window: Window,
}

/// Returns the entries of the list: the open jobs in the order of their submission, then the finished ones, the latest
/// first. The first entry, `None`, stands for the running job.
pub(super) fn jobs<'a>(snapshot: &'a Snapshot, filter: &str) -> Vec<Option<&'a str>> {
    let filter = filter.to_lowercase();
    let fits = |text: &str| text.to_lowercase().contains(&filter);
    let found = snapshot.jobs.iter().filter(|(id, job)| {
        let (about, record) = (&job.about, job.about.record.as_deref());
        filter.is_empty()
            || fits(id)
            || fits(about.stage.text())
            || record.is_some_and(|record| fits(&record.name) || fits(&record.program))
    });
    let (open, over): (Vec<_>, Vec<_>) = found.partition(|(_, job)| job.about.stage.is_open());
    let first = filter.is_empty().then_some(None);
    let ids = open.into_iter().chain(over.into_iter().rev()).map(|(id, _)| Some(id.as_str()));
    first.into_iter().chain(ids).collect()
}

impl Chooser {
    /// Starts with a job selected.
    pub(super) fn at(job: Option<String>) -> Self {
        Self { selected: job, ..Self::default() }
    }

    /// Returns the index of the selected job.
    pub(super) fn place(&self, snapshot: &Snapshot) -> usize {
        let jobs = jobs(snapshot, &self.filter);
        jobs.iter().position(|id| *id == self.selected.as_deref()).unwrap_or(0)
    }

    pub(super) fn step(&mut self, step: Step, snapshot: &Snapshot) {
        let jobs = jobs(snapshot, &self.filter);
        let to = self.window.step(self.place(snapshot), step, jobs.len());
        self.selected = jobs.get(to).copied().flatten().map(str::to_owned);
    }
}
