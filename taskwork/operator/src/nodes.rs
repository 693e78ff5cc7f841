//! `taskwork nodes`.

use serde_json::json;
use taskwork_cli::Failure;

use super::{connection::Connection, json, ledger, table};

pub(super) async fn run(connection: &Connection) -> Result<(), Failure> {
    let overview = connection.client.overview_with_reports().await?;
    let unstoppable = overview.unstoppable_tasks();
    let unprotected = overview.unprotected_nodes();
    let as_json = || {
        let members = overview.members.iter().map(|member| {
            let mut told = json::member(&overview, member);
            told["silent"] = json!(unstoppable.get(&member.node));
            let held = unprotected.get(&member.node);
            told["unprotected"] =
                json!(held.map(|(job, ledger)| json!({ "job": job, "bytes": ledger.bytes })));
            told
        });
        members.collect()
    };
    let text = || {
        let rows = overview.members.iter().map(|member| {
            let mut notes: Vec<String> = Vec::new();
            notes.extend(overview.leads(&member.node).then(|| "leads".to_owned()));
            notes.extend(overview.drains(&member.node).then(|| "leaving".to_owned()));
            notes.extend(overview.is_cordoned(&member.node).then(|| "cordoned".to_owned()));
            notes.extend(
                unstoppable
                    .get(&member.node)
                    .map(|task| format!("{task} does not ask whether it is to stop")),
            );
            notes.extend(
                unprotected
                    .get(&member.node)
                    .map(|(job, held)| format!("in job {job} {}", ledger::unprotected(held))),
            );
            vec![
                member.node.clone(),
                table::or_none(&member.host),
                format!("{} {}", member.program, member.program_version),
                member.workers.to_string(),
                table::bytes(member.memory_bytes),
                table::or_none(&member.labels.to_string()),
                member.address.map_or_else(|| "-".to_owned(), |address| address.to_string()),
                table::time(member.started_ms),
                table::or_none(&notes.join(", ")),
            ]
        });
        table::table(
            &["NODE", "HOST", "PROGRAM", "#WORKERS", "#MEMORY", "LABELS", "ADDRESS", "SINCE", "NOTE"],
            rows,
        )
    };
    connection.say(as_json, text);
    Ok(())
}
