//! The log of a node's work on jobs: periodic progress reports, and a summary at the end.

use tokio::time::Instant;

use super::{Active, SeatJobs};
use crate::{
    figures::Figures,
    id::{JobId, NodeId},
    shell::driver::Ended,
};

impl SeatJobs<'_> {
    pub(super) fn expect_report(&mut self) {
        self.report_at = self.setup.report_every.map(|every| Instant::now() + every);
    }

    /// Logs the node's progress in each of its jobs.
    pub(super) fn report(&mut self) {
        self.active.iter().for_each(|active| report(self.seat.node, active));
        self.expect_report();
    }
}

/// Logs a node's progress in a job. Unknown values are omitted.
fn report(node: NodeId, Active { job, running, since, .. }: &Active) {
    let figures = running.figures();
    tracing::info!(
        %node, %job, seconds = since.elapsed().as_secs(), worked = figures.worked, open = figures.open_tasks,
        bound = figures.outlook.known(), done_here = figures.share(), nodes = running.members_known(),
        tasks = figures.tasks, steals = figures.steals, searching = searching(&figures), "the node is at work"
    );
}

/// Logs the summary of a node's work on a job.
pub(super) fn closed_with(node: NodeId, job: &JobId, ended: Ended, figures: &Figures) {
    let times = figures.times;
    let [searching_s, looking_s, starting_s, ending_s] =
        [times.searching_ns, times.looking_ns, times.starting_ns, times.handling_ns].map(seconds);
    tracing::info!(
        %node, %job, ?ended, worked = figures.worked, tasks = figures.tasks, steals = figures.steals,
        transactions = figures.transactions, searching_s, looking_s, starting_s, ending_s,
        "the node's work on the job has ended"
    );
}

/// Returns the fraction of the workers' time spent searching; `None` before any time was recorded.
fn searching(figures: &Figures) -> Option<f64> {
    let (part, whole) = (figures.times.searching_ns, figures.times.total_ns());
    (whole > 0).then(|| (1e3 * part as f64 / whole as f64).round() / 1e3)
}

/// Converts nanoseconds to seconds, with a resolution of 1 ms.
fn seconds(ns: u64) -> f64 {
    (ns / 1_000_000) as f64 / 1e3
}
