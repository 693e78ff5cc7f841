//! Restarts of a program, and members that leave.

use super::{
    Action, Capacity, Divergence, Fact, Graph, Held, History, Input, Mark, Member, Outcome,
    graph_tests::{assigned, assigned_to, graph_of, new_call, version, written_by as written},
};
use crate::{
    encoding::{decode, encode},
    failure::{Failure, FailureKind, Reason},
    ids::{Argument, CallId, VersionId},
    options::Options,
};

const THERE: Member = Member(1);

fn graph() -> Graph {
    graph_of([1, 1])
}

/// Makes a call that reads these versions and writes one.
fn call(graph: &mut Graph, id: CallId, reads: &[VersionId]) {
    let arguments = vec![Argument::ReadAll(reads.to_vec())];
    graph.call(id, new_call(arguments, 1, Options::DEFAULT));
}

/// Makes a chain of calls, and returns the marks of their outputs.
fn chain(graph: &mut Graph, calls: CallId) -> Vec<Mark> {
    for id in 0..calls {
        let reads = id.checked_sub(1).map(|before| version(before, 0));
        call(graph, id, reads.as_slice());
    }
    (0..calls).map(|id| graph.known().versions[&version(id, 0)].mark).collect()
}

fn complete_all(graph: &mut Graph) {
    loop {
        let running = assigned_to(graph);
        if running.is_empty() {
            return;
        }
        for (id, member) in running {
            written(graph, id, member);
        }
    }
}

#[test]
fn completed_calls_are_not_repeated_after_restart() {
    let mut first = graph();
    let marks = chain(&mut first, 10);
    complete_all(&mut first);
    let mut again = graph();
    again.journal().add_history(first.known().journal.history().clone());
    again.on_held(THERE, Held { version: version(9, 0), mark: marks[9], bytes: 8 });
    chain(&mut again, 10);
    assert_eq!((again.unfinished(), assigned(&mut again)), (0, vec![]));
    // Only the last output exists, and it is brought when the program wants it.
    assert!(matches!(again.want(version(9, 0)), Input::Awaited));
    let actions = again.actions();
    assert!(
        matches!(&actions[..], [Action::Bring(source)] if source.version == version(9, 0) && source.members == [THERE])
    );
}

#[test]
fn missing_data_is_recomputed_on_demand_after_restart() {
    let mut first = graph();
    let marks = chain(&mut first, 10);
    complete_all(&mut first);
    let mut again = graph();
    again.journal().add_history(first.known().journal.history().clone());
    again.on_held(THERE, Held { version: version(4, 0), mark: marks[4], bytes: 8 });
    chain(&mut again, 10);
    again.want(version(9, 0));
    complete_all(&mut again);
    // Calls 5 to 9.
    assert_eq!(again.figures().repeated, 5);
    assert!(again.known().versions[&version(9, 0)].is_present());
}

#[test]
fn running_call_continues_after_restart() {
    let mut first = graph();
    let marks = chain(&mut first, 2);
    let mut again = graph();
    again.on_running(THERE, 0, marks[0]);
    chain(&mut again, 2);
    assert_eq!(assigned(&mut again), [] as [CallId; 0]);
    // A member reports data before the completion of its call.
    again.on_held(THERE, Held { version: version(0, 0), mark: marks[0], bytes: 8 });
    written(&mut again, 0, THERE);
    assert_eq!(assigned(&mut again), [1]);
}

#[test]
fn call_completed_before_program_makes_it_is_not_repeated() {
    let mut first = graph();
    let marks = chain(&mut first, 2);
    for has_written in [true, false] {
        let mut again = graph();
        again.on_running(THERE, 0, marks[0]);
        if has_written {
            again.on_held(THERE, Held { version: version(0, 0), mark: marks[0], bytes: 8 });
            written(&mut again, 0, THERE);
        } else {
            again.ended(0, THERE, Outcome::Failed(Failure::new("task", 0, "failed as requested")));
        }
        chain(&mut again, 2);
        let now: &[CallId] = if has_written { &[1] } else { &[] };
        assert_eq!(assigned(&mut again), now);
        assert_eq!(matches!(again.want(version(0, 0)), Input::Failed(_)), !has_written);
    }
}

#[test]
fn failure_reported_to_program_holds_after_restart() {
    let mut first = graph();
    chain(&mut first, 1);
    let Some(Action::Assign(member, _)) = first.actions().pop() else { panic!("it is ready") };
    first.ended(0, member, Outcome::Failed(Failure::new("task", 0, "failed as requested")));
    let mut again = graph();
    again.journal().add_history(first.known().journal.history().clone());
    chain(&mut again, 1);
    assert!(
        matches!(again.want(version(0, 0)), Input::Failed(failure) if failure.reason() == "failed as requested")
    );
}

/// Records all pending facts in the journal, and returns them.
fn record(graph: &mut Graph) -> Vec<Fact> {
    let actions = graph.actions().into_iter();
    let facts =
        actions.filter_map(|action| if let Action::Record(fact) = action { Some(fact) } else { None });
    facts.inspect(|fact| graph.journalled(fact.clone())).collect()
}

#[test]
fn failure_keeps_its_kind_after_restart() {
    let reason = Reason { kind: FailureKind::Timeout, text: "it has taken too long".to_owned() };
    let failed = || Outcome::Failed(Failure::new("task", 0, reason.clone()));
    let mut first = graph();
    first.journal().enable();
    let mark = chain(&mut first, 1)[0];
    let [(_, member)] = assigned_to(&mut first)[..] else { panic!("it is ready") };
    first.ended(0, member, failed());
    let facts = record(&mut first);
    let facts: Vec<Fact> = decode(&encode(&facts).expect("they can be encoded")).expect("they are facts");
    let [Fact::Failed { .. }] = facts[..] else { panic!("the failure is not recorded: {facts:?}") };
    // The failure is in the journal, or a node reports it before the program makes the call.
    for facts in [facts, Vec::new()] {
        let mut again = graph();
        again.journal().enable();
        if facts.is_empty() {
            again.on_running(THERE, 0, mark);
            again.ended(0, THERE, failed());
        }
        for fact in facts {
            again.recall(fact);
        }
        chain(&mut again, 1);
        record(&mut again);
        let Input::Failed(failure) = again.want(version(0, 0)) else { panic!("it has failed before") };
        assert_eq!((failure.kind(), failure.reason()), (FailureKind::Timeout, "it has taken too long"));
    }
}

#[test]
fn changed_call_after_restart_is_detected() {
    let mut first = graph();
    let marks = chain(&mut first, 3);
    let held = Held { version: version(2, 0), mark: marks[2], bytes: 8 };
    for is_early in [true, false] {
        let mut again = graph();
        if is_early {
            again.on_held(THERE, held);
        }
        call(&mut again, 0, &[]);
        call(&mut again, 1, &[]);
        assert_eq!(again.divergence(), None);
        call(&mut again, 2, &[version(1, 0)]);
        if !is_early {
            again.on_held(THERE, held);
        }
        let is = again.known().versions[&version(2, 0)].mark;
        assert_eq!(again.divergence(), Some(Divergence { call: 2, was: marks[2], is }));
    }
}

#[test]
fn data_read_by_program_is_moved_to_another_member() {
    let mut graph = graph();
    call(&mut graph, 0, &[]);
    assert_eq!(assigned(&mut graph), [0]);
    written(&mut graph, 0, Member::HERE);
    assert!(matches!(graph.want(version(0, 0)), Input::Here));
    graph.unwant(version(0, 0));
    graph.release(version(0, 0));
    let actions = graph.actions();
    assert!(matches!(&actions[..], [Action::Copy(THERE, source)] if source.members == [Member::HERE]));
    graph.copied(version(0, 0), THERE);
    let actions = graph.actions();
    assert!(matches!(&actions[..], [Action::Forget(Member::HERE, _)]), "{actions:?}");
}

#[test]
fn kept_data_of_leaving_member_is_copied_after_calls_read_it() {
    let mut graph = graph();
    graph.joined(Member(2), Capacity::of_workers(1));
    call(&mut graph, 0, &[]);
    assert_eq!(assigned(&mut graph), [0]);
    written(&mut graph, 0, Member::HERE);
    graph.want(version(0, 0));
    graph.unwant(version(0, 0));
    // The data may be needed to recompute the output of this call.
    call(&mut graph, 1, &[version(0, 0)]);
    graph.release(version(0, 0));
    assert_eq!(assigned(&mut graph), [1]);
    written(&mut graph, 1, Member::HERE);
    let copied = graph.actions().into_iter().find_map(|action| match action {
        Action::Copy(to, source) if source.version == version(0, 0) => Some(to),
        _ => None,
    });
    let keeper = copied.expect("another member gets a copy to keep");
    graph.copied(version(0, 0), keeper);
    assert!(graph.known().kept.has(version(0, 0), keeper));
    graph.actions();
    graph.on_leaving(keeper);
    let actions = graph.actions();
    let other = Member(3 - keeper.0);
    let is_copied = |action: &Action| matches!(action, Action::Copy(to, source) if *to == other && source.version == version(0, 0));
    assert!(actions.iter().any(is_copied), "{actions:?}");
    graph.copied(version(0, 0), other);
    assert!(graph.known().kept.has(version(0, 0), other));
}

#[test]
fn kept_data_late_report_of_keeper_changes_nothing() {
    let marks = chain(&mut graph(), 1);
    let (kept, held) = (version(0, 0), Held { version: version(0, 0), mark: marks[0], bytes: 8 });
    let mut graph = graph();
    call(&mut graph, 0, &[]);
    assert_eq!(assigned(&mut graph), [0]);
    written(&mut graph, 0, Member::HERE);
    graph.want(kept);
    graph.unwant(kept);
    graph.release(kept);
    graph.actions();
    graph.copied(kept, THERE);
    graph.actions();
    assert!(graph.known().kept.has(kept, THERE));
    graph.on_held(THERE, held);
    written(&mut graph, 0, THERE);
    let actions = graph.actions();
    assert!(actions.is_empty() && graph.known().kept.has(kept, THERE), "{actions:?}");
    // The output of a second execution of a durable call does not count, so the member does not keep it.
    graph.ended(0, THERE, Outcome::Durable { bytes: vec![8], ns: 1_000_000, by: 0, values: None });
    let actions = graph.actions();
    assert!(matches!(actions[..], [Action::Forget(THERE, forgotten)] if forgotten == kept), "{actions:?}");
    assert!(!graph.known().kept.has(kept, THERE));
}

#[test]
fn sole_copy_of_leaving_member_is_copied_before_it_goes() {
    let mut graph = graph();
    call(&mut graph, 0, &[]);
    call(&mut graph, 1, &[]);
    assert_eq!(assigned(&mut graph), [0, 1]);
    let there = u64::from(!graph.known().runs_on(0, THERE));
    written(&mut graph, there, THERE);
    graph.on_leaving(THERE);
    let actions = graph.actions();
    assert!(matches!(&actions[..], [Action::Bring(source)] if source.version == version(there, 0)));
    graph.copied(version(there, 0), Member::HERE);
    assert!(matches!(graph.actions()[..], [Action::LetGo(THERE)]));
    graph.lost(THERE);
    assert_eq!(graph.figures().repeated, 0);
}

#[test]
fn leaving_member_completes_running_call_and_returns_others() {
    let mut graph = graph();
    for id in 0..4 {
        call(&mut graph, id, &[]);
    }
    let on_there: Vec<_> = {
        assigned(&mut graph);
        (0..4).filter(|id| graph.known().runs_on(*id, THERE)).collect()
    };
    let [runs, waits] = on_there[..] else { panic!("two calls are assigned there: {on_there:?}") };
    graph.on_leaving(THERE);
    graph.returned(waits, THERE, &[]);
    let actions = graph.actions();
    assert!(!actions.iter().any(|action| matches!(action, Action::LetGo(_))), "{actions:?}");
    written(&mut graph, runs, THERE);
    assert!(graph.actions().iter().any(|action| matches!(action, Action::Bring(_))));
    graph.copied(version(runs, 0), Member::HERE);
    assert!(graph.actions().iter().any(|action| matches!(action, Action::LetGo(THERE))));
}

#[test]
fn data_of_lost_leaving_member_is_copied_from_program() {
    let marks = chain(&mut graph(), 2);
    let mut graph = graph();
    let third = Member(2);
    graph.joined(third, Capacity::of_workers(1));
    let mut history = History::default();
    for (id, mark) in (0..).zip(marks) {
        graph.on_held(THERE, Held { version: version(id, 0), mark, bytes: 8 });
        history.add_end(id);
    }
    graph.journal().add_history(history);
    chain(&mut graph, 2);
    graph.on_leaving(THERE);
    let actions = graph.actions();
    assert!(matches!(actions[..], [Action::Bring(_), Action::Copy(Member(2), _)]), "{actions:?}");
    // The program gets both, and the copy is still under way when its source is lost.
    graph.copied(version(0, 0), Member::HERE);
    assert!(matches!(graph.want(version(1, 0)), Input::Awaited));
    graph.copied(version(1, 0), Member::HERE);
    graph.unwant(version(1, 0));
    graph.lost(THERE);
    graph.on_leaving(Member::HERE);
    graph.copied(version(0, 0), third);
    graph.actions();
    graph.not_copied(version(1, 0), third, &[THERE]);
    let actions = graph.actions();
    let [Action::Copy(Member(2), source)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((source.version, &source.members[..]), (version(1, 0), &[Member::HERE][..]));
    graph.copied(version(1, 0), third);
    assert!(matches!(graph.actions()[..], [Action::LetGo(Member::HERE)]));
}
