//! `taskwork nodes`.

use super::{Desk, table};
use crate::cli::Failure;

pub(super) async fn run(desk: &Desk) -> Result<(), Failure> {
    let overview = desk.overview().await?;
    let json = || overview.members.iter().map(|member| overview.member_json(member)).collect();
    let text = || {
        let rows = overview.members.iter().map(|member| {
            let mut notes = Vec::new();
            notes.extend(overview.leads(&member.node).then_some("leads"));
            notes.extend(overview.drains(&member.node).then_some("leaving"));
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
