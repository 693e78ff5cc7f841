//! The graph of calls. Its edges are the versions that one call writes and others read.
//!
//! Each version is written once: a call that updates data writes its next version, while others may read the
//! previous one. So the only order between calls is that a version is written before it is read, and an
//! overwriting call waits for no reader (renaming; Tejedor 2013, section 3.4).
//!
//! A version is needed while the program has a handle of it, or an unfinished call reads it. The last reader of
//! a version that no handle names may update it in place. `lineage.rs` drops versions, and recomputes lost
//! ones.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;

use super::{
    call::{Call, CallState, Manner, NewCall, Origin, Outcome},
    calls::Calls,
    fact::Fact,
    history::History,
    levels::Levels,
    mark::Mark,
    members::{Claim, Member, Members},
    observed::Observed,
    ready::Ready,
    seen::Seen,
    state::{
        chains::Chains,
        durable::Durable,
        earlier::{Divergence, Earlier, Made},
        groups::Groups,
        kept::ReadCache,
        lanes::Lanes,
        nests::{Answer, Nests},
        reductions::Reductions,
        troubles::Troubles,
    },
    version::{Copies, Source, State, Version},
};
use crate::{
    failure::Failure,
    figures::Figures,
    ids::{Argument, CallId, Execution, NESTED_BIT, VersionId},
    options::OnFailure,
    task::TaskDef,
};

/// The calls that are unfinished, or needed to recompute their output; and the versions that they read and
/// write.
#[derive(Debug)]
pub(crate) struct Graph {
    /// Whether members may be lost, so that the calls that can recompute versions are kept.
    pub(super) has_losses: bool,
    /// Whether no member can join: a call that no member can run fails, instead of waiting for one.
    pub(super) has_fixed_members: bool,
    pub(super) calls: Calls,
    pub(super) versions: FxHashMap<VersionId, Version>,
    pub(super) ready: Ready,
    pub(super) lanes: Lanes,
    pub(super) members: Members,
    pub(super) levels: Levels,
    /// The least number that the next call may have.
    next: CallId,
    /// The mark of the last call.
    mark: Mark,
    /// The completed calls, of this run of the program and earlier ones.
    pub(super) history: History,
    /// The completed calls not yet reported to the other nodes.
    pub(super) news: History,
    /// The state of other nodes from earlier runs, by the calls that this run has not made yet.
    pub(super) earlier: BTreeMap<CallId, Earlier>,
    pub(super) divergence: Option<Divergence>,
    /// The calls whose tasks make calls, and these nested calls.
    pub(super) nests: Nests,
    /// The versions that are being copied to a member because others leave, or to be kept.
    pub(super) copying: BTreeMap<VersionId, Member>,
    pub(super) kept: ReadCache,
    pub(super) troubles: Troubles,
    pub(super) durable: Durable,
    pub(super) reductions: Reductions,
    pub(super) chains: Chains,
    /// The groups of the program.
    pub(super) groups: Groups,
    pub(super) unfinished: usize,
    pub(super) actions: Vec<Action>,
    /// Events that the observer has not seen yet; `None` without an observer.
    seen: Option<Vec<Seen>>,
    /// Failures of calls that the program may not have received.
    pub(super) failures: Vec<Failure>,
    /// The failure that ends the program immediately.
    pub(super) fatal: Option<Failure>,
    /// Whether each call runs twice, to compare the outputs.
    pub(super) is_checked: bool,
    pub(super) figures: Figures,
    pub(super) observed: Observed,
}

#[derive(Debug)]
pub(crate) enum Action {
    Assign(Member, Assignment),
    Forget(Member, VersionId),
    /// Fetch a version to the node of the program.
    Bring(Source),
    Copy(Member, Source),
    /// Let a leaving member go: it has nothing that others need.
    LetGo(Member),
    /// Let a member keep the first version also as the second one, which has this mark.
    Alias(Member, VersionId, VersionId, Mark),
    /// Answer the task of a call that waits on a member, in this execution of it.
    Answer(Member, Execution, Answer),
    /// Write a fact to the journal, and [confirm](Graph::journalled) it.
    Record(Fact),
    /// Restore a version from the journal to the node of the program.
    Restore {
        version: VersionId,
        mark: Mark,
        value: Arc<[u8]>,
    },
    /// Write a version on the node of the program to the journal, since all members leave.
    Preserve {
        version: VersionId,
        mark: Mark,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Assignment {
    pub(crate) call: CallId,
    pub(crate) task: &'static TaskDef,
    pub(crate) mark: Mark,
    pub(crate) arguments: Arc<[Argument]>,
    /// The number of failed runs of the call: each run of its task makes separate calls.
    pub(crate) tries: u32,
    /// The execution whose task receives the inputs; `None` if a task must run.
    pub(crate) reader: Option<Execution>,
    /// Whether the version of each [`Argument::Update`] may be updated in place, in order.
    pub(crate) in_place: Vec<bool>,
    pub(crate) manner: Manner,
    /// The inputs that are not with the member, and their owners. Members report the copies that they
    /// [fetch](Graph::copied), but not those that they update in place.
    pub(crate) elsewhere: Vec<Source>,
}

/// Whether a version can be read on the node of the program.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    Awaited,
    Here,
    Failed(Failure),
}

impl Graph {
    /// Creates a graph. If no member is ever lost, nothing is kept to recompute versions.
    pub(crate) fn new(has_losses: bool) -> Self {
        Self {
            has_losses,
            has_fixed_members: false,
            calls: Calls::default(),
            versions: FxHashMap::default(),
            ready: Ready::default(),
            lanes: Lanes::default(),
            members: Members::default(),
            levels: Levels::default(),
            next: 0,
            mark: Mark::default(),
            history: History::default(),
            news: History::default(),
            earlier: BTreeMap::new(),
            divergence: None,
            nests: Nests::default(),
            copying: BTreeMap::new(),
            kept: ReadCache::default(),
            troubles: Troubles::default(),
            durable: Durable::default(),
            reductions: Reductions::default(),
            chains: Chains::default(),
            groups: Groups::default(),
            unfinished: 0,
            actions: Vec::new(),
            seen: None,
            failures: Vec::new(),
            fatal: None,
            is_checked: false,
            figures: Figures::default(),
            observed: Observed::default(),
        }
    }

    /// Records that no member can join later.
    pub(crate) fn fix_members(&mut self) {
        self.has_fixed_members = true;
    }

    /// Enables collecting events for an observer.
    pub(crate) fn keep_seen(&mut self) {
        self.seen = Some(Vec::new());
    }

    /// Adds an event, if there is an observer.
    pub(super) fn see(&mut self, seen: Seen) {
        if let Some(kept) = &mut self.seen {
            kept.push(seen);
        }
    }

    pub(crate) fn take_seen(&mut self) -> Vec<Seen> {
        self.seen.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Runs each call twice from now on, to compare the outputs.
    pub(crate) fn check(&mut self) {
        self.is_checked = true;
    }

    /// Adds a call. The program has one handle of each version that it writes.
    ///
    /// # Panics
    /// Panics if its number is not greater than those before, or a version that it reads is unknown.
    pub(crate) fn call(&mut self, id: CallId, new: NewCall) {
        self.number(id);
        let mut known = None;
        if self.has_losses {
            self.forget_earlier(id);
            self.mark = self.mark.then_call(id, new.number, &new.arguments, new.writes);
            known = self.known_of(id, self.mark);
            self.compare_mark(id, self.mark);
        }
        if let Some(merge) = new.merge {
            self.join_reduction(id, merge, &new.arguments);
        }
        if let Some(commute) = new.commute {
            self.chains.join(id, commute);
        }
        if new.options.on_failure == OnFailure::CancelGroup {
            self.groups.add_cancelling(id);
        }
        self.add(id, new, self.mark, known, Origin::Program);
        self.join_chain(id);
        if self.groups.are_given_up() {
            self.cancel_group(id..id + 1);
        }
    }

    /// Adds a call that is known only from reports of earlier runs. Its maker has one handle of each version
    /// that it writes.
    pub(super) fn add(
        &mut self,
        id: CallId,
        new: NewCall,
        mark: Mark,
        mut known: Option<Earlier>,
        origin: Origin,
    ) {
        let NewCall { task, options, arguments, writes, refused, .. } = new;
        let reason = self.history.failure(id);
        let refused = refused.or_else(|| reason.map(|reason| Failure::new(task.name, id, reason)));
        let call = Call {
            task,
            origin,
            mark,
            options,
            arguments: arguments.into(),
            writes,
            known: writes,
            state: CallState::Inputs(0),
            store: 0,
            failures: 0,
            deaths: 0,
            is_earlier: false,
            taken: Vec::new(),
        };
        // The inputs of an undecided call become known later.
        let is_held = self.is_held(id);
        let (mut depth, mut has_failed) = (0, refused.is_some());
        for input in call.reads() {
            let version = self.versions.get_mut(&input).expect("versions in use are known");
            version.dependants += 1;
            depth = depth.max(version.depth);
            has_failed |= matches!(version.state, State::Failed(_)) && !is_held;
            self.figures.dependencies += u64::from(version.depth > 0);
        }
        self.figures.calls += 1;
        self.observed.called(task, id, depth, call.reads().map(|input| input.call));
        self.figures.depth = self.figures.depth.max(depth + 1);
        let runs_on = known.as_ref().and_then(|known| known.runs_on);
        if let Some(member) = runs_on {
            // Its requirements were not known before, or its result is not needed.
            self.members.ended(member, Claim::UNKNOWN);
        }
        let now = self.how_made(id, origin, has_failed, runs_on);
        let is_over = now == Made::Over;
        let early = self.take_early(id, options.is_durable(), now, known.as_mut());
        let mut copies = known.as_mut().map(|known| std::mem::take(&mut known.copies)).unwrap_or_default();
        for id in call.written(id) {
            let missing = if is_over { State::Gone } else { State::Awaited };
            let state = copies.remove(&id.slot).map_or(missing, State::Present);
            // An earlier execution of the task may have left some of the versions.
            let version = self.versions.entry(id).and_modify(|version| version.handles += 1);
            version.or_insert_with(|| Version::new(state, mark, depth + 1));
        }
        self.calls.insert(id, call);
        self.levels.made();
        if is_over {
            self.on_ended_before(id);
            // The data of a leaving member was expected, but is known only now.
            for slot in 0..writes {
                self.rescue(VersionId { call: id, slot });
            }
            return;
        }
        self.unfinished += 1;
        self.child_begins(id);
        for input in self.calls[&id].reads() {
            self.versions.get_mut(&input).expect("versions in use are known").readers.push(id);
        }
        match refused {
            Some(failure) => {
                let failure = self.located(id, failure);
                self.report_failure(id, &failure, options.on_failure);
                self.cancel(id, &failure);
            }
            None if has_failed => self.requeue(id),
            None if is_held && runs_on.is_none() && early.is_none() => self.count_missing(id),
            None => self.start_or_resume(id, runs_on, early),
        }
    }

    /// Starts a new call, unless it has started in an earlier run.
    fn start_or_resume(&mut self, id: CallId, runs_on: Option<Member>, early: Option<(Member, Outcome)>) {
        let Some(member) = early.as_ref().map(|(member, _)| *member).or(runs_on) else {
            return self.requeue(id);
        };
        let call = self.calls.get_mut(&id).expect("it was made");
        (call.state, call.is_earlier) = (CallState::Runs(member), true);
        let task = call.task;
        self.see(Seen::Assigns { call: id, to: member.0 });
        self.occupy(id, member);
        if let Some((_, outcome)) = early {
            let outcome = match outcome {
                // The name of the task was unknown.
                Outcome::Failed(failure) => Outcome::Failed(Failure::new(task.name, id, failure.reason())),
                outcome => outcome,
            };
            self.ended(id, member, outcome);
        }
    }

    /// Adds data created by the program, with one handle. Its number differs from those of calls. Returns its
    /// mark; `content` is the hash of the content.
    pub(crate) fn data(&mut self, id: CallId, bytes: u64, content: u128) -> Mark {
        let mut copies = Copies { members: vec![Member::HERE], bytes };
        if self.has_losses {
            self.mark = self.mark.then_data(id, content);
            let known = self.known_of(id, self.mark).into_iter().flat_map(|known| known.copies.into_values());
            known.flat_map(|copies| copies.members).for_each(|member| copies.add(member));
            self.add_end(id);
            self.compare_mark(id, self.mark);
        }
        let version = Version::new(State::Present(copies), self.mark, 0);
        self.versions.insert(VersionId { call: id, slot: 0 }, version);
        self.mark
    }

    pub(super) fn next(&self) -> CallId {
        self.next
    }

    fn number(&mut self, id: CallId) {
        assert!(id >= self.next, "calls are numbered in their order, and {id} comes after {}", self.next);
        self.next = id + 1;
    }

    /// Counts another handle of a version.
    pub(crate) fn retain(&mut self, version: VersionId) {
        self.version_mut(version).handles += 1;
    }

    /// Removes one handle of a version.
    pub(crate) fn release(&mut self, version: VersionId) {
        self.version_mut(version).handles -= 1;
        self.forget_unless_needed(version);
    }

    /// Records that the program waits for a version, of which it has a handle, until [`unwant`](Self::unwant).
    /// Returns whether it can be read on the node of the program.
    pub(crate) fn want(&mut self, id: VersionId) -> Input {
        let version = self.version_mut(id);
        let is_new = !std::mem::replace(&mut version.is_wanted, true);
        match &version.state {
            State::Failed(failure) => Input::Failed(failure.clone()),
            State::Present(_) if version.is_with(Member::HERE) => Input::Here,
            State::Present(copies) => {
                let source = Source { version: id, mark: version.mark, members: copies.members.clone() };
                if is_new {
                    self.actions.push(Action::Bring(source));
                }
                Input::Awaited
            }
            State::Gone => {
                self.make_again(id);
                // It may have been restored from the journal.
                if self.versions[&id].is_with(Member::HERE) { Input::Here } else { Input::Awaited }
            }
            State::Awaited => Input::Awaited,
        }
    }

    /// Records that the program no longer waits for a version.
    pub(crate) fn unwant(&mut self, version: VersionId) {
        let known = self.version_mut(version);
        known.is_wanted = false;
        known.was_read |= known.is_with(Member::HERE);
        self.forget_unless_needed(version);
    }

    /// Returns whether a call of an earlier run was not made yet in this one.
    pub(super) fn is_unmade(&self, id: CallId) -> bool {
        let is_nested = id >= NESTED_BIT;
        if is_nested {
            !self.calls.contains_key(&id) && self.earlier.contains_key(&id)
        } else {
            id >= self.next
        }
    }

    pub(super) fn runs_on(&self, id: CallId, member: Member) -> bool {
        self.calls.get(&id).is_some_and(|call| call.state == CallState::Runs(member))
    }

    /// Handles a member that has received a version.
    pub(crate) fn copied(&mut self, id: VersionId, member: Member) {
        if !self.members.has(member) || self.is_named(id, member, true) || self.is_second(id, member, true) {
            return;
        }
        if self.is_unmade(id.call) {
            return self.on_earlier_copied(id, member);
        }
        if let Some(State::Present(copies)) = self.versions.get_mut(&id).map(|version| &mut version.state) {
            copies.add(member);
        } else if !self.is_kept_by(id, member) {
            // It is no longer needed, or will be needed only after its call has run again.
            self.actions.push(Action::Forget(member, id));
        }
        if self.is_copied(id, member) {
            // That member may be leaving too.
            self.rescue(id);
            self.rescue_kept(id);
        }
    }

    /// Returns the mark of a version that exists, but not on the node of the program.
    pub(crate) fn lacks_here(&self, id: VersionId) -> Option<Mark> {
        let version = self.versions.get(&id).filter(|version| version.is_present());
        version.filter(|version| !version.is_with(Member::HERE)).map(|version| version.mark)
    }

    pub(crate) fn task_of(&self, call: CallId) -> Option<&'static TaskDef> {
        self.calls.get(&call).map(|call| call.task)
    }

    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished
    }

    pub(crate) fn figures(&self) -> Figures {
        self.figures
    }

    pub(super) fn version_mut(&mut self, version: VersionId) -> &mut Version {
        self.versions.get_mut(&version).expect("versions in use are known")
    }
}
