//! The data of a job that is over is released: by its leader at the end, or soon by another node.

use std::time::Duration;

use tokio::time::sleep;

use super::{LOOK_MS, Stage};
use crate::plan::Rates;

/// The maximum time until another node releases the data of a job whose leader has not, in milliseconds: twice the
/// interval of the nodes' housekeeping, since the node that does it may leave, and some time for its requests.
const RELEASE_MS: u64 = 130_000;

impl Stage<'_> {
    /// Ends the random faults, and waits until the data of all jobs that are over is released. A violation if this takes
    /// too long.
    pub(super) async fn check_released(&self) {
        self.world.with(|state| {
            state.rates = Rates { bytes_per_ms: state.rates.bytes_per_ms, ..Rates::default() };
        });
        let deadline = self.world.now() + RELEASE_MS;
        for job in self.jobs() {
            while !self.is_released(&job) {
                if self.failed() {
                    return;
                }
                if self.world.now() > deadline {
                    return self.violate(format!("{job} is over, and its data is not released"));
                }
                sleep(Duration::from_millis(LOOK_MS)).await;
            }
        }
    }

    /// Returns whether nothing of a job is left to release. A forgotten job, and one that was never completely
    /// submitted, has no record.
    fn is_released(&self, job: &str) -> bool {
        let Some(record) = self.record_of(job).filter(|record| record.state.is_over()) else { return true };
        let attempt = self.setup.cluster.job(job).attempt(record.attempt);
        self.world.with(|state| {
            let is_there = |path: &str| state.servers.read(path).is_some();
            !is_there(&attempt.base()) || is_there(&attempt.released())
        })
    }
}
