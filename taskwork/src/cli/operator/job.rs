//! `taskwork job`.

use std::fmt::Write as _;

use serde_json::json;
use zk::{
    Requests,
    figures::{self, NodeFigures},
    job::JobRecord,
};

use super::{
    Desk, Overview,
    overview::{Stage, job_json},
    table::{self, count, lapse},
};
use crate::{cli::Failure, figures::Figures, shell::submit::sum};

/// Everything about a job at one moment.
struct Facts {
    id: String,
    stage: Stage,
    record: JobRecord,
    /// What each node has done, and how the node stands.
    nodes: Vec<(String, &'static str, NodeFigures<Figures>)>,
    /// Tasks in the global task list, and parked ones: `None` once the job is over.
    open: Option<(u32, u32)>,
}

pub(super) async fn run(desk: &Desk, id: &str, timeline: bool) -> Result<(), Failure> {
    let facts = Facts::read(desk, id).await?;
    let text = || facts.text() + &if timeline { facts.timeline_text() } else { String::new() };
    desk.say(|| facts.json(), text);
    Ok(())
}

/// How a record is found, or what to say if it is not.
pub(super) async fn record(desk: &Desk, id: &str) -> Result<JobRecord, Failure> {
    let read = desk.ask(async |store| match zk::job::read(&*store, &desk.cluster, id).await {
        Ok((record, _)) => Ok(Some(record)),
        Err(zk::Error::NoNode { .. }) => Ok(None),
        Err(error) => Err(error),
    });
    read.await?.ok_or_else(|| no_job(desk, id))
}

pub(super) fn no_job(desk: &Desk, id: &str) -> Failure {
    Failure::usage(format!("cluster {} has no job {id}: see taskwork jobs", desk.cluster.name()))
}

impl Facts {
    async fn read(desk: &Desk, id: &str) -> Result<Self, Failure> {
        let record = record(desk, id).await?;
        let overview: Overview = desk.overview().await?;
        let stage = overview.stages().into_iter().find(|(known, ..)| *known == id);
        let stage = stage.map_or(Stage::Unreadable, |(_, stage, _)| stage);
        let attempt = desk.cluster.job(id).attempt(record.attempt);
        let told = desk.ask(async |store| figures::read::<Figures>(&*store, &desk.cluster, id).await).await?;
        let nodes = told.into_iter().map(|(node, said)| {
            let is_member = overview.members.iter().any(|member| member.node == node);
            let lost = record.lost.iter().any(|lost| lost.node == node);
            let state = match (is_member, lost) {
                (_, true) => "lost",
                (true, _) => "member",
                (false, _) => "left",
            };
            (node, state, said)
        });
        let nodes = nodes.collect();
        let open = if record.state.is_over() {
            None
        } else {
            let children = async |path: String| desk.ask(async |store| store.exists(&path).await).await;
            let (list, parked) = (children(attempt.list()).await?, children(attempt.parked()).await?);
            Some((list.map_or(0, |stat| stat.children), parked.map_or(0, |stat| stat.children)))
        };
        Ok(Self { id: id.to_owned(), stage, record, nodes, open })
    }

    fn sums(&self) -> (Figures, Requests) {
        let mut requests = Requests::default();
        for (_, _, said) in &self.nodes {
            requests += said.requests;
        }
        (sum(self.nodes.iter().map(|(_, _, said)| said)), requests)
    }

    fn json(&self) -> serde_json::Value {
        let mut object = job_json(&self.id, self.stage, Some(&self.record));
        let (figures, requests) = self.sums();
        let nodes: Vec<_> = self
            .nodes
            .iter()
            .map(|(node, state, said)| {
                json!({
                    "node": node,
                    "state": state,
                    "attempt": said.attempt,
                    "figures": said.figures,
                    "requests": said.requests,
                    "at_ms": said.at_ms,
                })
            })
            .collect();
        let timeline: Vec<_> = self
            .timeline()
            .into_iter()
            .map(|(at_ms, who, what, detail)| json!({ "at_ms": at_ms, "who": who, "what": what, "detail": detail }))
            .collect();
        let cost = Cost::of(figures, requests);
        if let Some(fields) = object.as_object_mut() {
            fields.insert("figures".to_owned(), json!(figures));
            fields.insert("share_done".to_owned(), json!(figures.share()));
            fields.insert("requests".to_owned(), json!(requests));
            fields.insert("nodes".to_owned(), json!(nodes));
            fields.insert("timeline".to_owned(), json!(timeline));
            fields.insert("open_tasks".to_owned(), json!(self.open.map(|(open, _)| open)));
            fields.insert("parked_tasks".to_owned(), json!(self.open.map(|(_, parked)| parked)));
            fields.insert(
                "zookeeper".to_owned(),
                json!({
                    "transactions": figures.transactions,
                    "retried_share": cost.retried_share,
                    "reads_per_write": cost.reads_per_write,
                    "transactions_per_thousand_tasks": cost.per_thousand_tasks,
                }),
            );
        }
        object
    }

    fn text(&self) -> String {
        let record = &self.record;
        let mut rows = vec![
            ("job", self.id.clone()),
            ("state", self.stage.text().to_owned()),
            ("name", record.name.clone()),
            ("program", format!("{} {} ({})", record.program, record.program_version, record.kind)),
            ("submitted", format!("{} by {}", table::time(record.submitted_ms), record.submitter)),
            ("attempt", format!("{} of at most {}", record.attempt, record.attempts_max)),
        ];
        if let Some(finished) = record.finished_ms {
            let took = lapse(record.submitted_ms, finished);
            rows.push(("ended", format!("{}, {took} after its submission", table::time(finished))));
        }
        if let Some(reason) = &record.reason {
            rows.push(("reason", reason.clone()));
        }
        let (figures, requests) = self.sums();
        let share =
            figures.share().map(|share| format!(", an estimated {:.1} % of the whole", 100.0 * share));
        let earlier = (figures.worked_earlier > 0).then(|| {
            format!(", {} of them in earlier attempts: these are done anew", count(figures.worked_earlier))
        });
        let units = count(figures.worked);
        let rest = earlier.into_iter().chain(share).collect::<String>();
        rows.push(("worked", format!("{units} units{rest}")));
        let split =
            format!("{} completed, {} of them split off", count(figures.tasks), count(figures.splits));
        rows.push(("tasks", split));
        let stolen = count(figures.stolen_tasks);
        let steals = format!("{} of {} requests", count(figures.steals), count(figures.requests));
        rows.push(("steals", format!("{steals}; {stolen} tasks received")));
        if let Some((open, parked)) = self.open {
            rows.push(("not done", format!("{open} tasks in the global task list, {parked} parked")));
        }
        let cost = Cost::of(figures, requests);
        rows.push(("ZooKeeper", cost.text(figures)));
        let mut text = table::list(&rows);
        for lost in &record.lost {
            let _ = writeln!(
                text,
                "lost       {} in attempt {} at {}",
                lost.node,
                lost.attempt,
                table::time(lost.at_ms)
            );
        }
        if !self.nodes.is_empty() {
            text += "\n";
            text += &self.node_table();
        }
        text
    }

    /// What has happened: when, to whom, what, and more about it. In order, as far as the clocks of the nodes agree.
    fn timeline(&self) -> Vec<(u64, &str, String, &str)> {
        let record = &self.record;
        let mut timeline = vec![(record.submitted_ms, record.submitter.as_str(), "submitted".to_owned(), "")];
        for (node, _, said) in &self.nodes {
            let moments = said.moments.iter();
            timeline.extend(moments.map(|moment| {
                let what = serde_json::to_value(moment.what).unwrap_or_default();
                let what = what.as_str().unwrap_or_default().replace('_', " ");
                (moment.at_ms, node.as_str(), what, moment.detail.as_str())
            }));
        }
        if let Some(finished) = record.finished_ms {
            timeline.push((
                finished,
                "-",
                self.stage.text().to_owned(),
                record.reason.as_deref().unwrap_or(""),
            ));
        }
        timeline.sort_by_key(|(at_ms, ..)| *at_ms);
        timeline
    }

    fn timeline_text(&self) -> String {
        let start = self.record.submitted_ms;
        let rows = self.timeline().into_iter().map(|(at_ms, who, what, detail)| {
            let before = at_ms < start;
            let lapse = if before { lapse(at_ms, start) } else { lapse(start, at_ms) };
            let sign = if before { "-" } else { "" };
            vec![format!("{sign}{lapse}"), who.to_owned(), what, detail.to_owned()]
        });
        format!("\n{}", table::table(&["#AFTER", "WHO", "WHAT", ""], rows))
    }

    fn node_table(&self) -> String {
        let rows = self.nodes.iter().map(|(node, state, said)| {
            let figures = &said.figures;
            let numbers =
                [figures.worked, figures.tasks, figures.steals, figures.transactions, figures.retries];
            let named = [node.clone(), (*state).to_owned()].into_iter();
            named.chain(numbers.map(count)).collect()
        });
        table::table(&["NODE", "STATE", "#WORKED", "#TASKS", "#STEALS", "#TRANSACTIONS", "#RETRIES"], rows)
    }
}

/// What a job has cost ZooKeeper, in relation.
struct Cost {
    /// Of all tries of transactions, the share of those that were not the first.
    retried_share: f64,
    reads_per_write: f64,
    per_thousand_tasks: f64,
}

impl Cost {
    fn of(figures: Figures, requests: Requests) -> Self {
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Self {
            retried_share: share(figures.retries, figures.transactions + figures.retries),
            reads_per_write: share(requests.reads, requests.writes + requests.multis),
            per_thousand_tasks: 1000.0 * share(figures.transactions, figures.tasks),
        }
    }

    fn text(&self, figures: Figures) -> String {
        format!(
            "{} transactions, {:.1} % of the tries repeated; {:.1} reads per write; {:.1} transactions per thousand tasks",
            count(figures.transactions),
            100.0 * self.retried_share,
            self.reads_per_write,
            self.per_thousand_tasks,
        )
    }
}
