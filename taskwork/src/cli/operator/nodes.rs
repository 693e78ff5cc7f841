//! `taskwork nodes`.

use std::collections::BTreeMap;

use serde_json::json;
use zk::figures;

use super::{Desk, overview::Overview, table};
use crate::{cli::Failure, figures::Figures};

pub(super) async fn run(desk: &Desk) -> Result<(), Failure> {
    let overview = desk.overview().await?;
    let silent = silent(desk, &overview).await?;
    let json = || {
        let members = overview.members.iter().map(|member| {
            let mut told = overview.member_json(member);
            told["silent"] = json!(silent.get(&member.node));
            told
        });
        members.collect()
    };
    let text = || {
        let rows = overview.members.iter().map(|member| {
            let mut notes: Vec<String> = Vec::new();
            notes.extend(overview.leads(&member.node).then(|| "leads".to_owned()));
            notes.extend(overview.drains(&member.node).then(|| "leaving".to_owned()));
            notes.extend(silent.get(&member.node).map(|task| format!("{task} does not stop")));
            vec![
                member.node.clone(),
                format!("{} {}", member.program, member.program_version),
                member.workers.to_string(),
                member.address.map_or_else(|| "-".to_owned(), |address| address.to_string()),
                table::time(member.started_ms),
                table::or_none(&notes.join(", ")),
            ]
        });
        table::table(&["NODE", "PROGRAM", "#WORKERS", "ADDRESS", "SINCE", "NOTE"], rows)
    };
    desk.say(json, text);
    Ok(())
}

/// Of each node the task that does not stop although it was asked to long ago, with its job.
async fn silent(desk: &Desk, overview: &Overview) -> Result<BTreeMap<String, String>, Failure> {
    let mut silent = BTreeMap::new();
    for (id, record) in &overview.jobs {
        if !record.as_ref().is_ok_and(|record| !record.state.is_over()) {
            continue;
        }
        for (node, said) in figures::read::<Figures>(&*desk.store, &desk.cluster, id).await? {
            if let Some(first) = said.silent.first().filter(|_| !said.last) {
                silent.insert(node, format!("task {} of job {id}", first.task));
            }
        }
    }
    Ok(silent)
}
