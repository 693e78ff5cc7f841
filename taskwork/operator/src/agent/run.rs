//! The loop of an agent: jobs, programs and nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    io,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use taskwork::{
    JobId,
    client::agents::{Agent, BroughtJobs, BroughtProgram, JobRecord, Programs, Submitters},
    companion::ObjectName,
};
use taskwork_cli::{Failure, command::Endings};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::{self, JoinSet},
    time::{self, Instant},
};

use super::{cache::Cache, guest::Guest};

/// The maximum size of a program, in bytes.
const PROGRAM_BYTES_MAX: u64 = 2 << 30;
/// The number of programs that are fetched at the same time.
const FETCHES_MAX: usize = 4;
/// The pauses before a program that has failed is tried again: the first one, which is doubled each time, and the longest.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// The maximum number of failures that are remembered.
const FAILURES_MAX: usize = 1000;

/// A running agent.
pub(super) struct Running {
    cluster: String,
    submitters: Submitters,
    cache: Arc<Cache>,
    /// The nodes that may run, each with its options.
    slots: Vec<(Vec<OsString>, Option<Guest>)>,
    idle_exit: Duration,
    /// The jobs that are not considered now.
    aside: BTreeMap<String, Aside>,
    fetching: JoinSet<Fetched>,
    /// The consecutive failures of programs.
    failures: BTreeMap<ObjectName, u32>,
}

/// Why a job is not considered now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aside {
    /// Its program is being fetched.
    Fetching,
    /// Its program is there; all slots are in use.
    Waiting,
    /// The node in this slot takes it.
    Runs(usize),
    /// Its program has failed.
    Until(Instant),
}

/// A job whose program was fetched, or not.
struct Fetched {
    job: JobId,
    release: (String, String),
    program: ObjectName,
    outcome: Result<(), String>,
}

impl Running {
    pub(super) fn new(
        cluster: String,
        submitters: Submitters,
        cache: Cache,
        options: Vec<Vec<OsString>>,
        idle_exit: Duration,
    ) -> Self {
        Self {
            cluster,
            submitters,
            cache: Arc::new(cache),
            slots: options.into_iter().map(|options| (options, None)).collect(),
            idle_exit,
            aside: BTreeMap::new(),
            fetching: JoinSet::new(),
            failures: BTreeMap::new(),
        }
    }

    /// Runs until the agent is asked to leave by a signal or an operator, and all nodes have left.
    pub(super) async fn run(mut self, agent: Agent) -> Result<ExitCode, Failure> {
        let Agent { mut node, mut jobs, programs, .. } = agent;
        let mut endings = Endings::listen()?;
        let refused =
            |error| Failure::failed(format!("the ends of processes cannot be listened for: {error}"));
        let mut ends = signal(SignalKind::child()).map_err(refused)?;
        let kept = self.cache.list().map_err(|error| Failure::failed(format!("--cache: {error}")))?;
        for name in kept {
            programs.offer(name, self.cache.content(name));
        }
        let (mut is_leaving, mut ended) = (false, None);
        loop {
            let aside: BTreeSet<String> = self.aside.keys().cloned().collect();
            let retry = self.next_retry();
            tokio::select! {
                () = endings.next() => {
                    is_leaving = true;
                    self.stop();
                }
                outcome = node.ended(), if ended.is_none() => {
                    ended = Some(outcome);
                    is_leaving = true;
                    self.stop();
                }
                _ = ends.recv() => self.reap(&programs),
                Some(fetched) = self.fetching.join_next(), if !self.fetching.is_empty() => {
                    if let (Ok(fetched), false) = (fetched, is_leaving) {
                        self.on_fetched(fetched, &programs);
                    }
                }
                (job, record, brought) = jobs.next(&aside), if !is_leaving && self.fetching.len() < FETCHES_MAX => {
                    self.consider(&job, &record, brought, &mut jobs, &programs);
                }
                () = time::sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {
                    let now = Instant::now();
                    self.aside.retain(|_, aside| !matches!(aside, Aside::Until(until) if *until <= now));
                }
            }
            if is_leaving && self.slots.iter().all(|(_, guest)| guest.is_none()) {
                break;
            }
        }
        self.fetching.shutdown().await;
        let outcome = if let Some(outcome) = ended {
            outcome
        } else {
            node.drain();
            node.ended().await
        };
        Ok(outcome.map(|()| ExitCode::SUCCESS)?)
    }

    /// Handles a job that is open and has a program for this machine.
    fn consider(
        &mut self,
        job: &JobId,
        record: &JobRecord,
        brought: BroughtProgram,
        jobs: &mut BroughtJobs,
        programs: &Programs,
    ) {
        let release = (record.program.clone(), record.program_version.clone());
        let its_node =
            |(_, guest): &(_, Option<Guest>)| guest.as_ref().is_some_and(|guest| guest.release == release);
        if let Some(slot) = self.slots.iter().position(its_node) {
            self.aside.insert(job.as_str().to_owned(), Aside::Runs(slot));
            return;
        }
        let node = programs.node().map(tracing::field::display);
        let refusal = match brought.object.parse::<ObjectName>() {
            Ok(name) if name.bytes() > PROGRAM_BYTES_MAX => Err(format!(
                "it has {} bytes, more than {PROGRAM_BYTES_MAX}: submit a program without debugging information (strip)",
                name.bytes()
            )),
            Ok(name) => {
                let checked = self.submitters.check(&self.cluster, record, &brought);
                checked.map(|()| name).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        let program = match refusal {
            Ok(name) => name,
            Err(reason) => {
                tracing::error!(%job, node, submitter = record.submitter, "the program of the job is refused: {reason}");
                return jobs.pass(job);
            }
        };
        self.aside.insert(job.as_str().to_owned(), Aside::Fetching);
        let (cache, programs, job) = (Arc::clone(&self.cache), programs.clone(), job.clone());
        self.fetching.spawn(async move {
            let outcome = ensure(&cache, &programs, program, brought).await;
            Fetched { job, release, program, outcome }
        });
    }

    /// Starts a node from a program that was just verified, if there is a slot.
    fn on_fetched(&mut self, fetched: Fetched, programs: &Programs) {
        let Fetched { job, release, program, outcome } = fetched;
        let id = job.as_str().to_owned();
        let node = programs.node().map(tracing::field::display);
        if let Err(error) = outcome {
            let retry = self.back_off(program);
            tracing::error!(
                %job, node, %program, error, retry_s = retry.as_secs(),
                "the program of the job is not here and is not run: it is fetched again. If its submitter is gone, submit \
                 the program again with --bring from a machine that this one reaches"
            );
            self.aside.insert(id, Aside::Until(Instant::now() + retry));
            return;
        }
        self.shrink(program, programs);
        let is_its_node =
            |guest: &Option<Guest>| guest.as_ref().is_some_and(|guest| guest.release == release);
        if let Some(slot) = self.slots.iter().position(|(_, guest)| is_its_node(guest)) {
            self.aside.insert(id, Aside::Runs(slot));
            return;
        }
        let Some((slot, (options, place))) =
            self.slots.iter_mut().enumerate().find(|(_, (_, guest))| guest.is_none())
        else {
            self.aside.insert(id, Aside::Waiting);
            return;
        };
        match Guest::start(&self.cache.path(program), options, job.clone(), release.clone(), program) {
            Ok(guest) => {
                tracing::info!(
                    %job, node, program = release.0, version = release.1, process = guest.process(),
                    "a node of the job's program is started"
                );
                *place = Some(guest);
                self.aside.insert(id, Aside::Runs(slot));
            }
            Err(error) => {
                let retry = self.back_off(program);
                tracing::error!(
                    %job, node, %program, %error, retry_s = retry.as_secs(),
                    "the program of the job cannot be started here. Build it for this system, statically for another \
                     distribution of Linux"
                );
                self.aside.insert(id, Aside::Until(Instant::now() + retry));
            }
        }
    }

    /// Frees the slots of nodes that have exited.
    fn reap(&mut self, programs: &Programs) {
        for slot in 0..self.slots.len() {
            let Some(status) = self.slots[slot].1.as_mut().and_then(Guest::ended) else { continue };
            let Some(guest) = self.slots[slot].1.take() else { continue };
            self.aside.retain(|_, aside| !matches!(aside, Aside::Waiting) && *aside != Aside::Runs(slot));
            let node = programs.node().map(tracing::field::display);
            let has_failed = !status.success() || guest.started.elapsed() < self.idle_exit;
            if guest.was_stopped || !has_failed {
                self.failures.remove(&guest.program);
                tracing::info!(node, program = guest.release.0, version = guest.release.1, %status, "a node has exited");
                continue;
            }
            let retry = self.back_off(guest.program);
            tracing::error!(
                job = %guest.job, node, program = guest.release.0, version = guest.release.1, %status,
                retry_s = retry.as_secs(),
                "a node has exited early; while its job is open, it is started again. If the program cannot run on this \
                 machine, as its messages may say, cancel the job"
            );
            self.aside.insert(guest.job.as_str().to_owned(), Aside::Until(Instant::now() + retry));
        }
    }

    fn stop(&mut self) {
        for (_, guest) in &mut self.slots {
            if let Some(guest) = guest {
                guest.stop();
            }
        }
    }

    /// Records a failure of a program, and returns the pause before it is tried again.
    fn back_off(&mut self, program: ObjectName) -> Duration {
        if self.failures.len() >= FAILURES_MAX {
            self.failures.clear();
        }
        let failures = self.failures.entry(program).or_default();
        *failures = failures.saturating_add(1);
        RETRY_MIN.saturating_mul(1 << (*failures - 1).min(10)).min(RETRY_MAX)
    }

    fn next_retry(&self) -> Option<Instant> {
        let until = |aside: &Aside| if let Aside::Until(until) = aside { Some(*until) } else { None };
        self.aside.values().filter_map(until).min()
    }

    /// Removes programs beyond the limit of the cache.
    fn shrink(&self, new: ObjectName, programs: &Programs) {
        let guests = self.slots.iter().filter_map(|(_, guest)| guest.as_ref());
        let in_use = guests.map(|guest| guest.program).chain([new]).collect();
        match self.cache.shrink(&in_use) {
            Ok(removed) => removed.into_iter().for_each(|name| programs.withdraw(name)),
            Err(error) => tracing::warn!(%error, "kept programs beyond the limit cannot be removed"),
        }
    }
}

/// Makes sure that a program is in the cache with its content, and offers it to other agents.
async fn ensure(
    cache: &Arc<Cache>,
    programs: &Programs,
    name: ObjectName,
    brought: BroughtProgram,
) -> Result<(), String> {
    let here = Arc::clone(cache);
    let text = |error: io::Error| error.to_string();
    if task::spawn_blocking(move || here.has(name)).await.map_err(|error| error.to_string())?.map_err(text)? {
        programs.offer(name, cache.content(name));
        let programs = programs.clone();
        // Its submitter may be gone, and the node need not wait until that is known.
        task::spawn(async move { programs.confirm(name, &brought).await });
        return Ok(());
    }
    programs.withdraw(name);
    let part = cache.part().map_err(text)?;
    let file = part.reopen().map_err(text)?;
    programs.fetch(name, &brought, file).await.map_err(|error| error.to_string())?;
    let here = Arc::clone(cache);
    let kept = task::spawn_blocking(move || here.keep(name, part)).await;
    kept.map_err(|error| error.to_string())?.map_err(text)?;
    programs.offer(name, cache.content(name));
    Ok(())
}
