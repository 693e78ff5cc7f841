//! `taskwork jobs`.

use super::{
    Desk,
    overview::job_json,
    table::{self, lapse},
};
use crate::cli::Failure;

pub(super) async fn run(desk: &Desk) -> Result<(), Failure> {
    let overview = desk.overview().await?;
    let stages = overview.stages();
    let json = || stages.iter().map(|(id, stage, record)| job_json(id, *stage, *record)).collect();
    let text = || {
        let rows = stages.iter().map(|(id, stage, record)| {
            let Some(record) = record else {
                return vec![(*id).to_owned(), stage.text().to_owned()];
            };
            vec![
                (*id).to_owned(),
                stage.text().to_owned(),
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
    desk.say(json, text);
    Ok(())
}
