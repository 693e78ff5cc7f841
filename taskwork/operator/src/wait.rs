//! `taskwork wait`.

use std::process::ExitCode;

use serde_json::json;
use taskwork::{JobId, client::JobState};
use taskwork_cli::{Failure, command::tell};

use super::{act, connection::Connection};

/// Waits for the end of jobs, and prints their results. If tasks were set aside, the exit code is 1; if a job failed or was
/// cancelled, that is the error, after the results of the others.
pub(super) async fn run(connection: &Connection, ids: &[JobId]) -> Result<ExitCode, Failure> {
    if let [id] = ids {
        ended(connection, id).await?;
        return act::result(connection, id).await;
    }
    let (mut first, mut is_incomplete) = (None, false);
    for id in ids {
        let result = match ended(connection, id).await {
            Ok(()) => connection.client.shown_result(id).await.map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        match result {
            Ok(result) => {
                if result.get("set_aside").is_some() {
                    is_incomplete = true;
                    tell(format_args!(
                        "note: job {id} is incomplete: tasks were set aside, see taskwork job {id}"
                    ));
                }
                let object = json!({ "job": id.as_str(), "result": result });
                connection.say_as_is(&object, || object.to_string());
            }
            Err(failure) if first.is_none() => first = Some(failure),
            Err(failure) => tell(format_args!("error: {failure}")),
        }
    }
    match first {
        Some(failure) => Err(failure),
        None if is_incomplete => Ok(ExitCode::FAILURE),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Waits for the end of a job.
async fn ended(connection: &Connection, id: &JobId) -> Result<(), Failure> {
    let record = connection.client.wait(id).await?;
    let reason = record.reason.as_deref().unwrap_or("for a reason that was not recorded");
    match record.state {
        JobState::Failed => Err(Failure::failed(format!("job {id} has failed: {reason}"))),
        JobState::Cancelled => Err(Failure::failed(format!("job {id} was cancelled: {reason}"))),
        _ => Ok(()),
    }
}
