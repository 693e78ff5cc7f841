//! `taskwork compare`: two jobs side by side, as a table or as a page with one axis.

mod facts;
mod rows;
#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde_json::{Value, json};
use taskwork::JobId;
use taskwork_cli::{
    Failure,
    command::{job_id, print, tell},
};

use self::{facts::Facts, rows::Row};
use super::{
    connection::Connection,
    report::{output::Output, record, seen::Seen},
};
use crate::{json::versioned, web::Single};

/// The module of the comparison page, in addition to those of the dashboard.
const PAGE: (&str, &str) = ("compare.js", include_str!("compare.js"));

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A job, as `taskwork jobs` lists it; the number alone suffices. For a job of a record: `FILE:ID`.
    #[arg(value_name = "A", value_parser = which)]
    a: Which,
    /// The job to compare it with, in the same form.
    #[arg(value_name = "B", value_parser = which)]
    b: Which,
    #[command(flatten)]
    output: Output,
    /// Read jobs that are given by id alone from a record instead of a cluster: a file written by `taskwork dashboard
    /// --record`, or its folder.
    #[arg(long, value_name = "FILE|DIR")]
    record: Option<PathBuf>,
}

/// A job, and the record that has it, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Which {
    record: Option<PathBuf>,
    job: JobId,
}

fn which(text: &str) -> Result<Which, String> {
    if let Ok(job) = job_id(text) {
        return Ok(Which { record: None, job });
    }
    let expected =
        || "expected an id such as j-0000000003, or 3; or FILE:ID for a job of a record".to_owned();
    let (file, id) = text.rsplit_once(':').ok_or_else(expected)?;
    let job = job_id(id).map_err(|_| expected())?;
    if file.is_empty() {
        return Err(expected());
    }
    Ok(Which { record: Some(PathBuf::from(file)), job })
}

impl Arguments {
    /// Checks the arguments before a cluster is contacted or a long record is read.
    pub(super) fn check(&self, json: bool) -> Result<(), Failure> {
        self.output.check(json)
    }

    /// Returns whether a job is given that is in no record.
    pub(super) fn needs_cluster(&self) -> bool {
        [&self.a, &self.b].into_iter().any(|which| self.record_of(which).is_none())
    }

    fn record_of<'a>(&'a self, which: &'a Which) -> Option<&'a Path> {
        which.record.as_deref().or(self.record.as_deref())
    }

    /// Compares two recorded jobs.
    pub(super) fn of_records(&self, json: bool) -> Result<ExitCode, Failure> {
        let seen = |which| {
            let record = self.record_of(which).unwrap_or(Path::new(""));
            record::read(record, which.job.as_str())
        };
        self.write(&[seen(&self.a)?, seen(&self.b)?], json)
    }

    fn write(&self, both: &[Seen; 2], json: bool) -> Result<ExitCode, Failure> {
        let facts = Facts::of(both.each_ref());
        let rows = rows::of(&facts);
        // The page has standard output to itself.
        let is_page_only = self.output.file.as_deref() == Some(Path::new("-"));
        if json {
            let [a, b] = both.each_ref().map(|seen| &seen.remarks);
            let [of_a, of_b] = &facts;
            let value = json!({ "a": of_a, "b": of_b, "remarks": { "a": a, "b": b } });
            print(&format!("{}\n", versioned(value)));
        } else if !is_page_only {
            print(&rows::text(&rows));
        }
        self.output.write(|| page(both, &facts, &rows), json)?;
        if !json {
            for (label, seen) in ["A", "B"].into_iter().zip(both) {
                for remark in &seen.remarks {
                    tell(format_args!("note on {label}: {remark}"));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Compares two jobs, at least one of which is in a cluster.
pub(super) async fn run(connection: &Connection, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let seen = async |which| match arguments.record_of(which) {
        Some(record) => record::read(record, which.job.as_str()),
        None => Seen::in_cluster(connection, &which.job).await,
    };
    let both = [seen(&arguments.a).await?, seen(&arguments.b).await?];
    arguments.write(&both, connection.json)
}

fn page(both: &[Seen; 2], facts: &[Facts; 2], rows: &[Row]) -> String {
    let title = format!("{} and {}", both[0].name(), both[1].name());
    Single { title: &title, first: "Comparison", more: Some(PAGE), data: &content(both, facts, rows) }.html()
}

/// Returns the data of the page, in the form that `data.js` and `compare.js` read.
fn content(both: &[Seen; 2], facts: &[Facts; 2], rows: &[Row]) -> Value {
    let job = |(seen, facts): (&Seen, &Facts)| {
        let series = seen.job().map(|job| &job.series);
        let first_ms = series.and_then(|series| series.points.first()).map(|point| point.at_ms);
        json!({
            "id": facts.id,
            "name": facts.name,
            "source": facts.source,
            "state": seen.job().map(|job| job.about.stage),
            // If its start was not observed, it is shown from its first point.
            "from_ms": seen.began_ms().or(first_ms),
            "points": series.map(|series| &series.points),
            "remarks": seen.remarks,
        })
    };
    let rows = rows.iter().map(|row| json!([row.name, row.values[0], row.values[1], row.times]));
    let at_ms = both.iter().map(|seen| seen.snapshot.cluster.at_ms).max();
    json!({
        "first": ["compare", ""],
        "view": {
            "seq": 0,
            "version": env!("CARGO_PKG_VERSION"),
            "cluster": "",
            "now_ms": at_ms,
            "stale_since_ms": null,
            "source": "replay",
            "snapshot": {
                "seq": 0,
                "cluster": both[0].snapshot.cluster,
                "members": {}, "jobs": {}, "moments": [], "warnings": {},
            },
        },
        "compared": {
            "jobs": both.iter().zip(facts).map(job).collect::<Vec<_>>(),
            "rows": rows.collect::<Vec<_>>(),
        },
    })
}
