//! What is recorded before anybody sees it, and what follows when it is lost afterwards.

use super::{
    Action, Argument, CallId, Capacity, Choice, Decision, Divergence, Fact, Graph, Input, Member, Outcome,
    VersionId,
    graph_tests::{new_call, version},
};
use crate::{failure::Failure, options::Options};

const THERE: Member = Member(1);
const ELSEWHERE: Member = Member(2);

const EFFECT: Options = Options { effect: true, ..Options::DEFAULT };

/// Creates the graph of a program with a journal, and one worker on each of three members.
fn graph() -> Graph {
    let mut graph = Graph::new(true);
    graph.records();
    for member in [Member::HERE, THERE, ELSEWHERE] {
        graph.joined(member, Capacity::of_workers(1));
    }
    graph
}

/// Makes a call that reads what these have written.
fn call(graph: &mut Graph, id: CallId, reads: &[CallId], options: Options) {
    let reads = reads.iter().map(|read| version(*read, 0)).collect();
    graph.call(id, new_call(vec![Argument::ReadAll(reads)], 1, options));
}

/// What is to be done, by kinds.
#[derive(Debug, Default, PartialEq)]
struct ToDo {
    assigned: Vec<(Member, CallId)>,
    recorded: Vec<Fact>,
    copied: Vec<(Member, VersionId)>,
    restored: Vec<VersionId>,
    preserved: Vec<VersionId>,
    may_go: Vec<Member>,
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
            Action::Forget(..) | Action::Alias(..) | Action::Answer(..) => {}
        }
    }
    to_do
}

fn ended(graph: &mut Graph, id: CallId, member: Member, values: Option<Vec<Vec<u8>>>) {
    graph.ended(id, member, Outcome::Durable { bytes: vec![3], ns: 1_000_000, values });
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
fn what_depends_on_an_effect_begins_when_its_end_is_recorded() {
    let mut graph = graph();
    let member = effect_and_reader(&mut graph);
    ended(&mut graph, 0, member, Some(small()));
    let ToDo { assigned, mut recorded, .. } = to_do(&mut graph);
    assert_eq!((assigned, recorded.len()), (vec![], 1));
    assert!(matches!(graph.want(version(0, 0)), Input::Awaited) && graph.is_unfinished(0));
    graph.journalled(recorded.remove(0));
    assert_eq!(to_do(&mut graph).assigned, [(member, 1)], "it goes where its data is");
    assert!(!graph.is_unfinished(0));
}

#[test]
fn an_effect_whose_end_is_being_recorded_is_not_run_again() {
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

/// The same with other numbers, on another member than that of the program.
fn effect_and_reader_from(graph: &mut Graph, first: CallId) -> Member {
    call(graph, first, &[], EFFECT);
    call(graph, first + 1, &[first], Options::DEFAULT);
    let [(member, _)] = to_do(graph).assigned[..] else { panic!("the effect can begin") };
    assert_ne!(member, Member::HERE);
    member
}

#[test]
fn what_is_large_is_with_two_members_before_it_is_seen_and_if_both_are_lost_the_program_fails() {
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
    assert!(graph.fatal().is_none(), "the other one has it");
    if second == Member::HERE {
        return;
    }
    graph.lost(second);
    let failure = graph.fatal().expect("it must not run again");
    assert!(failure.reason().contains("must not run again"), "{failure}");
}

#[test]
fn if_the_second_copy_is_lost_under_way_another_one_is_made() {
    let mut graph = graph();
    call(&mut graph, 0, &[], Options::DEFAULT);
    to_do(&mut graph);
    let member = effect_and_reader_from(&mut graph, 1);
    ended(&mut graph, 1, member, None);
    let [(second, large)] = to_do(&mut graph).copied[..] else { panic!("a second copy is made") };
    graph.not_copied(large, second);
    let mut recorded = to_do(&mut graph).recorded;
    assert_eq!(recorded.len(), 1, "one copy has to do");
    graph.journalled(recorded.remove(0));
    assert!(!graph.is_unfinished(1));
}

#[test]
fn nobody_sees_a_failure_before_it_is_recorded() {
    let mut graph = graph();
    call(&mut graph, 0, &[], Options::DEFAULT);
    let [(member, 0)] = to_do(&mut graph).assigned[..] else { panic!("it can begin") };
    graph.ended(0, member, Outcome::Failed(Failure::new("task", 0, "as it was told")));
    let mut recorded = to_do(&mut graph).recorded;
    assert_eq!(recorded, [Fact::Failed { call: 0, reason: "as it was told".to_owned() }]);
    assert!(graph.failures().is_empty() && matches!(graph.want(version(0, 0)), Input::Awaited));
    graph.journalled(recorded.remove(0));
    assert!(matches!(graph.want(version(0, 0)), Input::Failed(_)) && graph.failures().len() == 1);
}

#[test]
fn what_was_recorded_is_the_same_in_the_next_run() {
    let mut first = graph();
    let member = effect_and_reader(&mut first);
    ended(&mut first, 0, member, Some(small()));
    let mut facts = to_do(&mut first).recorded;
    for fact in &facts {
        first.journalled(fact.clone());
    }
    let cancelled = first.begins_to_cancel(1..2);
    assert_eq!(cancelled.iter().cloned().flatten().collect::<Vec<_>>(), [1]);
    let choice = Choice::Cancelled(cancelled);
    facts.push(Fact::Decided(Decision { number: 0, at: 2, what: "cancel".to_owned(), choice }));
    for facts in [facts.clone(), first.recorded_so_far().into_iter().chain(facts.pop()).collect()] {
        let mut again = graph();
        for fact in facts {
            again.recalls(fact);
        }
        call(&mut again, 0, &[], EFFECT);
        call(&mut again, 1, &[0], Options::DEFAULT);
        let now = to_do(&mut again);
        assert_eq!((now.assigned, again.unfinished()), (vec![], 0), "nothing runs");
        assert!(again.failures().is_empty(), "who has cancelled it knows that");
        assert!(matches!(again.want(version(0, 0)), Input::Here), "nothing else would tell that it is there");
        assert_eq!(to_do(&mut again).restored, [version(0, 0)]);
        assert!(matches!(again.want(version(1, 0)), Input::Failed(_)));
    }
}

#[test]
fn an_end_that_the_head_has_not_recorded_is_told_to_the_next_one() {
    let mut graph = graph();
    let mark = {
        let mut before = self::graph();
        effect_and_reader(&mut before);
        before.versions[&version(0, 0)].mark
    };
    graph.runs(THERE, 0, mark);
    ended(&mut graph, 0, THERE, Some(small()));
    call(&mut graph, 0, &[], EFFECT);
    let now = to_do(&mut graph);
    assert_eq!((now.assigned, now.recorded.len()), (vec![], 1));
}

#[test]
fn a_program_that_differs_from_what_was_recorded_is_found_by_its_marks() {
    let mut first = graph();
    call(&mut first, 0, &[], EFFECT);
    let first_marks = first.marks().expect("there is a call");
    assert_eq!(first.marks(), None, "nothing new");
    let mut again = graph();
    again.recalls_marks(first_marks.clone());
    again.call(0, new_call(vec![Argument::Copied(vec![1])], 1, EFFECT));
    let Some(Divergence { call: 0, was, .. }) = again.divergence() else { panic!("it differs") };
    assert_eq!(was, first_marks[0].1);
}

#[test]
fn marks_of_a_long_program_are_some_of_all() {
    let mut graph = graph();
    let mut marks = Vec::new();
    for id in 0..1_000 {
        call(&mut graph, id, &[], Options::DEFAULT);
        marks = graph.marks().expect("there is another call");
        assert!(marks.len() <= 65 && marks.last().is_some_and(|(last, _)| *last == id), "{id}");
    }
    let early = marks.iter().filter(|(call, _)| *call < 500).count();
    assert!(early >= 8, "{marks:?}");
}

#[test]
fn when_all_leave_what_is_needed_goes_to_the_journal() {
    let mut graph = graph();
    call(&mut graph, 0, &[], Options::DEFAULT);
    let [(member, 0)] = to_do(&mut graph).assigned[..] else { panic!("it can begin") };
    graph.ended(0, member, Outcome::Written { bytes: vec![8], ns: 1_000_000 });
    for leaving in [ELSEWHERE, THERE] {
        graph.leaves(leaving);
        for (to, copied) in to_do(&mut graph).copied {
            graph.copied(copied, to);
        }
    }
    to_do(&mut graph);
    graph.leaves(Member::HERE);
    let now = to_do(&mut graph);
    assert_eq!((&now.preserved, &now.may_go), (&vec![version(0, 0)], &vec![Member::HERE]));
    let [Fact::History(history)] = &now.recorded[..] else {
        panic!("nobody is left to remember it: {now:?}")
    };
    assert!(history.has_ended(0));
}

#[test]
fn when_all_leave_the_program_stays_until_the_last_call_has_ended() {
    let mut graph = graph();
    for id in 0..3 {
        call(&mut graph, id, &[], Options::DEFAULT);
    }
    let running = to_do(&mut graph).assigned;
    for leaving in [Member::HERE, THERE, ELSEWHERE] {
        graph.leaves(leaving);
    }
    // Its own ends first.
    let (mut recorded, mut may_go) = (Vec::new(), Vec::new());
    for (member, id) in running {
        assert!(!may_go.contains(&Member::HERE), "it has gone");
        graph.ended(id, member, Outcome::Written { bytes: vec![8], ns: 1_000_000 });
        loop {
            let now = to_do(&mut graph);
            recorded.extend(now.recorded);
            may_go.extend(now.may_go);
            if now.copied.is_empty() {
                break;
            }
            now.copied.into_iter().for_each(|(to, copied)| graph.copied(copied, to));
        }
    }
    assert!(may_go.contains(&Member::HERE));
    let Some(Fact::History(history)) = recorded.last() else { panic!("{recorded:?}") };
    assert!((0..3).all(|id| history.has_ended(id)), "{history:?}");
}

#[test]
fn when_all_leave_what_has_ended_is_recorded_although_a_call_goes_on() {
    let mut graph = Graph::new(true);
    graph.records();
    graph.joined(Member::HERE, Capacity::of_workers(1));
    call(&mut graph, 0, &[], Options::DEFAULT);
    call(&mut graph, 1, &[0], Options::DEFAULT);
    to_do(&mut graph);
    graph.ended(0, Member::HERE, Outcome::Written { bytes: vec![8], ns: 1_000_000 });
    assert_eq!(to_do(&mut graph).assigned, [(Member::HERE, 1)]);
    graph.leaves(Member::HERE);
    let now = to_do(&mut graph);
    assert!(now.may_go.is_empty(), "a call runs: {now:?}");
    let [Fact::History(history)] = &now.recorded[..] else { panic!("{now:?}") };
    assert!(history.has_ended(0) && !history.has_ended(1), "{history:?}");
    assert_eq!(now.preserved, [version(0, 0)]);
    assert_eq!(to_do(&mut graph), ToDo::default(), "once");
}
