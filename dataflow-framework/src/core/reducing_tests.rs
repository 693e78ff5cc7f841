//! What calls of reductions in any order merge.

use super::{
    Action, Capacity, Fact, Graph, Held, Mark, Member, Merge, NewCall, Outcome,
    graph_tests::{new_call, version},
};
use crate::{
    failure::Failure,
    ids::{Argument, CallId},
    options::Options,
};

const FIRST: CallId = 100;

/// A graph of one member, in which calls 0 to 3 make the parts of a reduction: 100 ← 0, 1; 101 ← 2, 3; 102 ← 100, 101.
fn graph(is_recorded: bool) -> Graph {
    let mut graph = Graph::new(is_recorded);
    graph.joined(Member::HERE, Capacity::of_workers(8));
    if is_recorded {
        graph.records();
    }
    graph
}

fn makes_calls(graph: &mut Graph) {
    for part in 0..4 {
        graph.call(part, new_call(vec![], 1, Options::DEFAULT));
    }
    merges(graph, [[0, 1], [2, 3], [100, 101]]);
    (0..4).for_each(|part| graph.release(version(part, 0)));
}

fn merges(graph: &mut Graph, all: [[CallId; 2]; 3]) {
    for (id, parts) in (FIRST..).zip(all) {
        let [into, from] = parts.map(|part| version(part, 0));
        let merge = Some(Merge { reduction: FIRST, into: 0, from: 2 });
        let arguments = vec![Argument::Update(into), Argument::Copied(vec![]), Argument::Read(from)];
        graph.call(id, NewCall { merge, ..new_call(arguments, 1, Options::DEFAULT) });
    }
    graph.begins_reductions();
    (FIRST..FIRST + 2).for_each(|id| graph.release(version(id, 0)));
}

fn is_written(graph: &mut Graph, id: CallId) {
    graph.ended(id, Member::HERE, Outcome::Written { bytes: vec![1], ns: 1_000 });
}

/// Returns the merges that are assigned now, with what each reads, and what is to be recorded.
fn begun(graph: &mut Graph) -> (Vec<(CallId, Vec<CallId>)>, Vec<Fact>) {
    let (mut begun, mut facts) = (Vec::new(), Vec::new());
    for action in graph.actions() {
        match action {
            Action::Assign(_, assignment) if assignment.call >= FIRST => {
                let read = assignment.arguments.iter().flat_map(Argument::versions);
                begun.push((assignment.call, read.map(|read| read.call).collect()));
            }
            Action::Record(fact) => facts.push(fact),
            _ => {}
        }
    }
    (begun, facts)
}

#[test]
fn parts_are_merged_in_order_of_arrival() {
    let mut graph = graph(false);
    makes_calls(&mut graph);
    assert_eq!(begun(&mut graph).0, []);
    is_written(&mut graph, 3);
    assert_eq!(begun(&mut graph).0, []);
    is_written(&mut graph, 1);
    assert_eq!(begun(&mut graph).0, [(100, vec![1, 3])]);
    is_written(&mut graph, 0);
    is_written(&mut graph, 100);
    assert_eq!(begun(&mut graph).0, [(101, vec![0, 100])]);
    is_written(&mut graph, 101);
    is_written(&mut graph, 2);
    // In the order of what was merged first.
    assert_eq!(begun(&mut graph).0, [(102, vec![101, 2])]);
    is_written(&mut graph, 102);
    graph.release(version(102, 0));
    begun(&mut graph);
    assert!(graph.is_empty());
}

#[test]
fn reduction_of_repeated_data_merges_each_occurrence() {
    let mut graph = graph(false);
    for part in 0..3 {
        graph.call(part, new_call(vec![], 1, Options::DEFAULT));
    }
    merges(&mut graph, [[0, 1], [2, 1], [100, 101]]);
    (0..3).for_each(|part| graph.release(version(part, 0)));
    is_written(&mut graph, 1);
    assert_eq!(begun(&mut graph).0, [(100, vec![1, 1])]);
    is_written(&mut graph, 0);
    is_written(&mut graph, 2);
    assert_eq!(begun(&mut graph).0, [(101, vec![0, 2])]);
    is_written(&mut graph, 100);
    is_written(&mut graph, 101);
    assert_eq!(begun(&mut graph).0.len(), 1);
}

#[test]
fn reduction_failed_part_fails_result() {
    let mut graph = graph(false);
    makes_calls(&mut graph);
    begun(&mut graph);
    graph.ended(1, Member::HERE, Outcome::Failed(Failure::new("task", 1, "as it was told")));
    for part in [2, 3, 0] {
        is_written(&mut graph, part);
    }
    assert_eq!(begun(&mut graph).0, [(101, vec![2, 3])]);
    is_written(&mut graph, 101);
    assert!(matches!(graph.want(version(102, 0)), super::Input::Failed(_)));
    graph.unwant(version(102, 0));
    graph.release(version(102, 0));
    begun(&mut graph);
    assert!(graph.is_empty());
}

/// What is merged by a graph that records it, after parts 3 and 1 were there first.
fn first_is_decided(graph: &mut Graph) -> Fact {
    makes_calls(graph);
    begun(graph);
    is_written(graph, 3);
    is_written(graph, 1);
    let (none, facts) = begun(graph);
    let fact = Fact::Merged { call: 100, parts: [1, 3] };
    assert_eq!((none, facts), (vec![], vec![fact.clone()]));
    fact
}

#[test]
fn reduction_merge_starts_once_its_parts_are_recorded() {
    let mut graph = graph(true);
    let fact = first_is_decided(&mut graph);
    assert!(graph.waits_for_record());
    // Nothing else is decided of what it merges meanwhile.
    is_written(&mut graph, 0);
    assert_eq!(begun(&mut graph), (vec![], vec![]));
    graph.journalled(fact.clone());
    assert_eq!(begun(&mut graph).0, [(100, vec![1, 3])]);
    assert!(!graph.waits_for_record());
    assert!(graph.recorded_so_far().contains(&fact));
}

#[test]
fn lost_merge_is_repeated_with_same_parts() {
    let mut graph = graph(true);
    let other = Member(1);
    graph.joined(other, Capacity::of_workers(8));
    let fact = first_is_decided(&mut graph);
    graph.journalled(fact);
    let (first, _) = begun(&mut graph);
    assert_eq!(first, [(100, vec![1, 3])]);
    let on = if graph.runs_on(100, other) { other } else { Member::HERE };
    graph.ended(100, on, Outcome::Written { bytes: vec![1], ns: 1_000 });
    begun(&mut graph);
    // Its parts are forgotten by now, and so they are made again.
    graph.is_damaged(version(100, 0), on, "it has vanished");
    begun(&mut graph);
    for part in [3, 1] {
        is_written(&mut graph, part);
    }
    assert_eq!(begun(&mut graph), (vec![(100, vec![1, 3])], vec![]));
}

#[test]
fn reduction_restart_keeps_recorded_merges() {
    let mut first = graph(true);
    let fact = first_is_decided(&mut first);
    first.journalled(fact.clone());
    is_written(&mut first, 2);
    begun(&mut first);
    is_written(&mut first, 100);
    let mark: Mark = first.versions[&version(100, 0)].mark;
    let mut again = graph(true);
    again.recalls(fact);
    again.remembers(first.history().clone());
    again.holds(Member::HERE, Held { version: version(100, 0), mark, bytes: 1 });
    makes_calls(&mut again);
    // Part 0 was not made; 1 and 3 are in what 100 has written, so they are of no use.
    let made: Vec<_> =
        again.calls.iter().filter(|(_, call)| call.state != super::call::CallState::Done).collect();
    let made: Vec<CallId> = made.into_iter().map(|(id, _)| id).collect();
    assert_eq!(made, [0, 2, 101, 102]);
    begun(&mut again);
    is_written(&mut again, 0);
    // What 100 has written has the place of part 1.
    assert_eq!(begun(&mut again).1, [Fact::Merged { call: 101, parts: [0, 1] }]);
}

#[test]
fn lost_merge_is_repeated_after_other_part_is_restored() {
    const THERE: Member = Member(1);
    let mut graph = Graph::new(true);
    graph.joined(Member::HERE, Capacity::of_workers(0));
    graph.joined(THERE, Capacity::of_workers(4));
    graph.records();
    let effect = Options { effect: true, ..Options::DEFAULT };
    graph.call(0, new_call(vec![], 1, effect));
    graph.call(1, new_call(vec![Argument::Read(version(0, 0))], 1, Options::DEFAULT));
    for (id, into) in [(FIRST, 0), (FIRST + 1, FIRST)] {
        let merge = Some(Merge { reduction: FIRST, into: 0, from: 1 });
        let arguments = vec![Argument::Update(version(into, 0)), Argument::Read(version(0, 0))];
        graph.call(id, NewCall { merge, ..new_call(arguments, 1, Options::DEFAULT) });
    }
    graph.begins_reductions();
    begun(&mut graph);
    let values = Some(vec![vec![7]]);
    graph.ended(0, THERE, Outcome::Durable { bytes: vec![1], ns: 1_000, by: 0, values });
    // The end of the effect, then what is merged first.
    for _ in 0..2 {
        begun(&mut graph).1.into_iter().for_each(|fact| graph.journalled(fact));
    }
    assert_eq!(begun(&mut graph).0, [(FIRST, vec![0, 0])]);
    graph.ended(FIRST, THERE, Outcome::Written { bytes: vec![1], ns: 1_000 });
    let (_, decided) = begun(&mut graph);
    assert!(matches!(decided[..], [Fact::Merged { call: 101, .. }]), "{decided:?}");
    // The effect's value is restored for call 1, before it is known that what was merged is lost, too.
    graph.lost(THERE);
    graph.joined(Member(2), Capacity::of_workers(4));
    assert_eq!(begun(&mut graph).0, [(FIRST, vec![0, 0])]);
}
