//! The graph of calls. Its edges are the versions that one call writes and others read.
//!
//! Each version is written once: a call that updates data writes its next version, while others may read the
//! previous one. So the only order between calls is that a version is written before it is read, and an
//! overwriting call waits for no reader (renaming; Tejedor 2013, section 3.4).
//!
//! A version is needed while the program has a handle of it, or an unfinished call reads it. The last reader of
//! a version that no handle names may update it in place. `data/lineage.rs` drops versions, and
//! `graph/losses.rs` recomputes lost ones.

mod losses;
mod nesting;
mod observing;
mod orders;
mod outcomes;
mod replaying;
mod stopping;

use std::ops::Range;

use dataflow_view::Explanation;
use taskwork::display::WorkAhead;

#[cfg(test)]
pub(super) use self::losses::DEATHS_MAX;
use super::{
    action::{Action, Input},
    ahead::work_ahead,
    call::{Call, CallState, NewCall, Outcome, Within, Work},
    chains::Chains,
    data::Data,
    demand::Capacity,
    durations::Durations,
    explain::Explaining,
    failures::Failures,
    journal::{Journal, recording::Recording},
    mark::Mark,
    members::{Claim, Member},
    nests::Nests,
    observed::Observed,
    queues::Queues,
    reductions::Reductions,
    replay::{Divergence, Earlier, Made, Replay},
    seen::Seen,
    stopping::Stopping,
    version::{Copies, State, Version},
};
use crate::{
    failure::Failure,
    figures::Figures,
    ids::{CallId, VersionId},
    options::OnFailure,
};

/// The calls that are unfinished, or needed to recompute their output; and the versions that they read and
/// write.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    data: Data,
    queues: Queues,
    recording: Recording,
    replay: Replay,
    nests: Nests,
    reductions: Reductions,
    chains: Chains,
    failures: Failures,
    stopping: Stopping,
    observed: Observed,
}

impl Graph {
    /// Creates a graph. If no member is ever lost, nothing is kept to recompute versions.
    pub(crate) fn new(has_losses: bool) -> Self {
        Self { data: Data::new(has_losses), ..Self::default() }
    }

    /// Adds a call. The program has one handle of each version that it writes.
    ///
    /// # Panics
    /// Panics if its number is not greater than those before, or a version that it reads is unknown.
    pub(crate) fn call(&mut self, id: CallId, new: NewCall) {
        self.replay.number(id);
        let known = if self.data.has_losses { self.replay.on_call(&mut self.data, id, &new) } else { None };
        if let Some(merge) = new.merge {
            self.reductions.join(id, merge, &new.arguments);
        }
        if let Some(commute) = new.commute {
            self.chains.join(id, commute);
        }
        if new.options.on_failure == OnFailure::CancelGroup {
            self.failures.groups.add_cancelling(id);
        }
        self.add(id, new, self.replay.mark(), known, None);
        self.join_chain(id);
        if self.failures.groups.are_given_up() {
            self.cancel_group(id..id + 1);
        }
    }

    /// Adds a call that is known only from reports of earlier runs. Its maker has one handle of each version
    /// that it writes.
    fn add(
        &mut self,
        id: CallId,
        new: NewCall,
        mark: Mark,
        mut known: Option<Earlier>,
        within: Option<Within>,
    ) {
        let NewCall { task, options, arguments, writes, refused, .. } = new;
        let reason = self.data.journal.history().failure(id);
        let refused = refused.or_else(|| reason.map(|reason| Failure::new(task.name, id, reason.clone())));
        let call = Call::new(Work::Task(task), within, mark, options, arguments, writes);
        // The inputs of an undecided call become known later.
        let is_held = self.is_held(id);
        let (mut depth, mut has_failed) = (0, refused.is_some());
        for input in call.reads() {
            let version = self.data.version_mut(input);
            version.dependants += 1;
            depth = depth.max(version.depth);
            has_failed |= matches!(version.state, State::Failed(_)) && !is_held;
            self.observed.figures.dependencies += u64::from(version.depth > 0);
        }
        self.observed.figures.calls += 1;
        self.observed.called(task, id, depth, call.reads().map(|input| input.call));
        self.observed.figures.depth = self.observed.figures.depth.max(depth + 1);
        let runs_on = known.as_ref().and_then(|known| known.runs_on);
        if let Some(member) = runs_on {
            // Its requirements were not known before, or its result is not needed.
            self.data.members.ended(member, Claim::UNKNOWN);
            if refused.is_some() {
                self.data.actions.push(Action::Cancel(member, id));
            }
        }
        let now = self.recording.how_made(&self.data, id, within, has_failed, runs_on);
        let is_over = now == Made::Over;
        let early = self.recording.take_early(&mut self.data, id, options.is_durable(), now, known.as_mut());
        let mut copies = known.as_mut().map(|known| std::mem::take(&mut known.copies)).unwrap_or_default();
        for id in call.written(id) {
            let missing = if is_over { State::Gone } else { State::Awaited };
            let state = copies.remove(&id.slot).map_or(missing, State::Present);
            // An earlier execution of the task may have left some of the versions.
            let version = self.data.versions.entry(id).and_modify(|version| version.handles += 1);
            version.or_insert_with(|| Version::new(state, mark, depth + 1));
        }
        self.data.calls.insert(id, call);
        self.queues.made();
        if is_over {
            self.on_ended_before(id);
            // The data of a leaving member was expected, but is known only now.
            for slot in 0..writes {
                self.data.rescue(VersionId { call: id, slot });
            }
            return;
        }
        self.data.unfinished += 1;
        self.queues.pauses.resume(&mut self.data, id, runs_on.is_some() || early.is_some());
        self.nests.child_begins(&self.data, id);
        for input in self.data.calls[&id].reads() {
            self.data.versions.get_mut(&input).expect("versions in use are known").readers.push(id);
        }
        match refused {
            Some(failure) => {
                let failure = self.data.located(id, failure);
                self.report_failure(id, &failure, options.on_failure);
                self.cancel(id, &failure);
            }
            None if has_failed => self.requeue(id),
            None if is_held && runs_on.is_none() && early.is_none() => self.data.count_missing(id),
            None => self.start_or_resume(id, runs_on, early),
        }
    }

    /// Starts a new call, unless it has started in an earlier run.
    fn start_or_resume(&mut self, id: CallId, runs_on: Option<Member>, early: Option<(Member, Outcome)>) {
        let Some(member) = early.as_ref().map(|(member, _)| *member).or(runs_on) else {
            return self.requeue(id);
        };
        let call = self.data.calls.get_mut(&id).expect("it was made");
        (call.state, call.is_earlier) = (CallState::Runs(member), true);
        let task = call.work.name();
        self.observed.see(Seen::Assigns { call: id, to: member.0 });
        self.data.occupy(id, member);
        if let Some((_, outcome)) = early {
            let outcome = match outcome {
                // The name of the task was unknown.
                Outcome::Failed(failure) => Outcome::Failed(Failure::new(task, id, failure.cause().clone())),
                outcome => outcome,
            };
            self.ended(id, member, outcome);
        }
    }

    /// Adds data created by the program, with one handle. Its number differs from those of calls. Returns its
    /// mark; `content` is the hash of the content.
    pub(crate) fn data(&mut self, id: CallId, bytes: u64, content: u128) -> Mark {
        let mut copies = Copies { members: vec![Member::HERE], bytes };
        if self.data.has_losses {
            let known = self.replay.follow(&self.data, id, self.replay.mark().then_data(id, content));
            let known = known.into_iter().flat_map(|known| known.copies.into_values());
            known.flat_map(|copies| copies.members).for_each(|member| copies.add(member));
            self.data.add_end(id);
        }
        let mark = self.replay.mark();
        let version = Version::new(State::Present(copies), mark, 0);
        self.data.versions.insert(VersionId { call: id, slot: 0 }, version);
        mark
    }

    pub(crate) fn retain(&mut self, version: VersionId) {
        self.data.version_mut(version).handles += 1;
    }

    pub(crate) fn release(&mut self, version: VersionId) {
        self.data.release(version);
    }

    /// Records that the program waits for a version, of which it has a handle, until [`unwant`](Self::unwant).
    /// Returns whether it can be read on the node of the program.
    pub(crate) fn want(&mut self, id: VersionId) -> Input {
        let version = self.data.version_mut(id);
        let is_new = !std::mem::replace(&mut version.is_wanted, true);
        match &version.state {
            State::Failed(failure) => return Input::Failed(failure.clone()),
            State::Gone => self.make_again(id),
            State::Present(_) if is_new => {
                let source = self.data.source_for(id, Member::HERE);
                self.data.actions.extend(source.map(Action::Bring));
            }
            State::Present(_) | State::Awaited => {}
        }
        // A version that is gone may have been restored from the journal.
        if self.data.versions[&id].is_with(Member::HERE) { Input::Here } else { Input::Awaited }
    }

    pub(crate) fn unwant(&mut self, version: VersionId) {
        let known = self.data.version_mut(version);
        known.is_wanted = false;
        known.was_read |= known.is_with(Member::HERE);
        self.data.forget_unless_needed(version);
    }

    /// Returns whether a version is available or has failed. If it is lost, it is recomputed.
    pub(crate) fn has_outcome(&mut self, id: VersionId) -> bool {
        match &self.data.version_mut(id).state {
            State::Failed(_) | State::Present(_) => true,
            State::Awaited => false,
            State::Gone => {
                self.make_again(id);
                self.data.versions[&id].is_present()
            }
        }
    }

    /// Handles a member that has received a version.
    pub(crate) fn copied(&mut self, id: VersionId, member: Member) {
        if !self.data.members.has(member)
            || self.is_named(id, member, true)
            || self.recording.is_second(&mut self.data, id, member, true)
        {
            return;
        }
        if self.replay.is_unmade(&self.data, id.call) {
            return self.replay.on_copied(&mut self.data, id, member);
        }
        if let Some(State::Present(copies)) =
            self.data.versions.get_mut(&id).map(|version| &mut version.state)
        {
            copies.add(member);
        } else if !self.data.is_kept_by(id, member) {
            // It is no longer needed, or will be needed only after its call has run again.
            self.data.actions.push(Action::Forget(member, id));
        }
        if self.data.is_copied(id, member) {
            // That member may be leaving too.
            self.data.rescue(id);
            self.data.rescue_kept(id);
        }
    }

    pub(crate) fn actions(&mut self) -> Vec<Action> {
        self.reductions.decide_merges(&mut self.data, &mut self.queues);
        self.decide_turns();
        while self.queues.assign_one(&mut self.data, &mut self.observed, self.replay.next()) {}
        if self.data.members.any_leaves() {
            self.data.let_go(&self.recording.members(&self.data));
        }
        std::mem::take(&mut self.data.actions)
    }

    /// Handles a new member that runs calls, with its capacity.
    pub(crate) fn joined(&mut self, member: Member, capacity: Capacity) {
        self.data.members.add(member, capacity);
        self.data.copy_everything_for_all_to(member);
        self.data.copy_kept_to(member);
    }

    /// Returns whether calls wait for the record of their parts, or leaving members for that of their data.
    pub(crate) fn waits_for_record(&self) -> bool {
        self.reductions.order.is_recording() || self.chains.order.is_recording() || self.data.is_preserving()
    }

    /// Returns the work of the known calls; `is_open` states whether the program may make others.
    pub(crate) fn work_ahead(&self, is_open: bool) -> WorkAhead {
        work_ahead(&self.data, is_open)
    }

    pub(crate) fn task_index(&mut self, call: CallId) -> Option<usize> {
        let task = self.data.calls.get(&call)?.work.task()?;
        Some(self.observed.index(task))
    }

    /// Returns the reason why a call waits, or its outcome. `name` names members.
    pub(crate) fn explain(&self, id: CallId, name: impl Fn(Member) -> String) -> Explanation {
        let Self { data, queues, replay, failures, .. } = self;
        Explaining { data, queues, next: replay.next(), failures }.explain(id, name)
    }

    pub(crate) fn journal(&mut self) -> &mut Journal {
        &mut self.data.journal
    }

    /// Lets calls with limits wait while some members have not reported the calls that they run since an earlier run.
    pub(crate) fn set_untold(&mut self, are_untold: bool) {
        self.data.members.set_untold(are_untold);
    }

    /// Returns the calls that wait for a worker.
    pub(crate) fn queues(&mut self) -> &mut Queues {
        &mut self.queues
    }

    pub(crate) fn observed(&mut self) -> &mut Observed {
        &mut self.observed
    }

    pub(crate) fn replay(&mut self) -> &mut Replay {
        &mut self.replay
    }

    /// Ends the pause of a call after this number of failures.
    pub(crate) fn wake(&mut self, id: CallId, failures: u32) {
        let waits = |call: &Call| call.state == CallState::Inputs(0);
        if self.queues.pauses.end(id, failures) && self.data.calls.get(&id).is_some_and(waits) {
            self.push_ready(id);
        }
    }

    pub(crate) fn durations(&mut self) -> &mut Durations {
        &mut self.data.members.durations
    }

    pub(crate) fn open_group(&mut self, start: CallId) {
        self.failures.groups.open(start);
    }

    pub(crate) fn close_group(&mut self, calls: Range<CallId>) {
        self.failures.close_group(&self.data, calls);
    }

    /// Handles the report that the store of a member is nearly full: lets it drop those copies that a member that
    /// stays also has, and that no running call or waiting program needs.
    pub(crate) fn drop_spare_copies(&mut self, member: Member, copies: Vec<VersionId>) {
        self.data.drop_spare_copies(member, copies);
    }

    /// Returns the call in which the program differs from its earlier run.
    pub(crate) fn divergence(&self) -> Option<Divergence> {
        self.replay.divergence()
    }

    /// Returns the mark of a version that exists, but not on the node of the program.
    pub(crate) fn lacks_here(&self, id: VersionId) -> Option<Mark> {
        let version = self.data.versions.get(&id).filter(|version| version.is_present());
        version.filter(|version| !version.is_with(Member::HERE)).map(|version| version.mark)
    }

    pub(crate) fn is_unfinished(&self, id: CallId) -> bool {
        self.data.is_unfinished(id)
    }

    pub(crate) fn failures_of(&self, calls: Range<CallId>) -> &[Failure] {
        self.failures.of(calls)
    }

    pub(crate) fn unseen_failures(&mut self) -> &[Failure] {
        self.failures.unseen()
    }

    #[cfg(test)]
    pub(super) fn failures(&self) -> &[Failure] {
        self.failures.of(0..CallId::MAX)
    }

    pub(crate) fn fatal(&self) -> Option<&Failure> {
        self.failures.fatal.as_ref()
    }

    pub(crate) fn figures(&self) -> Figures {
        self.observed.figures
    }

    #[cfg(test)]
    pub(super) fn known(&self) -> &Data {
        &self.data
    }

    #[cfg(test)]
    pub(super) fn nests(&self) -> &Nests {
        &self.nests
    }

    pub(crate) fn unfinished(&self) -> usize {
        self.data.unfinished
    }

    /// Returns whether the graph is in its initial state.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.data.calls.is_empty()
            && self.data.versions.is_empty()
            && self.queues.is_empty()
            && self.data.unfinished == 0
            && self.nests.by_call.is_empty()
            && self.reductions.is_empty()
            && self.chains.is_empty()
            && self.stopping.is_empty()
    }
}
