//! The graph of calls, whose edges are the versions that one writes and others read.
//!
//! Each version is written once: a call that updates data writes its next version, while others may read the one
//! before. So the only order between calls is that a version is written before it is read, and a call that overwrites
//! waits for no reader (renaming; Tejedor 2013, section 3.4).
//!
//! A version is needed as long as the program has a handle of it, or an unfinished call reads it. The last reader of a
//! version that no handle names may change it in place. How versions are forgotten, and made again when they are lost,
//! is in `lineage.rs`.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;

use super::{
    call::{Argument, Call, CallId, CallState, Manner, NewCall, Outcome},
    calls::Calls,
    commuting::Chains,
    durable::Durable,
    earlier::{Divergence, Earlier},
    fact::Fact,
    groups::Groups,
    history::History,
    levels::Levels,
    mark::Mark,
    members::{Claim, Member, Members},
    nested::{Answer, Execution, NESTED, Nests, Origin},
    observed::Observed,
    placing::Lanes,
    ready::{Ready, is_short},
    recalling::Made,
    reducing::Reductions,
    rescue::AllKept,
    trouble::Troubles,
    version::{Copies, Source, State, Version, VersionId},
};
#[cfg(feature = "simulation")]
use crate::simulation::Seen;
use crate::{failure::Failure, figures::Figures, options::OnFailure, task::TaskDef};

/// The calls that are unfinished, or needed to make again what they have written; and the versions that they read and
/// write.
#[derive(Debug)]
pub(crate) struct Graph {
    /// Whether members may be lost, so that calls are kept by which versions can be made again.
    pub(super) has_losses: bool,
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
    /// The calls that have ended, in this run of the program or before.
    pub(super) history: History,
    /// Those of them of which the other nodes were not told.
    pub(super) news: History,
    /// What other nodes have and do since earlier runs of the program, by the calls that this one has not made yet.
    pub(super) earlier: BTreeMap<CallId, Earlier>,
    pub(super) divergence: Option<Divergence>,
    /// The calls whose tasks make calls, and what these are.
    pub(super) nests: Nests,
    /// The versions that are copied to a member because others leave, or to be kept.
    pub(super) copying: BTreeMap<VersionId, Member>,
    pub(super) kept: AllKept,
    pub(super) troubles: Troubles,
    pub(super) durable: Durable,
    pub(super) reductions: Reductions,
    pub(super) chains: Chains,
    /// The groups of the program.
    pub(super) groups: Groups,
    /// The number of calls that are not finished.
    pub(super) unfinished: usize,
    /// What is to be done, and was not taken yet.
    pub(super) actions: Vec<Action>,
    /// What the simulator was not shown yet.
    #[cfg(feature = "simulation")]
    pub(crate) shown: Vec<Seen>,
    /// Failures of calls, of which the program may not have been told.
    pub(super) failures: Vec<Failure>,
    /// The failure with which the program is to end at once.
    pub(super) fatal: Option<Failure>,
    /// Whether each call is run twice, and what it writes compared.
    pub(super) is_checked: bool,
    pub(super) figures: Figures,
    /// What people may want to know.
    pub(super) observed: Observed,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Action {
    /// A call is to run on a member.
    Assign(Member, Assignment),
    /// A member is not to keep a version any more.
    Forget(Member, VersionId),
    /// A version is to be brought to where the program runs.
    Bring(Source),
    /// A version is to be copied to a member.
    Copy(Member, Source),
    /// A member that leaves has nothing that others need.
    LetGo(Member),
    /// A member is to keep one version, the first, also as the other, which has this mark.
    Alias(Member, VersionId, VersionId, Mark),
    /// What the task of a call waits for on a member, in this execution of it, is decided.
    Answer(Member, Execution, Answer),
    /// Something is to be written to the journal; then that is to be [told](Graph::journalled).
    Record(Fact),
    /// A version is taken from the journal to where the program runs.
    Restore { version: VersionId, mark: Mark, value: Arc<[u8]> },
    /// A version that is where the program runs is to be written to the journal, since all members leave.
    Preserve { version: VersionId, mark: Mark },
}

/// A call that is to run.
#[derive(Debug, Clone)]
pub(crate) struct Assignment {
    pub(crate) call: CallId,
    pub(crate) task: &'static TaskDef,
    pub(crate) mark: Mark,
    pub(crate) arguments: Arc<[Argument]>,
    /// How often the call has failed before: the calls that its task makes are others each time.
    pub(crate) tries: u32,
    /// The execution whose task is to be given what is read; `None` if a task is to run.
    pub(crate) reader: Option<Execution>,
    /// Whether the version of each [`Argument::Update`] may be changed in place, in their order.
    pub(crate) in_place: Vec<bool>,
    pub(crate) manner: Manner,
    /// What it reads that is not with its member, and where it is. Members tell of the copies that they
    /// [get](Graph::copied), but not of those that they change in place.
    pub(crate) elsewhere: Vec<Source>,
}

/// Whether a version can be read where the program runs.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    Awaited,
    Here,
    Failed(Failure),
}

impl Graph {
    /// Creates a graph. If no member is ever lost, nothing is kept to make versions again.
    pub(crate) fn new(has_losses: bool) -> Self {
        Self {
            has_losses,
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
            kept: AllKept::default(),
            troubles: Troubles::default(),
            durable: Durable::default(),
            reductions: Reductions::default(),
            chains: Chains::default(),
            groups: Groups::default(),
            unfinished: 0,
            actions: Vec::new(),
            #[cfg(feature = "simulation")]
            shown: Vec::new(),
            failures: Vec::new(),
            fatal: None,
            is_checked: false,
            figures: Figures::default(),
            observed: Observed::default(),
        }
    }

    /// Has each call run twice from now on, and what it writes compared.
    pub(crate) fn check(&mut self) {
        self.is_checked = true;
    }

    /// Adds a call. The program has one handle of each version that it writes.
    ///
    /// # Panics
    /// If its number is not greater than those before, or a version that it reads is not known.
    pub(crate) fn call(&mut self, id: CallId, new: NewCall) {
        self.number(id);
        let mut known = None;
        if self.has_losses {
            self.forget_earlier(id);
            self.mark = self.mark.then_call(id, new.number, &new.arguments, new.writes);
            known = self.known_of(id, self.mark);
            self.compares(id, self.mark);
        }
        if let Some(merge) = new.merge {
            self.joins_reduction(id, merge, &new.arguments);
        }
        if let Some(commute) = new.commute {
            self.chains.joins(id, commute);
        }
        if new.options.on_failure == OnFailure::CancelGroup {
            self.groups.may_be_given_up(id);
        }
        self.add(id, new, self.mark, known, Origin::Program);
        self.has_joined(id);
        if self.groups.are_given_up() {
            self.gives_group_up(id..id + 1);
        }
    }

    /// Adds a call of which nothing is known but what is told of earlier runs. Whoever makes it has one handle of each
    /// version that it writes.
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
            failures: 0,
            deaths: 0,
            is_earlier: false,
            taken: Vec::new(),
        };
        // What one reads that is not decided is known later.
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
            // What it demands was not known before, or it runs for nobody.
            self.members.ended(member, Claim::UNKNOWN);
        }
        let now = self.how_made(id, origin, has_failed, runs_on);
        let is_over = now == Made::Over;
        let early = self.take_early(id, options.is_durable(), now, known.as_mut());
        let mut copies = known.as_mut().map(|known| std::mem::take(&mut known.copies)).unwrap_or_default();
        for id in call.written(id) {
            let missing = if is_over { State::Gone } else { State::Awaited };
            let state = copies.remove(&id.slot).map_or(missing, State::Present);
            // A task that is run again may have left some of them.
            let version = self.versions.entry(id).and_modify(|version| version.handles += 1);
            version.or_insert_with(|| Version::new(state, mark, depth + 1));
        }
        self.calls.insert(id, call);
        self.levels.made();
        if is_over {
            self.has_ended_before(id);
            // What a member had that leaves was waited for, but is known only now.
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
                self.notes(id, &failure, options.on_failure);
                self.cancel(id, &failure);
            }
            None if has_failed => self.begins_again(id),
            None if is_held && runs_on.is_none() && early.is_none() => self.counts_missing(id),
            None => self.goes_on(id, runs_on, early),
        }
    }

    /// Begins a call that was made now, unless it has begun in an earlier run.
    fn goes_on(&mut self, id: CallId, runs_on: Option<Member>, early: Option<(Member, Outcome)>) {
        let Some(member) = early.as_ref().map(|(member, _)| *member).or(runs_on) else {
            return self.begins_again(id);
        };
        let call = self.calls.get_mut(&id).expect("it was made");
        (call.state, call.is_earlier) = (CallState::Runs(member), true);
        let task = call.task;
        #[cfg(feature = "simulation")]
        self.shown.push(Seen::Assigns { call: id, to: member.0 });
        self.occupies(id, member);
        if let Some((_, outcome)) = early {
            let outcome = match outcome {
                // The name of the task was not known.
                Outcome::Failed(failure) => Outcome::Failed(Failure::new(task.name, id, failure.reason())),
                outcome => outcome,
            };
            self.ended(id, member, outcome);
        }
    }

    /// Adds data that the program brings in, of which it has one handle. Its number is that of no call. Returns its
    /// mark; `content` is the hash of what it is.
    pub(crate) fn data(&mut self, id: CallId, bytes: u64, content: u64) -> Mark {
        let mut copies = Copies { members: vec![Member::HERE], bytes };
        if self.has_losses {
            self.mark = self.mark.then_data(id, content);
            let known = self.known_of(id, self.mark).into_iter().flat_map(|known| known.copies.into_values());
            known.flat_map(|copies| copies.members).for_each(|member| copies.add(member));
            self.has_ended(id);
            self.compares(id, self.mark);
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

    /// Tells that the program has another handle of a version.
    pub(crate) fn retain(&mut self, version: VersionId) {
        self.version_mut(version).handles += 1;
    }

    /// Tells that the program has one handle less of a version.
    pub(crate) fn release(&mut self, version: VersionId) {
        self.version_mut(version).handles -= 1;
        self.forget_unless_needed(version);
    }

    /// Tells that the program waits for a version, of which it has a handle, until it [does not](Self::unwant) any
    /// more, and returns whether it can be read where that runs.
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
                // It may have been taken from the journal.
                if self.versions[&id].is_with(Member::HERE) { Input::Here } else { Input::Awaited }
            }
            State::Awaited => Input::Awaited,
        }
    }

    /// Tells that the program does not wait for a version any more.
    pub(crate) fn unwant(&mut self, version: VersionId) {
        let known = self.version_mut(version);
        known.is_wanted = false;
        known.was_read |= known.is_with(Member::HERE);
        self.forget_unless_needed(version);
    }

    /// Tells how a call has ended that was assigned to a member. That is passed over if it was taken from the member
    /// meanwhile.
    pub(crate) fn ended(&mut self, id: CallId, member: Member, outcome: Outcome) {
        if self.is_unmade(id) {
            return self.ended_early(id, member, &outcome);
        }
        if !self.runs_on(id, member) {
            return self.ended_elsewhere(id, member, &outcome);
        }
        self.takes_in(id, member, outcome);
    }

    /// Takes in what a call has left on a member to which it is not assigned any more.
    fn ended_elsewhere(&mut self, id: CallId, member: Member, outcome: &Outcome) {
        match outcome {
            Outcome::Durable { bytes, by, .. } if self.counts_for_ever(id, *by) => {
                self.is_left_over(id, member, bytes);
            }
            Outcome::Durable { bytes, .. } => self.is_not_for_ever(id, member, bytes.len()),
            Outcome::Ignored { bytes, .. } if self.is_only_there(id) => {
                self.is_not_for_ever(id, member, bytes.len());
            }
            Outcome::Written { bytes, .. } | Outcome::Ignored { bytes, .. } => {
                self.is_left_over(id, member, bytes);
            }
            Outcome::Failed(_) | Outcome::Unfit(_) => {}
        }
    }

    /// Takes in how a call has ended on the member to which it is assigned.
    fn takes_in(&mut self, id: CallId, member: Member, outcome: Outcome) {
        #[cfg(feature = "simulation")]
        self.shown.push(Seen::TakesIn { call: id, from: member.0 });
        // Otherwise calls that its task has made have not ended.
        let Some(outcome) = self.of_nest(id, outcome) else { return };
        self.frees(id, member);
        if !matches!(outcome, Outcome::Unfit(_)) {
            self.troubles.are_over(id);
        }
        let Some(outcome) = self.is_to_be_recorded(id, member, outcome) else { return };
        match outcome {
            Outcome::Written { bytes, ns } | Outcome::Durable { bytes, ns, .. } => {
                self.has_taken(id, ns);
                self.written(id, member, &bytes);
            }
            Outcome::Ignored { bytes, reason } => {
                self.ignored(id, &reason);
                self.written(id, member, &bytes);
            }
            Outcome::Failed(failure) => self.failed(id, &failure),
            Outcome::Unfit(unfit) => self.unfit(id, member, unfit),
        }
    }

    /// Notes how long a call has taken.
    pub(super) fn has_taken(&mut self, id: CallId, ns: u64) {
        let task = self.calls[&id].task;
        self.members.took(task, ns);
        self.levels.ended(task, ns);
        self.observed.of(task).ran(ns);
    }

    /// Returns whether a call of an earlier run was not made yet in this one.
    pub(super) fn is_unmade(&self, id: CallId) -> bool {
        let is_nested = id >= NESTED;
        if is_nested {
            !self.calls.contains_key(&id) && self.earlier.contains_key(&id)
        } else {
            id >= self.next
        }
    }

    /// Tells that a member could not get a version for a call that was assigned to it from those that were `tried`.
    /// `unchanged` are the versions that the call would have changed in place, with their sizes.
    pub(crate) fn unable(
        &mut self,
        id: CallId,
        member: Member,
        missing: VersionId,
        tried: &[Member],
        unchanged: &[(VersionId, u64)],
    ) {
        if self.runs_on(id, member) {
            self.is_not_to_be_had(missing, tried);
            self.is_not_to_be_had(missing, &[member]);
            self.gives_worker_back(id, member);
            for (version, bytes) in unchanged.iter().filter(|(version, _)| *version != missing) {
                self.is_there(*version, member, *bytes);
            }
            self.misses_what_it_took(id, member);
            self.begins_again(id);
        }
    }

    pub(super) fn runs_on(&self, id: CallId, member: Member) -> bool {
        self.calls.get(&id).is_some_and(|call| call.state == CallState::Runs(member))
    }

    /// Tells that a member has got a version.
    pub(crate) fn copied(&mut self, id: VersionId, member: Member) {
        if !self.members.has(member) || self.is_named(id, member, true) || self.is_second(id, member, true) {
            return;
        }
        if self.is_unmade(id.call) {
            return self.earlier_is_copied(id, member);
        }
        if let Some(State::Present(copies)) = self.versions.get_mut(&id).map(|version| &mut version.state) {
            copies.add(member);
        } else if !self.is_kept_by(id, member) {
            // Nobody needs it any more, or will when its call has run again.
            self.actions.push(Action::Forget(member, id));
        }
        if self.is_copied(id, member) {
            // That member may leave by now, too.
            self.rescue(id);
            self.rescue_kept(id);
        }
    }

    /// Returns the mark of a version that is there, but not where the program runs.
    pub(crate) fn lacks_here(&self, id: VersionId) -> Option<Mark> {
        let version = self.versions.get(&id).filter(|version| version.is_present());
        version.filter(|version| !version.is_with(Member::HERE)).map(|version| version.mark)
    }

    pub(super) fn written(&mut self, id: CallId, member: Member, bytes: &[u64]) {
        let call = self.calls.get_mut(&id).expect("it was assigned");
        call.state = CallState::Done;
        self.unfinished -= 1;
        let (arguments, written) = (Arc::clone(&call.arguments), call.written(id));
        self.has_ended(id);
        self.deepens(id);
        for (version, bytes) in written.zip(bytes) {
            if !self.is_handed_on(version) {
                self.is_there(version, member, *bytes);
            }
        }
        self.is_over(id, &arguments);
    }

    /// Forgets what nobody needs of a call that has ended.
    pub(super) fn is_over(&mut self, id: CallId, arguments: &[Argument]) {
        self.release_inputs(id, arguments);
        self.nest_ends(id);
        self.reductions.is_over(id);
        self.chains.is_over(id);
        let origin = self.calls[&id].origin;
        let written = self.calls[&id].written(id);
        if !self.has_losses || self.calls[&id].writes == 0 {
            self.forget_call(id);
        }
        // The program may have dropped its handles before.
        for version in written {
            self.forget_unless_needed(version);
        }
        // All of them may have been forgotten before, if they were there.
        if self.calls.get(&id).is_some_and(|call| call.known == 0) {
            self.forget_call(id);
        }
        self.child_ends(id, origin);
    }

    /// Notes that a member has a version.
    pub(super) fn is_there(&mut self, id: VersionId, member: Member, bytes: u64) {
        let Some(version) = self.versions.get_mut(&id) else {
            // When its call was run again, it was not needed; but it may be kept there.
            if !self.kept.has(id, member) {
                self.actions.push(Action::Forget(member, id));
            }
            return;
        };
        match &mut version.state {
            State::Present(copies) => {
                copies.add(member);
                return self.rescue(id);
            }
            // The program was told so.
            State::Failed(_) => return self.actions.push(Action::Forget(member, id)),
            state @ (State::Awaited | State::Gone) => {
                *state = State::Present(Copies { members: vec![member], bytes });
            }
        }
        if version.is_wanted && member != Member::HERE {
            let source = Source { version: id, mark: version.mark, members: vec![member] };
            self.actions.push(Action::Bring(source));
        }
        self.rescue(id);
        self.copy_to_all(id);
        let readers = self.versions[&id].readers.clone();
        self.reductions.is_there(id, &readers);
        self.is_there_for_turns(&readers);
        for reader in readers {
            if self.is_held(reader) {
                self.waits_as_before(reader);
                continue;
            }
            let call = self.calls.get_mut(&reader).expect("readers are unfinished");
            // One that runs has got it already.
            if let CallState::Inputs(missing) = &mut call.state {
                *missing -= 1;
                if *missing == 0 {
                    self.is_ready(reader);
                }
            }
        }
    }

    /// Makes a call, which is a reader of what it reads, wait for those that are not there, and has those made again
    /// that are gone.
    pub(super) fn begins_again(&mut self, id: CallId) {
        #[cfg(feature = "simulation")]
        self.shown.push(Seen::Waits { call: id });
        self.nest_stops(id);
        let arguments = Arc::clone(&self.calls[&id].arguments);
        let (mut missing, mut gone, mut failed) = (0, Vec::new(), None);
        for input in arguments.iter().flat_map(Argument::versions) {
            let version = &self.versions[input];
            missing += usize::from(!version.is_present());
            match &version.state {
                State::Gone => gone.push(*input),
                State::Failed(failure) => failed = Some(failure.clone()),
                State::Awaited | State::Present(_) => {}
            }
        }
        if let Some(failure) = failed {
            self.calls.get_mut(&id).expect("it is unfinished").state = CallState::Inputs(missing);
            return self.cancel(id, &failure);
        }
        self.calls.get_mut(&id).expect("it is unfinished").state = CallState::Inputs(missing);
        // The member that had it, or would have changed it in place, may have been the only one that stays.
        if self.members.any_leaves() {
            arguments.iter().flat_map(Argument::versions).for_each(|input| self.rescue(*input));
        }
        if missing == 0 {
            self.is_ready(id);
        }
        for version in gone {
            // The one before may have failed, and this call with it.
            if self.versions.get(&version).is_some_and(Version::is_awaited) {
                self.make_again(version);
            }
        }
    }

    pub(super) fn is_ready(&mut self, id: CallId) {
        if self.is_held(id) {
            return;
        }
        let call = self.calls.get_mut(&id).expect("it is unfinished");
        call.state = CallState::Worker;
        match call.origin {
            Origin::Get(execution) => self.is_got(id, execution),
            Origin::Program | Origin::Task(_) => self.waits_for_worker(id),
        }
    }

    fn release_inputs(&mut self, id: CallId, arguments: &[Argument]) {
        for input in arguments.iter().flat_map(Argument::versions) {
            let readers = &mut self.version_mut(*input).readers;
            let position = readers.iter().position(|reader| *reader == id).expect("it was a reader");
            readers.remove(position);
            self.forget_unless_needed(*input);
        }
    }

    /// Returns what is to be done now.
    pub(crate) fn actions(&mut self) -> Vec<Action> {
        self.decides_merges();
        self.decides_turns();
        while self.assign_one() {}
        self.let_go();
        std::mem::take(&mut self.actions)
    }

    /// Assigns a call that could begin, if there are one and a member for it. Returns whether that was so.
    fn assign_one(&mut self) -> bool {
        let any_is_plain = self.ready.len() > 0 || self.nests.has_ready();
        let open = if any_is_plain { self.members.next() } else { None };
        let has_lanes = !self.lanes.is_empty();
        if open.is_none() && !has_lanes {
            return false;
        }
        if (self.ready.len() > 1 || has_lanes) && self.levels.are_stale() {
            self.reorder();
        }
        if has_lanes && let Some((id, member)) = self.next_of_lanes(open.is_some()) {
            self.assign(id, member);
            return true;
        }
        // Another member may be kept free since then, or none any more.
        let open = if any_is_plain { self.members.next() } else { None };
        open.map(|member| self.assign_next(member)).is_some()
    }

    /// Assigns the call that a member should begin next, to this member or to one with more of its data.
    fn assign_next(&mut self, member: Member) {
        if let Some(id) = self.nests.pop(self.ready.priority()) {
            let near = self.calls.get(&id).map(|call| self.choose(&call.arguments, member));
            return self.assign(id, near.unwrap_or(member));
        }
        if !self.members.are_several() {
            let id = self.ready.pop().expect("some are ready");
            return self.assign(id, member);
        }
        let key = self.ready.next_for(member).expect("some are ready");
        let (urgency, id) = key;
        let member = self.calls.get(&id).map_or(member, |call| {
            if is_short(urgency) {
                let (_, with) = self.whereabouts(&call.arguments);
                self.members.choose_for_short(&with, member)
            } else {
                self.choose(&call.arguments, member)
            }
        });
        self.ready.take(key, member);
        self.assign(id, member);
    }

    fn assign(&mut self, id: CallId, member: Member) {
        // It may have been cancelled since, or wait for something that was lost.
        let Some(call) = self.calls.get(&id).filter(|call| call.state == CallState::Worker) else { return };
        let (task, mark, tries, arguments) =
            (call.task, call.mark, call.failures, Arc::clone(&call.arguments));
        let manner = self.manner(id, call);
        let has_one_run = manner.has_one_run() && call.failures == call.options.retry;
        let member = self.fit(id, member);
        self.occupies(id, member);
        let (mut in_place, mut taken) = (Vec::new(), Vec::new());
        let (mut elsewhere, mut moved_bytes) = (Vec::new(), 0);
        for argument in &*arguments {
            for read in argument.versions() {
                let version = &self.versions[read];
                let State::Present(copies) = &version.state else {
                    unreachable!("a call is ready when its inputs are there")
                };
                let is_named = elsewhere.iter().any(|source: &Source| source.version == *read);
                if !copies.members.contains(&member) && !is_named {
                    let members = copies.members.clone();
                    moved_bytes += copies.bytes;
                    elsewhere.push(Source { version: *read, mark: version.mark, members });
                }
            }
            if let Argument::Update(version) = argument {
                let is_taken = has_one_run && self.takes(id, member, *version);
                in_place.push(is_taken);
                taken.extend(is_taken.then_some(*version));
            }
        }
        let call = self.calls.get_mut(&id).expect("it is unfinished");
        (call.state, call.is_earlier, call.taken) = (CallState::Runs(member), false, taken);
        self.observed.of(task).moved_bytes += moved_bytes;
        let reader = None;
        let assignment =
            Assignment { call: id, task, mark, tries, reader, arguments, in_place, manner, elsewhere };
        #[cfg(feature = "simulation")]
        self.shown.push(Seen::Assigns { call: id, to: member.0 });
        self.actions.push(Action::Assign(member, assignment));
    }

    /// Takes a version from a member for a call that updates it, if nobody else reads it. Returns whether that is so.
    fn takes(&mut self, call: CallId, member: Member, id: VersionId) -> bool {
        // Data that the program has brought in cannot be made again.
        let has_losses = self.has_losses;
        // A copy that the member has got would be taken for one that it keeps.
        let is_copied = self.copying.contains_key(&id) || self.is_for_all(id.call);
        let can_be_lost = !has_losses || (self.calls.contains_key(&id.call) && !self.is_durable(id.call));
        let version = self.version_mut(id);
        let is_last = version.handles == 0 && !version.is_wanted && version.readers == [call];
        if !is_last || !can_be_lost || (has_losses && version.is_to_be_kept()) || is_copied {
            return false;
        }
        let State::Present(copies) = &mut version.state else { unreachable!("it was there a moment ago") };
        copies.members.retain(|other| *other != member);
        if copies.members.is_empty() {
            version.state = State::Gone;
        }
        true
    }

    /// Chooses the member for a call whose inputs are there: this one, which has the least to do, or another one.
    fn choose(&self, arguments: &[Argument], least: Member) -> Member {
        let (total, with) = self.whereabouts(arguments);
        self.members.choose(total, &with, least)
    }

    fn reorder(&mut self) {
        let first = self.calls.of_program().next().map_or(self.next, |(first, _)| first);
        let calls = self.calls.of_program().rev().map(|(id, call)| {
            let versions = call.written(id).filter_map(|version| self.versions.get(&version));
            (id, call.task, versions.flat_map(|version| version.readers.iter().copied()))
        });
        self.levels.compute(first, self.next, calls);
        self.ready.reorder(&self.levels);
        self.lanes.reorder(&self.levels);
    }

    /// Returns the task of a call that is known.
    pub(crate) fn task_of(&self, call: CallId) -> Option<&'static TaskDef> {
        self.calls.get(&call).map(|call| call.task)
    }

    /// Returns the number of unfinished calls.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Returns what was counted.
    pub(crate) fn figures(&self) -> Figures {
        self.figures
    }

    pub(super) fn version_mut(&mut self, version: VersionId) -> &mut Version {
        self.versions.get_mut(&version).expect("versions in use are known")
    }
}
