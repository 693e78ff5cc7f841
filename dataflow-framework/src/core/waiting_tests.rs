//! Responses of the graph to single steps of tasks that make calls.

use dataflow_view::State;

use super::{
    Action, Capacity, Cause, Graph, Member, Outcome, Step, TaskCall, Unfit,
    graph_tests::{TASK, assigned_to as assigned, new_call, version},
};
use crate::{
    ids::{Argument, CallId, Execution, VersionId, number_within},
    options::Options,
};

const OTHER: Member = Member(1);

const PARENT: Execution = Execution { call: 0, number: 1 };

fn child(position: u64) -> CallId {
    number_within(PARENT.call, 0, position)
}

/// Returns the version that the call or the datum at a position creates.
fn made(position: u64) -> VersionId {
    version(child(position), 0)
}

fn calls(position: u64, reads: &[VersionId], options: Options) -> Step {
    let arguments = reads.iter().copied().map(Argument::Read).collect();
    let task = Some(&TASK);
    Step::Call(
        TaskCall { position, number: 0, task, options, arguments, writes: 1, refused: None },
        Vec::new(),
    )
}

/// Creates a graph of members with these capacities. The first member runs a task that makes calls.
fn graph(capacities: impl IntoIterator<Item = Capacity>, options: Options) -> Graph {
    let mut graph = Graph::new(true);
    graph.observed().observe(true, false);
    for (member, capacity) in (0..).map(Member).zip(capacities) {
        graph.joined(member, capacity);
    }
    graph.call(PARENT.call, new_call(Vec::new(), 1, options));
    assert_eq!(assigned(&mut graph), [(PARENT.call, Member::HERE)]);
    step(&mut graph, Step::Begin);
    graph
}

fn step(graph: &mut Graph, step: Step) {
    graph.step(Member::HERE, PARENT, step, None);
}

fn written(graph: &mut Graph, id: CallId, member: Member) {
    graph.ended(id, member, Outcome::Written { bytes: vec![1_000], ns: Some(1_000_000) });
}

#[test]
fn waiting_task_lends_all_its_resources() {
    let options = Options { cores: 2, memory: 8 << 30, ..Options::DEFAULT };
    let capacity = Capacity { memory: 8 << 30, ..Capacity::of_workers(2) };
    let mut graph = graph([capacity], options);
    step(&mut graph, calls(0, &[], options));
    assert_eq!(assigned(&mut graph), [], "there is no room next to its parent");
    step(&mut graph, Step::Get(made(0)));
    assert_eq!(assigned(&mut graph), [(child(0), Member::HERE)]);
    written(&mut graph, child(0), Member::HERE);
    step(&mut graph, Step::Got);
    step(&mut graph, calls(1, &[], options));
    assert_eq!(assigned(&mut graph), [], "the parent has its resources back");
    step(&mut graph, Step::Wait(0..2, true));
    assert_eq!(assigned(&mut graph), [(child(1), Member::HERE)]);
}

#[test]
fn nested_call_with_demands_precedes_program_calls() {
    let options = Options { cores: 2, ..Options::DEFAULT };
    let mut graph = graph([Capacity::of_workers(2)], Options::DEFAULT);
    graph.call(1, new_call(Vec::new(), 1, options));
    step(&mut graph, calls(0, &[], options));
    step(&mut graph, Step::Get(made(0)));
    assert_eq!(assigned(&mut graph), [(child(0), Member::HERE)]);
    written(&mut graph, child(0), Member::HERE);
    step(&mut graph, Step::Got);
    assert_eq!(assigned(&mut graph), [], "the resumed task takes a worker");
    written(&mut graph, PARENT.call, Member::HERE);
    assert_eq!(assigned(&mut graph), [(1, Member::HERE)]);
}

#[test]
fn data_created_by_running_task_is_not_dropped() {
    let mut graph = graph([Capacity::of_workers(1), Capacity::of_workers(1)], Options::DEFAULT);
    step(&mut graph, Step::Bring { position: 0, bytes: 1_000, content: 7 });
    step(&mut graph, calls(1, &[made(0)], Options::DEFAULT));
    step(&mut graph, calls(2, &[made(0)], Options::DEFAULT));
    let all = assigned(&mut graph);
    assert!(all.contains(&(child(1), OTHER)) || all.contains(&(child(2), OTHER)), "{all:?}");
    graph.copied(made(0), OTHER);
    for (call, member) in all {
        written(&mut graph, call, member);
    }
    drop(graph.actions());
    graph.drop_spare_copies(Member::HERE, vec![made(0)]);
    let actions = graph.actions();
    let is_dropped = |action: &Action| matches!(action, Action::Forget(Member::HERE, _));
    assert!(!actions.iter().any(is_dropped), "the data could not be recomputed: {actions:?}");
}

#[test]
fn damaged_data_created_by_task_fails_task() {
    let mut graph = graph([Capacity::of_workers(1)], Options::DEFAULT);
    step(&mut graph, Step::Bring { position: 0, bytes: 1_000, content: 7 });
    graph.on_damaged(made(0), Member::HERE, "its file is gone");
    graph.ended(PARENT.call, Member::HERE, Outcome::Written { bytes: vec![1_000], ns: Some(1_000_000) });
    let failures: Vec<_> = graph.failures().iter().map(ToString::to_string).collect();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].starts_with("task `task` (call 0) has failed: "), "{failures:?}");
    assert!(
        failures[0].contains("data that it created with `Data::new` is lost: its file is gone"),
        "{failures:?}"
    );
}

#[test]
fn unfit_task_moves_and_its_calls_continue() {
    let mut graph = graph([Capacity::of_workers(1), Capacity::of_workers(1)], Options::DEFAULT);
    step(&mut graph, calls(0, &[], Options::DEFAULT));
    assert_eq!(assigned(&mut graph), [(child(0), OTHER)]);
    let unfit = Unfit { reason: "its disk is full".into(), unchanged: Vec::new(), cause: Cause::Member };
    graph.ended(PARENT.call, Member::HERE, Outcome::Unfit(unfit));
    assert_eq!(assigned(&mut graph), [(PARENT.call, OTHER)]);
    let again = Execution { number: 2, ..PARENT };
    graph.step(OTHER, again, Step::Begin, None);
    graph.step(OTHER, again, calls(0, &[], Options::DEFAULT), None);
    assert_eq!(assigned(&mut graph), [], "the child is still running");
    written(&mut graph, child(0), OTHER);
    written(&mut graph, PARENT.call, OTHER);
    assert!(!graph.is_unfinished(PARENT.call));
    assert!(graph.failures().is_empty());
}

#[test]
fn nested_call_of_repeated_task_is_listed_once() {
    let mut graph = graph([Capacity::of_workers(1), Capacity::of_workers(1)], Options::DEFAULT);
    graph.call(1, new_call(Vec::new(), 1, Options::DEFAULT));
    assert_eq!(assigned(&mut graph), [(1, OTHER)]);
    written(&mut graph, 1, OTHER);
    step(&mut graph, calls(0, &[], Options::DEFAULT));
    assert_eq!(assigned(&mut graph), [(child(0), OTHER)]);
    step(&mut graph, Step::Release(made(0)));
    written(&mut graph, child(0), OTHER);
    graph.lost(Member::HERE);
    assert_eq!(assigned(&mut graph), [(PARENT.call, OTHER)]);
    let again = Execution { number: 2, ..PARENT };
    graph.step(OTHER, again, Step::Begin, None);
    graph.step(OTHER, again, calls(0, &[], Options::DEFAULT), None);
    let recorded = graph.recorded().expect("it was asked for");
    let numbers: Vec<_> = recorded.calls.iter().map(|call| call.number).collect();
    assert_eq!(numbers, [PARENT.call, 1, child(0)]);
}

#[test]
fn nested_calls_are_listed_in_creation_order() {
    let mut graph = graph([Capacity::of_workers(1)], Options::DEFAULT);
    step(&mut graph, calls(0, &[], Options::DEFAULT));
    graph.call(1, new_call(vec![Argument::Read(version(0, 0))], 1, Options::DEFAULT));
    step(&mut graph, calls(1, &[made(0)], Options::DEFAULT));
    step(&mut graph, Step::Get(made(0)));
    drop(graph.actions());
    let recorded = graph.recorded().expect("it was asked for");
    let numbers: Vec<_> = recorded.calls.iter().map(|call| call.number).collect();
    assert_eq!(numbers, [0, child(0), 1, child(1)]);
    assert_eq!(recorded.reads, [(0, 2), (1, 3)]);
    let states: Vec<_> = recorded.calls.iter().map(|call| call.state).collect();
    assert_eq!(states, [State::Running, State::Running, State::Waiting, State::Waiting]);
    let summary = graph.summary();
    let [task] = &summary.tasks[..] else { panic!("the waiting `get` is not listed as a task: {summary:?}") };
    assert_eq!((task.running, task.waiting), (2, 2));
}

#[test]
fn lost_forwarded_result_is_restored_from_journal() {
    let mut graph = graph([Capacity::of_workers(1), Capacity::of_workers(1)], Options::DEFAULT);
    graph.journal().enable();
    step(&mut graph, calls(0, &[], Options { effect: true, ..Options::DEFAULT }));
    assert_eq!(assigned(&mut graph), [(child(0), OTHER)]);
    let values = Some(vec![b"abc".to_vec()]);
    graph.ended(child(0), OTHER, Outcome::Durable { bytes: vec![3], ns: 1_000_000, by: 0, values });
    let mut recorded = graph.actions().into_iter().filter_map(|action| match action {
        Action::Record(fact) => Some(fact),
        _ => None,
    });
    let fact = recorded.next().expect("the completion is recorded first");
    graph.lost(OTHER);
    step(&mut graph, Step::HandOn(vec![(0, made(0))]));
    written(&mut graph, PARENT.call, Member::HERE);
    assert!(graph.is_unfinished(PARENT.call));
    graph.journalled(fact);
    assert!(!graph.is_unfinished(PARENT.call), "the task has completed");
    assert!(graph.known().versions[&version(PARENT.call, 0)].is_with(Member::HERE));
}
