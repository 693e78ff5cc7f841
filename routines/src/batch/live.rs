//! The state of a task on its node: its runtime, the calls that the runtime has, and results that are not durable.

mod arguments;
pub(super) mod cancel;

use std::{
    collections::VecDeque,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::value::RawValue;

use self::arguments::{Arguments, arguments};
use super::{
    Batch, Checkpoint,
    combine::Stage,
    platform::{CallRuntime as _, Platform},
    status::{Counts, RunningCalls},
};
use crate::{
    groups,
    order::Order,
    ranges::Ranges,
    reduce::number_of,
    resource::{Files, Held},
    runtime::{ANSWER_LATE_MAX, CRASHES_MAX, Event, LOADS_MAX, Request},
    store::Outcome,
    tally::Tally,
    usage::{Consumption, Usage},
    wire::{CallError, ErrorKind, Step},
};

/// The intended duration of a frame.
const FRAME_TIME: Duration = Duration::from_millis(30);

/// The maximum number of calls of a frame.
const FRAME_CALLS_MAX: u64 = 10_000;

/// The duration of a call after which its result is written at once.
const LONG_CALL: Duration = Duration::from_secs(1);

/// The age of results from which a cut of the pool waits for them, and the maximum time that it waits.
const CUT_AGE: Duration = Duration::from_millis(200);
const CUT_WAIT: Duration = Duration::from_millis(50);

/// The maximum time for which a task on a leaving node waits for all results.
const LEAVE_WAIT: Duration = Duration::from_secs(1);

/// The state of a task on its node.
#[derive(Debug)]
pub(super) struct Live<P: Platform> {
    platform: P,
    counts: Arc<Counts>,
    runtime: Option<P::Runtime>,
    frame: Option<Sent>,
    unsynced: VecDeque<Unsynced>,
    /// The number of runtimes in a row that have not loaded the routine.
    failed_loads: u32,
    /// The usage that no tally contains yet, and the consumption of the runtime that it contains.
    usage: Usage,
    consumed: Consumption,
    /// The calls that users have cancelled, the number that the job reports, and the time of a failed access to them.
    cancelled: Ranges,
    cancelled_number: u64,
    cancelled_failed_at: Option<Instant>,
}

/// The calls that a runtime has.
#[derive(Debug)]
struct Sent {
    calls: Range<u64>,
    at: Instant,
    /// The time of the last answer.
    heard: Instant,
    /// The time of the last request for a state.
    state_at: Instant,
    running: RunningCalls,
    _files: Held,
}

/// Calls with results that are not durable yet.
#[derive(Debug)]
struct Unsynced {
    /// The number of the last result at the writer.
    number: u64,
    calls: Ranges,
    tally: Tally,
    at: Instant,
}

impl<P: Platform> Live<P> {
    pub(super) fn new(platform: P, counts: Arc<Counts>) -> Self {
        Self {
            platform,
            counts,
            runtime: None,
            frame: None,
            unsynced: VecDeque::new(),
            failed_loads: 0,
            usage: Usage::default(),
            consumed: Consumption::default(),
            cancelled: Ranges::default(),
            cancelled_number: 0,
            cancelled_failed_at: None,
        }
    }

    pub(super) fn has_frame(&self) -> bool {
        self.frame.is_some()
    }

    /// Returns whether all calls that were taken have durable results.
    pub(super) fn is_done(&self) -> bool {
        self.frame.is_none() && self.unsynced.is_empty()
    }

    /// Adds the calls without durable results.
    pub(super) fn add_unfinished(&self, to: &mut Ranges) {
        if let (Some(_), Some(runtime)) = (&self.frame, &self.runtime) {
            to.extend(runtime.exchange().unanswered());
        }
        self.unsynced.iter().for_each(|unsynced| to.extend(&unsynced.calls));
    }

    /// Returns the tallies of the results that have become durable.
    pub(super) fn settled(&mut self, batch: &mut Batch<P>) -> Vec<Tally> {
        let durable = self.platform.durable();
        let count = self.unsynced.iter().take_while(|unsynced| unsynced.number <= durable).count();
        let settled = self.unsynced.drain(..count).map(|Unsynced { calls, tally, .. }| {
            batch.checkpoint.take_if(|last| calls.contains(last.index));
            tally
        });
        settled.collect()
    }

    /// Makes results durable before the pool is cut, unless they are recent and the node stays: otherwise their calls are
    /// repeated if the task is moved.
    pub(super) fn hurry_before_cut(&self) {
        let (Some(first), Some(last)) = (self.unsynced.front(), self.unsynced.back()) else { return };
        let is_leaving = self.counts.is_leaving();
        if is_leaving || self.since(first.at) >= CUT_AGE {
            self.platform.hurry();
            self.platform.wait(last.number, if is_leaving { LEAVE_WAIT } else { CUT_WAIT });
        }
    }

    fn since(&self, then: Instant) -> Duration {
        self.platform.now().saturating_duration_since(then)
    }

    /// Starts a runtime and sends it calls, if there are any, it has none, and the node stays.
    ///
    /// # Errors
    /// The reason if the job fails.
    pub(super) fn advance(&mut self, batch: &mut Batch<P>, order: &Order) -> Result<(), String> {
        self.end_cancelled(batch, order);
        let Self { platform, counts, .. } = self;
        let continued = batch.checkpoint.as_ref().map(|last| last.index);
        // The last state is kept until the result of its call is durable, so that no later call has one before.
        let is_kept = continued.is_some_and(|index| !batch.open.contains(index));
        let has_room = platform.has_room();
        if self.frame.is_some() || batch.open.is_empty() || !has_room || is_kept || counts.is_leaving() {
            return Ok(());
        }
        if self.runtime.as_ref().is_some_and(|runtime| platform.has_used_up(runtime)) {
            self.runtime = None;
        }
        let runtime = match &mut self.runtime {
            Some(runtime) => runtime,
            none => {
                let (started, consumed) = start(platform, &mut self.usage)?;
                self.consumed = consumed;
                none.insert(started)
            }
        };
        if !runtime.exchange().is_loaded() {
            return Ok(());
        }
        let installed = platform.installed();
        let left = installed.package.description.reuse.map_or(u64::MAX, |reuse| reuse - runtime.calls());
        let most = if batch.careful > 0 {
            1
        } else {
            // The rest is shared by other workers, so the last frames are small.
            let fair = batch.open.len().div_ceil(4);
            installed.calls_within(FRAME_TIME).min(fair).min(FRAME_CALLS_MAX).min(left)
        };
        let taken = match continued {
            Some(index) => batch.open.remove(index).then_some(index..index + 1),
            None => batch.open.take_front(most),
        };
        let Some(mut taken) = taken else { return Ok(()) };
        let mut files = platform.files();
        let calls = match arguments(order, platform.partials(), &taken, files.as_mut())? {
            Arguments::Ready(calls) => calls,
            Arguments::Later => {
                batch.open.insert(taken);
                return Ok(());
            }
            Arguments::Failed(reason) => {
                batch.open.insert(taken.start + 1..taken.end);
                let error = CallError::new(ErrorKind::Invalid, reason);
                self.put(batch, order, &[(taken.start, Outcome::Error(error))]);
                return Ok(());
            }
        };
        let files = files.map(Files::into_held).unwrap_or_default();
        let end = taken.start + calls.len() as u64;
        batch.open.insert(end..taken.end);
        taken.end = end;
        let state = batch.checkpoint.as_ref().map(|last| &*last.state);
        if let Err(error) = runtime.call(&calls, state) {
            // A single call, since others were limited.
            self.frame = None;
            let error = CallError::new(ErrorKind::Invalid, format!("the argument is too large: {error}"));
            self.put(batch, order, &[(taken.start, Outcome::Error(error))]);
            return Ok(());
        }
        self.usage.in_bytes += calls.iter().map(|(_, argument)| argument.get().len() as u64).sum::<u64>();
        let now = self.platform.now();
        let mut running = self.counts.run(taken.end - taken.start);
        if runtime.exchange().has_checkpoints() {
            running.expect_stop();
        }
        self.frame = Some(Sent { calls: taken, at: now, heard: now, state_at: now, running, _files: files });
        Ok(())
    }

    /// Waits for answers or for durable results, and handles them. Returns the number of answers.
    ///
    /// # Errors
    /// The reason if the job fails.
    pub(super) fn wait(
        &mut self,
        batch: &mut Batch<P>,
        order: &Order,
        most: Duration,
    ) -> Result<u64, String> {
        self.request_state();
        let has_frame = self.frame.is_some();
        let is_waiting = |runtime: &&mut P::Runtime| has_frame || !runtime.exchange().is_loaded();
        let Some(runtime) = self.runtime.as_mut().filter(is_waiting) else {
            // Nothing else is left to do, a state is kept, there is no room, the node leaves, or files are missing.
            match self.unsynced.back() {
                Some(last) => {
                    self.platform.hurry();
                    self.platform.wait(last.number, most);
                }
                None => self.platform.pause(most),
            }
            return Ok(0);
        };
        let mut answered = 0;
        for event in runtime.poll(most) {
            match event {
                Event::Step(Step::Answered(answers)) => {
                    answered += answers.len() as u64;
                    self.on_answers(batch, order, answers);
                }
                Event::Step(Step::Loaded) => self.failed_loads = 0,
                Event::Step(Step::NotLoaded(error)) => {
                    let CallError { message, trace, .. } = error;
                    let name = self.platform.installed().package.name();
                    return Err(format!("routine {name} cannot be loaded: {message}\n{trace}"));
                }
                Event::Step(Step::Checkpoint { id, state }) => {
                    batch.checkpoint = Some(Checkpoint { index: id, state });
                    if let Some(frame) = &mut self.frame {
                        frame.running.expect_stop();
                    }
                }
                Event::Step(Step::Stopped(calls)) => {
                    batch.open.extend(&calls);
                    self.frame = None;
                }
                // A runtime without a search sends no messages of searches.
                Event::Step(_) => {}
                Event::Broken(reason) => {
                    self.on_broken(batch, order, ErrorKind::Crash, reason)?;
                    return Ok(answered);
                }
                Event::Memory(reason) => {
                    self.on_broken(batch, order, ErrorKind::Memory, reason)?;
                    return Ok(answered);
                }
            }
        }
        self.check_time(batch, order)?;
        Ok(answered)
    }

    /// Requests the state of the running call, if it is due, or its end, if the node leaves.
    fn request_state(&mut self) {
        let now = self.platform.now();
        let (Some(frame), Some(runtime)) = (&mut self.frame, &self.runtime) else { return };
        if self.counts.is_leaving() {
            // Repeated, since the runtime may overwrite it when it answers an earlier request.
            runtime.request(Request::Pause);
        } else if now.saturating_duration_since(frame.state_at)
            >= self.platform.installed().package.description.checkpoint()
        {
            frame.state_at = now;
            runtime.request(Request::State);
        }
    }

    fn on_answers(
        &mut self,
        batch: &mut Batch<P>,
        order: &Order,
        answers: Vec<(u64, Result<Box<RawValue>, CallError>)>,
    ) {
        let installed = self.platform.installed();
        let is_reduced = batch.stage == Stage::Calls && !order.reduce.is_empty();
        let outcome = |(index, answer)| {
            let outcome = installed.outcome(answer);
            let refused = match &outcome {
                Outcome::Value(value) if is_reduced => number_of(value.get()).err(),
                _ => None,
            };
            (index, refused.map_or(outcome, Outcome::Error))
        };
        let outcomes: Vec<_> = answers.into_iter().map(outcome).collect();
        self.measure();
        self.put(batch, order, &outcomes);
        let now = self.platform.now();
        let Some(frame) = &mut self.frame else { return };
        frame.heard = now;
        if self.runtime.as_ref().is_some_and(|runtime| !runtime.exchange().unanswered().is_empty()) {
            return;
        }
        let (took, calls) = (now.saturating_duration_since(frame.at), frame.calls.end - frame.calls.start);
        self.frame = None;
        self.platform.installed().record(took, calls);
        if took / u32::try_from(calls).unwrap_or(u32::MAX) >= LONG_CALL {
            self.platform.hurry();
        }
    }

    /// Adds the consumption since the last answer to the usage.
    fn measure(&mut self) {
        if let Some(frame) = &self.frame {
            let wall = self.since(frame.heard);
            self.usage.wall_us += u64::try_from(wall.as_micros()).unwrap_or(u64::MAX);
        }
        if let Some(runtime) = &self.runtime {
            let now = runtime.consumption();
            self.usage.add_consumption(std::mem::replace(&mut self.consumed, now), now);
        }
    }

    /// Passes outcomes to the writer.
    fn put(&mut self, batch: &mut Batch<P>, order: &Order, outcomes: &[(u64, Outcome)]) {
        let makes_calls = batch.stage == Stage::Calls;
        let mut tally = if makes_calls { Tally::of(&order.reduce) } else { Tally::default() };
        let mut calls = Ranges::default();
        tally.usage = std::mem::take(&mut self.usage);
        for (index, outcome) in outcomes {
            tally.usage.add_outcome(outcome);
            calls.insert(*index..*index + 1);
            if let (Outcome::Value(value), Some(reduced)) = (outcome, &mut tally.reduced)
                && let Ok(number) = number_of(value.get())
            {
                let key = groups::key(&order.space, *index, &order.reduce.by);
                let key = key.expect("the keys are checked before the job is submitted");
                reduced.add(&key, *index, number);
            }
            if makes_calls {
                tally.count(match outcome {
                    Outcome::Value(_) => None,
                    Outcome::Error(error) => Some(error.kind),
                });
            }
            batch.crashed.remove(index);
        }
        self.counts.add(&tally);
        batch.careful = batch.careful.saturating_sub(outcomes.len() as u64);
        let (number, at) = (self.platform.put(outcomes), self.platform.now());
        self.unsynced.push_back(Unsynced { number, calls, tally, at });
    }

    /// Handles a call, or a start, that takes too long.
    fn check_time(&mut self, batch: &mut Batch<P>, order: &Order) -> Result<(), String> {
        let Some(runtime) = &self.runtime else { return Ok(()) };
        if let Some(reason) = runtime.late_load() {
            return self.on_broken(batch, order, ErrorKind::Timeout, reason);
        }
        let limit = self.platform.installed().package.description.timeout();
        let (Some(frame), Some(limit)) = (&self.frame, limit) else {
            return Ok(());
        };
        if self.since(frame.heard) < limit + ANSWER_LATE_MAX {
            return Ok(());
        }
        let reason = runtime.exceeded(limit);
        self.on_broken(batch, order, ErrorKind::Timeout, reason)
    }

    /// Handles the loss of the runtime: its calls are open again, and sent singly if there were several.
    fn on_broken(
        &mut self,
        batch: &mut Batch<P>,
        order: &Order,
        kind: ErrorKind,
        reason: String,
    ) -> Result<(), String> {
        self.measure();
        let Some(runtime) = self.runtime.take() else { return Ok(()) };
        if !runtime.exchange().is_loaded() {
            self.failed_loads += 1;
            if self.failed_loads >= LOADS_MAX {
                return Err(format!(
                    "routine {} cannot be loaded: {reason}",
                    self.platform.installed().package.name()
                ));
            }
        }
        let Some(frame) = self.frame.take() else { return Ok(()) };
        let rest = runtime.exchange().unanswered();
        if frame.calls.end - frame.calls.start > 1 {
            batch.careful = batch.careful.max(rest.len());
            batch.open.extend(rest);
            return Ok(());
        }
        let Some(index) = rest.first() else { return Ok(()) };
        let crashes = batch.crashed.entry(index).or_default();
        *crashes += 1;
        tracing::info!(index, crashes, reason, "a runtime was lost with a call");
        // Earlier calls may have filled the memory of a runtime.
        let is_its_own = kind == ErrorKind::Timeout || kind == ErrorKind::Memory && runtime.calls() == 1;
        if is_its_own || *crashes >= CRASHES_MAX {
            self.put(batch, order, &[(index, Outcome::Error(CallError::new(kind, reason)))]);
        } else {
            batch.open.extend(rest);
        }
        Ok(())
    }
}

/// Takes a runtime, and returns it with its consumption that other tallies contain. A new one has started for this job.
fn start<P: Platform>(platform: &P, usage: &mut Usage) -> Result<(P::Runtime, Consumption), String> {
    let runtime = platform.start()?;
    let is_warm = runtime.calls() > 0;
    usage.warm += u64::from(is_warm);
    usage.cold += u64::from(!is_warm);
    let consumed = if is_warm { runtime.consumption() } else { Consumption::default() };
    Ok((runtime, consumed))
}

impl<P: Platform> Drop for Live<P> {
    /// Keeps a runtime without calls for other tasks. One that has calls is stopped: they are open elsewhere.
    fn drop(&mut self) {
        if self.frame.is_none()
            && let Some(runtime) = self.runtime.take()
        {
            self.platform.keep(runtime);
        }
    }
}
