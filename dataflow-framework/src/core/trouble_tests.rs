//! Members that are unfit for a call, have damaged data, or have redundant copies.

use super::{
    Action, Capacity, Cause, Graph, Held, Input, Member, Outcome, Unfit,
    graph_tests::{assigned_to as assigned, forgotten, graph_of, new_call, version, written_by as written},
};
use crate::{
    failure::{Failure, FailureKind, Reason},
    ids::{Argument, CallId, VersionId},
    options::Options,
};

const MEMBERS: [Member; 3] = [Member(0), Member(1), Member(2)];

fn graph() -> Graph {
    graph_of([1, 1, 1])
}

fn call(graph: &mut Graph, id: CallId, arguments: Vec<Argument>) {
    graph.call(id, new_call(arguments, 1, Options::DEFAULT));
}

fn is_brought(graph: &mut Graph, id: VersionId) -> bool {
    graph.actions().iter().any(|action| matches!(action, Action::Bring(source) if source.version == id))
}

fn unfit(graph: &mut Graph, id: CallId, member: Member, damaged: Option<VersionId>) {
    unfit_because(graph, id, member, damaged.map_or(Cause::Member, Cause::Damaged));
}

fn unfit_because(graph: &mut Graph, id: CallId, member: Member, cause: Cause) {
    let unfit = Unfit { reason: format!("no room on {}", member.0).into(), unchanged: Vec::new(), cause };
    graph.ended(id, member, Outcome::Unfit(unfit));
}

#[test]
fn unfit_call_is_tried_on_each_member_before_it_fails() {
    let mut graph = graph();
    call(&mut graph, 0, vec![]);
    let mut tried = Vec::new();
    for _ in MEMBERS {
        let [(0, member)] = assigned(&mut graph)[..] else { panic!("it runs somewhere") };
        tried.push(member);
        unfit(&mut graph, 0, member, None);
    }
    assert_eq!(assigned(&mut graph), []);
    let last = tried[2];
    tried.sort_unstable();
    assert_eq!(tried, MEMBERS);
    let [failure] = graph.failures() else { panic!("the call has failed once") };
    assert_eq!(failure.reason(), format!("no room on {}", last.0));
}

#[test]
fn failed_call_is_retried_on_another_member() {
    let mut graph = graph();
    graph.call(0, new_call(vec![], 1, Options { retry: 2, ..Options::DEFAULT }));
    let fail = |graph: &mut Graph| {
        let [(0, member)] = assigned(graph)[..] else { panic!("it runs somewhere") };
        graph.ended(0, member, Outcome::Failed(Failure::new("t", 0, "no licence")));
        member
    };
    let members = [fail(&mut graph), fail(&mut graph), fail(&mut graph)];
    assert!(members[0] != members[1] && members[1] != members[2], "{members:?}");
    assert_eq!(graph.failures().len(), 1);
}

#[test]
fn failed_call_does_not_wait_for_busy_member() {
    let mut graph = graph_of([1, 1]);
    graph.call(0, new_call(vec![], 1, Options { retry: 1, ..Options::DEFAULT }));
    call(&mut graph, 1, vec![]);
    let [(0, first), (1, _)] = assigned(&mut graph)[..] else { panic!("both members run a call") };
    graph.ended(0, first, Outcome::Failed(Failure::new("t", 0, "no licence")));
    assert_eq!(assigned(&mut graph), [(0, first)]);
}

/// Returns the members on which a call with retries runs if it fails, or is unfit, on the first two.
fn members_of(fails: [bool; 2]) -> Vec<Member> {
    let mut graph = graph();
    graph.call(0, new_call(vec![], 1, Options { retry: 2, ..Options::DEFAULT }));
    let mut members = Vec::new();
    for fails in fails {
        let [(0, member)] = assigned(&mut graph)[..] else { panic!("it runs somewhere") };
        members.push(member);
        if fails {
            graph.ended(0, member, Outcome::Failed(Failure::new("t", 0, "no licence")));
        } else {
            unfit(&mut graph, 0, member, None);
        }
    }
    members.extend(assigned(&mut graph).into_iter().map(|(_, member)| member));
    members
}

#[test]
fn queues_of_failed_calls_are_dropped() {
    let mut graph = graph();
    for id in 0..9 {
        graph.call(id, new_call(vec![], 1, Options { retry: 1, ..Options::DEFAULT }));
    }
    for (id, member) in assigned(&mut graph) {
        graph.ended(id, member, Outcome::Failed(Failure::new("t", id, "no licence")));
    }
    let mut completed = 0;
    while completed < 9 {
        let again = assigned(&mut graph);
        assert!(!again.is_empty(), "the other calls wait");
        completed += again.len();
        for (id, member) in again {
            written(&mut graph, id, member);
        }
    }
    assert_eq!((assigned(&mut graph), graph.queues().classes()), (vec![], 1));
}

#[test]
fn unfit_member_stays_shunned_after_failure_elsewhere() {
    assert_eq!(members_of([false, true]), MEMBERS);
}

#[test]
fn failed_member_stays_avoided_after_unfit_one() {
    assert_eq!(members_of([true, false]), MEMBERS);
}

#[test]
fn unfit_call_fails_with_kind_of_last_attempt() {
    let mut graph = graph();
    call(&mut graph, 0, vec![]);
    for _ in MEMBERS {
        let [(0, member)] = assigned(&mut graph)[..] else { panic!("it runs somewhere") };
        let reason = Reason { kind: FailureKind::Panic, text: "it panicked".to_owned() };
        let unfit = Unfit { reason, unchanged: Vec::new(), cause: Cause::Member };
        graph.ended(0, member, Outcome::Unfit(unfit));
    }
    let [failure] = graph.failures() else { panic!("the call has failed once") };
    assert_eq!(failure.kind(), FailureKind::Panic);
}

#[test]
fn call_with_demands_is_retried_on_another_member_with_them() {
    let mut graph = Graph::new(true);
    for (member, workers) in [(Member(0), 1), (Member(1), 2), (Member(2), 2)] {
        graph.joined(member, Capacity::of_workers(workers));
    }
    graph.call(0, new_call(vec![], 1, Options { cores: 2, ..Options::DEFAULT }));
    let [(0, first)] = assigned(&mut graph)[..] else { panic!("it runs somewhere") };
    unfit(&mut graph, 0, first, None);
    let [(0, second)] = assigned(&mut graph)[..] else { panic!("it runs elsewhere") };
    assert_eq!([first, second].iter().filter(|member| **member != Member(0)).count(), 2);
    assert_ne!(first, second);
    unfit(&mut graph, 0, second, None);
    let [failure] = graph.failures() else { panic!("no member is left for it") };
    assert_eq!(failure.reason(), format!("no room on {}", second.0));
}

#[test]
fn call_whose_other_member_leaves_is_tried_again_on_the_unfit_one() {
    let mut graph = Graph::new(true);
    for member in [Member(0), Member(1)] {
        graph.joined(member, Capacity::of_workers(2));
    }
    graph.call(0, new_call(vec![], 1, Options { cores: 2, ..Options::DEFAULT }));
    let [(0, first)] = assigned(&mut graph)[..] else { panic!("it runs somewhere") };
    let other = if first == Member(0) { Member(1) } else { Member(0) };
    call(&mut graph, 1, vec![]);
    assert_eq!(assigned(&mut graph), [(1, other)]);
    unfit(&mut graph, 0, first, None);
    assert_eq!(assigned(&mut graph), [], "the other member is busy");
    graph.on_leaving(other);
    graph.joined(Member(2), Capacity::of_workers(1));
    assert_eq!(assigned(&mut graph), [(0, first)], "the new member has too few workers");
}

#[test]
fn call_too_large_for_each_store_waits_for_a_larger_one() {
    let mut graph = graph();
    call(&mut graph, 0, vec![]);
    for _ in MEMBERS {
        let [(0, member)] = assigned(&mut graph)[..] else { panic!("it is tried on each member") };
        unfit_because(&mut graph, 0, member, Cause::Store(3 << 20));
    }
    assert_eq!(assigned(&mut graph), []);
    assert!(graph.failures().is_empty());
    let lack = graph.known().lacks(0).expect("no store is large enough").to_string();
    assert_eq!(lack, "a store for 3.0 MiB of inputs (`--store`), and no node has one");
    call(&mut graph, 1, vec![]);
    let [(1, other)] = assigned(&mut graph)[..] else { panic!("it delays no other call") };
    written(&mut graph, 1, other);
    graph.joined(Member(3), Capacity::of_workers(1));
    assert_eq!(assigned(&mut graph), [(0, Member(3))]);
}

#[test]
fn call_too_large_for_each_store_fails_where_no_member_can_join() {
    let mut graph = graph();
    graph.queues().fix_members();
    call(&mut graph, 0, vec![]);
    for _ in MEMBERS {
        let [(0, member)] = assigned(&mut graph)[..] else { panic!("it is tried on each member") };
        unfit_because(&mut graph, 0, member, Cause::Store(3 << 20));
    }
    assert_eq!((assigned(&mut graph), graph.failures().len()), (vec![], 1));
}

#[test]
fn unfit_call_retry_may_use_every_member() {
    let mut graph = graph();
    let options = Options { retry: 1, ..Options::DEFAULT };
    graph.call(0, new_call(vec![], 1, options));
    for _ in 0..2 * MEMBERS.len() {
        let [(0, member)] = assigned(&mut graph)[..] else { panic!("it runs somewhere") };
        assert!(graph.failures().is_empty());
        unfit(&mut graph, 0, member, None);
    }
    assert_eq!((assigned(&mut graph), graph.failures().len(), graph.figures().retries), (vec![], 1, 1));
}

#[test]
fn unfit_call_unchanged_input_is_kept() {
    let mut graph = graph();
    call(&mut graph, 0, vec![]);
    let [(0, first)] = assigned(&mut graph)[..] else { panic!("it runs somewhere") };
    written(&mut graph, 0, first);
    call(&mut graph, 1, vec![Argument::Update(version(0, 0))]);
    graph.release(version(0, 0));
    assert_eq!(assigned(&mut graph), [(1, first)]);
    let unchanged = vec![(version(0, 0), 8)];
    let outcome = Unfit { reason: "its store is too small".into(), unchanged, cause: Cause::Member };
    graph.ended(1, first, Outcome::Unfit(outcome));
    let actions = graph.actions();
    let [Action::Assign(second, assignment)] = &actions[..] else { panic!("it runs elsewhere: {actions:?}") };
    assert_ne!(*second, first);
    assert_eq!(assignment.elsewhere[0].members, [first]);
    assert_eq!(graph.figures().repeated, 0);
}

#[test]
fn damaged_version_is_fetched_elsewhere_or_recomputed() {
    let mut graph = graph();
    call(&mut graph, 0, vec![]);
    let [(0, first)] = assigned(&mut graph)[..] else { panic!("it runs somewhere") };
    written(&mut graph, 0, first);
    let other = MEMBERS.into_iter().find(|member| *member != first).expect("there are three");
    graph.copied(version(0, 0), other);
    graph.on_damaged(version(0, 0), other, "it has vanished");
    assert_eq!(assigned(&mut graph), []);
    // The program waits for the data, from any member.
    assert!(!matches!(graph.want(version(0, 0)), Input::Failed(_)));
    graph.on_damaged(version(0, 0), first, "it has vanished");
    let again = assigned(&mut graph);
    assert!(matches!(again[..], [(0, _)]), "{again:?}");
    assert_eq!(graph.figures().repeated, 1);
}

#[test]
fn call_with_repeatedly_damaged_input_fails() {
    let mut graph = graph();
    call(&mut graph, 0, vec![]);
    call(&mut graph, 1, vec![Argument::Read(version(0, 0))]);
    let mut rounds = 0;
    while graph.failures().is_empty() {
        for (id, member) in assigned(&mut graph) {
            match id {
                0 => written(&mut graph, 0, member),
                _ => unfit(&mut graph, id, member, Some(version(0, 0))),
            }
        }
        rounds += 1;
        assert!(rounds < 100, "the call never fails");
    }
    assert_eq!(graph.failures()[0].call(), 1);
    assert!(graph.figures().repeated > 1);
}

#[test]
fn damaged_program_data_fails_its_readers() {
    let mut graph = graph();
    graph.data(0, 8, 0);
    call(&mut graph, 1, vec![Argument::Read(version(0, 0))]);
    call(&mut graph, 2, vec![Argument::Read(version(1, 0))]);
    let [(1, member)] = assigned(&mut graph)[..] else { panic!("it runs somewhere") };
    graph.on_damaged(version(0, 0), Member::HERE, "/tmp/data: it has vanished");
    unfit(&mut graph, 1, member, Some(version(0, 0)));
    assert_eq!((assigned(&mut graph), graph.unfinished()), (vec![], 0));
    let Input::Failed(failure) = graph.want(version(2, 0)) else { panic!("the data cannot exist") };
    assert_eq!((failure.task(), failure.reason()), ("Data::new", "/tmp/data: it has vanished"));
}

#[test]
fn data_damaged_before_its_call_is_repeated_is_recomputed() {
    let mut graph = graph();
    call(&mut graph, 0, vec![]);
    let mark = graph.known().versions[&version(0, 0)].mark;
    graph = graph_of([1, 1, 1]);
    let held = |member: Member| (member, Held { version: version(0, 0), mark, bytes: 8 });
    for (member, held) in MEMBERS.map(held) {
        graph.on_held(member, held);
    }
    graph.journal().add_end(0, None);
    for member in MEMBERS {
        graph.on_damaged(version(0, 0), member, "it has vanished");
    }
    call(&mut graph, 0, vec![]);
    assert!(matches!(graph.want(version(0, 0)), Input::Awaited));
    assert!(matches!(assigned(&mut graph)[..], [(0, _)]));
}

#[test]
fn data_awaited_by_program_is_not_dropped() {
    let mut graph = graph();
    call(&mut graph, 0, vec![]);
    assert!(matches!(graph.want(version(0, 0)), Input::Awaited));
    let [(0, first)] = assigned(&mut graph)[..] else { panic!("it runs somewhere") };
    written(&mut graph, 0, first);
    let others = MEMBERS.into_iter().filter(|member| *member != first);
    others.for_each(|member| graph.copied(version(0, 0), member));
    for member in MEMBERS {
        graph.drop_spare_copies(member, vec![version(0, 0)]);
    }
    assert!(forgotten(&mut graph).is_empty());
    assert!(matches!(graph.want(version(0, 0)), Input::Here));
    // The version is brought again if it is damaged before the program reads it.
    graph.on_damaged(version(0, 0), Member::HERE, "it has vanished");
    assert!(is_brought(&mut graph, version(0, 0)));
}

#[test]
fn unused_copies_held_elsewhere_are_dropped() {
    let mut graph = graph();
    call(&mut graph, 0, vec![]);
    let [(0, first)] = assigned(&mut graph)[..] else { panic!("it runs somewhere") };
    written(&mut graph, 0, first);
    let mut others = MEMBERS.into_iter().filter(|member| *member != first);
    let (second, third) = (others.next().expect("there are three"), others.next().expect("there are three"));
    let all = || vec![version(0, 0), version(7, 0)];
    graph.drop_spare_copies(first, all());
    assert_eq!(forgotten(&mut graph), []);
    graph.copied(version(0, 0), second);
    graph.drop_spare_copies(third, all());
    assert_eq!(forgotten(&mut graph), []);
    graph.drop_spare_copies(second, all());
    assert_eq!(forgotten(&mut graph), [(second, version(0, 0))]);
    // Both members have a copy again, and one of them leaves.
    graph.copied(version(0, 0), second);
    graph.on_leaving(first);
    graph.drop_spare_copies(second, all());
    assert_eq!(forgotten(&mut graph), []);
    // The member that runs the call uses its copy.
    call(&mut graph, 1, vec![Argument::Read(version(0, 0))]);
    let [(1, member)] = assigned(&mut graph)[..] else { panic!("it runs somewhere") };
    graph.copied(version(0, 0), third);
    graph.drop_spare_copies(member, all());
    assert_eq!(forgotten(&mut graph), []);
}
