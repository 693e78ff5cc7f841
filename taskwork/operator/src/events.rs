//! `taskwork events`: the events of a cluster, as far as its records contain them, and further ones as they happen.

use serde_json::json;
use taskwork::{
    JobId,
    client::{Overview, records::EventKind},
    view::{Content, Event, Moment, MomentKind, Stage, View},
};
use taskwork_cli::{Failure, command::print, printable};

use super::{connection::Connection, json::SCHEMA, table};

/// The options of `taskwork events`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only the events of this job, without those of its nodes.
    #[arg(long, value_name = "ID", value_parser = taskwork_cli::command::job_id)]
    job: Option<JobId>,
    /// The maximum number of earlier events: the latest ones.
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    limit: usize,
    /// Also print further events when they happen, until Ctrl-C.
    #[arg(long, short)]
    pub(super) watch: bool,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Happened {
    at_ms: u64,
    /// Its name, as in `/api/view` if it occurs there.
    event: &'static str,
    subject: Subject,
    detail: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Cluster,
    Job { id: String, name: String },
    Node { name: String, host: String },
}

/// Prints the events that the records contain, and with `--watch` those that follow.
pub(super) async fn run(connection: &Connection, arguments: &Arguments) -> Result<(), Failure> {
    let observer = connection.client.observer();
    let overview = connection.client.overview_with_reports().await?;
    let mut events = recorded(&overview);
    events.retain(|event| arguments.concerns(event));
    let surplus = events.len().saturating_sub(arguments.limit);
    events[surplus..].iter().for_each(|event| event.print(connection.json));
    if !arguments.watch {
        return Ok(());
    }
    let (mut view, json) = (View::default(), connection.json);
    let mut take = |event: Event| {
        let (is_tick, seen) = (event.content == Content::Tick, view.seq());
        view.apply(&event);
        if is_tick {
            let new = view.moments().filter(|moment| moment.seq > seen).map(|moment| observed(moment, &view));
            new.filter(|event| arguments.concerns(event)).for_each(|event| event.print(json));
        }
    };
    Err(observer.follow(&mut take).await.into())
}

impl Arguments {
    fn concerns(&self, event: &Happened) -> bool {
        let Some(wanted) = &self.job else { return true };
        matches!(&event.subject, Subject::Job { id, .. } if id == wanted.as_str())
    }
}

/// Returns the events that the records of a cluster contain, the earliest first. Times are those of the machines that
/// recorded them.
fn recorded(overview: &Overview) -> Vec<Happened> {
    let mut events = Vec::new();
    for job in &overview.jobs {
        let Some(record) = &job.record else { continue };
        let mut add = |at_ms, event, detail: String| {
            let subject = Subject::Job { id: job.id.clone(), name: record.name.clone() };
            events.push(Happened { at_ms, event, subject, detail });
        };
        add(record.submitted_ms, "job_submitted", format!("by {}", record.submitter));
        for change in &record.share_changes {
            add(change.at_ms, name_of(MomentKind::JobShare), format!("{}, by {}", change.share, change.by));
        }
        if let Some(at_ms) = record.finished_ms {
            add(at_ms, name_of(MomentKind::JobOver), end(job.stage, record.reason.as_deref()));
        }
        for lost in &record.lost {
            let subject = Subject::Node { name: lost.node.clone(), host: String::new() };
            let detail = format!("attempt {} of job {} ended with it", lost.attempt, job.id);
            events.push(Happened { at_ms: lost.at_ms, event: name_of(MomentKind::Lost), subject, detail });
        }
    }
    events.extend(overview.members.iter().map(|member| Happened {
        at_ms: member.started_ms,
        event: name_of(MomentKind::Joined),
        subject: Subject::Node { name: member.node.clone(), host: member.host.clone() },
        detail: String::new(),
    }));
    for (job, _, report) in overview.reports() {
        let losses = report.timeline.iter().filter(|event| event.kind == EventKind::Lost);
        events.extend(losses.map(|event| Happened {
            at_ms: event.at_ms,
            event: "nodes_lost",
            subject: Subject::Job { id: job.to_owned(), name: String::new() },
            detail: event.detail.clone(),
        }));
    }
    events.sort();
    events
}

/// Returns an observed event.
fn observed(moment: &Moment, view: &View) -> Happened {
    let Moment { at_ms, what, name, member, .. } = moment;
    let about = view.about(name);
    let record = about.as_ref().and_then(|about| about.record.as_deref());
    let detail = match (what, &about) {
        (MomentKind::JobOver, Some(about)) => {
            end(about.stage, record.and_then(|record| record.reason.as_deref()))
        }
        (MomentKind::JobShare, _) => record.map(|record| record.share.to_string()).unwrap_or_default(),
        _ => String::new(),
    };
    let subject = match what {
        MomentKind::JobRuns | MomentKind::JobOver | MomentKind::JobShare => Subject::Job {
            id: name.clone(),
            name: record.map(|record| record.name.clone()).unwrap_or_default(),
        },
        MomentKind::ServersAway | MomentKind::ServersBack => Subject::Cluster,
        _ => {
            let present = view.member(name).and_then(|now| now.member.clone());
            let host = member.clone().or(present).map(|member| member.host.clone());
            Subject::Node { name: name.clone(), host: host.unwrap_or_default() }
        }
    };
    Happened { at_ms: *at_ms, event: name_of(*what), subject, detail }
}

fn end(stage: Stage, reason: Option<&str>) -> String {
    [Some(stage.text()), reason].into_iter().flatten().collect::<Vec<_>>().join(": ")
}

impl Happened {
    fn print(&self, json: bool) {
        print(&if json { format!("{}\n", self.json()) } else { printable::line(&self.text()) + "\n" });
    }

    fn json(&self) -> serde_json::Value {
        let (job, node, host) = match &self.subject {
            Subject::Cluster => (None, None, None),
            Subject::Job { id, .. } => (Some(id), None, None),
            Subject::Node { name, host } => (None, Some(name), Some(host)),
        };
        json!({
            "schema": SCHEMA, "at_ms": self.at_ms, "event": self.event, "job": job, "node": node, "host": host,
            "detail": self.detail,
        })
    }

    fn text(&self) -> String {
        let subject = match &self.subject {
            Subject::Cluster => "ZooKeeper".to_owned(),
            Subject::Job { id, name } if name.is_empty() => format!("job {id}"),
            Subject::Job { id, name } => format!("job {id} ({name})"),
            Subject::Node { name, host } if host.is_empty() => format!("node {name}"),
            Subject::Node { name, host } => format!("node {name} on {host}"),
        };
        let colon = if self.detail.is_empty() { "" } else { ": " };
        format!("{}  {subject} {}{colon}{}", table::time(self.at_ms), words(self.event), self.detail)
    }
}

/// Returns the name of an event of the cluster, as in `/api/view`.
fn name_of(what: MomentKind) -> &'static str {
    match what {
        MomentKind::Joined => "joined",
        MomentKind::Left => "left",
        MomentKind::Lost => "lost",
        MomentKind::JobRuns => "job_runs",
        MomentKind::JobOver => "job_over",
        MomentKind::JobShare => "job_share",
        MomentKind::Cordoned => "cordoned",
        MomentKind::Uncordoned => "uncordoned",
        MomentKind::ServersAway => "servers_away",
        MomentKind::ServersBack => "servers_back",
        _ => "other",
    }
}

/// Returns the predicate of an event of the cluster.
pub(crate) fn happened(what: MomentKind) -> &'static str {
    words(name_of(what))
}

fn words(event: &str) -> &'static str {
    match event {
        "joined" => "has joined",
        "left" => "has left",
        "lost" => "was lost",
        "nodes_lost" => "lost nodes",
        "cordoned" => "was cordoned",
        "uncordoned" => "was uncordoned",
        "job_submitted" => "was submitted",
        "job_runs" => "runs",
        "job_over" => "is over",
        "job_share" => "has another share",
        "servers_away" => "does not answer",
        "servers_back" => "answers again",
        _ => "has changed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_events_equal_those_of_the_view() {
        let all = [
            MomentKind::Joined,
            MomentKind::Left,
            MomentKind::Lost,
            MomentKind::JobRuns,
            MomentKind::JobOver,
            MomentKind::JobShare,
            MomentKind::Cordoned,
            MomentKind::Uncordoned,
            MomentKind::ServersAway,
            MomentKind::ServersBack,
        ];
        for what in all {
            assert_eq!(serde_json::to_value(what).unwrap(), name_of(what));
            assert_ne!(happened(what), happened_of_unknown());
        }
    }

    fn happened_of_unknown() -> &'static str {
        words("other")
    }

    #[test]
    fn event_is_a_sentence_and_an_object() {
        let subject = Subject::Node { name: "n1".to_owned(), host: "gpu-17".to_owned() };
        let lost = Happened { at_ms: 1_000, event: "lost", subject, detail: String::new() };
        assert_eq!(lost.text(), "1970-01-01T00:00:01Z  node n1 on gpu-17 was lost");
        let subject = Subject::Job { id: "j-1".to_owned(), name: "big".to_owned() };
        let detail = end(Stage::Failed, Some("a defect"));
        let over = Happened { at_ms: 1_000, event: "job_over", subject, detail };
        assert_eq!(over.text(), "1970-01-01T00:00:01Z  job j-1 (big) is over: failed: a defect");
        let object = over.json();
        assert_eq!(
            (&object["schema"], &object["job"], &object["node"]),
            (&json!(SCHEMA), &json!("j-1"), &json!(null))
        );
    }

    #[test]
    fn observed_event_names_state_and_host() {
        let record = |state: &str| {
            let record = json!({
                "format": 2, "program": "tree", "program_version": "1", "kind": "tree", "name": "big",
                "submitter": "anna", "state": state, "attempt": 1, "attempts_max": 3, "root": "", "shared_chunks": 0,
                "submitted_ms": 0, "finished_ms": 7, "reason": null, "lost": [],
            });
            Content::Data(record.to_string().into_bytes())
        };
        let member = json!({
            "format": 2, "node": "n1", "host": "gpu-17", "address": null, "fingerprint": "", "workers": 1,
            "program": "tree", "program_version": "1", "started_ms": 0,
        });
        let mut view = View::default();
        let mut see = |at_ms: u64, path: &str, content: Content| {
            view.apply(&Event::of(at_ms, path, content));
            view.apply(&Event::tick(at_ms));
            view.moments()
                .filter(|moment| moment.seq == view.seq())
                .map(|moment| observed(moment, &view).text())
                .collect::<Vec<_>>()
        };
        let id = "jobs/j-0000000001";
        see(0, id, record("running"));
        assert!(see(0, "", Content::Found).is_empty());
        let joined = see(1_000, "members/n1", Content::Data(member.to_string().into_bytes()));
        assert_eq!(joined[0], "1970-01-01T00:00:01Z  node n1 on gpu-17 has joined");
        let over = see(2_000, id, record("cancelled"));
        assert_eq!(over, ["1970-01-01T00:00:02Z  job j-0000000001 (big) is over: cancelled"]);
    }
}
