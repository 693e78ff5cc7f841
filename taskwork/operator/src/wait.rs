//! `taskwork wait`.

use std::process::ExitCode;

use taskwork::{JobId, client::JobState};
use taskwork_cli::Failure;

use super::{act, connection::Connection};

/// Waits for the end of a job, and prints its result. If tasks were set aside, the exit code is 1.
pub(super) async fn run(connection: &Connection, id: &JobId) -> Result<ExitCode, Failure> {
    let record = connection.client.wait(id).await?;
    let reason = record.reason.as_deref().unwrap_or("for a reason that was not recorded");
    match record.state {
        JobState::Failed => Err(Failure::failed(format!("job {id} has failed: {reason}"))),
        JobState::Cancelled => Err(Failure::failed(format!("job {id} was cancelled: {reason}"))),
        _ => act::result(connection, id).await,
    }
}
