//! The order of commuting updates.

use super::{
    Action, Capacity, Commute, Fact, Graph, Held, Input, Member, NewCall, Outcome,
    call::CallState,
    graph_tests::{new_call, version},
};
use crate::{
    failure::Failure,
    ids::{Argument, CallId},
    options::Options,
};

/// The id of the updated data.
const DATA: CallId = 9;
/// The id of the first update.
const FIRST: CallId = 10;

/// Creates a graph of one member with eight workers.
pub(super) fn graph(is_recorded: bool) -> Graph {
    let mut graph = Graph::new(is_recorded);
    graph.joined(Member::HERE, Capacity::of_workers(8));
    if is_recorded {
        graph.journal().enable();
    }
    graph
}

/// Makes calls 0 to 2, and updates 10 to 12 that add their outputs to the data.
fn make_calls(graph: &mut Graph) {
    for part in 0..3 {
        graph.call(part, new_call(vec![], 1, Options::DEFAULT));
    }
    graph.data(DATA, 1, 0);
    for part in 0..3 {
        add(graph, FIRST, FIRST + part, part);
        graph.release(version(part, 0));
    }
}

fn add(graph: &mut Graph, chain: CallId, id: CallId, part: CallId) {
    let before = version(id - 1, 0);
    let arguments = vec![Argument::Read(version(part, 0)), Argument::Update(before)];
    let commute = Some(Commute { chain, at: 1 });
    graph.call(id, NewCall { commute, ..new_call(arguments, 1, Options::DEFAULT) });
    graph.release(before);
}

pub(super) fn complete(graph: &mut Graph, id: CallId) {
    graph.ended(id, Member::HERE, Outcome::Written { bytes: vec![1], ns: Some(1_000) });
}

/// Returns the newly assigned updates with their inputs, and the facts to be recorded.
fn started(graph: &mut Graph) -> (Vec<(CallId, CallId)>, Vec<Fact>) {
    let (mut started, mut facts) = (Vec::new(), Vec::new());
    for action in graph.actions() {
        match action {
            Action::Assign(_, assignment) if !assignment.arguments.is_empty() => {
                let [Argument::Read(read), Argument::Update(updated)] = assignment.arguments[..] else {
                    panic!("it reads and updates: {assignment:?}")
                };
                assert_eq!(updated.call, assignment.call - 1, "each update reads the previous version");
                started.push((assignment.call, read.call));
            }
            Action::Record(fact) => facts.push(fact),
            _ => {}
        }
    }
    (started, facts)
}

#[test]
fn commuting_updates_run_singly_in_order_of_arrival() {
    let mut graph = graph(false);
    make_calls(&mut graph);
    assert_eq!(started(&mut graph).0, []);
    complete(&mut graph, 2);
    assert_eq!(started(&mut graph).0, [(10, 2)]);
    complete(&mut graph, 1);
    complete(&mut graph, 0);
    assert_eq!(started(&mut graph).0, [], "another update is running");
    complete(&mut graph, 10);
    assert_eq!(started(&mut graph).0, [(11, 1)]);
    complete(&mut graph, 11);
    assert_eq!(started(&mut graph).0, [(12, 0)]);
    complete(&mut graph, 12);
    graph.release(version(12, 0));
    started(&mut graph);
    assert!(graph.is_empty());
}

#[test]
fn commuting_snapshot_sees_only_earlier_updates() {
    let mut graph = graph(false);
    make_calls(&mut graph);
    graph.retain(version(12, 0));
    graph.call(13, new_call(vec![], 1, Options::DEFAULT));
    // This update starts another chain.
    graph.call(
        14,
        NewCall {
            commute: Some(Commute { chain: 14, at: 1 }),
            ..new_call(
                vec![Argument::Read(version(13, 0)), Argument::Update(version(12, 0))],
                1,
                Options::DEFAULT,
            )
        },
    );
    started(&mut graph);
    complete(&mut graph, 13);
    assert_eq!(graph.actions().len(), 0, "the data that it updates does not exist yet");
    for (turn, part) in [(10, 1), (11, 2), (12, 0)] {
        complete(&mut graph, part);
        assert_eq!(started(&mut graph).0, [(turn, part)]);
        complete(&mut graph, turn);
    }
    assert!(graph.actions().iter().any(|action| matches!(action, Action::Assign(_, one) if one.call == 14)));
}

#[test]
fn commuting_failed_input_fails_sum() {
    let mut graph = graph(false);
    make_calls(&mut graph);
    started(&mut graph);
    complete(&mut graph, 2);
    assert_eq!(started(&mut graph).0, [(10, 2)]);
    graph.ended(0, Member::HERE, Outcome::Failed(Failure::new("task", 0, "failed as requested")));
    complete(&mut graph, 1);
    complete(&mut graph, 10);
    assert_eq!(started(&mut graph).0, [(11, 1)], "the other updates still run");
    complete(&mut graph, 11);
    assert!(matches!(graph.want(version(12, 0)), Input::Failed(_)));
    graph.unwant(version(12, 0));
    graph.release(version(12, 0));
    assert_eq!(graph.unfinished(), 0);
    started(&mut graph);
    assert!(graph.is_empty());
}

#[test]
fn commuting_restart_keeps_recorded_order() {
    let mut first = graph(true);
    make_calls(&mut first);
    started(&mut first);
    complete(&mut first, 2);
    let (none, facts) = started(&mut first);
    assert_eq!((none, &facts[..]), (vec![], &[Fact::Commuted { call: 10, with: 12 }][..]));
    assert!(first.waits_for_record());
    first.journalled(facts[0].clone());
    assert_eq!(started(&mut first).0, [(10, 2)]);
    complete(&mut first, 10);
    assert!(first.recorded_so_far().contains(&facts[0]));
    let mark = first.known().versions[&version(10, 0)].mark;
    let mut again = graph(true);
    again.recall(facts[0].clone());
    again.journal().add_history(first.known().journal.history().clone());
    again.on_held(Member::HERE, Held { version: version(10, 0), mark, bytes: 1 });
    make_calls(&mut again);
    // The output of 10 contains that of 2, so 2 is not repeated; 0 and 1 were not added.
    let unfinished = again.known().calls.iter().filter(|(_, call)| call.state != CallState::Done);
    assert_eq!(unfinished.map(|(id, _)| id).collect::<Vec<_>>(), [0, 1, 11, 12]);
    started(&mut again);
    complete(&mut again, 0);
    let facts = started(&mut again).1;
    assert_eq!(facts, [Fact::Commuted { call: 11, with: 12 }], "0 was exchanged for 2");
    again.journalled(facts[0].clone());
    assert_eq!(started(&mut again).0, [(11, 0)]);
}

#[test]
fn commuting_restart_repeats_no_added_input() {
    let mut first = graph(true);
    make_calls(&mut first);
    started(&mut first);
    // Update 10 exchanges its input with 12, and then 11 does.
    let mut recorded = Vec::new();
    for (part, turn) in [(2, 10), (0, 11)] {
        complete(&mut first, part);
        for fact in started(&mut first).1 {
            recorded.push(fact.clone());
            first.journalled(fact);
        }
        assert_eq!(started(&mut first).0, [(turn, part)]);
        complete(&mut first, turn);
    }
    let mark = first.known().versions[&version(11, 0)].mark;
    let mut again = graph(true);
    for fact in recorded {
        again.recall(fact);
    }
    again.journal().add_history(first.known().journal.history().clone());
    again.on_held(Member::HERE, Held { version: version(11, 0), mark, bytes: 1 });
    make_calls(&mut again);
    let unfinished = again.known().calls.iter().filter(|(_, call)| call.state != CallState::Done);
    assert_eq!(unfinished.map(|(id, _)| id).collect::<Vec<_>>(), [1, 12]);
    assert_eq!(again.figures().repeated, 0);
}
