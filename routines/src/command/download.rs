//! `download`: all results of a job that is over.

use std::process::ExitCode;

use clap::Args;
use taskwork::JobId;
use taskwork_cli::{
    Failure,
    command::{Level, job_id, print},
};

use super::Access;
use crate::{
    service::Service,
    store::{PART, PART_BYTES},
};

#[derive(Debug, Args)]
pub(super) struct Download {
    /// The job, such as j-0000000003.
    #[arg(value_name = "JOB", value_parser = job_id)]
    job: JobId,
    /// Print a table in CSV instead of a line of JSON for each result. The results are scalars, or objects of scalars.
    #[arg(long)]
    csv: bool,
    #[command(flatten)]
    access: Access,
}

pub(super) fn download(Download { job, csv, access }: &Download) -> Result<ExitCode, Failure> {
    access.run(Level::Warn, async |service, _| {
        let results = service.results(job).await?;
        let table = if *csv { Some(service.table(&results).await?) } else { None };
        if let Some(table) = &table {
            print(&table.head());
        }
        let mut from = 0;
        loop {
            let lines = Service::lines(&results, from, PART, PART_BYTES).await?;
            let Some(last) = lines.last() else { return Ok(ExitCode::SUCCESS) };
            from = last.index + 1;
            for line in &lines {
                print(&table.as_ref().map_or_else(|| format!("{}\n", line.json), |table| table.row(line)));
            }
        }
    })
}
