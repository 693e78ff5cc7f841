//! `taskwork jobs`.

use super::{
    connection::Connection,
    json,
    table::{self, lapse},
};
use taskwork_cli::Failure;

pub(super) async fn run(connection: &Connection) -> Result<(), Failure> {
    let overview = connection.overview().await?;
    let jobs = &overview.jobs;
    let as_json = || jobs.iter().map(|job| json::job(&overview, job)).collect();
    let text = || {
        let rows = jobs.iter().map(|job| {
            let (id, stage) = (job.id.clone(), job.stage.text().to_owned());
            let Some(record) = &job.record else { return vec![id, stage] };
            vec![
                id,
                stage,
                format!("{} {}", record.program, record.program_version),
                record.name.clone(),
                table::time(record.submitted_ms),
                record.finished_ms.map_or_else(|| "-".to_owned(), |end| lapse(record.submitted_ms, end)),
                record.attempt.to_string(),
                table::or_none(&record.reason.clone().unwrap_or_default()),
            ]
        });
        let columns = ["JOB", "STATE", "PROGRAM", "NAME", "SUBMITTED", "TOOK", "#ATTEMPT", "REASON"];
        table::table(&columns, rows)
    };
    connection.say(as_json, text);
    Ok(())
}
