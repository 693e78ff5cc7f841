//! Random programs, compared with their sequential runs. Their calls complete in any order, on members that join,
//! leave and are lost.

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
    Assignment, Fact, Graph, History, Mark, Member, Outcome, Source,
    virtual_stores::{Stores, check_rest},
};
use crate::ids::{CallId, VersionId};

/// Variables of a program.
const VARIABLES: usize = 5;

/// The memory of each member.
const MEMORY: u64 = 8;

/// A value, or the failed call because of which there is none.
type Value = Result<u64, CallId>;

/// An outcome of a call, reported by a member.
type End = (Member, CallId, Mark, Outcome);

/// Returns the output of a call in one slot.
fn written(id: CallId, slot: u32, inputs: &[u64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (id, slot, inputs).hash(&mut hasher);
    hasher.finish()
}

/// Returns the output in one slot of a call with an ignored failure: its updated inputs, then defaults.
fn default_of(slot: u32, updated: &[u64]) -> u64 {
    updated.get(slot as usize).copied().unwrap_or_default()
}

#[derive(Debug)]
struct Running {
    member: Member,
    assignment: Assignment,
    inputs: Vec<u64>,
    /// Whether it was assigned in an earlier run of the program.
    is_earlier: bool,
}

/// The state of a member that survives a restart of the program.
struct Survivor {
    store: BTreeMap<VersionId, (u64, Mark)>,
    running: Vec<Running>,
    unseen: Vec<End>,
    brought: BTreeSet<(Member, VersionId)>,
}

/// The state of a program in its sequential run and in the graph.
struct Run {
    graph: Graph,
    next: CallId,
    /// The values of the variables in the sequential run.
    values: Vec<Value>,
    /// For each variable, the calls on which it depends.
    depends: Vec<BTreeSet<CallId>>,
    /// The calls that were cancelled before they started, in any run of the program. Data that depends on them may
    /// exist nevertheless, from a run in which they were not cancelled.
    cancelled: BTreeSet<CallId>,
    /// For each variable, its handle.
    handles: Vec<VersionId>,
    /// The data that each member stores.
    stores: Stores,
    running: Vec<Running>,
    /// Pending copies to members.
    copies: Vec<(Member, Source)>,
    leaving: BTreeSet<Member>,
    cordoned: BTreeSet<Member>,
    /// The lost members that the graph still assumes to be there.
    vanished: BTreeSet<Member>,
    /// The statements that the program has executed so far.
    log: Vec<Statement>,
    /// The history of the program that other nodes keep.
    memory: History,
    /// The written records of the journal.
    journal: Vec<Fact>,
    /// The records to be written to the journal.
    waiting: Vec<Fact>,
    has_journal: bool,
    /// The unrecorded outcomes that are invisible until they are recorded, by the member that reported them.
    unseen: Vec<End>,
    /// Copies on members that have another execution of the same call, running or unrecorded.
    brought: BTreeSet<(Member, VersionId)>,
    /// The calls with a different output in each execution.
    durable: BTreeSet<CallId>,
    /// The calls with a limit, of which one runs at a time.
    limited: BTreeSet<CallId>,
    /// The outputs of durable calls that were seen.
    seen: BTreeMap<VersionId, u64>,
    executions: u64,
    /// The number of calls that were repeated after losses, in earlier runs of the program.
    repeated: u64,
    /// The calls that fail in every execution.
    failing: Vec<CallId>,
    /// The number of versions that each call writes.
    writes: BTreeMap<CallId, u32>,
    members: u32,
    workers: BTreeMap<Member, u32>,
    /// The first call of the open group, and whether the group may be cancelled.
    group: Option<(CallId, bool)>,
    /// The variable with the latest commuting updates, and the first call of that chain.
    chain: Option<(usize, CallId)>,
    /// The parts that each call has merged in a recorded order.
    merged: BTreeMap<CallId, [VersionId; 2]>,
    /// The calls that merge by adding.
    merges: BTreeSet<CallId>,
    /// The calls that a member was unfit to run.
    unfit: BTreeSet<CallId>,
}

fn run(statements: &[Statement], has_losses: bool, has_journal: bool) {
    let mut run = Run::new(has_losses, has_journal);
    run_all(&mut run, statements, has_losses);
}

fn run_all(run: &mut Run, statements: &[Statement], has_losses: bool) {
    for statement in statements {
        run.execute(statement, has_losses);
    }
    while run.running.len() + run.copies.len() + run.waiting.len() + run.graph.unfinished() > 0
        && run.graph.fatal().is_none()
    {
        if run.running.len() + run.copies.len() == 0 && !run.waiting.is_empty() {
            run.write();
        } else {
            run.progress();
        }
        run.perform();
        run.check();
    }
    if run.has_failed_by_loss() {
        return;
    }
    assert_eq!(run.graph.unfinished(), 0);
    for variable in 0..VARIABLES {
        run.get(variable);
    }
    if run.has_failed_by_loss() {
        return;
    }
    for handle in run.handles.clone() {
        run.graph.release(handle);
    }
    run.perform();
    while !run.copies.is_empty() {
        run.end(0);
        run.perform();
    }
    assert!(!run.graph.known().members.any_leaves(), "a member has not left");
    check_rest(&run.stores, &run.graph);
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
        // A call with undecided inputs may have one of them recomputed before another one turns out to have failed.
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
