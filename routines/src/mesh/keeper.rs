//! The service job: a cluster has one for each store and release.

use std::{convert::Infallible, time::Duration};

use taskwork::{
    Client, ClientError, JobId, Labels,
    client::{Overview, records::JobRecord},
};
use tokio::time::sleep;

use super::Direct;
use crate::NAME;

/// The pause before a job that is over is replaced, or after an error.
const PAUSE: Duration = Duration::from_millis(500);

/// Keeps a service job running for nodes with a label and this version.
pub(crate) async fn keep(client: Client, label: Labels, version: String) -> Infallible {
    loop {
        let done = async {
            let job = find_or_submit(&client, &label, &version).await?;
            client.wait(&job).await
        };
        match done.await {
            Ok(record) => {
                tracing::warn!(state = ?record.state, reason = record.reason, "the service job is over; it is replaced");
            }
            Err(error) => tracing::debug!(%error, "the service job is not observed"),
        }
        sleep(PAUSE).await;
    }
}

/// Returns the service job with the lowest number, after it has submitted one if there was none.
async fn find_or_submit(client: &Client, label: &Labels, version: &str) -> Result<JobId, ClientError> {
    loop {
        let mut jobs = find(&client.overview().await?, label, version);
        if jobs.is_empty() {
            client.submit(Direct::job(label.clone())).await?;
            continue;
        }
        let first = jobs.remove(0);
        for job in jobs {
            // Two gateways have submitted one at the same time.
            client.cancel(&job, &format!("{first} is the service job")).await?;
        }
        return Ok(first);
    }
}

/// Returns the service jobs that are not over, in the order of their submission.
fn find(overview: &Overview, label: &Labels, version: &str) -> Vec<JobId> {
    let is_it = |record: &JobRecord| {
        let is_of_release = record.program == NAME && record.program_version == version;
        is_of_release && record.kind == super::KIND && record.require == *label && !record.state.is_over()
    };
    let jobs = overview.jobs.iter().filter(|job| job.record.as_ref().is_some_and(is_it));
    let mut jobs: Vec<JobId> = jobs.filter_map(|job| job.id.parse().ok()).collect();
    jobs.sort();
    jobs
}
