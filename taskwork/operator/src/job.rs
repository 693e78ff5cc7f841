//! `taskwork job`.

use std::{borrow::Cow, collections::BTreeSet, fmt::Write as _};

use serde_json::json;
use taskwork::{
    JobId,
    client::{JobDetails, Share, records::Requests},
    report::Figures,
};
use taskwork_cli::{Failure, printable};

use super::{
    connection::Connection,
    json, ledger, show,
    table::{self, count, lapse},
    top::text::percent,
};

/// The details of a job at one moment.
struct Facts {
    id: JobId,
    job: JobDetails,
}

pub(super) async fn run(connection: &Connection, id: &JobId, timeline: bool) -> Result<(), Failure> {
    let facts = Facts { id: id.clone(), job: connection.client.job(id).await? };
    let display = facts.job.display.as_ref().map(show::text).unwrap_or_default();
    let text = || facts.text() + &display + &if timeline { facts.timeline_text() } else { String::new() };
    connection.say(|| facts.json(), text);
    Ok(())
}

impl Facts {
    fn json(&self) -> serde_json::Value {
        let mut object = json::record(self.id.as_str(), self.job.stage, Some(&self.job.record));
        let (figures, requests) = self.job.sums();
        let nodes = self.job.nodes.iter().map(|work| {
            json!({
                "node": work.node,
                "host": work.published.host,
                "state": work.state,
                "attempt": work.published.attempt,
                "figures": json::figures(&work.published.figures),
                "requests": work.published.requests,
                "at_ms": work.published.at_ms,
                "ledger": work.published.ledger,
            })
        });
        let nodes: Vec<_> = nodes.collect();
        let timeline: Vec<_> = self
            .timeline()
            .into_iter()
            .map(|(at_ms, who, kind, detail)| {
                json!({ "at_ms": at_ms, "who": who, "kind": kind, "detail": detail })
            })
            .collect();
        let cost = Cost::of(&figures, requests);
        if let Some(fields) = object.as_object_mut() {
            fields.insert("figures".to_owned(), json::figures(&figures));
            fields.insert("share_done".to_owned(), json!(self.job.share));
            for (name, number) in [("best", self.job.best), ("bound", self.job.bound), ("gap", self.job.gap)]
            {
                fields.insert(name.to_owned(), json!(number));
            }
            fields.insert("efficiency".to_owned(), json!(efficiency(&figures)));
            let (workers, busy) = self.job.workers.unzip();
            fields.insert("workers".to_owned(), json!(workers));
            fields.insert("busy_workers".to_owned(), json!(busy));
            fields.insert("requests".to_owned(), json!(requests));
            fields.insert("nodes".to_owned(), json!(nodes));
            fields.insert("timeline".to_owned(), json!(timeline));
            fields.insert("display".to_owned(), json!(self.job.display.as_ref().map(show::json)));
            fields.insert("unwritten_ms".to_owned(), json!(self.job.unwritten_ms()));
            let unprotected: Vec<&str> = self.job.unprotected().map(|(node, _)| node).collect();
            fields.insert("unprotected".to_owned(), json!(unprotected));
            fields.insert("set_aside".to_owned(), json!(self.job.set_aside));
            fields.insert("missing".to_owned(), json!(self.job.missing));
            fields.insert("leader".to_owned(), json!(self.job.leader));
            fields.insert("open_tasks".to_owned(), json!(self.job.open_tasks));
            fields.insert("parked_tasks".to_owned(), json!(self.job.parked_tasks));
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
        let record = &self.job.record;
        let mut rows = vec![
            ("job", self.id.to_string()),
            ("state", self.job.stage.text().to_owned()),
            ("name", record.name.clone()),
            ("program", format!("{} {} ({})", record.program, record.program_version, record.kind)),
            ("submitted", format!("{} by {}", table::time(record.submitted_ms), record.submitter)),
            ("attempt", format!("{} of at most {}", record.attempt, record.attempts_max)),
        ];
        if !record.require.is_empty() {
            rows.push(("requires", record.require.to_string()));
        }
        if record.share != Share::default() {
            rows.push(("share", record.share.to_string()));
        }
        if !record.after.is_empty() {
            rows.push(("after", record.after.join(", ")));
        }
        rows.extend(self.job.missing.iter().map(|missing| ("missing", missing.clone())));
        rows.extend(self.job.leader.iter().map(|leader| ("leader", leader.clone())));
        if let Some(finished) = record.finished_ms {
            let took = lapse(record.submitted_ms, finished);
            rows.push(("finished", format!("{}, {took} after its submission", table::time(finished))));
        }
        if let Some(reason) = &record.reason {
            rows.push(("reason", reason.clone()));
        }
        let (figures, requests) = self.job.sums();
        let share = self.job.share.map(|share| format!(", an estimated {} of the whole", percent(share)));
        let earlier = (figures.worked_earlier > 0).then(|| {
            format!(", {} of them in earlier attempts: these are repeated", count(figures.worked_earlier))
        });
        let units = count(figures.worked);
        let rest = earlier.into_iter().chain(share).collect::<String>();
        rows.push(("worked", format!("{units} units{rest}")));
        rows.extend(solution(self.job.best, self.job.bound, self.job.gap).map(|best| ("best", best)));
        rows.extend(workers(self.job.workers, &figures).map(|workers| ("workers", workers)));
        let split =
            format!("{} completed, {} of them split off", count(figures.tasks), count(figures.splits));
        rows.push(("tasks", split));
        let stolen = count(figures.stolen_tasks);
        let steals = format!("{} of {} requests", count(figures.steals), count(figures.requests));
        rows.push(("steals", format!("{steals}; {stolen} tasks received")));
        if let Some((open, parked)) = self.job.open_tasks.zip(self.job.parked_tasks) {
            rows.push(("not done", format!("{open} tasks in the global task list, {parked} parked")));
        }
        rows.extend(self.job.set_aside.iter().map(|task| ("set aside", task.to_string())));
        rows.extend(losses(&figures).map(|losses| ("losses", losses)));
        rows.extend(self.job.unwritten_ms().map(|ms| ("at stake", ledger::cost(ms))));
        let unprotected = self.job.unprotected();
        let told = unprotected.map(|(node, held)| format!("{node} is {}", ledger::unprotected(&held)));
        rows.extend(told.map(|told| ("at stake", told)));
        let cost = Cost::of(&figures, requests);
        rows.push(("ZooKeeper", cost.text(&figures)));
        let mut text = table::list(&rows);
        for lost in &record.lost {
            let _ = writeln!(
                text,
                "lost       {} in attempt {} at {}",
                printable::line(&lost.node),
                lost.attempt,
                table::time(lost.at_ms)
            );
        }
        if !self.job.nodes.is_empty() {
            text += "\n";
            text += &self.node_table();
        }
        text
    }

    /// Returns the events of the job (time, node, event, details), ordered as far as the nodes' clocks agree.
    fn timeline(&self) -> Vec<(u64, &str, String, Cow<'_, str>)> {
        let record = &self.job.record;
        let submitter = record.submitter.as_str();
        let mut timeline = vec![(record.submitted_ms, submitter, "submitted".to_owned(), Cow::Borrowed(""))];
        timeline.extend(record.share_changes.iter().map(|change| {
            let share = Cow::Owned(change.share.to_string());
            (change.at_ms, change.by.as_str(), "share_changed".to_owned(), share)
        }));
        for work in &self.job.nodes {
            let events = work.published.timeline.iter();
            timeline.extend(events.map(|event| {
                let kind = serde_json::to_value(event.kind).unwrap_or_default();
                let kind = kind.as_str().unwrap_or_default().to_owned();
                (event.at_ms, work.node.as_str(), kind, Cow::Borrowed(event.detail.as_str()))
            }));
        }
        if let Some(finished) = record.finished_ms {
            timeline.push((
                finished,
                "-",
                json::name_of(self.job.stage),
                Cow::Borrowed(record.reason.as_deref().unwrap_or("")),
            ));
        }
        timeline.sort_by_key(|(at_ms, ..)| *at_ms);
        timeline
    }

    fn timeline_text(&self) -> String {
        let start = self.job.record.submitted_ms;
        let rows = self.timeline().into_iter().map(|(at_ms, who, what, detail)| {
            let before = at_ms < start;
            let lapse = if before { lapse(at_ms, start) } else { lapse(start, at_ms) };
            let sign = if before { "-" } else { "" };
            vec![format!("{sign}{lapse}"), who.to_owned(), what.replace('_', " "), detail.into_owned()]
        });
        format!("\n{}", table::table(&["#AFTER", "WHO", "WHAT", ""], rows))
    }

    fn node_table(&self) -> String {
        let at_work: BTreeSet<&str> = self.job.at_work().map(|work| work.node.as_str()).collect();
        let rows = self.job.nodes.iter().map(|work| {
            let at_work = at_work.contains(work.node.as_str());
            let written = if at_work { ledger::written(&work.published) } else { "-".to_owned() };
            let figures = &work.published.figures;
            let numbers =
                [figures.worked, figures.tasks, figures.steals, figures.transactions, figures.retries];
            let host = table::or_none(&work.published.host);
            let named = [work.node.clone(), host, work.state.text().to_owned()].into_iter();
            named.chain(numbers.map(count)).chain([written]).collect()
        });
        let numbers = ["#WORKED", "#TASKS", "#STEALS", "#TRANSACTIONS", "#RETRIES"];
        let columns: Vec<&str> =
            ["NODE", "HOST", "STATE"].into_iter().chain(numbers).chain(["WRITTEN"]).collect();
        table::table(&columns, rows)
    }
}

/// Describes the best solution, if its value is known.
fn solution(best: Option<f64>, bound: Option<f64>, gap: Option<f64>) -> Option<String> {
    let best = best?;
    let gap = gap.map(|gap| format!(", a gap of {:.2} %", 100.0 * gap)).unwrap_or_default();
    Some(match bound {
        Some(bound) => format!("{best}; the bound is {bound}{gap}"),
        None => format!("{best}; no bound is known"),
    })
}

/// Returns the share of the workers' time in which they ran the program's code; `None` if no node reports it.
fn efficiency(figures: &Figures) -> Option<f64> {
    let whole = figures.times.total_ns();
    (whole > 0).then(|| figures.times.searching_ns as f64 / whole as f64)
}

/// Describes the number of workers and the share of their time in which they searched.
fn workers(now: Option<(u32, u32)>, figures: &Figures) -> Option<String> {
    let share = efficiency(figures).map(|share| format!("busy for {:.1} % of their time", 100.0 * share));
    let now = now.map(|(workers, busy)| format!("{busy} of {workers} have a task"));
    let told: Vec<String> = now.into_iter().chain(share).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// Describes the work recovered from lost nodes and the grants dropped, if there are any.
fn losses(figures: &Figures) -> Option<String> {
    let Figures { recovered, dropped, .. } = *figures;
    (recovered + dropped > 0).then(|| {
        format!(
            "{} tasks recovered from the ledgers of lost nodes; {} grants dropped that were in none",
            count(recovered),
            count(dropped)
        )
    })
}

/// The cost of a job in ZooKeeper requests, as ratios.
struct Cost {
    /// The share of retries among all tries of transactions.
    retried_share: f64,
    reads_per_write: f64,
    per_thousand_tasks: f64,
}

impl Cost {
    fn of(figures: &Figures, requests: Requests) -> Self {
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Self {
            retried_share: share(figures.retries, figures.transactions + figures.retries),
            reads_per_write: share(requests.reads, requests.writes + requests.multis),
            per_thousand_tasks: 1000.0 * share(figures.transactions, figures.tasks),
        }
    }

    fn text(&self, figures: &Figures) -> String {
        format!(
            "{} transactions, {:.1} % of the tries repeated; {:.1} reads per write; {} transactions per \
             thousand tasks",
            count(figures.transactions),
            100.0 * self.retried_share,
            self.reads_per_write,
            thousands(self.per_thousand_tasks),
        )
    }
}

/// Formats a ratio: a large one without decimals.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is a whole number of at least 1,000"
)]
fn thousands(ratio: f64) -> String {
    if ratio < 1_000.0 { format!("{ratio:.1}") } else { count(ratio.round() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_ratio_has_separators_and_no_decimals() {
        assert_eq!([244.44, 237_500.2].map(thousands), ["244.4", "237,500"]);
    }

    #[test]
    fn unknown_solution_and_workers_are_omitted() {
        assert_eq!(solution(None, Some(3.0), None), None);
        assert_eq!(solution(Some(40.0), None, None).as_deref(), Some("40; no bound is known"));
        assert_eq!(
            solution(Some(40.0), Some(30.5), Some(0.2375)).as_deref(),
            Some("40; the bound is 30.5, a gap of 23.75 %")
        );
        let mut figures = Figures::default();
        assert_eq!(workers(None, &figures), None);
        assert_eq!(workers(Some((4, 1)), &figures).as_deref(), Some("1 of 4 have a task"));
        (figures.times.searching_ns, figures.times.looking_ns) = (3, 1);
        assert_eq!(workers(None, &figures).as_deref(), Some("busy for 75.0 % of their time"));
    }

    #[test]
    fn losses_appear_once_there_are_any() {
        let mut figures = Figures::default();
        assert_eq!(losses(&figures), None);
        (figures.recovered, figures.dropped) = (1_234, 2);
        let told = "1,234 tasks recovered from the ledgers of lost nodes; 2 grants dropped that were in none";
        assert_eq!(losses(&figures).as_deref(), Some(told));
    }
}
