//! Reductions in any order: the parts that each call merges.

use super::{
    Action, Capacity, Fact, Graph, Held, Mark, Member, Merge, NewCall, Outcome,
    commuting_tests::{complete, graph},
    graph_tests::{new_call, version},
};
use crate::{
    failure::Failure,
    ids::{Argument, CallId},
    options::Options,
};

const FIRST: CallId = 100;

/// Makes calls 0 to 3, the parts of a reduction: 100 ← 0, 1; 101 ← 2, 3; 102 ← 100, 101.
fn make_calls(graph: &mut Graph) {
    for part in 0..4 {
        graph.call(part, new_call(vec![], 1, Options::DEFAULT));
    }
    merge(graph, [[0, 1], [2, 3], [100, 101]]);
    (0..4).for_each(|part| graph.release(version(part, 0)));
}

fn merge(graph: &mut Graph, all: [[CallId; 2]; 3]) {
    for (id, parts) in (FIRST..).zip(all) {
        let [into, from] = parts.map(|part| version(part, 0));
        let merge = Some(Merge { reduction: FIRST, into: 0, from: 2 });
        let arguments = vec![Argument::Update(into), Argument::Copied(vec![]), Argument::Read(from)];
        graph.call(id, NewCall { merge, ..new_call(arguments, 1, Options::DEFAULT) });
    }
    graph.start_reductions();
    (FIRST..FIRST + 2).for_each(|id| graph.release(version(id, 0)));
}

/// Returns the newly assigned merges with their inputs, and the facts to be recorded.
fn started(graph: &mut Graph) -> (Vec<(CallId, Vec<CallId>)>, Vec<Fact>) {
    let (mut started, mut facts) = (Vec::new(), Vec::new());
    for action in graph.actions() {
        match action {
            Action::Assign(_, assignment) if assignment.call >= FIRST => {
                let read = assignment.arguments.iter().flat_map(Argument::versions);
                started.push((assignment.call, read.map(|read| read.call).collect()));
            }
            Action::Record(fact) => facts.push(fact),
            _ => {}
        }
    }
    (started, facts)
}

#[test]
fn parts_are_merged_in_order_of_arrival() {
    let mut graph = graph(false);
    make_calls(&mut graph);
    assert_eq!(started(&mut graph).0, []);
    complete(&mut graph, 3);
    assert_eq!(started(&mut graph).0, []);
    complete(&mut graph, 1);
    assert_eq!(started(&mut graph).0, [(100, vec![1, 3])]);
    complete(&mut graph, 0);
    complete(&mut graph, 100);
    assert_eq!(started(&mut graph).0, [(101, vec![0, 100])]);
    complete(&mut graph, 101);
    complete(&mut graph, 2);
    // Inputs keep the order of their first parts.
    assert_eq!(started(&mut graph).0, [(102, vec![101, 2])]);
    complete(&mut graph, 102);
    graph.release(version(102, 0));
    started(&mut graph);
    assert!(graph.is_empty());
}

#[test]
fn reduction_of_repeated_data_merges_each_occurrence() {
    let mut graph = graph(false);
    for part in 0..3 {
        graph.call(part, new_call(vec![], 1, Options::DEFAULT));
    }
    merge(&mut graph, [[0, 1], [2, 1], [100, 101]]);
    (0..3).for_each(|part| graph.release(version(part, 0)));
    complete(&mut graph, 1);
    assert_eq!(started(&mut graph).0, [(100, vec![1, 1])]);
    complete(&mut graph, 0);
    complete(&mut graph, 2);
    assert_eq!(started(&mut graph).0, [(101, vec![0, 2])]);
    complete(&mut graph, 100);
    complete(&mut graph, 101);
    assert_eq!(started(&mut graph).0.len(), 1);
}

#[test]
fn reduction_failed_part_fails_result() {
    let mut graph = graph(false);
    make_calls(&mut graph);
    started(&mut graph);
    graph.ended(1, Member::HERE, Outcome::Failed(Failure::new("task", 1, "failed as requested")));
    for part in [2, 3, 0] {
        complete(&mut graph, part);
    }
    assert_eq!(started(&mut graph).0, [(101, vec![2, 3])]);
    complete(&mut graph, 101);
    assert!(matches!(graph.want(version(102, 0)), super::Input::Failed(_)));
    graph.unwant(version(102, 0));
    graph.release(version(102, 0));
    started(&mut graph);
    assert!(graph.is_empty());
}

/// Returns the first decision of a graph that records merges, after parts 3 and 1 have arrived first.
fn decide_first(graph: &mut Graph) -> Fact {
    make_calls(graph);
    started(graph);
    complete(graph, 3);
    complete(graph, 1);
    let (none, facts) = started(graph);
    let fact = Fact::Merged { call: 100, parts: [1, 3] };
    assert_eq!((none, facts), (vec![], vec![fact.clone()]));
    fact
}

#[test]
fn reduction_merge_starts_once_its_parts_are_recorded() {
    let mut graph = graph(true);
    let fact = decide_first(&mut graph);
    assert!(graph.waits_for_record());
    // No other decision is made until this one is recorded.
    complete(&mut graph, 0);
    assert_eq!(started(&mut graph), (vec![], vec![]));
    graph.journalled(fact.clone());
    assert_eq!(started(&mut graph).0, [(100, vec![1, 3])]);
    assert!(!graph.waits_for_record());
    assert!(graph.recorded_so_far().contains(&fact));
}

#[test]
fn lost_merge_is_repeated_with_same_parts() {
    let mut graph = graph(true);
    let other = Member(1);
    graph.joined(other, Capacity::of_workers(8));
    let fact = decide_first(&mut graph);
    graph.journalled(fact);
    let (first, _) = started(&mut graph);
    assert_eq!(first, [(100, vec![1, 3])]);
    let on = if graph.known().runs_on(100, other) { other } else { Member::HERE };
    graph.ended(100, on, Outcome::Written { bytes: vec![1], ns: Some(1_000) });
    started(&mut graph);
    // Its parts are already forgotten, so they are recomputed.
    graph.on_damaged(version(100, 0), on, "it has vanished");
    started(&mut graph);
    for part in [3, 1] {
        complete(&mut graph, part);
    }
    assert_eq!(started(&mut graph), (vec![(100, vec![1, 3])], vec![]));
}

#[test]
fn reduction_restart_keeps_recorded_merges() {
    let mut first = graph(true);
    let fact = decide_first(&mut first);
    first.journalled(fact.clone());
    complete(&mut first, 2);
    started(&mut first);
    complete(&mut first, 100);
    let mark: Mark = first.known().versions[&version(100, 0)].mark;
    let mut again = graph(true);
    again.recall(fact);
    again.journal().add_history(first.known().journal.history().clone());
    again.on_held(Member::HERE, Held { version: version(100, 0), mark, bytes: 1 });
    make_calls(&mut again);
    // The output of 100 contains parts 1 and 3, so these are not repeated; part 0 was not made.
    let made: Vec<_> =
        again.known().calls.iter().filter(|(_, call)| call.state != super::call::CallState::Done).collect();
    let made: Vec<CallId> = made.into_iter().map(|(id, _)| id).collect();
    assert_eq!(made, [0, 2, 101, 102]);
    started(&mut again);
    complete(&mut again, 0);
    // The output of 100 takes the place of part 1.
    assert_eq!(started(&mut again).1, [Fact::Merged { call: 101, parts: [0, 1] }]);
}

#[test]
fn lost_merge_is_repeated_after_other_part_is_restored() {
    const THERE: Member = Member(1);
    let mut graph = Graph::new(true);
    graph.joined(Member::HERE, Capacity::of_workers(0));
    graph.joined(THERE, Capacity::of_workers(4));
    graph.journal().enable();
    let effect = Options { effect: true, ..Options::DEFAULT };
    graph.call(0, new_call(vec![], 1, effect));
    graph.call(1, new_call(vec![Argument::Read(version(0, 0))], 1, Options::DEFAULT));
    for (id, into) in [(FIRST, 0), (FIRST + 1, FIRST)] {
        let merge = Some(Merge { reduction: FIRST, into: 0, from: 1 });
        let arguments = vec![Argument::Update(version(into, 0)), Argument::Read(version(0, 0))];
        graph.call(id, NewCall { merge, ..new_call(arguments, 1, Options::DEFAULT) });
    }
    graph.start_reductions();
    started(&mut graph);
    let values = Some(vec![vec![7]]);
    graph.ended(0, THERE, Outcome::Durable { bytes: vec![1], ns: 1_000, by: 0, values });
    // The completion of the effect, then the first merge.
    for _ in 0..2 {
        started(&mut graph).1.into_iter().for_each(|fact| graph.journalled(fact));
    }
    assert_eq!(started(&mut graph).0, [(FIRST, vec![0, 0])]);
    graph.ended(FIRST, THERE, Outcome::Written { bytes: vec![1], ns: Some(1_000) });
    let (_, decided) = started(&mut graph);
    assert!(matches!(decided[..], [Fact::Merged { call: 101, .. }]), "{decided:?}");
    // The output of the effect is restored for call 1 before the loss of the merge is known.
    graph.lost(THERE);
    graph.joined(Member(2), Capacity::of_workers(4));
    assert_eq!(started(&mut graph).0, [(FIRST, vec![0, 0])]);
}
