//! Outcomes that become visible once they are recorded, and losses of their data afterwards.

use super::{
    Action, Capacity, Choice, Decision, Divergence, Fact, Graph, Held, Input, Mark, Member, Outcome,
    graph_tests::{graph_of, new_call, version},
};
use crate::{
    failure::Failure,
    ids::{Argument, CallId, VersionId},
    options::Options,
};

const THERE: Member = Member(1);
const ELSEWHERE: Member = Member(2);

const EFFECT: Options = Options { effect: true, ..Options::DEFAULT };

/// Creates the graph of a program with a journal, and one worker on each of three members.
fn graph() -> Graph {
    let mut graph = graph_of([1, 1, 1]);
    graph.journal().enable();
    graph
}

fn call(graph: &mut Graph, id: CallId, reads: &[CallId], options: Options) {
    let reads = reads.iter().map(|read| version(*read, 0)).collect();
    graph.call(id, new_call(vec![Argument::ReadAll(reads)], 1, options));
}

/// The actions of a graph, by kind.
#[derive(Debug, Default, PartialEq)]
struct ToDo {
    assigned: Vec<(Member, CallId)>,
    recorded: Vec<Fact>,
    copied: Vec<(Member, VersionId)>,
    restored: Vec<VersionId>,
    preserved: Vec<VersionId>,
    may_go: Vec<Member>,
    forgotten: Vec<(Member, VersionId)>,
}

fn to_do(graph: &mut Graph) -> ToDo {
    let mut to_do = ToDo::default();
    for action in graph.actions() {
        match action {
            Action::Assign(member, assignment) => to_do.assigned.push((member, assignment.call)),
            Action::Record(fact) => to_do.recorded.push(fact),
            Action::Copy(member, source) => to_do.copied.push((member, source.version)),
            Action::Bring(source) => to_do.copied.push((Member::HERE, source.version)),
            Action::Restore { version, .. } => to_do.restored.push(version),
            Action::Preserve { version, .. } => to_do.preserved.push(version),
            Action::LetGo(member) => to_do.may_go.push(member),
            Action::Forget(member, version) => to_do.forgotten.push((member, version)),
            Action::Alias(..) | Action::Answer(..) | Action::Cancel(..) | Action::Wake { .. } => {}
        }
    }
    to_do
}

fn ended(graph: &mut Graph, id: CallId, member: Member, values: Option<Vec<Vec<u8>>>) {
    ended_by(graph, id, member, 0, values);
}

/// Reports the completion of one of several executions of a call.
fn ended_by(graph: &mut Graph, id: CallId, member: Member, by: u64, values: Option<Vec<Vec<u8>>>) {
    graph.ended(id, member, Outcome::Durable { bytes: vec![3], ns: 1_000_000, by, values });
}

fn small() -> Vec<Vec<u8>> {
    vec![b"abc".to_vec()]
}

/// Makes an effect and a call that reads it, and returns where the effect runs.
fn effect_and_reader(graph: &mut Graph) -> Member {
    call(graph, 0, &[], EFFECT);
    call(graph, 1, &[0], Options::DEFAULT);
    let [(member, 0)] = to_do(graph).assigned[..] else { panic!("the effect can begin") };
    member
}

#[test]
fn effect_dependents_start_once_completion_is_recorded() {
    let mut graph = graph();
    let member = effect_and_reader(&mut graph);
    ended(&mut graph, 0, member, Some(small()));
    let ToDo { assigned, mut recorded, .. } = to_do(&mut graph);
    assert_eq!((assigned, recorded.len()), (vec![], 1));
    assert!(matches!(graph.want(version(0, 0)), Input::Awaited) && graph.is_unfinished(0));
    graph.journalled(recorded.remove(0));
    assert_eq!(to_do(&mut graph).assigned, [(member, 1)], "the call goes to its data");
    assert!(!graph.is_unfinished(0));
}

#[test]
fn effect_lost_while_completion_is_written_is_not_repeated() {
    let mut graph = graph();
    call(&mut graph, 0, &[], Options::DEFAULT);
    to_do(&mut graph);
    let member = effect_and_reader_from(&mut graph, 1);
    ended(&mut graph, 1, member, Some(small()));
    let mut recorded = to_do(&mut graph).recorded;
    graph.lost(member);
    assert_eq!(to_do(&mut graph).assigned.iter().find(|(_, id)| *id == 1), None);
    graph.journalled(recorded.remove(0));
    let now = to_do(&mut graph);
    assert_eq!(now.restored, [version(1, 0)], "its reader needs it");
    assert!(now.assigned.iter().any(|(_, id)| *id == 2) && graph.fatal().is_none(), "{now:?}");
}

/// Makes an effect and a call that reads it, with other ids, and returns the member that runs the effect. It is not
/// that of the program.
fn effect_and_reader_from(graph: &mut Graph, first: CallId) -> Member {
    call(graph, first, &[], EFFECT);
    call(graph, first + 1, &[first], Options::DEFAULT);
    let [(member, _)] = to_do(graph).assigned[..] else { panic!("the effect can begin") };
    assert_ne!(member, Member::HERE);
    member
}

#[test]
fn large_output_visible_after_second_copy_and_loss_of_both_is_fatal() {
    let mut graph = graph();
    call(&mut graph, 0, &[], Options::DEFAULT);
    to_do(&mut graph);
    let member = effect_and_reader_from(&mut graph, 1);
    ended(&mut graph, 1, member, None);
    let ToDo { recorded, copied, .. } = to_do(&mut graph);
    let [(second, large)] = copied[..] else { panic!("a second copy is made: {copied:?}") };
    assert_eq!((recorded, large), (vec![], version(1, 0)));
    assert_ne!(second, member);
    graph.copied(large, second);
    let mut recorded = to_do(&mut graph).recorded;
    graph.journalled(recorded.remove(0));
    to_do(&mut graph);
    graph.lost(member);
    to_do(&mut graph);
    assert!(graph.fatal().is_none(), "the second member has a copy");
    if second == Member::HERE {
        return;
    }
    graph.lost(second);
    let failure = graph.fatal().expect("the effect cannot run again");
    assert!(failure.reason().contains("must not run again"), "{failure}");
}

#[test]
fn large_output_is_recorded_with_one_copy_if_second_fails() {
    let mut graph = graph();
    call(&mut graph, 0, &[], Options::DEFAULT);
    to_do(&mut graph);
    let member = effect_and_reader_from(&mut graph, 1);
    ended(&mut graph, 1, member, None);
    let [(second, large)] = to_do(&mut graph).copied[..] else { panic!("a second copy is made") };
    graph.not_copied(large, second, &[member]);
    let mut recorded = to_do(&mut graph).recorded;
    assert_eq!(recorded.len(), 1, "one copy suffices");
    graph.journalled(recorded.remove(0));
    assert!(!graph.is_unfinished(1));
}

#[test]
fn large_local_output_is_not_brought_when_recorded() {
    let mut graph = graph();
    assert_eq!(effect_and_reader(&mut graph), Member::HERE);
    assert!(matches!(graph.want(version(0, 0)), Input::Awaited));
    ended(&mut graph, 0, Member::HERE, None);
    let [(second, _)] = to_do(&mut graph).copied[..] else { panic!("a second copy is made") };
    graph.copied(version(0, 0), second);
    let mut recorded = to_do(&mut graph).recorded;
    graph.journalled(recorded.remove(0));
    assert_eq!(to_do(&mut graph).copied, []);
}

#[test]
fn second_copy_is_forgotten_when_executing_member_is_lost() {
    let mut graph = graph();
    call(&mut graph, 0, &[], Options::DEFAULT);
    to_do(&mut graph);
    graph.call(1, new_call(Vec::new(), 2, EFFECT));
    let [(member, 1)] = to_do(&mut graph).assigned[..] else { panic!("the effect can begin") };
    graph.ended(1, member, Outcome::Durable { bytes: vec![3, 3], ns: 1_000_000, by: 0, values: None });
    let [(second, first), (_, other)] = to_do(&mut graph).copied[..] else { panic!("both are copied") };
    graph.copied(first, second);
    graph.lost(member);
    let now = to_do(&mut graph);
    // The call may have another output now, of which this would be taken for a copy.
    assert_eq!((now.forgotten, now.recorded), (vec![(second, first)], vec![]));
    graph.copied(other, second);
    assert_eq!(to_do(&mut graph).forgotten, [(second, other)], "the copy was under way");
}

#[test]
fn copy_from_earlier_run_is_ignored_after_repeated_call() {
    let mut graph = graph();
    let member = effect_and_reader(&mut graph);
    let (written, mark) = (version(0, 0), graph.known().versions[&version(0, 0)].mark);
    let late = Member(3);
    graph.joined(late, Capacity::of_workers(1));
    graph.on_held(late, Held { version: written, mark, bytes: 3 });
    assert_eq!(to_do(&mut graph).forgotten, [(late, written)], "its outcome was not recorded");
    ended(&mut graph, 0, member, None);
    let [(second, _)] = to_do(&mut graph).copied[..] else { panic!("a second copy is made") };
    graph.on_held(second, Held { version: written, mark, bytes: 3 });
    assert_eq!(to_do(&mut graph).forgotten, [], "the copy under way may have arrived");
    graph.copied(written, second);
    let mut recorded = to_do(&mut graph).recorded;
    graph.journalled(recorded.remove(0));
    to_do(&mut graph);
    for (member, forgotten) in [(late, vec![(late, written)]), (second, vec![]), (member, vec![])] {
        graph.on_held(member, Held { version: written, mark, bytes: 3 });
        assert_eq!(to_do(&mut graph).forgotten, forgotten);
    }
    assert!(!graph.known().versions[&written].is_with(late));
}

#[test]
fn large_output_counts_only_from_recorded_execution() {
    let mut first = graph();
    let member = effect_and_reader(&mut first);
    let mark = first.known().versions[&version(0, 0)].mark;
    ended_by(&mut first, 0, member, 7, None);
    let [(second, _)] = to_do(&mut first).copied[..] else { panic!("a second copy is made") };
    first.copied(version(0, 0), second);
    let recorded = to_do(&mut first).recorded;
    for is_late in [false, true] {
        let mut again = graph();
        for fact in &recorded {
            again.recall(fact.clone());
        }
        if is_late {
            call(&mut again, 0, &[], EFFECT);
        }
        for (member, by) in [(ELSEWHERE, 8), (THERE, 7)] {
            again.on_running(member, 0, mark);
            ended_by(&mut again, 0, member, by, None);
        }
        if !is_late {
            call(&mut again, 0, &[], EFFECT);
        }
        assert_eq!(to_do(&mut again).forgotten, [(ELSEWHERE, version(0, 0))], "late: {is_late}");
        assert!(again.known().versions[&version(0, 0)].is_with(THERE) && again.unfinished() == 0);
    }
}

#[test]
fn unrecorded_completions_of_one_call_first_one_counts() {
    let mut graph = graph();
    let mark = {
        let mut before = self::graph();
        effect_and_reader(&mut before);
        before.known().versions[&version(0, 0)].mark
    };
    for (member, by) in [(THERE, 7), (ELSEWHERE, 8)] {
        graph.on_running(member, 0, mark);
        ended_by(&mut graph, 0, member, by, Some(small()));
    }
    call(&mut graph, 0, &[], EFFECT);
    let now = to_do(&mut graph);
    assert_eq!((now.assigned, now.forgotten), (vec![], vec![(ELSEWHERE, version(0, 0))]));
    assert!(matches!(&now.recorded[..], [Fact::Ended(ended)] if ended.by == 7), "{:?}", now.recorded);
}

#[test]
fn failure_is_invisible_until_recorded() {
    let mut graph = graph();
    call(&mut graph, 0, &[], Options::DEFAULT);
    let [(member, 0)] = to_do(&mut graph).assigned[..] else { panic!("it can begin") };
    graph.ended(0, member, Outcome::Failed(Failure::new("task", 0, "failed as requested")));
    let mut recorded = to_do(&mut graph).recorded;
    assert_eq!(recorded, [Fact::Failed { call: 0, reason: "failed as requested".into() }]);
    assert!(graph.failures().is_empty() && matches!(graph.want(version(0, 0)), Input::Awaited));
    graph.journalled(recorded.remove(0));
    assert!(matches!(graph.want(version(0, 0)), Input::Failed(_)) && graph.failures().len() == 1);
}

#[test]
fn recorded_facts_hold_in_next_run() {
    let mut first = graph();
    let member = effect_and_reader(&mut first);
    ended(&mut first, 0, member, Some(small()));
    let mut facts = to_do(&mut first).recorded;
    for fact in &facts {
        first.journalled(fact.clone());
    }
    let cancelled = first.prepare_cancellation(1..2);
    assert_eq!(cancelled.iter().cloned().flatten().collect::<Vec<_>>(), [1]);
    let choice = Choice::Cancelled(cancelled);
    facts.push(Fact::Decided(Decision { number: 0, at: 2, what: "cancel".to_owned(), choice }));
    for facts in [facts.clone(), first.recorded_so_far().into_iter().chain(facts.pop()).collect()] {
        let mut again = graph();
        for fact in facts {
            again.recall(fact);
        }
        call(&mut again, 0, &[], EFFECT);
        call(&mut again, 1, &[0], Options::DEFAULT);
        let now = to_do(&mut again);
        assert_eq!((now.assigned, again.unfinished()), (vec![], 0), "nothing runs");
        assert!(again.failures().is_empty(), "a cancellation is no failure");
        assert!(matches!(again.want(version(0, 0)), Input::Here), "the record implies that the data exists");
        assert_eq!(to_do(&mut again).restored, [version(0, 0)]);
        assert!(matches!(again.want(version(1, 0)), Input::Failed(_)));
    }
}

#[test]
fn unrecorded_completion_is_reported_to_next_coordinator() {
    let mut graph = graph();
    let mark = {
        let mut before = self::graph();
        effect_and_reader(&mut before);
        before.known().versions[&version(0, 0)].mark
    };
    graph.on_running(THERE, 0, mark);
    ended(&mut graph, 0, THERE, Some(small()));
    call(&mut graph, 0, &[], EFFECT);
    let now = to_do(&mut graph);
    assert_eq!((now.assigned, now.recorded.len()), (vec![], 1));
}

#[test]
fn changed_program_is_detected_by_recorded_marks() {
    let mut first = graph();
    call(&mut first, 0, &[], EFFECT);
    let first_marks = first.replay().marks(false).expect("there is a call");
    assert_eq!(first.replay().marks(false), None, "nothing new");
    let mut again = graph();
    again.replay().recall_marks(first_marks.clone());
    again.call(0, new_call(vec![Argument::Copied(vec![1])], 1, EFFECT));
    let Some(Divergence { call: 0, was, .. }) = again.divergence() else { panic!("it differs") };
    assert_eq!(was, first_marks[0].1);
}

#[test]
fn marks_of_long_program_are_sampled_over_all_calls() {
    let mut graph = graph();
    let mut marks = Vec::new();
    for id in 0..1_000 {
        call(&mut graph, id, &[], Options::DEFAULT);
        marks = graph.replay().marks(false).expect("there is another call");
        assert!(marks.len() <= 65 && marks.last().is_some_and(|(last, _)| *last == id), "{id}");
    }
    let early = marks.iter().filter(|(call, _)| *call < 500).count();
    assert!(early >= 8, "{marks:?}");
}

fn confirm_preserved(graph: &mut Graph, versions: &[VersionId]) {
    for version in versions {
        graph.journalled(Fact::Kept { version: *version, mark: Mark::default(), value: vec![0; 8] });
    }
}

#[test]
fn all_members_leave_needed_data_goes_to_journal() {
    let mut graph = graph();
    call(&mut graph, 0, &[], Options::DEFAULT);
    let [(member, 0)] = to_do(&mut graph).assigned[..] else { panic!("it can begin") };
    graph.ended(0, member, Outcome::Written { bytes: vec![8], ns: Some(1_000_000) });
    for leaving in [ELSEWHERE, THERE] {
        graph.on_leaving(leaving);
        for (to, copied) in to_do(&mut graph).copied {
            graph.copied(copied, to);
        }
    }
    to_do(&mut graph);
    graph.on_leaving(Member::HERE);
    let now = to_do(&mut graph);
    assert_eq!((&now.preserved, &now.may_go), (&vec![version(0, 0)], &vec![]));
    let [Fact::History(history)] = &now.recorded[..] else { panic!("the history is recorded: {now:?}") };
    assert!(history.has_ended(0));
    // The member stays until everything is written, since no other member has it.
    graph.journalled(now.recorded[0].clone());
    assert_eq!(to_do(&mut graph).may_go, []);
    confirm_preserved(&mut graph, &now.preserved);
    assert_eq!(to_do(&mut graph).may_go, [Member::HERE]);
}

#[test]
fn all_members_leave_program_stays_until_last_call_completes() {
    let mut graph = graph();
    for id in 0..3 {
        call(&mut graph, id, &[], Options::DEFAULT);
    }
    let running = to_do(&mut graph).assigned;
    for leaving in [Member::HERE, THERE, ELSEWHERE] {
        graph.on_leaving(leaving);
    }
    // The call on the member of the program completes first.
    let (mut recorded, mut may_go) = (Vec::new(), Vec::new());
    for (member, id) in running {
        assert!(!may_go.contains(&Member::HERE), "the member of the program has left");
        graph.ended(id, member, Outcome::Written { bytes: vec![8], ns: Some(1_000_000) });
        loop {
            let now = to_do(&mut graph);
            if now == ToDo::default() {
                break;
            }
            may_go.extend(now.may_go);
            confirm_preserved(&mut graph, &now.preserved);
            now.recorded.iter().for_each(|fact| graph.journalled(fact.clone()));
            recorded.extend(now.recorded);
            now.copied.into_iter().for_each(|(to, copied)| graph.copied(copied, to));
        }
    }
    assert!(may_go.contains(&Member::HERE));
    let Some(Fact::History(history)) = recorded.last() else { panic!("{recorded:?}") };
    assert!((0..3).all(|id| history.has_ended(id)), "{history:?}");
}

#[test]
fn all_members_leave_completed_calls_are_recorded_while_one_runs() {
    let mut graph = Graph::new(true);
    graph.journal().enable();
    graph.joined(Member::HERE, Capacity::of_workers(1));
    call(&mut graph, 0, &[], Options::DEFAULT);
    call(&mut graph, 1, &[0], Options::DEFAULT);
    to_do(&mut graph);
    graph.ended(0, Member::HERE, Outcome::Written { bytes: vec![8], ns: Some(1_000_000) });
    assert_eq!(to_do(&mut graph).assigned, [(Member::HERE, 1)]);
    graph.on_leaving(Member::HERE);
    let now = to_do(&mut graph);
    assert!(now.may_go.is_empty(), "a call is running: {now:?}");
    let [Fact::History(history)] = &now.recorded[..] else { panic!("{now:?}") };
    assert!(history.has_ended(0) && !history.has_ended(1), "{history:?}");
    assert_eq!(now.preserved, [version(0, 0)]);
    assert_eq!(to_do(&mut graph), ToDo::default(), "nothing is written twice");
}

/// Makes a call that the program and a second call read. The program keeps the handle of the second one.
fn read_by_the_program(graph: &mut Graph) {
    call(graph, 0, &[], Options::DEFAULT);
    let [(member, 0)] = to_do(graph).assigned[..] else { panic!("it can begin") };
    graph.ended(0, member, Outcome::Written { bytes: vec![8], ns: Some(1_000_000) });
    if matches!(graph.want(version(0, 0)), Input::Awaited) {
        copy_all(graph);
    }
    graph.unwant(version(0, 0));
    call(graph, 1, &[0], Options::DEFAULT);
    graph.release(version(0, 0));
    let [(member, 1)] = to_do(graph).assigned[..] else { panic!("it can begin") };
    graph.ended(1, member, Outcome::Written { bytes: vec![8], ns: Some(1_000_000) });
}

/// Makes all requested copies, and returns the other actions.
fn copy_all(graph: &mut Graph) -> ToDo {
    let mut all = ToDo::default();
    loop {
        let now = to_do(graph);
        all.preserved.extend(now.preserved);
        all.may_go.extend(now.may_go);
        all.forgotten.extend(now.forgotten);
        if now.copied.is_empty() {
            return all;
        }
        now.copied.into_iter().for_each(|(to, copied)| graph.copied(copied, to));
    }
}

#[test]
fn all_members_leave_data_read_by_program_goes_to_journal_once() {
    for mut order in
        [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]].map(|them| them.map(Member))
    {
        for is_quick in [true, false] {
            let mut graph = graph();
            read_by_the_program(&mut graph);
            copy_all(&mut graph);
            let mut all = Vec::new();
            for leaving in &mut order {
                graph.on_leaving(*leaving);
                if is_quick {
                    all.extend(copy_all(&mut graph).preserved);
                }
            }
            all.extend(copy_all(&mut graph).preserved);
            all.sort_unstable();
            assert_eq!(all, [version(0, 0), version(1, 0)], "{order:?} {is_quick}");
        }
    }
}

#[test]
fn data_read_by_program_stays_local_until_member_joins() {
    let mut graph = Graph::new(true);
    graph.journal().enable();
    graph.joined(Member::HERE, Capacity::of_workers(1));
    read_by_the_program(&mut graph);
    assert_eq!(copy_all(&mut graph).forgotten, []);
    graph.joined(THERE, Capacity::of_workers(1));
    assert_eq!(copy_all(&mut graph).forgotten, [(Member::HERE, version(0, 0))]);
    graph.lost(THERE);
    copy_all(&mut graph);
    assert_eq!(graph.figures().repeated, 0, "the program does not need the data");
}
