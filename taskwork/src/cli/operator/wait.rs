//! `taskwork wait`.

use zk::job::{JobRecord, JobState, JobWatch};

use super::{Desk, act, job::record};
use crate::{
    cli::{
        Failure,
        submit::{goes_on, unknown},
    },
    id::JobId,
};

/// Waits for the end of a job, and prints what it has produced.
pub(super) async fn run(desk: &Desk, id: &str) -> Result<(), Failure> {
    let job = id.parse::<JobId>().map_err(Failure::usage)?;
    // One that was never there is a mistake of the user.
    record(desk, id).await?;
    desk.line.set_hint(format!(". {}", goes_on(&job)));
    let over = tokio::select! {
        over = over(desk, id) => over?,
        failure = desk.line.watches() => return Err(failure),
    };
    let Some(record) = over else { return Err(unknown(&job)) };
    let reason = record.reason.as_deref().unwrap_or("for a reason that was not recorded");
    match record.state {
        JobState::Failed => Err(Failure::failed(format!("job {id} has failed: {reason}"))),
        JobState::Cancelled => Err(Failure::failed(format!("job {id} was cancelled: {reason}"))),
        _ => act::result(desk, id).await,
    }
}

/// The record of the job at its end; `None` if it is not there any more.
async fn over(desk: &Desk, id: &str) -> Result<Option<JobRecord>, Failure> {
    let watching = desk.ask(async |store| {
        let mut watch = JobWatch::open(store, &desk.cluster, id).await?;
        loop {
            match watch.next().await {
                Ok(record) if record.state.is_over() => return Ok(Some(record)),
                Ok(_) => {}
                Err(zk::Error::NoNode { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    });
    watching.await
}
