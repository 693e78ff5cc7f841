//! What follows when members are lost, or their data is damaged, while something else is under way.

use super::{
    Action, Capacity, Graph, Held, History, Input, Member, Outcome, Step, TaskCall,
    graph_tests::{TASK, new_call, version},
};
use crate::{
    ids::{Argument, CallId, Execution, number_within},
    options::Options,
};

const THERE: Member = Member(1);
const THIRD: Member = Member(2);

/// Creates the graph of a program whose calls run there, on one worker.
fn graph() -> Graph {
    let mut graph = Graph::new(true);
    graph.joined(Member::HERE, Capacity::of_workers(0));
    graph.joined(THERE, Capacity::of_workers(1));
    graph
}

/// Makes a call of one version, which reads what these calls have written.
fn call(graph: &mut Graph, id: CallId, reads: &[CallId]) {
    let reads = reads.iter().map(|read| version(*read, 0)).collect();
    graph.call(id, new_call(vec![Argument::ReadAll(reads)], 1, Options::DEFAULT));
}

/// Returns where calls are assigned now.
fn assigned(graph: &mut Graph) -> Vec<(CallId, Member)> {
    let actions = graph.actions().into_iter();
    actions
        .filter_map(|action| match action {
            Action::Assign(member, assignment) => Some((assignment.call, member)),
            _ => None,
        })
        .collect()
}

fn written(graph: &mut Graph, id: CallId, member: Member) {
    graph.ended(id, member, Outcome::Written { bytes: vec![8], ns: 1_000_000 });
}

#[test]
fn sole_copy_lost_before_move_is_forgotten() {
    let mut graph = graph();
    call(&mut graph, 0, &[]);
    assert_eq!(assigned(&mut graph), [(0, THERE)]);
    written(&mut graph, 0, THERE);
    assert!(matches!(graph.want(version(0, 0)), Input::Awaited));
    graph.copied(version(0, 0), Member::HERE);
    graph.unwant(version(0, 0));
    graph.joined(THIRD, Capacity::of_workers(1));
    graph.leaves(THERE);
    // It was read, so another one is to keep it. That gets it from the program, which loses it, and so does the other.
    graph.release(version(0, 0));
    let actions = graph.actions();
    assert!(matches!(actions[..], [Action::Bring(_), Action::Copy(THIRD, _)]), "{actions:?}");
    graph.is_damaged(version(0, 0), Member::HERE, "it has vanished");
    graph.lost(THERE);
    assert!(graph.is_empty(), "{:?}", graph.versions);
    graph.not_copied(version(0, 0), THIRD, &[Member::HERE]);
    assert!(graph.actions().is_empty());
}

/// Begins a program anew whose call 2 reads what the calls 0 and 1 have written, and is there since an earlier run. In
/// this one, the first is cancelled.
fn with_a_cancelled_input() -> Graph {
    let (mut first, mut again) = (graph(), graph());
    for graph in [&mut first, &mut again] {
        call(graph, 0, &[]);
        call(graph, 1, &[]);
    }
    again.cancel_all(0..1);
    assert_eq!(assigned(&mut again), [(1, THERE)]);
    written(&mut again, 1, THERE);
    call(&mut first, 2, &[0, 1]);
    let mark = first.versions[&version(2, 0)].mark;
    again.holds(THERE, Held { version: version(2, 0), mark, bytes: 8 });
    call(&mut again, 2, &[0, 1]);
    again.release(version(1, 0));
    again
}

#[test]
fn damaged_output_of_failing_call_recomputes_nothing() {
    let mut graph = with_a_cancelled_input();
    graph.actions();
    graph.is_damaged(version(2, 0), THERE, "it has vanished");
    assert!(matches!(graph.want(version(2, 0)), Input::Awaited));
    assert!(matches!(graph.want(version(2, 0)), Input::Failed(_)));
    assert_eq!((graph.unfinished(), assigned(&mut graph)), (0, vec![]));
}

#[test]
fn lost_inputs_of_failing_call_are_not_recomputed() {
    let mut graph = with_a_cancelled_input();
    call(&mut graph, 3, &[]);
    assert_eq!(assigned(&mut graph), [(3, THERE)]);
    written(&mut graph, 3, THERE);
    graph.leaves(THERE);
    call(&mut graph, 4, &[2, 3]);
    graph.release(version(2, 0));
    graph.release(version(3, 0));
    graph.lost(THERE);
    graph.joined(THIRD, Capacity::of_workers(1));
    assert_eq!((graph.unfinished(), assigned(&mut graph)), (0, vec![]));
}

#[test]
fn inputs_fetched_for_unable_call_stay() {
    let mut graph = graph();
    for id in 0..2 {
        graph.data(id, 8, id);
    }
    let arguments = vec![Argument::Read(version(0, 0)), Argument::Update(version(1, 0))];
    graph.call(2, new_call(arguments, 1, Options::DEFAULT));
    assert_eq!(assigned(&mut graph), [(2, THERE)]);
    // It gets one of them while it tells that it cannot get the other.
    graph.unable(2, THERE, version(0, 0), &[Member::HERE], &[]);
    graph.copied(version(1, 0), THERE);
    let actions = graph.actions();
    assert!(!actions.iter().any(|action| matches!(action, Action::Forget(..))), "{actions:?}");
    assert!(graph.versions[&version(1, 0)].is_with(THERE));
}

#[test]
fn fetch_failure_of_one_source_keeps_other_copies() {
    let mut graph = graph();
    call(&mut graph, 0, &[]);
    assert_eq!(assigned(&mut graph), [(0, THERE)]);
    written(&mut graph, 0, THERE);
    graph.call(1, new_call(vec![Argument::Read(version(0, 0))], 1, Options::DEFAULT));
    assert_eq!(assigned(&mut graph), [(1, THERE)]);
    graph.joined(THIRD, Capacity::of_workers(1));
    graph.copied(version(0, 0), THIRD);
    graph.unable(1, THERE, version(0, 0), &[THERE], &[]);
    assert!(graph.versions[&version(0, 0)].is_with(THIRD));
    let again = assigned(&mut graph);
    assert!(matches!(again[..], [(1, _)]), "{again:?}");
}

/// Creates a graph in which call 2 was assigned there, which reads data of the program and changes in place what call 1
/// has written there.
fn with_a_call_that_changes_in_place() -> Graph {
    let mut graph = graph();
    graph.data(0, 8, 0);
    call(&mut graph, 1, &[]);
    assert_eq!(assigned(&mut graph), [(1, THERE)]);
    written(&mut graph, 1, THERE);
    let arguments = vec![Argument::Read(version(0, 0)), Argument::Update(version(1, 0))];
    graph.call(2, new_call(arguments, 1, Options::DEFAULT));
    graph.release(version(1, 0));
    assert_eq!(assigned(&mut graph), [(2, THERE)]);
    graph
}

#[test]
fn in_place_input_of_unable_call_is_forgotten() {
    let mut graph = with_a_call_that_changes_in_place();
    graph.unable(2, THERE, version(0, 0), &[Member::HERE], &[]);
    let actions = graph.actions();
    let is_forgotten = |action: &Action| matches!(action, Action::Forget(THERE, id) if *id == version(1, 0));
    assert!(actions.iter().any(is_forgotten), "{actions:?}");
}

#[test]
fn in_place_input_reported_unchanged_is_kept() {
    let mut graph = with_a_call_that_changes_in_place();
    graph.unable(2, THERE, version(0, 0), &[], &[(version(1, 0), 8)]);
    assert_eq!(assigned(&mut graph), [(2, THERE)], "and nothing is made again");
}

#[test]
fn leftovers_of_repeated_task_are_forgotten() {
    let (mut first, mut again) = (graph(), graph());
    let (execution, child) = (Execution { call: 0, number: 1 }, number_within(0, 0, 0));
    let child_is_called = |graph: &mut Graph| {
        let call = TaskCall {
            position: 0,
            number: 0,
            task: Some(&TASK),
            options: Options::DEFAULT,
            arguments: Vec::new(),
            writes: 1,
            refused: None,
        };
        graph.step(THERE, execution, Step::Begin, None);
        graph.step(THERE, execution, Step::Call(call, Vec::new()), None);
    };
    call(&mut first, 0, &[]);
    assert_eq!(assigned(&mut first), [(0, THERE)]);
    child_is_called(&mut first);
    let mark = first.calls[&child].mark;
    // It had ended before its task was run again, and its task ran when the head was lost.
    let mut history = History::default();
    history.ends(0);
    again.remembers(history);
    let held = Held { version: version(child, 0), mark, bytes: 8 };
    again.holds(THERE, held);
    again.runs(THERE, child, mark);
    call(&mut again, 0, &[]);
    let actions = again.actions();
    assert!(matches!(&actions[..], [Action::Forget(THERE, id)] if *id == held.version), "{actions:?}");
    // The same goes for what is written afterwards.
    again.holds(THERE, held);
    written(&mut again, child, THERE);
    assert!(again.actions().iter().all(|action| matches!(action, Action::Forget(THERE, _))));
    // So its call is run when its task makes it again.
    assert!(matches!(again.want(version(0, 0)), Input::Awaited));
    assert_eq!(assigned(&mut again), [(0, THERE)]);
    child_is_called(&mut again);
    again.step(THERE, execution, Step::Get(held.version), None);
    assert_eq!(assigned(&mut again), [(child, THERE)]);
}

#[test]
fn reassigned_call_survives_return_of_earlier_execution() {
    let mut first = graph();
    call(&mut first, 0, &[]);
    let mark = first.versions[&version(0, 0)].mark;
    let mut graph = graph();
    // It was told late that it runs there.
    call(&mut graph, 0, &[]);
    assert_eq!(assigned(&mut graph), [(0, THERE)]);
    graph.runs(THERE, 0, mark);
    graph.returned(0, THERE, &[]);
    assert_eq!(assigned(&mut graph), [], "it is still to run there");
    // Another one was told before it was made.
    let mut in_time = self::graph();
    in_time.runs(THERE, 0, mark);
    call(&mut in_time, 0, &[]);
    assert_eq!(assigned(&mut in_time), []);
    in_time.returned(0, THERE, &[]);
    assert_eq!(assigned(&mut in_time), [(0, THERE)]);
}

#[test]
fn in_place_input_of_lost_member_is_copied_from_leaving_one() {
    let mut graph = Graph::new(true);
    graph.joined(Member::HERE, Capacity::of_workers(1));
    call(&mut graph, 0, &[]);
    assert_eq!(assigned(&mut graph), [(0, Member::HERE)]);
    graph.joined(THERE, Capacity::of_workers(1));
    call(&mut graph, 1, &[]);
    assert_eq!(assigned(&mut graph), [(1, THERE)]);
    written(&mut graph, 1, THERE);
    graph.copied(version(1, 0), Member::HERE);
    graph.joined(THIRD, Capacity::of_workers(0));
    graph.leaves(Member::HERE);
    assert!(graph.actions().is_empty(), "the one that stays has it");
    graph.call(2, new_call(vec![Argument::Update(version(1, 0))], 1, Options::DEFAULT));
    graph.release(version(1, 0));
    assert_eq!(assigned(&mut graph), [(2, THERE)]);
    graph.lost(THERE);
    let actions = graph.actions();
    let [Action::Copy(THIRD, source)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(source.version, version(1, 0));
}
