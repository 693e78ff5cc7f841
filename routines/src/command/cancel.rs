//! `cancel` and `remove`: end single calls of a job, and remove one that is over.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use taskwork::JobId;
use taskwork_cli::command::{Level, job_id};

use super::{Access, Failure, print};

#[derive(Debug, Args)]
pub(super) struct Cancel {
    /// The job, such as j-0000000003. `taskwork cancel` ends it as a whole.
    #[arg(value_name = "JOB", value_parser = job_id)]
    job: JobId,
    /// The indices of the calls, which end with errors of the kind `cancelled`.
    #[arg(value_name = "INDEX", required = true)]
    calls: Vec<u64>,
    #[command(flatten)]
    access: Access,
}

pub(super) fn cancel(Cancel { job, calls, access }: &Cancel) -> Result<ExitCode, Failure> {
    access.run(Level::Warn, async |service, _| {
        for index in calls {
            service.cancel_call(job, *index).await?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

#[derive(Debug, Args)]
pub(super) struct Remove {
    /// The job, such as j-0000000003.
    #[arg(value_name = "JOB", value_parser = job_id)]
    job: JobId,
    #[command(flatten)]
    access: Access,
}

/// Exits with 1 if some data could not be removed.
pub(super) fn remove(Remove { job, access }: &Remove) -> Result<ExitCode, Failure> {
    access.run(Level::Warn, async |service, _| {
        let removed = service.remove(job).await?;
        print(&format!("{}\n", json!(removed)));
        Ok(if removed.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}
