//! `taskwork node`.

use serde_json::{Value, json};
use taskwork::{
    client::records::{Member, NodeFigures},
    report::Figures,
};
use taskwork_cli::Failure;

use super::{
    connection::Connection,
    json,
    nodes::Nodes,
    selection::named,
    table::{self, bytes, count, or_none},
};

/// The report of a node about a job.
type Report<'a> = (&'a str, &'a NodeFigures<Figures>);

/// Prints the details of a node, or of all nodes on a host.
pub(super) async fn run(connection: &Connection, name: &str) -> Result<(), Failure> {
    let nodes = Nodes::read(connection).await?;
    let members = named(&nodes.overview.members, name, connection.client.cluster_name())?;
    let json = || members.iter().map(|member| nodes.details(member)).collect();
    let text = || members.iter().map(|member| nodes.text(member)).collect::<Vec<_>>().join("\n");
    connection.say(json, text);
    Ok(())
}

impl Nodes {
    /// Returns the jobs that a node works on, with its reports.
    fn jobs(&self, member: &Member) -> Vec<Report<'_>> {
        let reports = self.overview.reports().filter(|(_, node, _)| *node == member.node);
        reports.map(|(job, _, report)| (job, report)).collect()
    }

    fn name_of(&self, job: &str) -> &str {
        let record = self.overview.job(job).and_then(|job| job.record.as_ref());
        record.map_or("", |record| record.name.as_str())
    }

    fn details(&self, member: &Member) -> Value {
        let mut object = self.json(member);
        let jobs = self.jobs(member).into_iter().map(|(job, report)| {
            json!({
                "job": job,
                "name": self.name_of(job),
                "attempt": report.attempt,
                "busy_workers": report.pool.map(|pool| pool.busy),
                "queued_tasks": report.pool.map(|pool| pool.queued),
                "figures": json::figures(&report.figures),
                "at_ms": report.at_ms,
            })
        });
        object["jobs"] = jobs.collect();
        let process = self.process(member);
        object["load"] = json!(process.and_then(|process| process.load));
        object["cpu_ms"] = json!(process.and_then(|process| process.cpu_ms));
        object
    }

    fn text(&self, member: &Member) -> String {
        let (process, jobs) = (self.process(member), self.jobs(member));
        let resident = process.and_then(|process| process.resident_bytes).unwrap_or(0);
        let load = process.and_then(|process| process.load);
        let id = if member.pid == 0 { String::new() } else { format!(", process {}", member.pid) };
        let text = table::list(&[
            ("node", member.node.clone()),
            ("host", format!("{}{id}", or_none(&member.host))),
            ("program", format!("{} {}", member.program, member.program_version)),
            ("address", member.address.map_or_else(|| "-".to_owned(), |address| address.to_string())),
            ("since", table::time(member.started_ms)),
            ("workers", member.workers.to_string()),
            ("memory", format!("{} of {}", bytes(resident), bytes(member.memory_bytes))),
            ("machine", load.map_or_else(|| "-".to_owned(), |load| format!("load {load:.1}"))),
            ("labels", or_none(&member.labels.to_string())),
            ("note", or_none(&self.notes(member))),
        ]);
        if jobs.is_empty() {
            return text + "\nit works on no job\n";
        }
        let rows = jobs.into_iter().map(|(job, report)| {
            let figures = &report.figures;
            let busy = report.pool.map_or_else(|| "-".to_owned(), |pool| pool.busy.to_string());
            let queued = report.pool.map_or_else(|| "-".to_owned(), |pool| pool.queued.to_string());
            let numbers = [figures.worked, figures.tasks, figures.steals].map(count);
            [job.to_owned(), or_none(self.name_of(job)), busy, queued].into_iter().chain(numbers).collect()
        });
        let columns = ["JOB", "NAME", "#BUSY", "#QUEUED", "#WORKED", "#TASKS", "#STEALS"];
        format!("{text}\n{}", table::table(&columns, rows))
    }
}
