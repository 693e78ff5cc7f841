//! `taskwork jobs`.

use taskwork::client::{Share, Stage, records::JobRecord};
use taskwork_cli::Failure;

use super::{
    connection::Connection,
    json,
    table::{self, lapse},
};

pub(super) async fn run(connection: &Connection) -> Result<(), Failure> {
    let overview = connection.overview().await?;
    let jobs = &overview.jobs;
    let as_json = || jobs.iter().map(|job| json::job(&overview, job)).collect();
    let rows = jobs.iter().map(|job| (job.id.as_str(), job.stage, job.record.as_ref()));
    connection.say(as_json, || text(&rows.collect::<Vec<_>>()));
    Ok(())
}

/// Returns the table of jobs, with the priorities and weights if one is not the default.
fn text(jobs: &[(&str, Stage, Option<&JobRecord>)]) -> String {
    let records = || jobs.iter().filter_map(|(_, _, record)| *record);
    let has_shares = records().any(|record| record.share != Share::default());
    let shares: &[&str] = if has_shares { &["#PRIORITY", "#WEIGHT"] } else { &[] };
    let row = |(id, stage, record): &(&str, Stage, Option<&JobRecord>)| {
        let (id, stage) = ((*id).to_owned(), stage.text().to_owned());
        let Some(record) = record else { return vec![id, stage] };
        let ended = |of: &dyn Fn(u64) -> String| record.finished_ms.map_or_else(|| "-".to_owned(), of);
        let mut row = vec![
            id,
            stage,
            format!("{} {}", record.program, record.program_version),
            record.name.clone(),
            record.submitter.clone(),
            table::time(record.submitted_ms),
            ended(&table::time),
            ended(&|end| lapse(record.submitted_ms, end)),
        ];
        if has_shares {
            row.extend([record.share.priority.to_string(), record.share.weight.to_string()]);
        }
        row.extend([record.attempt.to_string(), table::or_none(&record.reason.clone().unwrap_or_default())]);
        row
    };
    let columns = ["JOB", "STATE", "PROGRAM", "NAME", "OWNER", "SUBMITTED", "ENDED", "TOOK"];
    let columns: Vec<&str> =
        columns.into_iter().chain(shares.iter().copied()).chain(["#ATTEMPT", "REASON"]).collect();
    table::table(&columns, jobs.iter().map(row))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(priority: i32, finished_ms: Option<u64>) -> JobRecord {
        let record = json!({
            "format": 2, "program": "tree", "program_version": "1", "kind": "tree", "name": "big", "submitter": "anna",
            "state": "running", "attempt": 1, "attempts_max": 3, "root": "", "shared_chunks": 0, "submitted_ms": 1_000,
            "finished_ms": finished_ms, "reason": null, "lost": [], "share": { "priority": priority },
        });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn jobs_table_has_owner_and_end_and_shares_if_set() {
        let (running, done) = (record(0, None), record(2, Some(3_000)));
        let table = "\
JOB  STATE    PROGRAM  NAME  OWNER  SUBMITTED             ENDED                 TOOK  ATTEMPT  REASON
j-1  running  tree 1   big   anna   1970-01-01T00:00:01Z  -                     -           1  -
j-3  unreadable
";
        let rows = [("j-1", Stage::Running, Some(&running)), ("j-3", Stage::Unreadable, None)];
        let words = |text: &str| {
            let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
            lines.collect::<Vec<_>>()
        };
        assert_eq!(words(&text(&rows)), words(table));
        let with_shares = text(&[("j-1", Stage::Running, Some(&running)), ("j-2", Stage::Done, Some(&done))]);
        let lines = words(&with_shares);
        assert!(lines[0].contains("TOOK PRIORITY WEIGHT ATTEMPT"), "{with_shares}");
        assert!(
            lines[2].contains("anna 1970-01-01T00:00:01Z 1970-01-01T00:00:03Z 2s 2 1 1"),
            "{with_shares}"
        );
    }
}
