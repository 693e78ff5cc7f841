//! The view of a cluster, from its events.

mod forgotten;
mod histories;
mod series;

use std::{collections::BTreeMap, ops::Range};

use serde::Serialize;
use serde_json::Value;
use zk::{
    figures::{Best, EventKind, NodeFigures, PoolNow, Sense, Status, TimelineEvent},
    job::{JobRecord, JobState, Lost, Share},
    membership::Member,
    quarantine::AboutTask,
};

use super::*;
use crate::{
    display::{Field, JobDisplay, Unit},
    figures::{Figures, WorkerTimes},
    outlook::Outlook,
};

/// Returns the content of a znode with a record.
fn content(record: &impl Serialize) -> Content {
    let mut value = serde_json::to_value(record).unwrap();
    value["format"] = 2.into();
    Content::Data(value.to_string().into_bytes())
}

fn member(node: &str) -> Content {
    let labels = match node {
        "n1" => "price=0.10/h,currency=EUR,zone=a",
        "n2" => "price=free,zone=b",
        _ => "price=0.20/h,currency=USD",
    };
    content(&Member { labels: labels.parse().unwrap(), ..fixtures::member(node) })
}

fn job(state: JobState, attempt: u32) -> Content {
    content(&JobRecord { state, attempt, ..fixtures::record() })
}

fn report(worked: u64, last: bool) -> NodeFigures<Figures> {
    let times = WorkerTimes {
        searching_ns: worked.saturating_mul(1_000_000_000),
        starting_ns: worked % 7 * 100_000_000,
        ..WorkerTimes::default()
    };
    NodeFigures {
        attempt: 2,
        figures: Figures {
            worked,
            times,
            done_attos: worked.saturating_mul(10_u64.pow(15)),
            outlook: Outlook::AtLeast(10.0),
            open_tasks: Some(2),
            ..Figures::default()
        },
        pool: Some(PoolNow { workers: 2, busy: 1, ..PoolNow::default() }),
        best: Some(Best { value: 40.0 - worked as f64, sense: Sense::Min, name: "incumbent".to_owned() }),
        last,
        ..NodeFigures::default()
    }
}

const JOB: &str = "j-0000000001";

fn of_attempt(part: &str) -> String {
    format!("jobs/{JOB}/attempts/2/{part}")
}

fn name() -> Content {
    Content::Data(Vec::new())
}

fn shows(rank: u64, worked: u64) -> Status {
    let display = JobDisplay::new().value(Field::new("worked", "worked", Unit::Count, worked));
    Status { rank, content: serde_json::to_value(display).unwrap() }
}

fn path_of(number: u64) -> String {
    format!("jobs/j-{number:010}")
}

/// Returns a view in which jobs run, each with the report of a node.
fn with_jobs(mut view: View, numbers: Range<u64>) -> View {
    view.apply(&Event::of(1, "members/n1", member("n1")));
    for number in numbers {
        view.apply(&Event::of(1, path_of(number), job(JobState::Running, 2)));
        let led = format!("election/j-{number:010}~n1~0000000000");
        view.apply(&Event::of(1, led, name()));
        view.apply(&Event::of(1, format!("{}/figures/n1", path_of(number)), content(&report(5, true))));
    }
    view.apply(&Event::tick(1_000));
    view
}

fn view(events: impl IntoIterator<Item = (&'static str, Content)>) -> View {
    let mut view = View::default();
    for (path, content) in events {
        view.apply(&Event::of(1, path, content));
    }
    view.apply(&Event::tick(1_000));
    view
}

#[test]
fn job_summary_combines_reports_of_its_nodes() {
    let view = view([
        ("members/n1", member("n1")),
        ("members/n2", member("n2")),
        ("election/j-0000000001~n2~0000000000", name()),
        ("jobs/j-0000000001", job(JobState::Running, 2)),
        ("jobs/j-0000000001/figures/n1", content(&report(5, false))),
        ("jobs/j-0000000001/figures/n2", content(&report(7, false))),
        ("jobs/j-0000000001/figures/n0", content(&report(1, false))),
        ("jobs/j-0000000001/attempts/2/list", Content::Children(4)),
        ("jobs/j-0000000001/attempts/2/list/open", name()),
        ("jobs/j-0000000001/attempts/2/parked", Content::Children(1)),
    ]);
    let snapshot = view.snapshot();
    let JobNow { about, nodes, series } = &snapshot.jobs[JOB];
    assert_eq!((about.stage, about.leader.as_deref()), (Stage::Running, Some("n2")));
    assert_eq!((about.figures.worked, about.best, about.reported), (13, Some(33.0), true));
    assert_eq!((about.nodes_at_work, about.pool.unwrap().busy), (2, 2), "n0 is not a member");
    assert_eq!(
        (about.open_tasks, about.listed_tasks, about.parked_tasks),
        (Some(2 + 2 + 1), Some(3), Some(1))
    );
    assert_eq!(nodes["n0"].state, NodeState::Left);
    assert_eq!((series.points.len(), series.points[0].busy.last), (1, 2));
    assert_eq!(snapshot.members["n2"].leads, [JOB]);
    assert!(
        snapshot.moments.is_empty(),
        "the nodes were there, and the job ran, before: {:?}",
        snapshot.moments
    );
}

#[test]
fn node_of_initial_read_is_not_a_join_event() {
    let mut view = view([("members/n1", member("n1"))]);
    view.apply(&Event::of(2_000, "", Content::Found));
    view.apply(&Event::tick(2_000));
    view.apply(&Event::of(3_000, "members/n2", member("n2")));
    view.apply(&Event::tick(4_000));
    let joined: Vec<_> = view.moments().map(|moment| (moment.what, moment.name.as_str())).collect();
    assert_eq!((joined, view.snapshot().cluster.nodes_joined), (vec![(MomentKind::Joined, "n2")], 1));
}

#[test]
fn job_of_initial_read_is_not_a_run_event() {
    let mut view = view([("members/n1", member("n1")), ("jobs/j-0000000001", job(JobState::Running, 2))]);
    view.apply(&Event::of(2_000, "", Content::Found));
    view.apply(&Event::tick(2_000));
    view.apply(&Event::of(3_000, "jobs/j-0000000002", job(JobState::Running, 2)));
    view.apply(&Event::of(3_000, "election/j-0000000002~n1~0000000000", name()));
    view.apply(&Event::tick(4_000));
    let runs = view.moments().filter(|moment| moment.what == MomentKind::JobRuns);
    let runs: Vec<_> = runs.map(|moment| (moment.at_ms, moment.name.as_str())).collect();
    assert_eq!(runs, [(4_000, "j-0000000002")]);
}

#[test]
fn changed_share_of_a_job_is_an_event() {
    let path = "jobs/j-0000000001";
    let mut view = view([("members/n1", member("n1")), (path, job(JobState::Running, 2))]);
    view.apply(&Event::of(2_000, "", Content::Found));
    let share = Share { priority: 5, ..Share::default() };
    for (at_ms, share) in [(3_000, Share::default()), (4_000, share), (5_000, share)] {
        view.apply(&Event::of(at_ms, path, content(&JobRecord { share, ..fixtures::record() })));
        view.apply(&Event::tick(at_ms));
    }
    let seen: Vec<_> =
        view.moments().map(|moment| (moment.at_ms, moment.what, moment.name.as_str())).collect();
    assert_eq!(seen, [(4_000, MomentKind::JobShare, JOB)]);
}

#[test]
fn bound_includes_open_tasks_until_a_job_is_done_and_is_unknown_where_no_node_has_them() {
    let bound = |parked: Option<u32>, set_aside: bool, state| {
        let seen = [
            ("members/n1", member("n1")),
            ("jobs/j-0000000001", job(state, 2)),
            ("jobs/j-0000000001/figures/n1", content(&report(5, false))),
            ("jobs/j-0000000001/attempts/2/list", Content::Children(4)),
        ];
        let parked = parked.map(|parked| ("jobs/j-0000000001/attempts/2/parked", Content::Children(parked)));
        let about = content(&AboutTask { crashes: 3, reason: "why".to_owned(), at_ms: 0 });
        let set_aside = set_aside.then_some(("jobs/j-0000000001/attempts/2/quarantine/n1-0/about", about));
        let about = view(seen.into_iter().chain(parked).chain(set_aside)).job(JOB).unwrap().about;
        (about.bound, about.gap.is_some())
    };
    let runs = JobState::Running;
    assert_eq!(bound(Some(0), false, runs), (Some(10.0), true));
    assert_eq!(bound(Some(1), false, runs), (None, false), "something better may be parked");
    assert_eq!(bound(Some(0), true, runs), (None, false), "or have been set aside");
    assert_eq!(bound(None, false, runs), (None, false), "nobody knows yet");
    for stopped in [JobState::Suspended, JobState::Cancelled] {
        assert_eq!(
            bound(Some(1), false, stopped),
            (Some(10.0), true),
            "the last reports include parked tasks"
        );
        assert_eq!(bound(Some(0), true, stopped), (None, false));
    }
    assert_eq!(bound(Some(0), false, JobState::Failed), (None, false));
    assert_eq!(
        bound(Some(1), false, JobState::Done),
        (Some(35.0), true),
        "the node was lost, and others continued"
    );
}

#[test]
fn bound_of_a_done_job_is_that_of_work_left_open_at_a_limit() {
    let mut limited = report(5, true);
    limited.figures.left_open = Outlook::AtLeast(20.0);
    let seen = [
        ("jobs/j-0000000001", job(JobState::Done, 2)),
        ("jobs/j-0000000001/figures/n1", content(&limited)),
        ("jobs/j-0000000001/figures/n2", content(&report(5, false))),
    ];
    assert_eq!(view(seen).job(JOB).unwrap().about.bound, Some(20.0));
}

#[test]
fn share_of_a_done_job_is_one_unless_work_was_left_open_at_a_limit() {
    for (left_open, share) in [(Outlook::Nothing, 1.0), (Outlook::AtLeast(20.0), 0.5)] {
        let mut last = report(5, true);
        (last.figures.left_open, last.figures.done_attos) = (left_open, Figures::attos(0.5));
        let seen =
            [("jobs/j-0000000001", job(JobState::Done, 2)), ("jobs/j-0000000001/figures/n1", content(&last))];
        assert_eq!(view(seen).job(JOB).unwrap().about.share, Some(share));
    }
}

#[test]
fn event_of_a_departed_node_keeps_its_record() {
    let mut view = view([("members/n1", member("n1"))]);
    view.apply(&Event::of(2_000, "members/n1", Content::Gone));
    for at_ms in [2_100, 2_300] {
        view.apply(&Event::tick(at_ms));
    }
    let moments = view.snapshot().moments;
    let kept = moments.last().and_then(|moment| moment.member.as_deref());
    assert_eq!(kept.map(|member| (member.host.as_str(), member.pid)), Some(("gpu-17", 17)), "{moments:?}");
}

#[test]
fn departed_node_is_lost_unless_it_had_left() {
    let mut view = view([
        ("members/n1", member("n1")),
        ("members/n2", member("n2")),
        ("jobs/j-0000000001", job(JobState::Running, 2)),
        ("jobs/j-0000000001/figures/n2", content(&report(7, false))),
        ("jobs/j-0000000001/attempts/2/outputs/n1", name()),
        ("jobs/j-0000000001/attempts/2/outputs/n2", name()),
        ("jobs/j-0000000001/attempts/2/left/n1", name()),
    ]);
    for node in ["members/n1", "members/n2"] {
        view.apply(&Event::of(2_000, node, Content::Gone));
    }
    let mut decided = Vec::new();
    for at_ms in [2_100, 2_299, 2_300] {
        view.apply(&Event::tick(at_ms));
        let cluster = view.snapshot().cluster;
        decided.push(cluster.nodes_left + cluster.nodes_lost);
    }
    // By the second tick, even though that is early: a clock may stand still.
    assert_eq!(decided, [0, 2, 2]);
    let Snapshot { cluster, jobs, .. } = view.snapshot();
    assert_eq!((cluster.nodes_joined, cluster.nodes_left, cluster.nodes_lost), (0, 1, 1));
    assert_eq!(
        (jobs[JOB].nodes["n2"].state, &jobs[JOB].about.lost[..]),
        (NodeState::Lost, &["n2".to_owned()][..])
    );
}

#[test]
fn lost_nodes_of_a_finished_job_are_those_without_a_last_report() {
    let over = [
        ("jobs/j-0000000001", job(JobState::Done, 2)),
        ("jobs/j-0000000001/figures/n1", content(&report(7, true))),
        ("jobs/j-0000000001/figures/n2", content(&report(7, false))),
        ("jobs/j-0000000001/attempts/2/outputs/n1", name()),
        ("jobs/j-0000000001/attempts/2/outputs/n2", name()),
    ];
    let members = [("members/n1", member("n1")), ("members/n2", member("n2"))];
    let mut seen_running = view(members.into_iter().chain(over.clone()));
    seen_running.apply(&Event::of(2_000, "jobs/j-0000000001", job(JobState::Running, 2)));
    seen_running.apply(&Event::of(2_000, "jobs/j-0000000001/figures/n1", content(&report(7, false))));
    seen_running.apply(&Event::of(2_000, "members/n2", Content::Gone));
    seen_running.apply(&Event::tick(2_300));
    for (path, content) in over.clone() {
        seen_running.apply(&Event::of(3_000, path, content));
    }
    seen_running.apply(&Event::of(3_000, "members/n1", Content::Gone));
    seen_running.apply(&Event::tick(4_000));
    let cluster = seen_running.snapshot().cluster;
    assert_eq!((cluster.nodes_left, cluster.nodes_lost), (1, 1));
    // Another observer starts after the end.
    for view in [seen_running, view(over)] {
        let job = view.job(JOB).unwrap();
        let states = ["n1", "n2"].map(|node| job.nodes[node].state);
        assert_eq!(
            (states, &job.about.lost[..]),
            ([NodeState::Left, NodeState::Lost], &["n2".to_owned()][..])
        );
    }
}

#[test]
fn node_whose_loss_ended_an_attempt_is_lost() {
    for state in [JobState::Running, JobState::Failed] {
        let mut view = view([
            ("members/n1", member("n1")),
            ("members/n2", member("n2")),
            ("jobs/j-0000000001", job(JobState::Running, 2)),
            ("jobs/j-0000000001/attempts/2/outputs/n1", name()),
            ("jobs/j-0000000001/attempts/2/outputs/n2", name()),
        ]);
        view.apply(&Event::of(2_000, "members/n2", Content::Gone));
        let lost = vec![Lost { node: "n2".to_owned(), attempt: 2, at_ms: 2_000 }];
        let record = JobRecord { state, attempt: 3, lost, ..fixtures::record() };
        view.apply(&Event::of(2_000, "jobs/j-0000000001", content(&record)));
        view.apply(&Event::tick(2_300));
        let cluster = view.snapshot().cluster;
        assert_eq!((cluster.nodes_left, cluster.nodes_lost), (0, 1), "{state:?}");
    }
}

#[test]
fn unreadable_znode_has_a_warning_until_it_is_readable() {
    let mut view = view([("members/n1", member("n2")), ("jobs/j-0000000001", Content::Data(b"{".to_vec()))]);
    let snapshot = view.snapshot();
    assert_eq!(snapshot.warnings.keys().collect::<Vec<_>>(), ["jobs/j-0000000001", "members/n1"]);
    assert_eq!(snapshot.jobs[JOB].about.stage, Stage::Unreadable);
    assert_eq!(snapshot.members["n1"].member, None);
    view.apply(&Event::of(2, "members/n1", member("n1")));
    view.apply(&Event::of(2, "jobs/j-0000000001", Content::Gone));
    view.apply(&Event::tick(2_000));
    let snapshot = view.snapshot();
    assert!(snapshot.warnings.is_empty() && snapshot.jobs.is_empty(), "{snapshot:?}");
}

#[test]
fn outage_start_is_shown_until_zookeeper_answers() {
    let mut view = view([]);
    for (at_ms, content) in [(5_000, Content::Lost), (6_000, Content::Lost)] {
        view.apply(&Event::of(at_ms, "", content));
    }
    view.apply(&Event::tick(7_000));
    let cluster = view.snapshot().cluster;
    assert_eq!((cluster.silent_since_ms, cluster.outages, cluster.at_ms), (Some(5_000), 1, 7_000));
    view.apply(&Event::of(8_000, "", Content::Found));
    view.apply(&Event::tick(9_000));
    assert_eq!(view.snapshot().cluster.silent_since_ms, None);
}

#[test]
fn current_values_of_lost_nodes_are_not_counted() {
    let status = |done: u64, running: u64| {
        let done = Field::new("done", "done", Unit::Count, done);
        let running = Field::new("running", "running", Unit::Count, running).current();
        Status {
            rank: 0,
            content: serde_json::to_value(JobDisplay::new().value(done).value(running)).unwrap(),
        }
    };
    let of = |status, last| NodeFigures { status: Some(status), ..report(5, last) };
    let mut view = view([
        ("members/n1", member("n1")),
        ("jobs/j-0000000001", job(JobState::Running, 2)),
        ("jobs/j-0000000001/figures/n1", content(&of(status(3, 2), false))),
        ("jobs/j-0000000001/figures/n2", content(&of(status(4, 500), false))),
        ("jobs/j-0000000001/figures/n3", content(&of(status(5, 0), true))),
    ]);
    let counts = |view: &View| {
        let display = view.job(JOB).unwrap().about.display.clone().unwrap();
        (display.count_of("done"), display.count_of("running"))
    };
    assert_eq!(counts(&view), (Some(12), Some(2)), "n2 is no member");
    view.apply(&Event::of(2_000, "members/n1", Content::Gone));
    view.apply(&Event::of(2_000, "jobs/j-0000000001/figures/n1", content(&of(status(3, 2), false))));
    view.apply(&Event::tick(2_100));
    assert_eq!(counts(&view), (Some(12), Some(0)));
}

#[test]
fn deeply_nested_display_is_left_out() {
    // Up to the maximum depth that a report can have.
    let nested = |levels: usize| (0..levels).fold(Value::from(7), |inner, _| Value::Array(vec![inner]));
    for levels in [0, 1, 99, 100, 118] {
        let mut status = shows(1, 7);
        status.content["values"][0]["value"] = nested(levels);
        let report = NodeFigures { status: Some(status), ..report(1, false) };
        let view = view([
            ("jobs/j-0000000001", job(JobState::Running, 2)),
            ("jobs/j-0000000001/figures/n1", content(&report)),
        ]);
        let snapshot = view.snapshot();
        assert!(snapshot.warnings.is_empty(), "{:?}", snapshot.warnings);
        let display = snapshot.jobs[JOB].about.display.as_deref().unwrap();
        assert_eq!(display.count_of("worked").is_some(), levels == 0, "{levels} levels");
        let written = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&written).unwrap(), snapshot);
    }
}

#[test]
fn report_texts_are_truncated() {
    let events = (0..1_000).map(|at_ms| TimelineEvent {
        at_ms,
        kind: EventKind::Improved,
        detail: "ä".repeat(10_000),
    });
    let report = NodeFigures { timeline: events.collect(), ..report(1, false) };
    let view = view([
        ("jobs/j-0000000001", job(JobState::Running, 2)),
        ("jobs/j-0000000001/figures/n1", content(&report)),
    ]);
    let snapshot = view.snapshot();
    let timeline = &snapshot.jobs[JOB].nodes["n1"].report.timeline;
    assert_eq!((timeline.len(), timeline[0].detail.chars().count()), (64, 1_000));
}

#[test]
fn delta_contains_large_fields_only_when_changed() {
    let with_status = |worked, shown: Option<u64>| {
        content(&NodeFigures { status: shown.map(|shown| shows(1, shown)), ..report(worked, false) })
    };
    let figures = "jobs/j-0000000001/figures/n1";
    let mut view =
        view([("jobs/j-0000000001", job(JobState::Running, 2)), (figures, with_status(1, Some(7)))]);
    let mut told = |content| {
        let seq = view.seq();
        view.apply(&Event::of(2, figures, content));
        view.apply(&Event::tick(1_000 * (seq + 1)));
        let delta = view.delta_since(seq).unwrap().jobs.remove(JOB).unwrap();
        assert!(delta.about.is_some_and(|about| about.record.is_none() && about.display.is_none()));
        (
            delta.record.is_some(),
            delta.display.map(|display| display.map(|display| display.count_of("worked"))),
        )
    };
    assert_eq!(told(with_status(2, Some(7))), (false, None));
    assert_eq!(told(with_status(3, Some(8))), (false, Some(Some(Some(8)))));
    assert_eq!(told(with_status(4, None)), (false, Some(None)));
}
