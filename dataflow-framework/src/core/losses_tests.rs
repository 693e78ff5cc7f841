//! Losses of members and data while other operations are under way.

use super::{
    Action, Capacity, Graph, Held, History, Input, Member, Step, TaskCall,
    graph_tests::{TASK, assigned_to as assigned, graph_of, new_call, version, written_by as written},
};
use crate::{
    ids::{Argument, CallId, Execution, number_within},
    options::Options,
};

const THERE: Member = Member(1);
const THIRD: Member = Member(2);

/// Creates a graph with one worker, on `THERE`.
fn graph() -> Graph {
    graph_of([0, 1])
}

/// Makes a call that reads the outputs of other calls and writes one version.
fn call(graph: &mut Graph, id: CallId, reads: &[CallId]) {
    let reads = reads.iter().map(|read| version(*read, 0)).collect();
    graph.call(id, new_call(vec![Argument::ReadAll(reads)], 1, Options::DEFAULT));
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
    graph.on_leaving(THERE);
    // The data was read, so a third member gets a copy from that of the program. Both sources lose it first.
    graph.release(version(0, 0));
    let actions = graph.actions();
    assert!(matches!(actions[..], [Action::Bring(_), Action::Copy(THIRD, _)]), "{actions:?}");
    graph.on_damaged(version(0, 0), Member::HERE, "it has vanished");
    graph.lost(THERE);
    assert!(graph.is_empty(), "{:?}", graph.known().versions);
    graph.not_copied(version(0, 0), THIRD, &[Member::HERE]);
    assert!(graph.actions().is_empty());
}

/// Restarts a program in which call 2 reads the outputs of calls 0 and 1. The output of call 2 exists from an earlier
/// run; in the new run, call 0 is cancelled.
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
    let mark = first.known().versions[&version(2, 0)].mark;
    again.on_held(THERE, Held { version: version(2, 0), mark, bytes: 8 });
    call(&mut again, 2, &[0, 1]);
    again.release(version(1, 0));
    again
}

#[test]
fn damaged_output_of_failing_call_recomputes_nothing() {
    let mut graph = with_a_cancelled_input();
    graph.actions();
    graph.on_damaged(version(2, 0), THERE, "it has vanished");
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
    graph.on_leaving(THERE);
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
        graph.data(id, 8, id.into());
    }
    let arguments = vec![Argument::Read(version(0, 0)), Argument::Update(version(1, 0))];
    graph.call(2, new_call(arguments, 1, Options::DEFAULT));
    assert_eq!(assigned(&mut graph), [(2, THERE)]);
    // The member receives one input while it reports that it cannot fetch the other one.
    graph.unable(2, THERE, version(0, 0), &[Member::HERE], &[]);
    graph.copied(version(1, 0), THERE);
    let actions = graph.actions();
    assert!(!actions.iter().any(|action| matches!(action, Action::Forget(..))), "{actions:?}");
    assert!(graph.known().versions[&version(1, 0)].is_with(THERE));
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
    assert!(graph.known().versions[&version(0, 0)].is_with(THIRD));
    let again = assigned(&mut graph);
    assert!(matches!(again[..], [(1, _)]), "{again:?}");
}

/// Creates a graph with call 2 assigned to `THERE`. It reads data of the program, and updates in place the output of
/// call 1 on the same member.
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
    assert_eq!(assigned(&mut graph), [(2, THERE)], "nothing is recomputed");
}

#[test]
fn leftovers_of_repeated_task_are_forgotten() {
    let (mut first, mut again) = (graph(), graph());
    let (execution, child) = (Execution { call: 0, number: 1 }, number_within(0, 0, 0));
    let call_child = |graph: &mut Graph| {
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
    call_child(&mut first);
    let mark = first.known().calls[&child].mark;
    // The child had completed before its task was repeated, and the task was running when the coordinator was lost.
    let mut history = History::default();
    history.add_end(0);
    again.journal().add_history(history);
    let held = Held { version: version(child, 0), mark, bytes: 8 };
    again.on_held(THERE, held);
    again.on_running(THERE, child, mark);
    call(&mut again, 0, &[]);
    let actions = again.actions();
    assert!(matches!(&actions[..], [Action::Forget(THERE, id)] if *id == held.version), "{actions:?}");
    // Data that is written afterwards is forgotten, too.
    again.on_held(THERE, held);
    written(&mut again, child, THERE);
    assert!(again.actions().iter().all(|action| matches!(action, Action::Forget(THERE, _))));
    // The child runs once its task makes the call again.
    assert!(matches!(again.want(version(0, 0)), Input::Awaited));
    assert_eq!(assigned(&mut again), [(0, THERE)]);
    call_child(&mut again);
    again.step(THERE, execution, Step::Get(held.version), None);
    assert_eq!(assigned(&mut again), [(child, THERE)]);
}

#[test]
fn reassigned_call_survives_return_of_earlier_execution() {
    let mut first = graph();
    call(&mut first, 0, &[]);
    let mark = first.known().versions[&version(0, 0)].mark;
    let mut graph = graph();
    // The report that the call is running arrives after its assignment.
    call(&mut graph, 0, &[]);
    assert_eq!(assigned(&mut graph), [(0, THERE)]);
    graph.on_running(THERE, 0, mark);
    graph.returned(0, THERE, &[]);
    assert_eq!(assigned(&mut graph), [], "the new assignment still holds");
    // Here the report arrives before the program makes the call.
    let mut in_time = self::graph();
    in_time.on_running(THERE, 0, mark);
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
    graph.on_leaving(Member::HERE);
    assert!(graph.actions().is_empty(), "the remaining member has it");
    graph.call(2, new_call(vec![Argument::Update(version(1, 0))], 1, Options::DEFAULT));
    graph.release(version(1, 0));
    assert_eq!(assigned(&mut graph), [(2, THERE)]);
    graph.lost(THERE);
    let actions = graph.actions();
    let [Action::Copy(THIRD, source)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(source.version, version(1, 0));
}
