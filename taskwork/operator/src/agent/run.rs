//! The loop of an agent: jobs, programs and nodes.

use std::{ffi::OsString, io, process::ExitCode, sync::Arc, time::Duration};

use taskwork::{
    JobId,
    client::agents::{Agent, BroughtProgram, JobRecord, PROGRAM_BYTES_MAX, Programs, Submitters},
    companion::ObjectName,
};
use taskwork_cli::{
    Failure,
    command::{Endings, Notice, Notices},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::{self, JoinSet},
    time::{self, Instant},
};

use super::{
    cache::{Cache, Pinned},
    fetch::{Problem, ensure, not_started},
    guest::Guest,
    table::{Notifying, State, Table},
};

/// The number of programs that are fetched at the same time.
const FETCHES_MAX: usize = 4;
/// The pause before the submitter of a job is checked again: clocks and certificates change.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// The interval at which the jobs of running programs are listed again, so that those that are over are forgotten.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// The time after the drain deadline at which a node that has not left is killed. A node exits at most ten seconds after it.
const KILL_AFTER: Duration = Duration::from_secs(15);
/// The number of signals after which nodes are killed. After the second one they hurry.
const SIGNALS_MAX: u32 = 3;

/// A running agent.
pub(super) struct Running {
    cluster: String,
    submitters: Submitters,
    cache: Arc<Cache>,
    /// The nodes that may run, each with its options.
    slots: Vec<(Vec<OsString>, Option<Guest>)>,
    idle_exit: Duration,
    drain_deadline: Duration,
    table: Table,
    working: JoinSet<Done>,
    /// The program that was last reported not to fit into the folder.
    without_room: Option<ObjectName>,
}

/// The end of work on a program.
enum Done {
    /// It is there, or not.
    Ensured(ObjectName, Result<Pinned, Problem>),
    /// Submitters were notified of it.
    Notified(ObjectName),
}

impl Running {
    pub(super) fn new(
        cluster: String,
        submitters: Submitters,
        cache: Cache,
        options: Vec<Vec<OsString>>,
        idle_exit: Duration,
        drain_deadline: Duration,
    ) -> Self {
        Self {
            cluster,
            submitters,
            cache: Arc::new(cache),
            slots: options.into_iter().map(|options| (options, None)).collect(),
            idle_exit,
            drain_deadline,
            table: Table::default(),
            working: JoinSet::new(),
            without_room: None,
        }
    }

    /// Runs until the agent is asked to leave by a signal, an operator or a notice, and all nodes have left.
    pub(super) async fn run(mut self, agent: Agent, mut notices: Notices) -> Result<ExitCode, Failure> {
        let Agent { mut node, mut jobs, programs, .. } = agent;
        let mut endings = Endings::listen()?;
        let refused =
            |error| Failure::failed(format!("the ends of processes cannot be listened for: {error}"));
        let mut ends = signal(SignalKind::child()).map_err(refused)?;
        let kept = self.cache.list().map_err(|error| Failure::failed(format!("--cache: {error}")))?;
        for name in kept {
            programs.offer(name, self.cache.content(name));
        }
        let (mut is_leaving, mut signals, mut ended) = (false, 0, None);
        let (mut kill_at, mut joined) = (None, None);
        let mut sweep = time::interval_at(Instant::now() + SWEEP_EVERY, SWEEP_EVERY);
        loop {
            if is_leaving && self.slots.iter().all(|(_, guest)| guest.is_none()) {
                break;
            }
            if is_leaving && kill_at.is_none() {
                kill_at = Some(Instant::now() + self.drain_deadline + KILL_AFTER);
            }
            let retry = self.table.next_due();
            tokio::select! {
                () = endings.next() => {
                    is_leaving = true;
                    signals += 1;
                    if signals < SIGNALS_MAX { self.stop() } else { self.kill() }
                }
                outcome = node.ended(), if ended.is_none() => {
                    ended = Some(outcome);
                    is_leaving = true;
                    self.stop();
                }
                notice = notices.next(), if !is_leaving => {
                    report(&notice);
                    is_leaving = true;
                }
                () = at(kill_at) => {
                    kill_at = Some(Instant::now() + KILL_AFTER);
                    self.kill();
                }
                _ = ends.recv() => self.reap(&programs),
                Some(done) = self.working.join_next(), if !self.working.is_empty() => {
                    if !is_leaving {
                        self.on_done(done, &programs);
                    }
                }
                (job, record, brought) = jobs.next(self.table.aside()), if !is_leaving => {
                    self.consider(&job, &record, &brought, &programs);
                }
                node = programs.joined_after(joined), if !is_leaving => {
                    joined = Some(node);
                    self.table.here().into_iter().for_each(|name| self.notify(name, &programs));
                }
                () = at(retry) => self.table.retry(Instant::now()),
                _ = sweep.tick() => self.table.sweep(),
            }
            if !is_leaving {
                self.start_some(&programs);
                self.fetch_some(&programs);
            }
        }
        self.working.shutdown().await;
        let outcome = if let Some(outcome) = ended {
            outcome
        } else {
            node.drain();
            node.ended().await
        };
        Ok(outcome.map(|()| ExitCode::SUCCESS)?)
    }

    /// Handles a job that is open and has a program for this machine.
    fn consider(&mut self, job: &JobId, record: &JobRecord, brought: &BroughtProgram, programs: &Programs) {
        let node = programs.node().map(tracing::field::display);
        let now = Instant::now();
        let program = match self.accept(record, brought) {
            Ok(program) => program,
            Err(reason) => {
                let submitter = &record.submitter;
                if self.table.refuse(job, now + REFUSED_PAUSE) {
                    tracing::error!(%job, node, submitter, "the program of the job is refused: {reason}");
                } else {
                    tracing::debug!(%job, node, submitter, "the program of the job is still refused: {reason}");
                }
                return;
            }
        };
        let release = (record.program.clone(), record.program_version.clone());
        if let Some(retry) = self.table.add(program, job, release, now) {
            tracing::warn!(
                %job, node, %program, retry_s = retry.as_secs(),
                "a node has left although its job is open; it is started again later. `taskwork job` shows what the job waits \
                 for. To keep the nodes of this machine away, let its agent leave, not its nodes"
            );
        }
        if self.table.program(program).is_some_and(|program| program.file.is_some()) {
            self.notify(program, programs);
        }
    }

    /// Returns the program of a job, if its submitter may run it here.
    fn accept(&self, record: &JobRecord, brought: &BroughtProgram) -> Result<ObjectName, String> {
        let name = brought.object.parse::<ObjectName>().map_err(|error| error.to_string())?;
        if name.bytes() > PROGRAM_BYTES_MAX {
            return Err(format!(
                "it has {} bytes, more than {PROGRAM_BYTES_MAX}: submit a program without debugging information (strip)",
                name.bytes()
            ));
        }
        self.submitters.check(&self.cluster, record, brought).map_err(|error| error.to_string())?;
        Ok(name)
    }

    /// Fetches the next programs, as far as they fit into the folder.
    fn fetch_some(&mut self, programs: &Programs) {
        loop {
            let fetching = self.table.in_state(State::Fetching);
            if fetching.len() >= FETCHES_MAX {
                return;
            }
            let cache = &self.cache;
            let coming =
                fetching.into_iter().fold(0_u64, |bytes, name| bytes.saturating_add(cache.lacks(name)));
            let mut too_large = None;
            let mut fits = |name| match cache.make_room(coming.saturating_add(cache.lacks(name))) {
                Ok(room) => {
                    room.removed.into_iter().for_each(|name| programs.withdraw(name));
                    too_large = too_large.or((!room.fits).then_some(name));
                    room.fits
                }
                Err(error) => {
                    tracing::warn!(folder = %cache.folder().display(), %error, "no room can be made for programs");
                    true
                }
            };
            // Those that are there already come first, so that no other one takes their place.
            let is_here = |name| cache.lacks(name) == 0;
            let next = self.table.next_wanted(is_here).or_else(|| self.table.next_wanted(&mut fits));
            let before = std::mem::replace(&mut self.without_room, too_large);
            if let Some(name) = too_large.filter(|_| too_large != before)
                && let Some(program) = self.table.program(name)
            {
                tracing::warn!(
                    job = %program.job, node = programs.node().map(tracing::field::display), program = %name,
                    folder = %self.cache.folder().display(),
                    "the program of the job does not fit into the folder with those that other jobs need: it is fetched when \
                     they need less. --cache-gib of the agent sets the limit"
                );
            }
            let Some(name) = next else { return };
            self.ensure(name, State::Fetching, programs);
        }
    }

    /// Starts the next programs, if there are slots. Their content is verified first.
    fn start_some(&mut self, programs: &Programs) {
        let free = self.slots.iter().filter(|(_, guest)| guest.is_none()).count();
        while self.table.in_state(State::Starting).len() < free {
            let Some(name) = self.table.next_kept() else { return };
            self.ensure(name, State::Starting, programs);
        }
    }

    /// Makes sure that a program is in the folder with its content.
    fn ensure(&mut self, name: ObjectName, state: State, programs: &Programs) {
        let Some(program) = self.table.program(name) else { return };
        program.state = state;
        let (cache, programs, may_fetch) =
            (Arc::clone(&self.cache), programs.clone(), state == State::Fetching);
        self.working.spawn(async move {
            // A panic does not lose the name.
            let ensured = task::spawn(async move { ensure(&cache, &programs, name, may_fetch).await });
            Done::Ensured(
                name,
                ensured.await.unwrap_or_else(|error| Err(Problem::File(io::Error::other(error)))),
            )
        });
    }

    /// Notifies submitters that a program is here.
    fn notify(&mut self, name: ObjectName, programs: &Programs) {
        let Some(program) = self.table.program(name) else { return };
        if program.notifying != Notifying::No {
            program.notifying = Notifying::Again;
            return;
        }
        program.notifying = Notifying::Yes;
        let programs = programs.clone();
        self.working.spawn(async move {
            let notified = task::spawn(async move { programs.confirm(name).await });
            if let Err(error) = notified.await {
                tracing::debug!(program = %name, %error, "submitters were not notified");
            }
            Done::Notified(name)
        });
    }

    fn on_done(&mut self, done: Result<Done, task::JoinError>, programs: &Programs) {
        match done {
            Ok(Done::Ensured(name, outcome)) => self.on_ensured(name, outcome, programs),
            Ok(Done::Notified(name)) => {
                let Some(program) = self.table.program(name) else { return };
                if std::mem::replace(&mut program.notifying, Notifying::No) == Notifying::Again {
                    self.notify(name, programs);
                }
            }
            // Only tasks in these tasks panic.
            Err(error) => tracing::error!(%error, "work on a program was cancelled"),
        }
    }

    /// Starts a node from a program that was just verified, if there is a slot.
    fn on_ensured(&mut self, name: ObjectName, outcome: Result<Pinned, Problem>, programs: &Programs) {
        let node = programs.node().map(tracing::field::display);
        let folder = self.cache.folder().to_owned();
        let Some(program) = self.table.program(name) else { return };
        let (was_starting, job) = (program.state == State::Starting, program.job.clone());
        match outcome {
            Ok(file) => {
                program.file = Some(file);
                program.state = State::Kept;
                if !was_starting {
                    programs.offer(name, self.cache.content(name));
                    self.notify(name, programs);
                }
                self.start(name, programs);
            }
            // It is fetched at once.
            Err(Problem::Changed) if was_starting => {
                program.file = None;
                program.state = State::Wanted;
                programs.withdraw(name);
            }
            Err(problem) => {
                program.file = None;
                programs.withdraw(name);
                let retry = self.table.fail(name, Instant::now());
                tracing::error!(
                    %job, node, program = %name, error = %problem, retry_s = retry.as_secs(),
                    "the program of the job is not here and is not run: it is fetched again. {}", problem.remedy(&folder)
                );
            }
        }
        if was_starting {
            self.table.forget_waiting();
        }
    }

    /// Starts a node from a program that was just verified, if there is a slot that no other program has reserved.
    fn start(&mut self, name: ObjectName, programs: &Programs) {
        let reserved = self.table.in_state(State::Starting).len();
        let node = programs.node().map(tracing::field::display);
        let mut free = self.slots.iter_mut().enumerate().filter(|(_, (_, guest))| guest.is_none());
        let (Some((slot, (options, place))), Some(program)) = (free.nth(reserved), self.table.program(name))
        else {
            return;
        };
        if program.state != State::Kept {
            return;
        }
        let (job, release) = (program.job.clone(), program.release.clone());
        match Guest::start(&self.cache.path(name), options, job.clone(), release.clone(), name) {
            Ok(guest) => {
                tracing::info!(
                    %job, node, program = release.0, version = release.1, process = guest.process(),
                    "a node of the job's program is started"
                );
                *place = Some(guest);
                self.table.start(name, slot);
            }
            Err(error) => {
                let retry = self.table.fail(name, Instant::now());
                tracing::error!(
                    %job, node, program = %self.cache.path(name).display(), %error, retry_s = retry.as_secs(),
                    "the program of the job cannot be started here. {}", not_started(&error)
                );
            }
        }
    }

    /// Frees the slots of nodes that have exited.
    fn reap(&mut self, programs: &Programs) {
        for slot in 0..self.slots.len() {
            let Some(status) = self.slots[slot].1.as_mut().and_then(Guest::ended) else { continue };
            let Some(guest) = self.slots[slot].1.take() else { continue };
            let node = programs.node().map(tracing::field::display);
            let has_failed = !status.success() || guest.started.elapsed() < self.idle_exit;
            if guest.was_stopped || !has_failed {
                tracing::info!(node, program = guest.release.0, version = guest.release.1, %status, "a node has exited");
                self.table.leave(guest.program);
                continue;
            }
            let retry = self.table.fail(guest.program, Instant::now());
            tracing::error!(
                job = %guest.job, node, program = guest.release.0, version = guest.release.1, %status,
                retry_s = retry.as_secs(),
                "a node has exited early; while its job is open, it is started again. If the program cannot run on this \
                 machine, as its messages may say, cancel the job"
            );
            self.table.forget_waiting();
        }
    }

    fn stop(&mut self) {
        self.slots.iter_mut().filter_map(|(_, guest)| guest.as_mut()).for_each(Guest::stop);
    }

    fn kill(&mut self) {
        for guest in self.slots.iter_mut().filter_map(|(_, guest)| guest.as_mut()) {
            tracing::error!(
                job = %guest.job, process = guest.process(),
                "a node has not left in time and is killed; other nodes continue its tasks from their last written states"
            );
            guest.kill();
        }
    }
}

/// Logs a notice that this machine goes.
fn report(notice: &Notice) {
    let left = notice.gone_at.saturating_duration_since(Instant::now());
    tracing::warn!(
        why = notice.why,
        left_s = left.as_secs(),
        "the agent is to leave: its nodes see this notice, too, and no further node is started"
    );
}

/// Waits until a time, or forever.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
