//! Programs made by chance, whose calls end in any order on members that join and are lost, against their sequential
//! run.

mod acting;
mod checking;
mod members;
mod program;
mod statement;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use proptest::{collection::vec, prelude::*};

use self::statement::{Statement, statement};
use super::{
    Assignment, CallId, Fact, Graph, History, Mark, Member, Outcome, Source, VersionId, graph_tests::version,
};

/// The number of variables of a program.
const VARIABLES: usize = 5;

/// The memory of each member.
const MEMORY: u64 = 8;

/// A value, or the call whose failure has prevented it.
type Value = Result<u64, CallId>;

/// How a call has ended on a member.
type End = (Member, CallId, Mark, Outcome);

/// What a call writes in one slot.
fn written(id: CallId, slot: u32, inputs: &[u64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (id, slot, inputs).hash(&mut hasher);
    hasher.finish()
}

/// What a call writes in one slot whose failure is ignored: what it would have updated, then defaults.
fn default_of(slot: u32, updated: &[u64]) -> u64 {
    updated.get(slot as usize).copied().unwrap_or_default()
}

/// A call that runs.
#[derive(Debug)]
struct Running {
    member: Member,
    assignment: Assignment,
    inputs: Vec<u64>,
    /// Whether it was assigned in an earlier run of the program.
    is_earlier: bool,
}

/// What a member has and does when the program begins anew.
struct Survivor {
    store: BTreeMap<VersionId, (u64, Mark)>,
    running: Vec<Running>,
    unseen: Vec<End>,
    brought: BTreeSet<(Member, VersionId)>,
}

/// A program in its sequential run and in the graph.
struct Run {
    graph: Graph,
    next: CallId,
    /// The variables in the sequential run.
    values: Vec<Value>,
    /// The calls on which each of them depends.
    depends: Vec<BTreeSet<CallId>>,
    /// The calls that were cancelled in any run of the program, unless they had begun. What depends on them may be there nevertheless, from
    /// a run in which they were not.
    cancelled: BTreeSet<CallId>,
    /// The same as handles.
    handles: Vec<VersionId>,
    /// What each member keeps.
    stores: BTreeMap<Member, BTreeMap<VersionId, (u64, Mark)>>,
    /// The calls that run.
    running: Vec<Running>,
    /// What is to be copied to members.
    copies: Vec<(Member, Source)>,
    /// The members that are to leave.
    leaving: BTreeSet<Member>,
    /// The members that are lost, of which that was not noticed.
    vanished: BTreeSet<Member>,
    /// What the program has done so far.
    log: Vec<Statement>,
    /// What other nodes remember of the program.
    memory: History,
    /// What stands in the journal, if there is one, and what is to be written there.
    journal: Vec<Fact>,
    waiting: Vec<Fact>,
    has_journal: bool,
    /// How calls have ended whose ends nobody may see before they are recorded, as their members know it.
    unseen: Vec<End>,
    /// What was brought to members of calls of which they have another execution, that runs or is one of those above.
    brought: BTreeSet<(Member, VersionId)>,
    /// The calls that write something else each time.
    durable: BTreeSet<CallId>,
    /// What was seen of what they write.
    seen: BTreeMap<VersionId, u64>,
    /// How often calls have run.
    executions: u64,
    /// How many calls were run again in earlier runs of the program because something was lost.
    repeated: u64,
    /// The calls that fail, whenever they run.
    failing: Vec<CallId>,
    /// The number of versions that calls write.
    writes: BTreeMap<CallId, u32>,
    members: u32,
    /// The number of workers of each member.
    workers: BTreeMap<Member, u32>,
    /// The first call of the group that the program makes, and whether it may be given up.
    group: Option<(CallId, bool)>,
    /// The variable to which others were added last, and the first of the calls that did so in any order.
    chain: Option<(usize, CallId)>,
    /// What calls have merged whose order is recorded.
    merged: BTreeMap<CallId, [VersionId; 2]>,
    /// The calls that add what they merge.
    merges: BTreeSet<CallId>,
    /// The calls that could not run somewhere.
    unfit: BTreeSet<CallId>,
}

fn run(statements: &[Statement], has_losses: bool, has_journal: bool) {
    let mut run = Run::new(has_losses, has_journal);
    run_all(&mut run, statements, has_losses);
}

fn run_all(run: &mut Run, statements: &[Statement], has_losses: bool) {
    for statement in statements {
        run.state(statement, has_losses);
    }
    while run.running.len() + run.copies.len() + run.waiting.len() + run.graph.unfinished() > 0
        && run.graph.fatal().is_none()
    {
        if run.running.len() + run.copies.len() == 0 && !run.waiting.is_empty() {
            run.write();
        } else {
            run.goes_on();
        }
        run.perform();
        run.check();
    }
    if run.has_lost_what_is_not_made_again() {
        return;
    }
    assert_eq!(run.graph.unfinished(), 0);
    for variable in 0..VARIABLES {
        run.get(variable);
    }
    if run.has_lost_what_is_not_made_again() {
        return;
    }
    // Nothing is known any more of what nobody names, and nobody keeps it.
    for handle in run.handles.clone() {
        run.graph.release(handle);
    }
    run.perform();
    while !run.copies.is_empty() {
        run.end(0);
        run.perform();
    }
    assert!(!run.graph.members.any_leaves(), "all that were to leave have left");
    // But for what can neither be made again nor restored.
    let graph = &run.graph;
    let left = graph.versions.keys().filter(|version| !graph.is_precious(**version)).count();
    let is_left = |call: &CallId| !graph.is_precious(version(*call, 0));
    assert!(
        graph.is_empty() || (left == 0 && !graph.calls.iter().any(|(call, _)| is_left(&call))),
        "{:?} {:?}",
        graph.calls,
        graph.versions
    );
    for (member, store) in &mut run.stores {
        // What the program has read is kept for the case that it begins anew.
        store.retain(|version, _| !run.graph.kept.has(*version, *member) && !run.graph.is_precious(*version));
        assert!(store.is_empty(), "{member:?} keeps {store:?}");
    }
}

proptest! {
    #[test]
    fn random_program_equals_sequential_run(statements in vec(statement(), 0..120)) {
        run(&statements, false, false);
    }

    #[test]
    fn random_program_with_losses_equals_sequential_run(statements in vec(statement(), 0..120)) {
        run(&statements, true, false);
    }

    #[test]
    fn leaving_members_cause_no_recomputation(
        statements in vec(statement(), 0..120),
        may_fail in any::<bool>(),
    ) {
        // What one reads that is not decided may be made again, though another input turns out to have failed.
        let counts = |it: &Statement| it.is_harmless() && !(may_fail && it.is_undecided());
        let statements: Vec<_> =
            statements.into_iter().filter(counts).map(|statement| statement.plain(!may_fail)).collect();
        let mut run = Run::new(true, true);
        run_all(&mut run, &statements, true);
        assert_eq!(run.repeated + run.graph.figures().repeated, 0);
    }

    #[test]
    fn recorded_calls_have_one_outcome(statements in vec(statement(), 0..120)) {
        run(&statements, true, true);
    }
}
