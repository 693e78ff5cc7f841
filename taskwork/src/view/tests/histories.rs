//! Properties of the view, on random histories of a cluster.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

/// Contents of the znode at a path, mostly valid ones.
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
                let status = (rank > 0).then(|| shows(rank, worked));
                content(&NodeFigures { status, ..report(worked, last) })
            })
            .boxed(),
        Some(Place::OfAttempt { .. }) if path.ends_with("about") => content_of_about().boxed(),
        Some(place) if place.wanted() == Wanted::Children => (0..9_u32).prop_map(Content::Children).boxed(),
        _ => Just(name()).boxed(),
    };
    prop_oneof![6 => good, 2 => Just(Content::Gone), 1 => garbage].boxed()
}

/// Returns a status with one value.
fn content_of_about() -> impl Strategy<Value = Content> {
    (0..4_u32).prop_map(|crashes| content(&AboutTask { crashes, reason: "why".to_owned(), at_ms: 0 }))
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

/// Events between two ticks.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let of_znode = prop::sample::select(paths()).prop_flat_map(|path| {
        (0..50_u64, contents(&path)).prop_map(move |(at_ms, content)| Event::of(at_ms, &*path, content))
    });
    let of_session = (0..50_u64, prop::sample::select(vec![Content::Lost, Content::Found]));
    let of_session = of_session.prop_map(|(at_ms, content)| Event::of(at_ms, "", content));
    vec(prop_oneof![20 => of_znode, 1 => of_session], 0..30)
}

/// A history: the events before each tick, and the time of the tick.
fn history() -> impl Strategy<Value = Vec<(Vec<Event>, u64)>> {
    vec((events(), 0..100_000_u64), 1..8)
}

/// Reorders events, keeping the order of each znode's events.
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
    fn snapshot_plus_delta_is_the_current_snapshot(history in history(), every in 1..4_usize) {
        let mut view = View::default();
        let mut followed = view.snapshot();
        for (place, (events, at_ms)) in history.iter().enumerate() {
            apply(&mut view, events);
            view.apply(&Event::tick(*at_ms));
            if place % every == 0 {
                let delta = view.delta_since(followed.seq).unwrap();
                let line = serde_json::to_string(&delta).unwrap();
                let read = serde_json::from_str::<Delta>(&line);
                prop_assert!(read.is_ok(), "{}", line);
                let told = |delta: &Delta| {
                    delta.jobs.values().map(|job| (job.record.clone(), job.display.clone())).collect::<Vec<_>>()
                };
                prop_assert_eq!(told(&read.unwrap()), told(&delta));
                followed.apply(delta);
                prop_assert_eq!(&followed, &view.snapshot());
            }
        }
        prop_assert_eq!(view.delta_since(view.snapshot().seq + 1), None);
    }

    #[test]
    fn events_of_different_znodes_commute(
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
    fn random_history_can_be_shown_recorded_and_replayed(history in history()) {
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
