//! `taskwork nodes`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use taskwork::{
    Labels,
    client::{
        Overview,
        records::{Ledger, Member, ProcessNow},
    },
};
use taskwork_cli::Failure;

use super::{
    connection::{Connection, Watch},
    json, ledger,
    selection::has_all,
    table,
};

/// The options of `taskwork nodes`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only nodes with this label. If it is repeated, those with all of the labels.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = str::parse::<Labels>)]
    labels: Vec<Labels>,
    #[command(flatten)]
    pub(super) watch: Watch,
}

/// A cluster, and the reports of its nodes by their names.
pub(super) struct Nodes {
    pub(super) overview: Overview,
    /// The tasks that do not react to a request to stop.
    unstoppable: BTreeMap<String, String>,
    /// The jobs for which a node holds more than it has written.
    unprotected: BTreeMap<String, (String, Ledger)>,
    processes: BTreeMap<String, ProcessNow>,
}

pub(super) async fn run(connection: &Connection, arguments: &Arguments) -> Result<(), Failure> {
    let read = async || {
        let nodes = Nodes::read(connection).await?;
        let members = nodes.overview.members.iter().filter(|member| has_all(member, &arguments.labels));
        let members: Vec<&Member> = members.collect();
        let json: Value = members.iter().map(|member| nodes.json(member)).collect();
        Ok::<_, Failure>((json, nodes.table(&members)))
    };
    connection.list(arguments.watch.watch, read).await
}

impl Nodes {
    pub(super) async fn read(connection: &Connection) -> Result<Self, Failure> {
        let overview = connection.client.overview_with_reports().await?;
        let reports = overview.reports();
        let processes = reports.filter_map(|(_, node, report)| Some((node.to_owned(), report.process?)));
        Ok(Self {
            unstoppable: overview.unstoppable_tasks(),
            unprotected: overview.unprotected_nodes(),
            processes: processes.collect(),
            overview,
        })
    }

    pub(super) fn process(&self, member: &Member) -> Option<ProcessNow> {
        self.processes.get(&member.node).copied()
    }

    pub(super) fn json(&self, member: &Member) -> Value {
        let mut object = json::member(&self.overview, member);
        object["silent"] = json!(self.unstoppable.get(&member.node));
        let held = self.unprotected.get(&member.node);
        object["unprotected"] = json!(held.map(|(job, ledger)| json!({ "job": job, "bytes": ledger.bytes })));
        object["resident_bytes"] = json!(self.process(member).and_then(|process| process.resident_bytes));
        object
    }

    /// Returns notable facts about a node.
    pub(super) fn notes(&self, member: &Member) -> String {
        let mut notes: Vec<String> = Vec::new();
        notes.extend(self.overview.leads(&member.node).then(|| "leads".to_owned()));
        notes.extend(self.overview.drains(&member.node).then(|| "leaving".to_owned()));
        notes.extend(self.overview.is_cordoned(&member.node).then(|| "cordoned".to_owned()));
        let silent = self.unstoppable.get(&member.node);
        notes.extend(silent.map(|task| format!("{task} does not ask whether it is to stop")));
        let held = self.unprotected.get(&member.node);
        notes.extend(held.map(|(job, held)| format!("in job {job} {}", ledger::unprotected(held))));
        notes.join(", ")
    }

    /// Returns the table of some members. The memory is that of the process, and the maximum that it may use.
    fn table(&self, members: &[&Member]) -> String {
        let rows = members.iter().map(|member| {
            let resident = self.process(member).and_then(|process| process.resident_bytes);
            vec![
                member.node.clone(),
                table::or_none(&member.host),
                format!("{} {}", member.program, member.program_version),
                member.workers.to_string(),
                table::bytes(resident.unwrap_or(0)),
                table::bytes(member.memory_bytes),
                table::or_none(&member.labels.to_string()),
                member.address.map_or_else(|| "-".to_owned(), |address| address.to_string()),
                table::time(member.started_ms),
                table::or_none(&self.notes(member)),
            ]
        });
        let columns =
            ["NODE", "HOST", "PROGRAM", "#WORKERS", "#MEMORY", "#OF", "LABELS", "ADDRESS", "SINCE", "NOTE"];
        table::table(&columns, rows)
    }
}
