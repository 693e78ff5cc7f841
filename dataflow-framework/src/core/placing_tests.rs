//! Placement of calls with demands.

use std::collections::{BTreeMap, VecDeque};

use super::{
    Action, Capacity, Demand, Graph, Lack, Member, Outcome,
    call::CallState,
    graph_tests::{assigned_to, new_call, version},
};
use crate::{
    ids::{Argument, CallId, VersionId},
    options::Options,
};

const GIB: u64 = 1 << 30;

fn capacity(workers: u32, memory: u64, labels: &str) -> Capacity {
    Capacity { workers, memory, labels: labels.parse().expect("they are labels"), ..Capacity::default() }
}

/// Creates a graph of members with these capacities.
fn graph(capacities: impl IntoIterator<Item = Capacity>) -> Graph {
    let mut graph = Graph::new(true);
    for (member, capacity) in (0..).map(Member).zip(capacities) {
        graph.joined(member, capacity);
    }
    graph
}

fn call(graph: &mut Graph, id: CallId, reads: &[VersionId], options: Options) -> VersionId {
    let reads = reads.iter().copied().map(Argument::Read).collect();
    graph.call(id, new_call(reads, 1, options));
    version(id, 0)
}

/// Returns the newly assigned calls with the numbers of their members.
fn assigned(graph: &mut Graph) -> Vec<(CallId, u32)> {
    assigned_to(graph).into_iter().map(|(call, member)| (call, member.0)).collect()
}

fn written(graph: &mut Graph, id: CallId, member: u32) {
    graph.ended(id, Member(member), Outcome::Written { bytes: vec![1_000], ns: Some(1_000_000_000) });
}

const TWO: Options = Options { cores: 2, ..Options::DEFAULT };

#[test]
fn multi_core_call_waits_for_free_workers() {
    let mut graph = graph([Capacity::of_workers(4)]);
    for id in 0..3 {
        call(&mut graph, id, &[], TWO);
    }
    assert_eq!(assigned(&mut graph), [(0, 0), (1, 0)]);
    call(&mut graph, 3, &[], Options::DEFAULT);
    assert_eq!(assigned(&mut graph), [], "a small call must not share the member of a larger one");
    written(&mut graph, 0, 0);
    assert_eq!(assigned(&mut graph), [(2, 0)]);
    written(&mut graph, 1, 0);
    assert_eq!(assigned(&mut graph), [(3, 0)]);
}

#[test]
fn member_is_reserved_for_call_that_needs_all_its_workers() {
    let mut graph = graph([Capacity::of_workers(2), Capacity::of_workers(2)]);
    for id in 0..20 {
        call(&mut graph, id, &[], Options::DEFAULT);
    }
    let started = assigned(&mut graph);
    call(&mut graph, 20, &[], Options { priority: 1, ..TWO });
    assert_eq!(assigned(&mut graph), []);
    // The running calls complete; the reserved member gets no other call.
    let mut at = None;
    for (id, member) in started {
        written(&mut graph, id, member);
        at = assigned(&mut graph).into_iter().find(|(call, _)| *call == 20).or(at);
    }
    assert!(at.is_some(), "other calls always went first");
}

#[test]
fn member_memory_is_divided_among_calls() {
    let mut graph = graph([capacity(8, 8 * GIB, "a=b")]);
    for id in 0..3 {
        call(&mut graph, id, &[], Options { memory: 3 * GIB, ..Options::DEFAULT });
    }
    call(&mut graph, 3, &[], Options::DEFAULT);
    assert_eq!(assigned(&mut graph), [(0, 0), (1, 0), (3, 0)], "a call without a memory demand still starts");
    call(&mut graph, 4, &[], Options { memory: GIB, ..Options::DEFAULT });
    assert_eq!(assigned(&mut graph), [], "the remaining memory is reserved for the earlier call");
    written(&mut graph, 0, 0);
    assert_eq!(assigned(&mut graph), [(2, 0), (4, 0)]);
}

#[test]
fn unplaceable_call_blocks_no_other_and_starts_on_suitable_join() {
    let mut graph = graph([capacity(2, 4 * GIB, "zone=a")]);
    call(&mut graph, 0, &[], Options { needs: &["gpu"], priority: 9, ..Options::DEFAULT });
    call(&mut graph, 1, &[], Options { cores: 3, ..Options::DEFAULT });
    call(&mut graph, 2, &[], Options::DEFAULT);
    assert_eq!(assigned(&mut graph), [(2, 0)]);
    assert_eq!(graph.known().lacks(0), Some(Lack::Label("gpu")));
    assert_eq!(graph.known().lacks(1), Some(Lack::Cores { demanded: 3, most: 2 }));
    assert_eq!(graph.known().lacks(2), None);
    graph.joined(Member(1), capacity(4, 4 * GIB, "gpu=yes"));
    assert_eq!(assigned(&mut graph), [(0, 1), (1, 1)]);
    assert_eq!(graph.known().lacks(0), None);
}

#[test]
fn unplaceable_call_can_be_cancelled() {
    let mut graph = graph([Capacity::of_workers(1)]);
    call(&mut graph, 0, &[], TWO);
    assert_eq!(assigned(&mut graph), []);
    graph.cancel_all(0..1);
    assert_eq!((assigned(&mut graph), graph.unfinished()), (vec![], 0));
}

#[test]
fn reserved_member_takes_calls_once_its_call_is_cancelled() {
    let mut graph = graph([Capacity::of_workers(2)]);
    call(&mut graph, 0, &[], Options::DEFAULT);
    assert_eq!(assigned(&mut graph), [(0, 0)]);
    call(&mut graph, 1, &[], TWO);
    call(&mut graph, 2, &[], Options::DEFAULT);
    assert_eq!(assigned(&mut graph), [], "the member is reserved");
    graph.cancel_all(1..2);
    assert_eq!(assigned(&mut graph), [(2, 0)]);
}

/// Tejedor 2013, figure 3.4: three resources of four slots, and 36 blocks that initialisation tasks create.
#[test]
fn spread_calls_are_balanced_over_members() {
    let mut graph = graph((0..3).map(|_| Capacity::of_workers(4)));
    let mut blocks = BTreeMap::new();
    for id in 0..36 {
        call(&mut graph, id, &[], Options { spread: true, ..Options::DEFAULT });
    }
    let mut first = Vec::new();
    while graph.unfinished() > 0 {
        for (id, member) in assigned(&mut graph) {
            first.push(member);
            *blocks.entry(member).or_insert(0) += 1;
            written(&mut graph, id, member);
        }
    }
    assert_eq!(blocks, BTreeMap::from([(0, 12), (1, 12), (2, 12)]));
    assert_eq!(first[..6], [0, 1, 2, 0, 1, 2], "the members take turns");
}

#[test]
fn everywhere_output_is_copied_to_present_and_joining_members() {
    let mut graph = graph((0..3).map(|_| Capacity::of_workers(1)));
    call(&mut graph, 0, &[], Options { everywhere: true, ..Options::DEFAULT });
    let [(_, at)] = assigned(&mut graph)[..] else { panic!("it is assigned") };
    written(&mut graph, 0, at);
    let copies = |graph: &mut Graph| {
        let copies = graph.actions().into_iter().filter_map(|action| match action {
            Action::Bring(source) => Some((0, source.version)),
            Action::Copy(member, source) => Some((member.0, source.version)),
            _ => None,
        });
        copies.collect::<Vec<_>>()
    };
    let others = (0..3).filter(|member| *member != at).map(|member| (member, version(0, 0)));
    assert_eq!(copies(&mut graph), others.collect::<Vec<_>>());
    graph.joined(Member(3), Capacity::of_workers(1));
    assert_eq!(copies(&mut graph), [(3, version(0, 0))]);
    // Its last reader must not update it in place.
    graph.call(1, new_call(vec![Argument::Update(version(0, 0))], 1, Options::DEFAULT));
    graph.release(version(0, 0));
    let in_place = graph.actions().into_iter().find_map(|action| match action {
        Action::Assign(_, assignment) => Some(assignment.in_place),
        _ => None,
    });
    assert_eq!(in_place, Some(vec![false]));
}

/// Tejedor 2013, figures 4.11 and 4.12: the kinds of calls of Discrete, for two proteins with four configurations each,
/// and the three grids that meet their demands.
#[test]
fn discrete_calls_run_on_grid_that_meets_demands() {
    let (ibergrid, osg, bsc) = (0, 1, 2);
    let mut graph = graph([
        capacity(4, 2 * GIB, "os=scientific-linux"),
        capacity(8, 2 * GIB, "discrete=1.0"),
        capacity(2, 4 * GIB, "os=suse"),
    ]);
    let linux = Options { needs: &["os=scientific-linux"], ..Options::DEFAULT };
    let discrete = Options { needs: &["discrete"], ..Options::DEFAULT };
    let memory = Options { memory: 4 * GIB, ..Options::DEFAULT };
    let (mut next, mut expected) = (0, BTreeMap::new());
    let mut add = |graph: &mut Graph, reads: &[VersionId], options, grid: u32| {
        next += 1;
        expected.insert(next - 1, grid);
        call(graph, next - 1, reads, options)
    };
    let setups: Vec<_> = (0..2)
        .map(|_| {
            let receptor = add(&mut graph, &[], linux, ibergrid);
            add(&mut graph, &[receptor], linux, ibergrid)
        })
        .collect();
    let mut scores = Vec::new();
    for _ in 0..4 {
        let simulated: Vec<_> =
            setups.iter().map(|setup| add(&mut graph, &[*setup], discrete, osg)).collect();
        let merged = add(&mut graph, &simulated, discrete, osg);
        scores.push(add(&mut graph, &[merged], memory, bsc));
    }
    let first = add(&mut graph, &scores[..2], memory, bsc);
    let second = add(&mut graph, &scores[2..], memory, bsc);
    add(&mut graph, &[first, second], memory, bsc);
    let mut ran = BTreeMap::new();
    while graph.unfinished() > 0 {
        let started = assigned(&mut graph);
        assert!(!started.is_empty(), "no call starts");
        for (id, member) in started {
            ran.insert(id, member);
            written(&mut graph, id, member);
        }
    }
    assert_eq!(ran, expected);
}

const LICENSED: Options = Options { limits: &["licence=2"], ..Options::DEFAULT };

#[test]
fn calls_with_a_limit_never_exceed_it_over_all_members() {
    let mut graph = graph([Capacity::of_workers(4), Capacity::of_workers(4)]);
    for id in 0..4 {
        call(&mut graph, id, &[], LICENSED);
    }
    call(&mut graph, 4, &[], Options { limits: &["disk=1", "licence=3"], ..Options::DEFAULT });
    call(&mut graph, 5, &[], Options::DEFAULT);
    let first = assigned(&mut graph);
    let calls: Vec<_> = first.iter().map(|(call, _)| *call).collect();
    assert_eq!(calls, [0, 2, 4, 5], "the last one has no limit, and the one before a higher one");
    assert_eq!(graph.known().members.reached_limit(Demand::of(&LICENSED)), Some("licence=2"));
    written(&mut graph, 4, first[2].1);
    assert_eq!(assigned(&mut graph), []);
    graph.lost(Member(1));
    assert!(!assigned(&mut graph).is_empty(), "the lost member ran some");
    let limited: Vec<_> = graph.known().calls.iter().filter(|(_, call)| call.options == LICENSED).collect();
    let running = limited.iter().filter(|(_, call)| matches!(call.state, CallState::Runs(_))).count();
    assert_eq!(running, 2);
}

#[test]
fn call_with_a_limit_is_not_assigned_ahead() {
    let mut graph = graph([Capacity::of_workers(1)]);
    call(&mut graph, 0, &[], Options::DEFAULT);
    call(&mut graph, 1, &[], LICENSED);
    assert_eq!(assigned(&mut graph), [(0, 0)]);
    graph.joined(Member(1), Capacity::of_workers(1));
    assert_eq!(assigned(&mut graph), [(1, 1)]);
}

/// Completes the first running calls, while each completed call is replaced by another plain one. Returns the number of
/// completed calls before `awaited` is assigned.
fn completed_before(graph: &mut Graph, awaited: CallId, mut running: VecDeque<(CallId, u32)>) -> Option<u64> {
    (0..100).find(|count| {
        let (id, member) = running.pop_front().expect("some calls run");
        call(graph, 1_000 + count, &[], Options::DEFAULT);
        written(graph, id, member);
        running.extend(assigned(graph));
        running.iter().any(|(call, _)| *call == awaited)
    })
}

#[test]
fn call_with_a_limit_starts_during_a_stream_of_plain_calls() {
    for (priority, most) in [(1, 8), (0, 24)] {
        let mut graph = graph([Capacity::of_workers(2), Capacity::of_workers(2)]);
        for id in 0..20 {
            call(&mut graph, id, &[], Options::DEFAULT);
        }
        let running = VecDeque::from(assigned(&mut graph));
        call(&mut graph, 20, &[], Options { priority, ..LICENSED });
        assert_eq!(assigned(&mut graph), []);
        let completed = completed_before(&mut graph, 20, running);
        assert!(completed.is_some_and(|completed| completed <= most), "priority {priority}: {completed:?}");
    }
}

#[test]
fn less_urgent_call_with_a_limit_delays_no_plain_call() {
    let mut graph = graph([Capacity::of_workers(2), Capacity::of_workers(2)]);
    for id in 0..20 {
        call(&mut graph, id, &[], Options::DEFAULT);
    }
    let running = VecDeque::from(assigned(&mut graph));
    call(&mut graph, 20, &[], Options { priority: -1, ..LICENSED });
    assert_eq!(completed_before(&mut graph, 20, running), None);
}

#[test]
fn member_takes_plain_calls_once_the_limit_of_its_reservation_is_reached() {
    let mut graph = graph([Capacity::of_workers(1), Capacity::of_workers(1)]);
    let once = Options { limits: &["licence=1"], priority: 1, ..Options::DEFAULT };
    for id in 0..2 {
        call(&mut graph, id, &[], Options::DEFAULT);
    }
    assert_eq!(assigned(&mut graph).len(), 2);
    call(&mut graph, 2, &[], once);
    call(&mut graph, 3, &[], once);
    for id in 4..9 {
        call(&mut graph, id, &[], Options::DEFAULT);
    }
    let ahead = assigned(&mut graph);
    assert_eq!(ahead.len(), 1, "the other member is reserved: {ahead:?}");
    let reserved = 1 - ahead[0].1;
    written(&mut graph, u64::from(reserved), reserved);
    let started = assigned(&mut graph);
    assert_eq!(started[0], (2, reserved));
    assert!(started.iter().any(|(id, _)| *id > 3), "a plain call follows it: {started:?}");
}

#[test]
fn calls_with_limits_wait_for_the_reports_about_an_earlier_run() {
    let mut before = graph([Capacity::of_workers(0), Capacity::of_workers(2)]);
    call(&mut before, 0, &[], LICENSED);
    call(&mut before, 1, &[], Options { limits: &["licence=1"], ..Options::DEFAULT });
    assert_eq!(assigned(&mut before), [(0, 1)]);
    let mark = before.known().calls[&0].mark;
    let mut graph = graph([Capacity::of_workers(2)]);
    graph.set_untold(true);
    call(&mut graph, 0, &[], LICENSED);
    call(&mut graph, 1, &[], Options { limits: &["licence=1"], ..Options::DEFAULT });
    assert_eq!(assigned(&mut graph), []);
    graph.joined(Member(1), Capacity::of_workers(2));
    graph.on_running(Member(1), 0, mark);
    graph.set_untold(false);
    assert_eq!(assigned(&mut graph), [], "the first call runs");
    written(&mut graph, 0, 1);
    assert_eq!(assigned(&mut graph).len(), 1);
}

#[test]
fn calls_with_limits_wait_for_unknown_calls_of_an_earlier_run() {
    let mut before = graph([Capacity::of_workers(2)]);
    call(&mut before, 0, &[], Options::DEFAULT);
    call(&mut before, 1, &[], LICENSED);
    let mark = before.known().calls[&1].mark;
    let mut graph = graph([Capacity::of_workers(2), Capacity::of_workers(2)]);
    graph.on_running(Member(1), 1, mark);
    call(&mut graph, 0, &[], Options { limits: &["licence=1"], ..Options::DEFAULT });
    assert_eq!(assigned(&mut graph), [], "the limits of the running call are unknown");
    graph.lost(Member(1));
    assert_eq!(assigned(&mut graph), [(0, 0)]);
}
