//! Properties of the view, on random histories of a cluster.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*, sample::Index};
use serde::Serialize;
use zk::{
    figures::{Best, EventKind, NodeFigures, PoolNow, Sense, Sight, TimelineEvent},
    job::{JobRecord, JobState},
    quarantine::AboutTask,
};

use super::*;
use crate::{figures::Figures, outlook::Outlook};

/// Returns the content of a znode with a record.
fn content(record: &impl Serialize) -> Content {
    let mut value = serde_json::to_value(record).unwrap();
    value["format"] = 2.into();
    Content::Data(value.to_string().into_bytes())
}

fn member(node: &str) -> Content {
    content(&fixtures::member(node))
}

fn job(state: JobState, attempt: u32) -> Content {
    content(&JobRecord { state, attempt, ..fixtures::record() })
}

fn report(worked: u64, last: bool) -> NodeFigures<Figures> {
    NodeFigures {
        attempt: 2,
        figures: Figures {
            worked,
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

/// Contents of the znode at a path, most of them as a cluster would write them.
fn contents(path: &str) -> BoxedStrategy<Content> {
    let garbage = prop_oneof![
        vec(any::<u8>(), 0..40).prop_map(Content::Data),
        any::<u32>().prop_map(Content::Children),
        Just(Content::Data(b"{\"format\":9}".to_vec())),
    ];
    let node = path.rsplit('/').next().unwrap_or_default().to_owned();
    let good = match Place::of(path) {
        Some(Place::Member { .. }) => Just(member(&node)).boxed(),
        Some(Place::Job { .. }) => {
            use JobState::{Done, Failed, Running, Suspended};
            (prop::sample::select(vec![Running, Suspended, Done, Failed]), 1..4_u32)
                .prop_map(|(state, attempt)| job(state, attempt))
                .boxed()
        }
        Some(Place::Figures { .. }) => (prop_oneof![0..900_u64, Just(u64::MAX)], any::<bool>(), 0..3_u64)
            .prop_map(|(worked, last, rank)| {
                let sight = (rank > 0).then(|| Sight { rank, content: worked.into() });
                content(&NodeFigures { sight, ..report(worked, last) })
            })
            .boxed(),
        Some(Place::OfAttempt { .. }) if path.ends_with("about") => content_of_about().boxed(),
        Some(place) if place.wanted() == Wanted::Children => (0..9_u32).prop_map(Content::Children).boxed(),
        _ => Just(name()).boxed(),
    };
    prop_oneof![6 => good, 2 => Just(Content::Gone), 1 => garbage].boxed()
}

fn content_of_about() -> impl Strategy<Value = Content> {
    (0..4_u32).prop_map(|deaths| content(&AboutTask { deaths, reason: "why".to_owned(), at_ms: 0 }))
}

fn paths() -> Vec<String> {
    let mut paths = Vec::new();
    for node in ["n1", "n2", "n3"] {
        paths.extend([format!("members/{node}"), format!("drain/{node}")]);
        paths.extend([
            format!("jobs/{JOB}/figures/{node}"),
            format!("election/{JOB}~{node}~000000000{}", &node[1..]),
        ]);
        paths.extend([of_attempt(&format!("outputs/{node}")), of_attempt(&format!("left/{node}"))]);
    }
    paths.extend(["list", "list/open", "parked", "quarantine/n1-0/about"].map(of_attempt));
    paths.extend([format!("jobs/{JOB}"), "jobs/j-0000000002".to_owned(), "vars/x".to_owned()]);
    paths
}

/// What is seen between two ticks.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let of_znode = prop::sample::select(paths()).prop_flat_map(|path| {
        (0..50_u64, contents(&path)).prop_map(move |(at_ms, content)| Event::of(at_ms, &*path, content))
    });
    let of_session = (0..50_u64, prop::sample::select(vec![Content::Lost, Content::Found]));
    let of_session = of_session.prop_map(|(at_ms, content)| Event::of(at_ms, "", content));
    vec(prop_oneof![20 => of_znode, 1 => of_session], 0..30)
}

/// A history: what is seen before each tick, and the time of the tick.
fn history() -> impl Strategy<Value = Vec<(Vec<Event>, u64)>> {
    vec((events(), 0..100_000_u64), 1..8)
}

/// Brings events into another order, in which those of each znode are as they were.
fn shuffled(events: &[Event], choices: &[Index]) -> Vec<Event> {
    let mut by_path: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in events.iter().rev() {
        by_path.entry(&event.path).or_default().push(event);
    }
    let mut shuffled = Vec::new();
    for choice in choices.iter().cycle().take(events.len()) {
        let paths: Vec<&str> = by_path.keys().copied().collect();
        let path = paths[choice.index(paths.len())];
        let left = by_path.get_mut(path).unwrap();
        shuffled.extend(left.pop().cloned());
        if left.is_empty() {
            by_path.remove(path);
        }
    }
    shuffled
}

fn apply(view: &mut View, events: &[Event]) {
    for event in events {
        view.apply(event);
    }
}

proptest! {
    #[test]
    fn a_snapshot_and_what_has_changed_since_make_the_present_one(history in history(), every in 1..4_usize) {
        let mut view = View::default();
        let mut followed = view.snapshot();
        for (place, (events, at_ms)) in history.iter().enumerate() {
            apply(&mut view, events);
            view.apply(&Event::tick(*at_ms));
            if place % every == 0 {
                let delta = view.delta_since(followed.seq).unwrap();
                let line = serde_json::to_string(&delta).unwrap();
                prop_assert!(serde_json::from_str::<Delta>(&line).is_ok(), "{}", line);
                followed.apply(delta);
                prop_assert_eq!(&followed, &view.snapshot());
            }
        }
        prop_assert_eq!(view.delta_since(view.snapshot().seq + 1), None);
    }

    #[test]
    fn the_order_of_events_of_different_znodes_does_not_matter(
        history in history(),
        choices in vec(any::<Index>(), 1..30),
    ) {
        let (mut one, mut other) = (View::default(), View::default());
        for (events, at_ms) in &history {
            apply(&mut one, events);
            apply(&mut other, &shuffled(events, &choices));
            one.apply(&Event::tick(*at_ms));
            other.apply(&Event::tick(*at_ms));
            prop_assert_eq!(one.snapshot(), other.snapshot());
        }
    }

    #[test]
    fn whatever_is_seen_can_be_shown_recorded_and_replayed(history in history()) {
        let (mut view, mut recorder) = (View::default(), Recorder::new(Vec::new(), u64::MAX));
        for (events, at_ms) in history {
            for event in events.into_iter().chain([Event::tick(at_ms)]) {
                view.apply(&event);
                recorder.note(&event).unwrap();
            }
        }
        let written = recorder.finish().unwrap();
        let snapshot = view.snapshot();
        prop_assert_eq!(&replay(&written[..]).unwrap().snapshot(), &snapshot);
        let shown = serde_json::to_string(&snapshot).unwrap();
        // As a text, numbers may lose their last digit.
        prop_assert!(serde_json::from_str::<Snapshot>(&shown).is_ok(), "{}", shown);
    }
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
fn a_job_is_shown_with_what_its_nodes_say_together() {
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
    assert_eq!((about.figures.worked, about.best, about.bound), (13, Some(33.0), Some(10.0)));
    assert_eq!((about.nodes_at_work, about.pool.unwrap().busy), (2, 2), "n0 is no member");
    assert_eq!(
        (about.open_tasks, about.listed_tasks, about.parked_tasks),
        (Some(2 + 2 + 1), Some(3), Some(1))
    );
    assert_eq!(nodes["n0"].state, NodeState::Left);
    assert_eq!((series.points.len(), series.points[0].busy.last), (1, 2));
    assert_eq!(snapshot.members["n2"].leads, [JOB]);
    let moments: Vec<_> = snapshot.moments.iter().map(|moment| (moment.what, moment.name.as_str())).collect();
    let (joined, runs) = (MomentKind::Joined, MomentKind::JobRuns);
    assert_eq!(moments, [(joined, "n1"), (joined, "n2"), (runs, JOB)]);
}

#[test]
fn a_node_that_goes_was_lost_unless_it_had_left() {
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
    for second in 2..5 {
        view.apply(&Event::tick(second * 1_000));
    }
    let Snapshot { cluster, jobs, .. } = view.snapshot();
    assert_eq!((cluster.nodes_joined, cluster.nodes_left, cluster.nodes_lost), (2, 1, 1));
    assert_eq!(
        (jobs[JOB].nodes["n2"].state, &jobs[JOB].about.lost[..]),
        (NodeState::Lost, &["n2".to_owned()][..])
    );
}

#[test]
fn what_cannot_be_read_is_a_warning_until_it_can() {
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
fn it_is_said_since_when_nothing_is_heard() {
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
fn the_nodes_of_jobs_that_have_been_over_for_long_are_forgotten() {
    let mut view = View::default();
    for number in 0..200 {
        let job_path = format!("jobs/j-{number:010}");
        view.apply(&Event::of(1, &*job_path, job(JobState::Running, 2)));
        view.apply(&Event::of(1, format!("{job_path}/figures/n1"), content(&report(5, true))));
        view.apply(&Event::tick(number * 10_000));
        view.apply(&Event::of(1, &*job_path, job(JobState::Done, 2)));
        view.apply(&Event::tick(number * 10_000 + 5_000));
    }
    let snapshot = view.snapshot();
    let with_nodes = snapshot.jobs.values().filter(|job| !job.nodes.is_empty()).count();
    assert_eq!((snapshot.jobs.len(), with_nodes), (200, 10));
    assert!(snapshot.jobs.values().all(|job| job.about.figures.worked == 5), "the sums stay");
}

#[test]
fn long_texts_in_a_report_are_cut() {
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
