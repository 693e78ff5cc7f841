//! Programs made by chance, whose calls end in any order on members that join and are lost, against their sequential
//! run.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use proptest::{collection::vec, prelude::*};

use super::{
    Action, Argument, Assignment, CallId, Capacity, Commute, Demand, Fact, Failing, Graph, Held, History,
    Input, Mark, Member, Merge, NewCall, Outcome, Source, Unfit, VersionId,
    call::{Call, CallState},
    failing::CANCELLED,
    graph_tests::{new_call, version},
    lineage::DEATHS_MAX,
    version::State,
};
use crate::{
    failure::Failure,
    options::{OnFailure, Options},
};

/// The number of variables of a program.
const VARIABLES: usize = 5;

/// The memory of each member.
const MEMORY: u64 = 8;

/// A statement of a program.
#[derive(Debug, Clone)]
enum Statement {
    /// A variable names new data.
    New(usize),
    /// A variable becomes a clone of another one.
    Clone {
        from: usize,
        to: usize,
    },
    Call {
        reads: Vec<usize>,
        updates: Vec<usize>,
        result: Option<usize>,
        fails: bool,
        options: Options,
    },
    /// A variable becomes the sum of some, which are added in any order.
    Reduce {
        of: Vec<usize>,
        to: usize,
    },
    /// Others are added to a variable, in any order.
    Commute {
        on: usize,
        by: Vec<usize>,
    },
    /// The program begins a group, or ends the one that it has begun.
    Group,
    /// The program cancels so many of its last calls.
    Cancel(u64),
    /// A call that was assigned ends, if there is one.
    End(prop::sample::Index),
    /// The program waits for a variable.
    Get(usize),
    /// A member with so many workers joins.
    Join(u32),
    /// A member is lost, if there is another one than that of the program.
    Lose(prop::sample::Index),
    /// A member is lost, but that is not noticed yet.
    Vanish(prop::sample::Index),
    /// A member leaves, if there is another one than that of the program. It has begun every second of its calls.
    Leave(prop::sample::Index),
    /// A call cannot run on its member, for the first time.
    Unfit(prop::sample::Index),
    /// A member cannot read any more what it has of a version.
    Damage(prop::sample::Index),
    /// A member asks which of its copies others have, too.
    Ask(prop::sample::Index),
    /// The other nodes are told which calls have ended.
    Remember,
    /// The member of the program is lost, and the program begins anew on another one. That is told at once what one
    /// part of the others has, and the rest in the middle.
    Restart {
        here: prop::sample::Index,
        late: prop::sample::Index,
    },
    /// What is to be written to the journal is.
    Write,
    /// The member of the program leaves, and the program begins anew on another one.
    Move(prop::sample::Index),
    /// All members leave, this one first, and the program begins anew on a new one.
    Empty(prop::sample::Index),
}

impl Statement {
    /// Returns whether it is one of the program, and not something that happens.
    fn is_of_program(&self) -> bool {
        matches!(
            self,
            Self::New(_)
                | Self::Clone { .. }
                | Self::Call { .. }
                | Self::Reduce { .. }
                | Self::Commute { .. }
                | Self::Group
                | Self::Get(_)
                | Self::Cancel(_)
        )
    }

    /// Returns the same with a call whose data is not for all members: a copy for all that could not be made may be taken
    /// for one that is awaited. `never_fails` has it not fail.
    fn plain(mut self, never_fails: bool) -> Self {
        if let Self::Call { fails, options, .. } = &mut self {
            options.everywhere = false;
            *fails &= !never_fails;
        }
        self
    }

    /// Returns whether it makes calls of which it is not known at first what they read.
    fn is_undecided(&self) -> bool {
        matches!(self, Self::Commute { .. } | Self::Reduce { .. })
    }

    /// Returns whether nothing is lost by it.
    fn is_harmless(&self) -> bool {
        let is_loss = matches!(
            self,
            Self::Lose(_) | Self::Vanish(_) | Self::Damage(_) | Self::Unfit(_) | Self::Restart { .. }
        );
        !is_loss
    }
}

fn statement() -> impl Strategy<Value = Statement> {
    let variable = || 0..VARIABLES;
    let demands = (1..=2_u32, 0..=MEMORY, 0..4, 0..8);
    let on_failure = prop_oneof![
        1 => Just(OnFailure::Ignore),
        1 => Just(OnFailure::CancelGroup),
        1 => Just(OnFailure::CancelSuccessors),
    ];
    let options = (-1..=1, 0..=1_u32, on_failure, 0..4, prop::option::of(demands));
    let options = options.prop_map(|(priority, retry, on_failure, durable, demands)| {
        let (cores, memory, spread, everywhere) = demands.unwrap_or((1, 0, 1, 1));
        Options {
            priority,
            retry,
            on_failure,
            nondeterministic: durable == 0,
            cores,
            memory,
            spread: spread == 0,
            everywhere: everywhere == 0,
            ..Options::DEFAULT
        }
    });
    let call = (vec(variable(), 0..3), vec(variable(), 0..3), prop::option::of(variable()), 0..12, options);
    prop_oneof![
        1 => variable().prop_map(Statement::New),
        2 => (variable(), variable()).prop_map(|(from, to)| Statement::Clone { from, to }),
        6 => call.prop_map(|(reads, mut updates, result, fails, options)| {
            // The borrow checker allows one update of a handle in a call.
            updates.sort_unstable();
            updates.dedup();
            Statement::Call { reads, updates, result, fails: fails == 0, options }
        }),
        1 => (vec(variable(), 1..8), variable()).prop_map(|(of, to)| Statement::Reduce { of, to }),
        2 => (variable(), vec(variable(), 1..4)).prop_map(|(on, by)| Statement::Commute { on, by }),
        1 => Just(Statement::Group),
        1 => (1..10_u64).prop_map(Statement::Cancel),
        5 => any::<prop::sample::Index>().prop_map(Statement::End),
        1 => variable().prop_map(Statement::Get),
        1 => (1..3_u32).prop_map(Statement::Join),
        1 => any::<prop::sample::Index>().prop_map(Statement::Lose),
        1 => any::<prop::sample::Index>().prop_map(Statement::Vanish),
        1 => any::<prop::sample::Index>().prop_map(Statement::Leave),
        1 => any::<prop::sample::Index>().prop_map(Statement::Unfit),
        1 => any::<prop::sample::Index>().prop_map(Statement::Damage),
        1 => any::<prop::sample::Index>().prop_map(Statement::Ask),
        2 => Just(Statement::Remember),
        2 => Just(Statement::Write),
        1 => any::<(prop::sample::Index, prop::sample::Index)>()
            .prop_map(|(here, late)| Statement::Restart { here, late }),
        1 => any::<prop::sample::Index>().prop_map(Statement::Move),
        1 => any::<prop::sample::Index>().prop_map(Statement::Empty),
    ]
}

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

impl Run {
    fn new(has_losses: bool, has_journal: bool) -> Self {
        let mut run = Self {
            graph: Graph::new(has_losses),
            next: 0,
            values: Vec::new(),
            depends: Vec::new(),
            cancelled: BTreeSet::new(),
            handles: Vec::new(),
            stores: BTreeMap::new(),
            running: Vec::new(),
            copies: Vec::new(),
            leaving: BTreeSet::new(),
            vanished: BTreeSet::new(),
            log: Vec::new(),
            memory: History::default(),
            journal: Vec::new(),
            waiting: Vec::new(),
            has_journal,
            unseen: Vec::new(),
            brought: BTreeSet::new(),
            durable: BTreeSet::new(),
            seen: BTreeMap::new(),
            executions: 0,
            repeated: 0,
            failing: Vec::new(),
            writes: BTreeMap::new(),
            members: 0,
            workers: BTreeMap::new(),
            group: None,
            chain: None,
            merged: BTreeMap::new(),
            merges: BTreeSet::new(),
            unfit: BTreeSet::new(),
        };
        run.begin_journal();
        run.join(2);
        run.begin_program();
        run
    }

    /// Tells the graph what stands in the journal.
    fn begin_journal(&mut self) {
        if self.has_journal {
            self.graph.records();
            self.journal.iter().for_each(|fact| self.graph.recalls(fact.clone()));
        }
    }

    /// Puts what stands in the journal of versions where the program runs.
    fn recalls_what_was_kept(&mut self) {
        for fact in self.journal.clone() {
            if let Fact::Kept { version, mark, value } = fact {
                let value = u64::from_le_bytes(value.try_into().expect("it is a number"));
                self.put_brought(Member::HERE, version, (value, mark));
                self.graph.holds(Member::HERE, Held { version, mark, bytes: 8 });
            }
        }
    }

    /// Writes everything to the journal.
    fn write(&mut self) {
        for fact in std::mem::take(&mut self.waiting) {
            self.journal.push(fact.clone());
            self.graph.journalled(fact);
        }
    }

    /// Returns whether it stands in the journal that a call is not run again.
    fn is_recorded(&self, call: CallId) -> bool {
        self.journal.iter().any(|fact| matches!(fact, Fact::Ended(_)) && fact.calls() == [call])
    }

    /// The same, or that its failure is ignored.
    fn may_be_seen(&self, call: CallId) -> bool {
        self.is_recorded(call) || self.journal.contains(&Fact::Ignored(call))
    }

    /// Returns whether the program has failed because something is lost that is neither made again nor in the journal.
    fn has_lost_what_is_not_made_again(&self) -> bool {
        let Some(failure) = self.graph.fatal() else { return false };
        assert!(self.durable.contains(&failure.call()), "{failure}");
        true
    }

    /// Notes that somebody sees what a call has written: it is the same for all.
    fn sees(&mut self, version: VersionId, value: u64) {
        if self.has_journal && self.durable.contains(&version.call) {
            assert!(self.may_be_seen(version.call), "{version:?} is seen before it is recorded");
            let before = *self.seen.entry(version).or_insert(value);
            assert_eq!(before, value, "{version:?} is something else than before");
        }
    }

    /// Does what the program does first.
    fn begin_program(&mut self) {
        (self.group, self.chain) = (None, None);
        self.values.clear();
        self.handles.clear();
        self.depends = vec![BTreeSet::new(); VARIABLES];
        for _ in 0..VARIABLES {
            let (value, handle) = self.bring();
            self.values.push(Ok(value));
            self.handles.push(handle);
        }
    }

    fn join(&mut self, workers: u32) {
        let member = Member(self.members);
        self.members += 1;
        self.stores.insert(member, BTreeMap::new());
        self.workers.insert(member, workers);
        self.graph.joined(member, Capacity { workers, memory: MEMORY, ..Capacity::default() });
    }

    fn number(&mut self) -> CallId {
        self.next += 1;
        self.next - 1
    }

    fn bring(&mut self) -> (u64, VersionId) {
        let id = self.number();
        let value = written(id, 0, &[]);
        let mark = self.graph.data(id, 8, value);
        self.put(Member::HERE, version(id, 0), (value, mark));
        (value, version(id, 0))
    }

    fn put(&mut self, member: Member, version: VersionId, value: (u64, Mark)) {
        self.stores.get_mut(&member).expect("it is there").insert(version, value);
    }

    fn assign(&mut self, variable: usize, value: Value, handle: VersionId) {
        self.values[variable] = value;
        let before = std::mem::replace(&mut self.handles[variable], handle);
        self.graph.release(before);
    }

    fn state(&mut self, statement: &Statement, has_losses: bool) {
        if self.graph.fatal().is_some() {
            return;
        }
        if statement.is_of_program() {
            self.log.push(statement.clone());
            self.chain = self.chain.filter(|_| matches!(statement, Statement::Commute { .. }));
        }
        match statement {
            Statement::New(variable) => {
                let (value, handle) = self.bring();
                self.assign(*variable, Ok(value), handle);
                self.depends[*variable].clear();
            }
            Statement::Clone { from, to } => {
                self.graph.retain(self.handles[*from]);
                self.assign(*to, self.values[*from], self.handles[*from]);
                self.depends[*to] = self.depends[*from].clone();
            }
            Statement::Call { reads, updates, result, fails, options } => {
                self.call(reads, updates, *result, *fails, *options);
            }
            Statement::Reduce { of, to } => self.reduce(of, *to, has_losses),
            Statement::Commute { on, by } => {
                let by = by.iter().filter(|by| *by != on);
                by.for_each(|by| self.commute(*on, *by, has_losses));
            }
            Statement::Group => self.group(),
            Statement::Cancel(calls) => self.cancel(*calls),
            Statement::End(which) => self.end_any(*which),
            Statement::Get(variable) => self.get(*variable),
            Statement::Join(workers) => self.join(*workers),
            Statement::Lose(which) => {
                if let Some(member) = self.other(*which).filter(|_| has_losses && self.may_be_lost()) {
                    self.lose(member);
                }
            }
            Statement::Vanish(which) => {
                self.vanished.extend(self.other(*which).filter(|_| has_losses && self.may_be_lost()));
            }
            Statement::Leave(which) => {
                if let Some(member) = self.other(*which).filter(|_| has_losses) {
                    self.leave(member);
                }
            }
            Statement::Unfit(which) if has_losses => self.unfit(*which),
            Statement::Damage(which) if has_losses => self.damage(*which),
            Statement::Ask(which) if has_losses => self.ask(*which),
            Statement::Write => self.write(),
            Statement::Remember => self.memory.add(self.graph.take_news()),
            Statement::Restart { here, late } if has_losses => self.restart(*here, *late),
            Statement::Move(here) if has_losses => self.move_program(*here),
            Statement::Empty(first) if self.has_journal => self.all_leave(*first),
            Statement::Restart { .. }
            | Statement::Move(_)
            | Statement::Empty(_)
            | Statement::Unfit(_)
            | Statement::Damage(_)
            | Statement::Ask(_) => {}
        }
        self.perform();
        self.check();
    }

    fn group(&mut self) {
        if let Some((start, _)) = self.group.take() {
            return self.graph.closes_group(start..self.next);
        }
        self.group = Some((self.next, false));
        self.graph.opens_group(self.next);
    }

    /// Notes that a call is made, with whose failure its group is given up or not: nobody knows which of its calls.
    fn note_group(&mut self, id: CallId, gives_up: bool) {
        let Some((start, is_given_up)) = &mut self.group else { return };
        if gives_up && !std::mem::replace(is_given_up, true) {
            self.cancelled.extend(*start..id);
        }
        self.cancelled.extend(Some(id).filter(|_| *is_given_up));
    }

    /// Cancels those of so many last calls that have not begun.
    fn cancel(&mut self, calls: u64) {
        let last = self.next.saturating_sub(calls)..self.next;
        self.cancelled.extend(last.clone().filter(|call| self.graph.is_unfinished(*call)));
        if self.has_journal {
            // The program waits until it is recorded.
            let cancelled = self.graph.begins_to_cancel(last);
            self.waiting.extend(
                cancelled
                    .into_iter()
                    .flatten()
                    .map(|call| Fact::Failed { call, reason: CANCELLED.to_owned() }),
            );
            return self.write();
        }
        self.graph.cancel_all(last);
    }

    /// Ends a call, or something that is copied, if there is any.
    fn end_any(&mut self, which: prop::sample::Index) {
        let all = self.running.len() + self.copies.len();
        if all > 0 {
            self.end(which.index(all));
        }
    }

    /// Lets a call not run on its member. Every second one has changed nothing.
    fn unfit(&mut self, which: prop::sample::Index) {
        if self.running.is_empty() {
            return;
        }
        let which = which.index(self.running.len());
        let Running { member, assignment, .. } = &self.running[which];
        let (member, call) = (*member, assignment.call);
        // On its only member it would fail, and on each if that happens again.
        let has_demands = |call: &Call| Demand::of(&call.options) != Demand::NONE;
        let is_hopeless = !self.graph.members.any_other_than(&[member])
            || self.graph.calls.get(&call).is_none_or(has_demands);
        if is_hopeless || self.vanished.contains(&member) || !self.unfit.insert(call) {
            return;
        }
        let running = self.running.swap_remove(which);
        let changes_nothing = which.is_multiple_of(2) && self.graph_knows(&running);
        let unchanged = if changes_nothing { self.give_back(&running) } else { Vec::new() };
        let unfit = Unfit { reason: "its disk is full".to_owned(), unchanged, damaged: None };
        self.graph.ended(call, member, Outcome::Unfit(unfit));
    }

    /// Lets a member not have any more what it should, of what can be made again.
    fn damage(&mut self, which: prop::sample::Index) {
        let there = self.stores.iter().filter(|(member, _)| !self.vanished.contains(member));
        let all = there.flat_map(|(member, store)| store.keys().map(|version| (*member, *version)));
        let can_be_made =
            |id: &VersionId| self.graph.calls.contains_key(&id.call) || !self.graph.versions.contains_key(id);
        let all: Vec<_> = all.filter(|(_, version)| can_be_made(version)).collect();
        if all.is_empty() {
            return;
        }
        let (member, version) = all[which.index(all.len())];
        let store = &self.stores[&member];
        let is_unseen = |(of, call, _, outcome): &End| {
            (*of, *call) == (member, version.call) && matches!(outcome, Outcome::Durable { .. })
        };
        // The rest of what the same execution has written is of no use without it.
        let is_rest = |other: &VersionId| {
            let is_own = other.call == version.call && !self.brought.contains(&(member, *other));
            is_own && self.unseen.iter().any(is_unseen)
        };
        let damaged: Vec<_> =
            store.keys().filter(|other| **other == version || is_rest(other)).copied().collect();
        for version in damaged {
            self.is_not_kept(member, version);
            self.graph.is_damaged(version, member, "it has vanished");
        }
    }

    fn ask(&mut self, which: prop::sample::Index) {
        let there: Vec<_> = self.stores.keys().filter(|member| !self.vanished.contains(member)).collect();
        if there.is_empty() {
            return;
        }
        let member = *there[which.index(there.len())];
        let versions = self.stores[&member].keys().copied().collect();
        self.graph.has_copies(member, versions);
    }

    /// Returns whether another member may be lost without a call failing because it was lost so often.
    fn may_be_lost(&self) -> bool {
        let deaths = self.graph.calls.iter().map(|(_, call)| call.deaths).max().unwrap_or(0);
        deaths as usize + self.vanished.len() < DEATHS_MAX as usize
    }

    fn lose(&mut self, member: Member) {
        self.vanished.remove(&member);
        self.stores.remove(&member);
        self.running.retain(|running| running.member != member);
        self.copies.retain(|(to, _)| *to != member);
        self.unseen.retain(|(of, ..)| *of != member);
        self.brought.retain(|(to, _)| *to != member);
        self.graph.lost(member);
    }

    fn leave(&mut self, member: Member) {
        if self.vanished.contains(&member) {
            return;
        }
        self.leaving.insert(member);
        self.graph.leaves(member);
        let on_it = self.running.extract_if(.., |running| running.member == member);
        let on_it: Vec<_> = on_it.collect();
        for (number, running) in on_it.into_iter().enumerate() {
            if running.is_earlier || number % 2 == 0 {
                self.running.push(running);
                continue;
            }
            let unchanged = self.give_back(&running);
            self.graph.returned(running.assignment.call, member, &unchanged);
        }
    }

    /// Undoes the beginning of a call, and returns what it would have changed in place.
    fn give_back(&mut self, Running { member, assignment, inputs, .. }: &Running) -> Vec<(VersionId, u64)> {
        let (mut unchanged, mut in_place) = (Vec::new(), assignment.in_place.iter());
        let mut inputs = inputs.iter();
        for argument in &*assignment.arguments {
            let is_taken = matches!(argument, Argument::Update(_)) && *in_place.next().expect("one for each");
            for version in argument.versions() {
                let input = *inputs.next().expect("one for each");
                if is_taken {
                    let mark = self.marks_of(*version);
                    self.put(*member, *version, (input, mark));
                    unchanged.push((*version, 8));
                }
            }
        }
        unchanged
    }

    fn marks_of(&self, version: VersionId) -> Mark {
        self.graph.versions[&version].mark
    }

    /// Has the member of the program leave, and the program begin anew on another one.
    fn move_program(&mut self, here: prop::sample::Index) {
        if self.stores.len() < 2 {
            return;
        }
        self.leave(Member::HERE);
        let mut rounds = 0;
        while self.stores.contains_key(&Member::HERE) {
            rounds += 1;
            assert!(rounds < 1_000, "the program does not leave");
            self.perform();
            if self.stores.contains_key(&Member::HERE) {
                // Nobody else may be there who would remember what was not written.
                self.write();
                self.perform();
            }
            if self.stores.contains_key(&Member::HERE) {
                self.end_first();
            }
        }
        self.memory.add(self.graph.take_news());
        // It goes when that is done.
        self.write();
        self.unseen.retain(|(of, ..)| *of != Member::HERE);
        self.brought.retain(|(to, _)| *to != Member::HERE);
        self.begin_anew(here, None);
    }

    fn restart(&mut self, here: prop::sample::Index, late: prop::sample::Index) {
        self.stores.remove(&Member::HERE);
        self.running.retain(|running| running.member != Member::HERE);
        self.unseen.retain(|(of, ..)| *of != Member::HERE);
        self.brought.retain(|(to, _)| *to != Member::HERE);
        // What was under way may have been written.
        let written = late.index(self.waiting.len() + 1);
        self.journal.extend(self.waiting.drain(..written));
        self.waiting.clear();
        self.begin_anew(here, Some(late));
    }

    /// Begins the program anew on one of the members that are left, or on a new one.
    fn begin_anew(&mut self, here: prop::sample::Index, late: Option<prop::sample::Index>) {
        self.copies.clear();
        self.leaving.clear();
        for vanished in std::mem::take(&mut self.vanished) {
            self.stores.remove(&vanished);
            self.running.retain(|running| running.member != vanished);
            self.unseen.retain(|(of, ..)| *of != vanished);
            self.brought.retain(|(to, _)| *to != vanished);
        }
        // What has not begun is dropped, in this case every third call.
        let all = std::mem::take(&mut self.running);
        for (number, running) in all.into_iter().enumerate() {
            if number % 3 > 0 || running.is_earlier {
                self.running.push(Running { is_earlier: true, ..running });
            } else if self.graph_knows(&running) {
                self.give_back(&running);
            }
        }
        let mut survivors: Vec<_> = self.stores.keys().copied().collect();
        if !survivors.is_empty() {
            let count = survivors.len();
            survivors.rotate_left(here.index(count));
        }
        let mut survivors: Vec<_> = survivors.into_iter().map(|member| self.survives(member)).collect();
        self.repeated += self.graph.figures().repeated;
        self.graph = Graph::new(true);
        self.begin_journal();
        self.graph.remembers(self.memory.clone());
        self.members = 0;
        if survivors.is_empty() {
            self.join(2);
        }
        let late = late.map_or(survivors.len(), |late| 1.max(late.index(survivors.len() + 1)));
        let mut late = survivors.split_off(late.min(survivors.len()));
        for survivor in survivors {
            self.joins_again(survivor);
        }
        self.recalls_what_was_kept();
        let log = std::mem::take(&mut self.log);
        self.next = 0;
        self.begin_program();
        for (number, statement) in log.iter().enumerate() {
            if number == log.len() / 2 {
                late.drain(..).for_each(|survivor| self.joins_again(survivor));
            }
            self.state(statement, true);
        }
        late.drain(..).for_each(|survivor| self.joins_again(survivor));
        assert_eq!(self.graph.divergence(), None);
    }

    /// Returns whether the graph knows what a call would change in place.
    fn graph_knows(&self, running: &Running) -> bool {
        let mut versions = running.assignment.arguments.iter().flat_map(Argument::versions);
        versions.all(|version| self.graph.versions.contains_key(version))
    }

    /// Takes a member out that takes part in the next run of the program, too.
    fn survives(&mut self, member: Member) -> Survivor {
        let running = self.running.extract_if(.., |running| running.member == member).collect();
        self.forgets_halves(member);
        let unseen = self.unseen.extract_if(.., |(of, ..)| *of == member).collect();
        let (brought, others) =
            std::mem::take(&mut self.brought).into_iter().partition(|(to, _)| *to == member);
        self.brought = others;
        let store = self.stores.remove(&member).expect("it is there");
        Survivor { store, running, unseen, brought }
    }

    /// Lets a member not tell ends of calls of which it has not any more all that they have written.
    fn forgets_halves(&mut self, member: Member) {
        let store = self.stores.get_mut(&member).expect("it is there");
        let (writes, brought) = (&self.writes, &self.brought);
        self.unseen.retain(|(of, call, _, outcome)| {
            let versions = (0..writes[call]).map(|slot| version(*call, slot));
            let is_whole = versions.clone().all(|version| store.contains_key(&version));
            if *of != member || is_whole || matches!(outcome, Outcome::Ignored { .. }) {
                return true;
            }
            for version in versions.filter(|version| !brought.contains(&(member, *version))) {
                store.remove(&version);
            }
            false
        });
    }

    /// Lets a member take part that has done so in the run before. It tells what it has before it is given anything to
    /// do.
    fn joins_again(&mut self, survivor: Survivor) {
        let member = Member(self.members);
        self.join(2);
        let Survivor { store, running, unseen, brought } = survivor;
        self.stores.insert(member, store);
        self.running.extend(running.into_iter().map(|running| Running { member, ..running }));
        self.unseen.extend(unseen.into_iter().map(|(_, call, mark, outcome)| (member, call, mark, outcome)));
        self.brought.extend(brought.into_iter().map(|(_, version)| (member, version)));
        self.tell(member);
    }

    /// Tells the graph what a member has of earlier runs.
    fn tell(&mut self, member: Member) {
        // What a call has written whose end nobody may have seen is told with that.
        let is_told = |version: &VersionId| {
            self.brought.contains(&(member, *version)) || !self.has_unseen(member, version.call)
        };
        let held: Vec<_> = self.stores[&member].iter().filter(|(version, _)| is_told(version)).collect();
        for (version, (_, mark)) in held {
            self.graph.holds(member, Held { version: *version, mark: *mark, bytes: 8 });
        }
        for Running { assignment, .. } in
            self.running.iter().filter(|running| running.member == member && running.is_earlier)
        {
            self.graph.runs(member, assignment.call, assignment.mark);
        }
        let unseen = self.unseen.iter().filter(|(of, ..)| *of == member);
        for (_, call, mark, _) in unseen.clone() {
            self.graph.runs(member, *call, *mark);
        }
        for (_, call, _, outcome) in unseen {
            self.graph.ended(*call, member, outcome.clone());
        }
    }

    /// Returns a member on which the program does not run.
    fn other(&self, which: prop::sample::Index) -> Option<Member> {
        let others: Vec<_> = self.stores.keys().filter(|member| **member != Member::HERE).collect();
        (!others.is_empty()).then(|| *others[which.index(others.len())])
    }

    fn call(
        &mut self,
        reads: &[usize],
        updates: &[usize],
        result: Option<usize>,
        fails: bool,
        options: Options,
    ) {
        let id = self.number();
        if fails {
            self.failing.push(id);
        }
        if options.is_durable() {
            self.durable.insert(id);
        }
        self.note_group(id, fails && options.on_failure == OnFailure::CancelGroup);
        let inputs: Result<Vec<u64>, CallId> =
            reads.iter().chain(updates).map(|one| self.values[*one]).collect();
        let ignores = options.on_failure == OnFailure::Ignore;
        // Which of several failures is told is not said.
        let value = |slot| match &inputs {
            Err(failed) => Err(*failed),
            Ok(_) if fails && !ignores => Err(id),
            Ok(inputs) if fails => Ok(default_of(slot, &inputs[reads.len()..])),
            Ok(inputs) => Ok(written(id, slot, inputs)),
        };
        let read = reads.iter().chain(updates);
        let depends: BTreeSet<_> =
            read.flat_map(|one| self.depends[*one].iter().copied()).chain([id]).collect();
        let mut arguments = vec![Argument::ReadAll(reads.iter().map(|read| self.handles[*read]).collect())];
        arguments.extend(updates.iter().map(|update| Argument::Update(self.handles[*update])));
        let slots: Vec<usize> = updates.iter().copied().chain(result).collect();
        let writes = u32::try_from(slots.len()).expect("they are few");
        self.writes.insert(id, writes);
        self.graph.call(id, new_call(arguments, writes, options));
        for (slot, variable) in (0..).zip(slots) {
            self.assign(variable, value(slot), version(id, slot));
            self.depends[variable] = depends.clone();
        }
    }

    /// Adds variables, in any order if that is recorded or nothing is lost, and otherwise in a fixed one.
    fn reduce(&mut self, of: &[usize], to: usize, has_losses: bool) {
        let reduction = self.next;
        let value = of.iter().map(|of| self.values[*of]).reduce(|sum, part| Ok(sum?.wrapping_add(part?)));
        let mut depends: BTreeSet<_> = of.iter().flat_map(|of| self.depends[*of].iter().copied()).collect();
        let mut parts: Vec<_> = of.iter().map(|of| self.handles[*of]).collect();
        for part in &parts {
            self.graph.retain(*part);
        }
        let mut kept = Vec::new();
        while parts.len() > 1 {
            for pair in std::mem::take(&mut parts).chunks(2) {
                let &[into, from] = pair else {
                    parts.push(pair[0]);
                    break;
                };
                let id = self.number();
                let arguments = vec![Argument::Update(into), Argument::Read(from)];
                let merge = Merge { reduction, into: 0, from: 1 };
                let merge = Some(merge).filter(|_| self.has_journal || !has_losses);
                let call = new_call(arguments, 1, Options::DEFAULT);
                self.graph.call(id, NewCall { merge, ..call });
                self.writes.insert(id, 1);
                self.merges.insert(id);
                self.note_group(id, false);
                depends.insert(id);
                kept.extend([into, from]);
                parts.push(version(id, 0));
            }
        }
        self.graph.begins_reductions();
        for part in kept {
            self.graph.release(part);
        }
        self.assign(to, value.expect("there are some"), parts[0]);
        self.depends[to] = depends;
    }

    /// Adds one variable to another, in any order with others if that is recorded or nothing is lost.
    fn commute(&mut self, on: usize, by: usize, has_losses: bool) {
        let id = self.number();
        let before = self.chain.filter(|(variable, _)| *variable == on).map(|(_, chain)| chain);
        let chain = before.unwrap_or(id);
        self.chain = Some((on, chain));
        let commute = Some(Commute { chain, at: 0 }).filter(|_| self.has_journal || !has_losses);
        let arguments = vec![Argument::Update(self.handles[on]), Argument::Read(self.handles[by])];
        // They demand different things, which go with what they read.
        let options = Options { memory: by as u64, priority: i32::from(by == 0), ..Options::DEFAULT };
        self.graph.call(id, NewCall { commute, ..new_call(arguments, 1, options) });
        self.writes.insert(id, 1);
        self.merges.insert(id);
        self.note_group(id, false);
        let sum = |on: Value, by: Value| Ok(on?.wrapping_add(by?));
        self.assign(on, sum(self.values[on], self.values[by]), version(id, 0));
        let others = self.depends[by].clone();
        self.depends[on].extend(others);
        self.depends[on].insert(id);
        // What was cancelled of them is what another one was to do.
        if self.cancelled.contains(&id) {
            self.cancelled.insert(chain);
        }
    }

    /// Has all members leave, and the program begin anew on a new one.
    fn all_leave(&mut self, first: prop::sample::Index) {
        for vanished in self.vanished.clone() {
            self.lose(vanished);
        }
        let mut all: Vec<_> = self.stores.keys().copied().collect();
        let count = all.len();
        all.rotate_left(first.index(count));
        // Were that of the program gone before, it would begin anew with the others.
        for member in all {
            self.leave(member);
        }
        self.perform();
        let mut rounds = 0;
        while !self.stores.is_empty() && self.graph.fatal().is_none() {
            rounds += 1;
            assert!(rounds < 1_000, "{:?} do not leave", self.stores.keys());
            self.write();
            self.perform();
            self.end_first();
            self.perform();
        }
        self.write();
        self.begin_anew(first, None);
    }

    /// Ends what is first, if there is anything.
    fn end_first(&mut self) {
        if self.running.len() + self.copies.len() > 0 {
            self.end(0);
        }
    }

    /// Waits for a variable, and checks it.
    fn get(&mut self, variable: usize) {
        let handle = self.handles[variable];
        let input = loop {
            let input = self.graph.want(handle);
            self.perform();
            if self.graph.fatal().is_some() {
                return;
            }
            match input {
                Input::Awaited if !self.waiting.is_empty() => self.write(),
                Input::Awaited if matches!(self.graph.want(handle), Input::Awaited) => {
                    self.goes_on();
                }
                Input::Awaited => {}
                input => break input,
            }
        };
        self.graph.unwant(handle);
        if matches!(input, Input::Here) {
            self.sees(handle, self.stores[&Member::HERE][&handle].0);
        }
        match (input, self.values[variable]) {
            _ if !self.depends[variable].is_disjoint(&self.cancelled) => {}
            // It is another value in each run, but always the same to whoever sees it.
            (Input::Here, Ok(_))
                if self.has_journal && !self.depends[variable].is_disjoint(&self.durable) => {}
            (Input::Here, Ok(value)) => assert_eq!(self.stores[&Member::HERE][&handle].0, value),
            (Input::Failed(_), Err(_)) => {}
            (input, value) => panic!("{handle:?} is {input:?}, and should be {value:?}"),
        }
    }

    /// Ends something. If there is nothing, calls wait for a member that can take them, and one joins.
    fn goes_on(&mut self) {
        if self.running.len() + self.copies.len() > 0 {
            return self.end(0);
        }
        let waiting = self.graph.calls.iter().any(|(call, _)| self.graph.lacks(call).is_some());
        assert!(waiting || self.stores.is_empty(), "nothing happens any more");
        self.join(2);
    }

    /// Does what is to be done, and checks that it can be.
    fn perform(&mut self) {
        loop {
            let actions = self.graph.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    Action::Forget(member, version) => {
                        self.is_not_kept(member, version);
                    }
                    Action::Bring(source) => {
                        if self.bring_to(Member::HERE, &source) {
                            self.graph.copied(source.version, Member::HERE);
                        } else {
                            self.graph.not_brought(source.version, &source.members);
                        }
                    }
                    Action::Copy(member, source) => self.copies.push((member, source)),
                    Action::Record(fact) => self.waiting.push(fact),
                    Action::Restore { version, mark, value } => {
                        // The member of the program may have gone meanwhile.
                        if self.stores.contains_key(&Member::HERE) {
                            let value = u64::from_le_bytes((*value).try_into().expect("it is a number"));
                            self.put_brought(Member::HERE, version, (value, mark));
                        }
                    }
                    Action::Preserve { version, mark } => {
                        let value = self.stores[&Member::HERE][&version].0.to_le_bytes().to_vec();
                        self.waiting.push(Fact::Kept { version, mark, value });
                    }
                    Action::LetGo(member) => self.go(member),
                    Action::Assign(member, assignment) => self.begin(member, assignment),
                    Action::Alias(..) | Action::Answer(..) => unreachable!("no task makes calls"),
                }
            }
        }
    }

    /// Lets a member not have a version any more, and not tell again how its call has ended.
    fn is_not_kept(&mut self, member: Member, version: VersionId) {
        if let Some(store) = self.stores.get_mut(&member) {
            store.remove(&version);
        }
        self.unseen.retain(|(of, call, ..)| (*of, *call) != (member, version.call));
        self.brought.remove(&(member, version));
    }

    /// Returns whether a member knows an end of a call that nobody may have seen.
    fn has_unseen(&self, member: Member, call: CallId) -> bool {
        self.unseen.iter().any(|(of, ended, ..)| (*of, *ended) == (member, call))
    }

    /// Brings a version to a member, unless that has it. Returns whether it does then.
    fn bring_to(&mut self, member: Member, source: &Source) -> bool {
        let version = source.version;
        // As far as it is not what it has written itself, and perhaps nobody has seen.
        let counts = self.brought.contains(&(member, version)) || !self.has_unseen(member, version.call);
        let store = self.stores.get_mut(&member).expect("it is there");
        if counts && store.contains_key(&version) {
            return true;
        }
        store.remove(&version);
        let value = self.fetch(source);
        value.map(|value| self.put_brought(member, version, value)).is_some()
    }

    /// Puts a version where another execution of its call may run, or have ended.
    fn put_brought(&mut self, member: Member, version: VersionId, value: (u64, Mark)) {
        let mut running = self.running.iter();
        let is_it = |running: &Running| (running.member, running.assignment.call) == (member, version.call);
        if running.any(is_it) || self.has_unseen(member, version.call) {
            self.brought.insert((member, version));
        }
        self.put(member, version, value);
    }

    fn fetch(&self, source: &Source) -> Option<(u64, Mark)> {
        let there = source.members.iter().filter(|member| !self.vanished.contains(member));
        let mut stores = there.filter_map(|member| self.stores.get(member));
        let found = stores.find_map(|store| store.get(&source.version)).copied();
        assert!(found.is_none_or(|(_, mark)| mark == source.mark), "{source:?}");
        found
    }

    /// Lets a member go that was to leave.
    fn go(&mut self, member: Member) {
        // One that it runs for a second time, since it was told late that it runs, is of no use.
        let is_idle = self.graph.calls.values().all(|call| call.state != CallState::Runs(member));
        let somebody_stays = !self.stores.keys().all(|member| self.leaving.contains(member));
        if somebody_stays && !self.vanished.contains(&member) {
            assert!(is_idle, "{member:?} runs calls");
            for (id, version) in &self.graph.versions {
                let State::Present(copies) = &version.state else { continue };
                let is_elsewhere = copies.members.iter().any(|other| *other != member);
                // What the program has brought in, it brings in again; and calls that run have got what they read.
                let mut readers = version.readers.iter().map(|reader| &self.graph.calls[reader]);
                let is_got =
                    readers.all(|reader| matches!(reader.state, CallState::Runs(_) | CallState::Recorded));
                let is_needed = version.handles > 0 || version.is_wanted || !is_got;
                let can_be_lost = !is_needed || !self.graph.calls.contains_key(&id.call);
                assert!(can_be_lost || is_elsewhere, "{id:?} would be lost with {member:?}");
            }
        }
        if member == Member::HERE && self.has_journal && !somebody_stays {
            let of_others = self.running.iter().filter(|running| !self.vanished.contains(&running.member));
            let mut counting = of_others.filter(|running| {
                let call = self.graph.calls.get(&running.assignment.call);
                call.is_some_and(|call| call.state == CallState::Runs(running.member))
            });
            assert!(counting.next().is_none(), "nobody will remember how calls end that run");
        }
        if member == Member::HERE {
            self.stores.remove(&member);
            self.running.retain(|running| running.member != member);
        } else {
            self.lose(member);
        }
    }

    fn begin(&mut self, member: Member, assignment: Assignment) {
        if self.vanished.contains(&member) {
            let inputs = Vec::new();
            return self.running.push(Running { member, assignment, inputs, is_earlier: false });
        }
        for source in &assignment.elsewhere {
            let version = &source.version;
            if !self.bring_to(member, source) {
                let store = &self.stores[&member];
                let unchanged: Vec<_> =
                    assignment.taken().filter(|taken| store.contains_key(taken)).collect();
                let unchanged: Vec<_> = unchanged.into_iter().map(|taken| (taken, 8)).collect();
                return self.graph.unable(assignment.call, member, *version, &source.members, &unchanged);
            }
            let mut updates =
                assignment.arguments.iter().filter(|argument| matches!(argument, Argument::Update(_)));
            // What is changed at once is no copy for others.
            if updates
                .position(|update| update.versions() == [*version])
                .is_none_or(|update| !assignment.in_place[update])
            {
                self.graph.copied(*version, member);
            }
        }
        if self.has_begun_before(member, &assignment) {
            return;
        }
        self.forgets_executions(member, assignment.call);
        let store = self.stores.get_mut(&member).expect("calls are assigned to members that are there");
        let (mut inputs, mut in_place, mut taken) = (Vec::new(), assignment.in_place.iter(), Vec::new());
        for argument in &*assignment.arguments {
            let is_taken = matches!(argument, Argument::Update(_)) && *in_place.next().expect("one for each");
            for version in argument.versions() {
                taken.extend(is_taken.then_some(*version));
                let value = if is_taken { store.remove(version) } else { store.get(version).copied() };
                let (value, _) = value.unwrap_or_else(|| panic!("{version:?} is not with {member:?}"));
                inputs.push((*version, value));
            }
        }
        for taken in taken {
            self.is_not_kept(member, taken);
        }
        let call = assignment.call;
        if self.has_journal && self.merges.contains(&call) {
            let is_it = |fact: &Fact| match fact {
                Fact::Merged { call: of, .. } | Fact::Commuted { call: of, .. } => *of == call,
                _ => false,
            };
            assert!(self.journal.iter().any(is_it), "{call} begins before it is recorded what it merges");
            let parts = [inputs[0].0, inputs[1].0];
            assert_eq!(*self.merged.entry(call).or_insert(parts), parts, "{call} merges something else");
        }
        assert!(!self.is_recorded(call), "{call} runs although it stands in the journal that it has ended");
        for (version, value) in &inputs {
            self.sees(*version, *value);
        }
        let inputs = inputs.into_iter().map(|(_, value)| value).collect();
        self.running.push(Running { member, assignment, inputs, is_earlier: false });
    }

    /// Returns whether a member does not begin a call that was assigned: it runs since an earlier run of the program, or
    /// has ended, which is being told.
    fn has_begun_before(&mut self, member: Member, assignment: &Assignment) -> bool {
        let Assignment { call, mark, .. } = assignment;
        let is_it = |running: &Running| {
            let of = (running.member, running.assignment.call, running.assignment.mark);
            running.is_earlier && of == (member, *call, *mark)
        };
        let store = self.stores.get_mut(&member).expect("calls are assigned to members that are there");
        let has_ended = self.unseen.iter().any(|(of, ended, with, outcome)| match outcome {
            Outcome::Durable { bytes, .. } if (of, ended, with) == (&member, call, mark) => {
                let mut slots = (0..).zip(bytes).map(|(slot, _)| slot);
                slots.all(|slot| store.contains_key(&version(*call, slot)))
            }
            _ => false,
        });
        if !has_ended && !self.running.iter().any(is_it) {
            return false;
        }
        let updates = assignment.arguments.iter().filter(|one| matches!(one, Argument::Update(_)));
        for (update, _) in updates.zip(&assignment.in_place).filter(|(_, in_place)| **in_place) {
            for taken in update.versions() {
                self.is_not_kept(member, *taken);
            }
        }
        true
    }

    /// Has a member forget what it has of other executions of a call that it begins.
    fn forgets_executions(&mut self, member: Member, call: CallId) {
        let is_it =
            |of: Member, outcome: &Outcome| of == member && matches!(outcome, Outcome::Durable { .. });
        if self.unseen.iter().any(|(of, ended, _, outcome)| *ended == call && is_it(*of, outcome)) {
            for slot in 0..self.writes[&call] {
                self.is_not_kept(member, version(call, slot));
            }
        }
        self.brought.retain(|(to, version)| (*to, version.call) != (member, call));
    }

    fn end(&mut self, which: usize) {
        let member = match self.running.get(which) {
            Some(running) => running.member,
            None => self.copies[which - self.running.len()].0,
        };
        if self.vanished.contains(&member) {
            // It does not end; but somebody notices why.
            return self.lose(member);
        }
        if which >= self.running.len() {
            let (member, source) = self.copies.swap_remove(which - self.running.len());
            let Some(value) = self.fetch(&source) else {
                return self.graph.not_copied(source.version, member, &source.members);
            };
            self.put(member, source.version, value);
            return self.graph.copied(source.version, member);
        }
        let Running { member, assignment, inputs, is_earlier } = self.running.swap_remove(which);
        let Assignment { call, mark, .. } = assignment;
        let fails = self.failing.contains(&call);
        if fails && assignment.manner.failing == Failing::Nothing {
            let failure = Failure::new("task", call, "as it was told");
            return self.graph.ended(call, member, Outcome::Failed(failure));
        }
        assert!(fails || assignment.manner.failing != Failing::HasFailed, "{call} has not failed");
        let writes = self.writes[&call];
        let reads = assignment.arguments[0].versions().len();
        let is_durable = self.has_journal && assignment.manner.once_token.is_some();
        self.executions += 1;
        let mut values = Vec::new();
        for slot in 0..writes {
            let value = if fails {
                default_of(slot, &inputs[reads..])
            } else if self.merges.contains(&call) {
                inputs[0].wrapping_add(inputs[1])
            } else if is_durable {
                written(self.executions, slot, &inputs)
            } else {
                written(call, slot, &inputs)
            };
            values.push(value.to_le_bytes().to_vec());
            let may_differ = fails || is_durable;
            if !may_differ || !self.brought.contains(&(member, version(call, slot))) {
                self.put(member, version(call, slot), (value, mark));
            }
            if is_earlier && !is_durable && !(fails && self.has_journal) {
                self.graph.holds(member, Held { version: version(call, slot), mark, bytes: 8 });
            }
        }
        let bytes = (0..writes).map(|_| 8).collect();
        let outcome = if is_durable && !fails {
            // One in four is too large for the journal.
            let values = (call % 4 > 0).then_some(values);
            Outcome::Durable { bytes, ns: 1_000_000, by: self.executions, values }
        } else if fails {
            Outcome::Ignored { bytes, reason: "as it was told".to_owned() }
        } else {
            Outcome::Written { bytes, ns: 1_000_000 }
        };
        if self.has_journal && !matches!(outcome, Outcome::Written { .. }) {
            self.unseen.retain(|(of, ended, ..)| (*of, *ended) != (member, call));
            self.unseen.push((member, call, mark, outcome.clone()));
        }
        self.graph.ended(call, member, outcome);
    }

    /// Checks that no member has more to do than it can: if a call takes several workers, none waits beside it.
    fn check_demands(&self) {
        for (member, workers) in &self.workers {
            let on_it = self.running.iter().filter(|running| {
                running.member == *member
                    && self
                        .graph
                        .calls
                        .get(&running.assignment.call)
                        .is_some_and(|call| call.state == CallState::Runs(*member))
            });
            // What it has begun in an earlier run of the program nobody knew when it was given more.
            if on_it.clone().any(|running| running.is_earlier) {
                continue;
            }
            let demands: Vec<_> = on_it
                .map(|running| Demand::of(&self.graph.calls[&running.assignment.call].options))
                .collect();
            let cores: u32 = demands.iter().map(|demand| demand.cores).sum();
            let memory: u64 = demands.iter().map(|demand| demand.memory).sum();
            let is_any_wide = demands.iter().any(|demand| demand.cores > 1);
            assert!(!is_any_wide || cores <= *workers, "{member:?} has {workers} workers for {demands:?}");
            assert!(memory <= MEMORY, "{member:?} has too little memory for {demands:?}");
        }
    }

    /// Checks that everything is where the graph says it is.
    fn check(&self) {
        self.check_demands();
        for (id, version) in &self.graph.versions {
            let State::Present(copies) = &version.state else { continue };
            assert!(!copies.members.is_empty(), "{id:?}");
            for member in &copies.members {
                assert!(self.stores[member].contains_key(id), "{id:?} is not with {member:?}");
            }
        }
    }
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
    fn every_program_ends_as_its_sequential_run(statements in vec(statement(), 0..120)) {
        run(&statements, false, false);
    }

    #[test]
    fn losses_change_nothing(statements in vec(statement(), 0..120)) {
        run(&statements, true, false);
    }

    #[test]
    fn nothing_is_made_again_when_members_leave(
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
    fn what_is_recorded_has_one_outcome(statements in vec(statement(), 0..120)) {
        run(&statements, true, true);
    }
}
