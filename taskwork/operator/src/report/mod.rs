//! `taskwork report`: the page of a job as one file that opens without a server.
//!
//! ```text
//! cluster ──look──▶ Seen ──▶ content ──▶ one page (web::Single) ──▶ output
//! records ──join──▶
//! ```

mod content;
mod joining;
pub(super) mod output;
pub(super) mod record;
mod remarks;
pub(super) mod seen;
#[cfg(test)]
pub(super) mod tests;

use std::{path::PathBuf, process::ExitCode};

use serde_json::{Value, json};
use taskwork::JobId;
use taskwork_cli::{
    Failure,
    command::{job_id, print, tell},
};

use self::{output::Output, seen::Seen};
use super::connection::Connection;
use crate::{
    json::versioned,
    web::{Single, detail},
};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The job, as `taskwork jobs` lists it; the number alone suffices.
    #[arg(value_name = "ID", value_parser = job_id)]
    job: JobId,
    #[command(flatten)]
    output: Output,
    /// Read the job from a record instead of a cluster: a file written by `taskwork dashboard --record`, or its folder.
    /// No servers are needed.
    #[arg(long, value_name = "FILE|DIR")]
    record: Option<PathBuf>,
}

impl Arguments {
    /// Checks the arguments before a cluster is contacted or a long record is read.
    pub(super) fn check(&self, json: bool) -> Result<(), Failure> {
        if self.output.file.is_none() && !json {
            return Err(Failure::usage(
                "choose the output: -o FILE.html, -o - for standard output, or --json",
            ));
        }
        self.output.check(json)
    }

    /// Writes the report of a recorded job; `None` if the job is in a cluster.
    pub(super) fn of_record(&self, json: bool) -> Option<Result<ExitCode, Failure>> {
        let record = self.record.as_deref()?;
        Some(record::read(record, self.job.as_str()).and_then(|seen| self.write(&seen, json)))
    }

    fn write(&self, seen: &Seen, json: bool) -> Result<ExitCode, Failure> {
        self.output.write(|| page(seen), json)?;
        if json {
            print(&format!("{}\n", versioned(object(seen))));
        } else {
            for remark in &seen.remarks {
                tell(format_args!("note: {remark}"));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the report of a job of a cluster.
pub(super) async fn run(connection: &Connection, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let seen = Seen::in_cluster(connection, &arguments.job).await?;
    arguments.write(&seen, connection.json)
}

/// Returns the page of a job.
fn page(seen: &Seen) -> String {
    let title = format!("{} · {}", seen.name(), seen.id);
    Single { title: &title, first: "Job", more: None, data: &content::of(seen) }.html()
}

/// Returns all data of a job as JSON, for scripts.
fn object(seen: &Seen) -> Value {
    let Some(job) = seen.job() else { return Value::Null };
    let snapshot = &seen.snapshot;
    let mut object = detail::of(snapshot.seq, &seen.id, job, &snapshot.moments);
    for node in object["nodes"].as_array_mut().into_iter().flatten() {
        if seen.lost_nodes().any(|lost| node["node"] == lost) {
            node["state"] = json!("lost");
        }
    }
    object["improvements"] = json!(seen.improvements);
    object["source"] = json!(seen.source);
    object["at_ms"] = json!(snapshot.cluster.at_ms);
    object["remarks"] = json!(seen.remarks);
    object
}
