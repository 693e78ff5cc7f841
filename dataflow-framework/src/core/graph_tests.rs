//! Responses of the graph to single events.

use super::{Action, Capacity, Graph, Member, NewCall, Outcome};
pub(super) use crate::task::NOT_RUN as TASK;
use crate::{
    failure::Failure,
    ids::{Argument, CallId, VersionId},
    options::Options,
};

pub(super) fn version(call: CallId, slot: u32) -> VersionId {
    VersionId { call, slot }
}

pub(super) fn new_call(arguments: Vec<Argument>, writes: u32, options: Options) -> NewCall {
    NewCall { task: &TASK, number: 0, options, arguments, writes, refused: None, merge: None, commute: None }
}

/// Creates a graph of members, which may be lost, with these numbers of workers.
pub(super) fn graph_of(workers: impl IntoIterator<Item = u32>) -> Graph {
    let mut graph = Graph::new(true);
    for (member, workers) in (0..).map(Member).zip(workers) {
        graph.joined(member, Capacity::of_workers(workers));
    }
    graph
}

/// Completes a call, with one small output.
pub(super) fn written_by(graph: &mut Graph, id: CallId, member: Member) {
    graph.ended(id, member, Outcome::Written { bytes: vec![8], ns: Some(1_000_000) });
}

/// Returns the newly assigned calls with their members.
pub(super) fn assigned_to(graph: &mut Graph) -> Vec<(CallId, Member)> {
    let assigned = graph.actions().into_iter().filter_map(|action| match action {
        Action::Assign(member, assignment) if assignment.work.task().is_some() => {
            Some((assignment.call, member))
        }
        _ => None,
    });
    assigned.collect()
}

/// Returns the newly assigned calls.
pub(super) fn assigned(graph: &mut Graph) -> Vec<CallId> {
    assigned_to(graph).into_iter().map(|(call, _)| call).collect()
}

pub(super) fn forgotten(graph: &mut Graph) -> Vec<(Member, VersionId)> {
    let forgotten = graph.actions().into_iter().filter_map(|action| match action {
        Action::Forget(member, version) => Some((member, version)),
        _ => None,
    });
    forgotten.collect()
}

/// Creates a graph of one member with this number of workers, which is never lost.
fn graph(workers: u32) -> Graph {
    let mut graph = Graph::new(false);
    graph.joined(Member::HERE, Capacity::of_workers(workers));
    graph
}

/// Completes a call that has taken one second.
fn written(graph: &mut Graph, id: CallId) {
    graph.ended(id, Member::HERE, Outcome::Written { bytes: vec![0], ns: Some(1_000_000_000) });
}

fn call(graph: &mut Graph, id: CallId, arguments: Vec<Argument>, writes: u32) {
    graph.call(id, new_call(arguments, writes, Options::DEFAULT));
}

fn fail(graph: &mut Graph, id: CallId) {
    graph.ended(id, Member::HERE, Outcome::Failed(Failure::new("task", id, "failed as requested")));
}

#[test]
fn call_starts_once_inputs_are_written() {
    let mut graph = graph(8);
    call(&mut graph, 0, vec![], 1);
    call(&mut graph, 1, vec![Argument::Read(version(0, 0)), Argument::Read(version(0, 0))], 1);
    assert_eq!(assigned(&mut graph), [0]);
    written(&mut graph, 0);
    assert_eq!(assigned(&mut graph), [1]);
}

#[test]
fn update_does_not_wait_for_readers_of_old_version() {
    let mut graph = graph(8);
    graph.data(0, 0, 0);
    call(&mut graph, 1, vec![Argument::Read(version(0, 0))], 1);
    call(&mut graph, 2, vec![Argument::Update(version(0, 0))], 1);
    assert_eq!(assigned(&mut graph), [1, 2]);
}

#[test]
fn update_in_place_only_by_last_reader() {
    for (has_handle, has_reader) in [(true, false), (false, true), (false, false)] {
        let mut graph = graph(8);
        graph.data(0, 0, 0);
        if has_reader {
            call(&mut graph, 1, vec![Argument::Read(version(0, 0))], 1);
        }
        call(&mut graph, 2, vec![Argument::Update(version(0, 0))], 1);
        if !has_handle {
            graph.release(version(0, 0));
        }
        let in_place = graph.actions().into_iter().find_map(|action| match action {
            Action::Assign(_, assignment) if assignment.call == 2 => Some(assignment.in_place),
            _ => None,
        });
        assert_eq!(in_place, Some(vec![!has_handle && !has_reader]));
    }
}

#[test]
fn update_of_own_input_is_not_in_place() {
    let mut graph = graph(8);
    graph.data(0, 0, 0);
    call(&mut graph, 1, vec![Argument::Update(version(0, 0)), Argument::Read(version(0, 0))], 1);
    graph.release(version(0, 0));
    let Some(Action::Assign(_, assignment)) = graph.actions().pop() else { panic!("it is ready") };
    assert_eq!(assignment.in_place, [false]);
}

#[test]
fn version_without_readers_is_forgotten() {
    let mut graph = graph(8);
    graph.data(0, 0, 0);
    call(&mut graph, 1, vec![Argument::Read(version(0, 0))], 1);
    graph.release(version(0, 0));
    assert_eq!(forgotten(&mut graph), []);
    // The output has no handle.
    graph.release(version(1, 0));
    written(&mut graph, 1);
    assert_eq!(forgotten(&mut graph), [(Member::HERE, version(0, 0)), (Member::HERE, version(1, 0))]);
    assert_eq!(graph.unfinished(), 0);
}

#[test]
fn calls_start_by_priority_then_creation_order() {
    let mut graph = graph(1);
    for (id, priority) in [(0, 0), (1, -1), (2, 5), (3, 5), (4, 0)] {
        graph.call(id, new_call(vec![], 1, Options { priority, ..Options::DEFAULT }));
    }
    let mut order = assigned(&mut graph);
    for ended in 0..5 {
        written(&mut graph, order[ended]);
        order.extend(assigned(&mut graph));
    }
    assert_eq!(order, [2, 3, 0, 4, 1]);
}

#[test]
fn equal_priority_longest_chain_starts_first() {
    let mut graph = graph(1);
    call(&mut graph, 0, vec![], 1);
    assert_eq!(assigned(&mut graph), [0]);
    // 50 calls without dependents, then a chain.
    for id in 1..=50 {
        call(&mut graph, id, vec![], 1);
    }
    call(&mut graph, 51, vec![], 1);
    for id in 52..80 {
        call(&mut graph, id, vec![Argument::Read(version(id - 1, 0))], 1);
    }
    written(&mut graph, 0);
    assert_eq!(assigned(&mut graph).first(), Some(&51));
}

#[test]
fn failure_fails_each_dependent_once() {
    let mut graph = graph(8);
    call(&mut graph, 0, vec![], 2);
    // Both of its inputs will never exist.
    call(&mut graph, 1, vec![Argument::Read(version(0, 0)), Argument::Read(version(0, 1))], 1);
    call(&mut graph, 2, vec![Argument::Read(version(1, 0))], 1);
    call(&mut graph, 3, vec![], 1);
    assert_eq!(assigned(&mut graph), [0, 3]);
    fail(&mut graph, 0);
    assert_eq!(graph.unfinished(), 1);
    assert_eq!(graph.failures().len(), 1);
    // A dependent call that is made later fails, too, without a failure of its own.
    call(&mut graph, 4, vec![Argument::Read(version(2, 0))], 1);
    assert!(matches!(graph.want(version(4, 0)), super::Input::Failed(failure) if failure.call() == 0));
    assert_eq!(graph.failures().len(), 1);
}

#[test]
fn call_with_retries_left_updates_no_data_in_place() {
    let mut graph = graph(8);
    graph.data(0, 0, 0);
    graph.call(
        1,
        new_call(vec![Argument::Update(version(0, 0))], 1, Options { retry: 1, ..Options::DEFAULT }),
    );
    graph.release(version(0, 0));
    for in_place in [false, true] {
        let Some(Action::Assign(_, assignment)) = graph.actions().pop() else { panic!("it is tried again") };
        assert_eq!(assignment.in_place, [in_place]);
        fail(&mut graph, 1);
    }
    assert_eq!(graph.unfinished(), 0);
}

#[test]
fn assignments_ahead_depend_on_call_duration() {
    for (ns, ahead) in [(1_000_000_000, 1), (1_000_000, 10), (1_000, 1_024)] {
        let mut graph = graph(2);
        for id in 0..3_000 {
            call(&mut graph, id, vec![], 1);
        }
        // No duration is known: one call ahead for each worker.
        assert_eq!(assigned(&mut graph), [0, 1, 2, 3]);
        graph.ended(0, Member::HERE, Outcome::Written { bytes: vec![0], ns: Some(ns) });
        assert_eq!(assigned(&mut graph).len() + 3, 2 + ahead);
    }
}

/// Creates a graph of two members with one worker each, of which the second one may be lost.
fn graph_of_two() -> Graph {
    let mut graph = Graph::new(true);
    graph.joined(Member::HERE, Capacity::of_workers(1));
    graph.joined(THERE, Capacity::of_workers(1));
    graph
}

const THERE: Member = Member(1);

fn written_bytes(graph: &mut Graph, id: CallId, member: Member, bytes: u64) {
    graph.ended(id, member, Outcome::Written { bytes: vec![bytes], ns: Some(1_000_000_000) });
}

#[test]
fn call_goes_to_member_with_most_input_bytes() {
    let mut graph = graph_of_two();
    call(&mut graph, 0, vec![], 1);
    call(&mut graph, 1, vec![], 1);
    assert_eq!(assigned_to(&mut graph), [(0, Member::HERE), (1, THERE)]);
    written_bytes(&mut graph, 0, Member::HERE, 1_000);
    written_bytes(&mut graph, 1, THERE, 1_000_000);
    call(&mut graph, 2, vec![Argument::Read(version(0, 0)), Argument::Read(version(1, 0))], 1);
    let actions = graph.actions();
    let [Action::Assign(THERE, assignment)] = &actions[..] else { panic!("{actions:?}") };
    let source = &assignment.elsewhere[0];
    assert_eq!((source.version, &source.members[..]), (version(0, 0), &[Member::HERE][..]));
}

#[test]
fn loss_recomputes_only_needed_data() {
    let mut graph = graph_of_two();
    // Two chains of two calls each, on different members.
    for id in [0, 1] {
        call(&mut graph, id, vec![], 1);
    }
    assert_eq!(assigned_to(&mut graph), [(0, Member::HERE), (1, THERE)]);
    written_bytes(&mut graph, 0, Member::HERE, 1 << 30);
    written_bytes(&mut graph, 1, THERE, 1 << 30);
    call(&mut graph, 2, vec![Argument::Update(version(0, 0))], 1);
    call(&mut graph, 3, vec![Argument::Update(version(1, 0))], 1);
    graph.release(version(0, 0));
    graph.release(version(1, 0));
    assert_eq!(assigned_to(&mut graph), [(2, Member::HERE), (3, THERE)]);
    written_bytes(&mut graph, 2, Member::HERE, 1 << 30);
    written_bytes(&mut graph, 3, THERE, 1 << 30);
    graph.lost(THERE);
    // The lost data has no reader yet.
    assert_eq!(assigned_to(&mut graph), []);
    call(&mut graph, 4, vec![Argument::Read(version(2, 0)), Argument::Read(version(3, 0))], 1);
    for id in [1, 3, 4] {
        assert_eq!(assigned_to(&mut graph), [(id, Member::HERE)]);
        written_bytes(&mut graph, id, Member::HERE, 8);
    }
    assert_eq!(graph.figures().repeated, 2);
    assert_eq!(graph.unfinished(), 0);
}

#[test]
fn call_on_lost_member_runs_elsewhere() {
    let mut graph = graph_of_two();
    call(&mut graph, 0, vec![], 1);
    call(&mut graph, 1, vec![], 1);
    assert_eq!(assigned_to(&mut graph), [(0, Member::HERE), (1, THERE)]);
    graph.lost(THERE);
    assert_eq!(assigned_to(&mut graph), [(1, Member::HERE)]);
    // A late report of the lost member is ignored.
    written_bytes(&mut graph, 1, THERE, 8);
    assert_eq!(graph.unfinished(), 2);
}

#[test]
fn leaving_member_gets_no_calls() {
    let mut graph = graph_of_two();
    graph.on_leaving(THERE);
    call(&mut graph, 0, vec![], 1);
    call(&mut graph, 1, vec![], 1);
    assert_eq!(assigned_to(&mut graph), [(0, Member::HERE), (1, Member::HERE)]);
}

#[test]
fn cordoned_member_returns_calls_and_gets_none_until_uncordoned() {
    let mut graph = graph_of_two();
    call(&mut graph, 0, vec![], 1);
    call(&mut graph, 1, vec![], 1);
    assert_eq!(assigned_to(&mut graph), [(0, Member::HERE), (1, THERE)]);
    graph.on_cordon(THERE, true);
    graph.returned(1, THERE, &[]);
    assert_eq!(assigned_to(&mut graph), [(1, Member::HERE)]);
    graph.on_cordon(Member::HERE, true);
    call(&mut graph, 2, vec![], 1);
    assert_eq!(assigned_to(&mut graph), [], "all members are cordoned");
    graph.on_cordon(THERE, false);
    assert_eq!(assigned_to(&mut graph), [(2, THERE)]);
    written_bytes(&mut graph, 0, Member::HERE, 8);
    assert_eq!(graph.unfinished(), 2, "a cordoned member completes its calls");
}

#[test]
fn data_awaited_by_program_is_brought() {
    let mut graph = graph_of_two();
    call(&mut graph, 0, vec![], 1);
    call(&mut graph, 1, vec![], 1);
    assert_eq!(assigned_to(&mut graph), [(0, Member::HERE), (1, THERE)]);
    assert!(matches!(graph.want(version(1, 0)), super::Input::Awaited));
    written_bytes(&mut graph, 1, THERE, 8);
    let actions = graph.actions();
    assert!(
        matches!(&actions[..], [Action::Bring(source)] if source.version == version(1, 0) && source.members == [THERE]),
        "{actions:?}"
    );
    graph.copied(version(1, 0), Member::HERE);
    assert!(matches!(graph.want(version(1, 0)), super::Input::Here));
}

#[test]
fn call_crashing_too_many_members_fails() {
    let mut graph = Graph::new(true);
    call(&mut graph, 0, vec![], 1);
    call(&mut graph, 1, vec![Argument::Read(version(0, 0))], 1);
    for member in 1..=5 {
        graph.joined(Member(member), Capacity::of_workers(1));
        assert_eq!(assigned_to(&mut graph), [(0, Member(member))]);
        graph.lost(Member(member));
    }
    assert_eq!(graph.unfinished(), 0);
    let failure = graph.failures().first().expect("it has failed").clone();
    assert!(failure.reason().starts_with("5 nodes were lost"), "{failure}");
    assert!(matches!(graph.want(version(1, 0)), super::Input::Failed(_)));
}
