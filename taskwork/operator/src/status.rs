//! `taskwork status`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use taskwork::client::{
    Overview, Stage,
    records::{JobRecord, Member},
};
use taskwork_cli::Failure;

use super::{
    connection::Connection,
    json,
    table::{list, or_none, table},
    top::text::things,
};

pub(super) async fn run(connection: &Connection) -> Result<(), Failure> {
    let overview = connection.client.overview_with_reports().await?;
    let unstoppable = overview.unstoppable_tasks();
    let json = || {
        let mut told = as_json(connection, &overview);
        told["silent"] = json!(unstoppable);
        told
    };
    let text = || {
        let mut text = as_text(connection, &overview);
        for (node, task) in &unstoppable {
            text.extend(["\n", task, " at node ", node, " does not ask whether it is to stop\n"]);
        }
        text
    };
    connection.say(json, text);
    Ok(())
}

/// Returns the programs of the cluster: nodes, workers, the leaders of their jobs.
fn programs(overview: &Overview) -> BTreeMap<String, (u64, u64, BTreeSet<&str>)> {
    let mut programs: BTreeMap<String, (u64, u64, BTreeSet<&str>)> = BTreeMap::new();
    for member in &overview.members {
        let runs = format!("{}@{}", member.program, member.program_version);
        let leader = || leaders(overview, member);
        let (nodes, workers, _) = programs.entry(runs).or_insert_with(|| (0, 0, leader()));
        *nodes += 1;
        *workers += u64::from(member.workers);
    }
    programs
}

/// Returns the nodes that lead jobs of the program that a member runs.
fn leaders<'a>(overview: &'a Overview, member: &Member) -> BTreeSet<&'a str> {
    let record = |job: &str| overview.job(job)?.record.as_ref();
    let led = overview.leaders.iter().filter(|(job, _)| record(job).is_some_and(|job| member.runs(job)));
    led.map(|(_, node)| node.as_str()).collect()
}

fn count(overview: &Overview, wanted: Stage) -> usize {
    overview.jobs.iter().filter(|job| job.stage == wanted).count()
}

fn as_json(connection: &Connection, overview: &Overview) -> serde_json::Value {
    let programs: Vec<_> = programs(overview)
        .into_iter()
        .map(|(runs, (nodes, workers, leaders))| {
            json!({ "runs": runs, "nodes": nodes, "workers": workers, "leaders": leaders })
        })
        .collect();
    let open = overview.jobs.iter().filter(|job| job.stage.is_open());
    let jobs: Vec<_> = open.map(|job| json::job(overview, job)).collect();
    json!({
        "cluster": connection.client.cluster_name(),
        "nodes": overview.members.len(),
        "workers": overview.members.iter().map(|member| u64::from(member.workers)).sum::<u64>(),
        "programs": programs,
        "jobs": jobs,
        "done": count(overview, Stage::Done),
        "incomplete": count(overview, Stage::Incomplete),
        "failed": count(overview, Stage::Failed),
        "cancelled": count(overview, Stage::Cancelled),
    })
}

fn as_text(connection: &Connection, overview: &Overview) -> String {
    let workers: u64 = overview.members.iter().map(|member| u64::from(member.workers)).sum();
    let over = [Stage::Done, Stage::Incomplete, Stage::Failed, Stage::Cancelled];
    // Incomplete jobs are rare.
    let told = over.into_iter().filter(|&stage| stage != Stage::Incomplete || count(overview, stage) > 0);
    let over: Vec<String> =
        told.map(|stage| format!("{} {}", count(overview, stage), stage.text())).collect();
    let mut text = list(&[
        ("cluster", connection.client.cluster_name().to_owned()),
        ("nodes", format!("{}, with {}", overview.members.len(), things(workers, "worker"))),
        ("jobs", over.join(", ")),
    ]);
    let rows = programs(overview).into_iter().map(|(runs, (nodes, workers, leaders))| {
        let leaders = or_none(&Vec::from_iter(leaders).join(", "));
        vec![runs.replace('@', " "), nodes.to_string(), workers.to_string(), leaders]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        text += "\n";
        text += &table(&["PROGRAM", "#NODES", "#WORKERS", "LEADERS"], rows);
    }
    let open: Vec<Vec<String>> = overview
        .jobs
        .iter()
        .filter(|job| job.stage.is_open())
        .map(|job| {
            let of = |f: fn(&JobRecord) -> String| job.record.as_ref().map_or_else(|| "-".to_owned(), f);
            vec![
                job.id.clone(),
                job.stage.text().to_owned(),
                of(|record| format!("{} {}", record.program, record.program_version)),
                of(|record| record.name.clone()),
            ]
        })
        .collect();
    text += "\n";
    text += &if open.is_empty() {
        "no job is at work or waits\n".to_owned()
    } else {
        table(&["JOB", "STATE", "PROGRAM", "NAME"], open)
    };
    for job in &overview.jobs {
        text.extend(job.missing.iter().map(|missing| format!("\njob {} waits: {missing}\n", job.id)));
    }
    text
}
