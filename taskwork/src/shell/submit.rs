//! Submission of a job, waiting for its completion, and reading its output, for this process and for clients.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use rand::Rng as _;
use tokio::time;
use zk::{
    ClusterPaths, Labels, Release, Store,
    figures::{self, NodeFigures},
    job::{self, BroughtProgram, JobRecord, JobState, JobWatch, NewJob, Share},
    quarantine::{self, AboutTask},
};

use super::{clock::unix_ms, shared};
use crate::{
    companion::highest,
    figures::{Figures, sum},
    id::{IdError, JobId, NodeId, TaskId},
    outlook::Outlook,
    pool::{Entry, Signals, Source, VariableTable, merge},
    report::{JobError, Progress, RawOutput, RawReport, Report, SetAside, Values},
    task::Task,
    wire::{
        bulk::ObjectName,
        codec::{self, DecodeError, EncodeError},
    },
};

pub(crate) struct Submission<'a> {
    pub(crate) release: &'a Release,
    pub(crate) kind: &'a str,
    /// The type of task in the program's source.
    pub(crate) task_type: &'a str,
    pub(crate) name: &'a str,
    pub(crate) submitter: &'a str,
    pub(crate) attempts_max: u32,
    pub(crate) crashes_max: u32,
    pub(crate) require: &'a Labels,
    pub(crate) after: &'a [String],
    pub(crate) stays_open: bool,
    pub(crate) share: Share,
    pub(crate) shared: SharedData<'a>,
    pub(crate) brought: Option<&'a BroughtProgram>,
    pub(crate) start_values: &'a [(String, Vec<u8>)],
}

/// The shared data of a job to be submitted.
pub(crate) enum SharedData<'a> {
    /// The encoded data, to be stored in the tree.
    Stored(&'a [u8]),
    /// The member that provides the data, and the data's name.
    With(NodeId, ObjectName),
}

/// The maximum time to wait for the last figures of a job's nodes.
pub(crate) const LAST_FIGURES_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval between two checks for the last figures.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(3);

/// The root task of a job, encoded.
pub(crate) struct Root {
    task: TaskId,
    id: String,
    bytes: Vec<u8>,
}

impl Root {
    pub(crate) fn new<T: Task>(root: T) -> Result<Self, EncodeError> {
        Self::with_id(TaskId::ROOT, root)
    }

    /// Creates a root task to be added to a job, with a unique id.
    pub(crate) fn added<T: Task>(root: T) -> Result<Self, EncodeError> {
        let number = rand::rng().random_range(1..=u64::MAX);
        Self::with_id(TaskId { number, ..TaskId::ROOT }, root)
    }

    pub(crate) fn with_id<T: Task>(id: TaskId, root: T) -> Result<Self, EncodeError> {
        let root = Entry::new(id, root).seal()?;
        Ok(Self { task: root.id, id: root.id.to_string(), bytes: codec::encode(&root)? })
    }

    pub(crate) fn task(&self) -> TaskId {
        self.task
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A job with an encoded root task, ready to be submitted, repeatedly if necessary.
pub(crate) struct Draft<'a> {
    order: &'a Submission<'a>,
    root: &'a Root,
    shared: &'a [u8],
    shared_name: String,
    shared_from: String,
    now_ms: u64,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(root: &'a Root, order: &'a Submission<'a>) -> Self {
        let (shared, shared_name, shared_from) = match order.shared {
            SharedData::Stored(shared) => (shared, shared::name(shared), String::new()),
            SharedData::With(member, name) => (&[][..], name.to_string(), member.to_string()),
        };
        Self { order, root, shared, shared_name, shared_from, now_ms: unix_ms() }
    }

    pub(crate) fn job(&self) -> NewJob<'_> {
        let order = self.order;
        NewJob {
            program: &order.release.program,
            program_version: &order.release.version,
            kind: order.kind,
            task_type: order.task_type,
            name: order.name,
            shared: self.shared,
            shared_name: &self.shared_name,
            shared_from: &self.shared_from,
            brought: order.brought,
            root_id: &self.root.id,
            root: &self.root.bytes,
            variables: order.start_values,
            attempts_max: order.attempts_max,
            crashes_max: order.crashes_max,
            require: order.require,
            after: order.after,
            stays_open: order.stays_open,
            share: order.share,
            submitter: order.submitter,
            now_ms: self.now_ms,
        }
    }
}

/// Parses a job's name in the tree.
///
/// # Errors
/// If the name is not a valid job id.
pub(crate) fn job_id(cluster: &ClusterPaths, name: &str) -> Result<JobId, JobError> {
    let garbled = |error: IdError| zk::Error::Garbled { path: cluster.jobs(), reason: error.to_string() };
    Ok(name.parse().map_err(garbled)?)
}

/// A submitted job, accessed through one session.
pub(crate) struct Tracked {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cluster: ClusterPaths,
    pub(crate) job: JobId,
    pub(crate) started: Instant,
    /// The expected key in the job's record. If ZooKeeper was replaced by an empty one, another job may have the same
    /// id.
    key: Option<String>,
    /// The duration of the job, once it is known to be over.
    took: OnceLock<Duration>,
}

impl Tracked {
    /// Submits a job in a single try, for a tree that is always available.
    pub(crate) async fn submit(
        store: Arc<dyn Store>,
        cluster: ClusterPaths,
        draft: &Draft<'_>,
        started: Instant,
    ) -> Result<Self, JobError> {
        let id = job::submit(&*store, &cluster, &draft.job()).await?;
        let job = job_id(&cluster, &id)?;
        Ok(Self::new(store, cluster, job, started))
    }

    pub(crate) fn new(store: Arc<dyn Store>, cluster: ClusterPaths, job: JobId, started: Instant) -> Self {
        Self { store, cluster, job, started, key: None, took: OnceLock::new() }
    }

    /// Restricts the handle to the job with this key.
    pub(crate) fn with_key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    /// Fails with the error of a missing job if the record belongs to another job.
    fn check_key(&self, record: &JobRecord) -> zk::Result<()> {
        if self.key.as_ref().is_none_or(|key| *key == record.key) {
            return Ok(());
        }
        Err(zk::Error::NoNode { path: self.cluster.job(&self.job.0).record() })
    }

    pub(crate) async fn record(&self) -> zk::Result<JobRecord> {
        let (record, _) = job::read(&*self.store, &self.cluster, &self.job.0).await?;
        self.check_key(&record)?;
        Ok(record)
    }

    /// Sets the duration of a job whose completion was seen by another session.
    pub(crate) fn set_took(&self, took: Duration) {
        // The first observer's value is the most accurate.
        let _ = self.took.set(took);
    }

    /// Waits until the job is over.
    pub(crate) async fn end(&self) -> Result<JobRecord, JobError> {
        let store = Arc::clone(&self.store);
        let mut watch = JobWatch::open(store, &self.cluster, &self.job.0).await?;
        loop {
            let record = watch.next().await?;
            self.check_key(&record)?;
            if record.state.is_over() {
                self.took.get_or_init(|| self.started.elapsed());
                return Ok(record);
            }
        }
    }

    pub(crate) async fn stop(&self, reason: &str) -> Result<JobRecord, JobError> {
        self.record().await?;
        job::cancel(&*self.store, &self.cluster, &self.job.0, reason, unix_ms()).await?;
        Ok(self.record().await?)
    }

    /// Reads the variables from the tree. A missing variable has no value. A variable that cannot be read is an
    /// error: otherwise a search would seem to have found nothing.
    pub(crate) async fn variables(&self, table: VariableTable) -> Result<Values, JobError> {
        let signals = Signals::default();
        for slot in 0..table.len() {
            let bytes = match self.store.get(&self.cluster.job(&self.job.0).var(table.name(slot))).await {
                Ok((bytes, _)) => bytes,
                Err(zk::Error::NoNode { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            if let Err(error) = table.offer_encoded(slot, &bytes, Source::Znode, &signals) {
                let reason = format!("the value of the variable {:?}: {error}", table.name(slot));
                return Err(JobError::Result { reason });
            }
        }
        Ok(Values { table })
    }

    pub(crate) async fn progress(&self, variables: VariableTable) -> Result<Progress, JobError> {
        let reports = figures::read::<Figures>(&*self.store, &self.cluster, &self.job.0).await?;
        let mut figures = sum(reports.iter().map(|(_, report)| report));
        let record = self.record().await?;
        let attempt = self.cluster.job(&self.job.0).attempt(record.attempt);
        // No node reports tasks that are parked or set aside.
        let mut open_tasks = 0;
        for (folder, is_open) in [(attempt.parked(), true), (attempt.quarantine(), false)] {
            let tasks = self.store.exists(&folder).await?.map_or(0, |stat| stat.children);
            if tasks > 0 {
                figures.outlook = Outlook::Unknown;
            }
            open_tasks += if is_open { u64::from(tasks) } else { 0 };
        }
        // The figures of a lost node are not marked as its last ones.
        let members = self.store.children(&self.cluster.members()).await?;
        let at_work = |(node, report): &&(String, NodeFigures<Figures>)| {
            report.attempt == record.attempt && !report.last && members.contains(node)
        };
        let at_work = reports.iter().filter(at_work);
        let nodes = at_work.clone().count();
        figures.open_tasks = at_work
            .map(|(_, report)| report.figures.open_tasks)
            .try_fold(open_tasks, |sum, open| open.map(|open| sum + open));
        let display = highest(
            reports
                .into_iter()
                .filter_map(|(node, report)| Some((report.last || members.contains(&node), report.status?))),
        );
        let variables = self.variables(variables).await?;
        Ok(Progress { figures, nodes, display, elapsed: self.started.elapsed(), variables })
    }

    /// Returns the figures of the nodes of a job that is over. Waits for their last figures, which they publish shortly
    /// afterwards.
    pub(crate) async fn figures(&self, record: &JobRecord) -> Result<Figures, JobError> {
        let attempt = self.cluster.job(&self.job.0).attempt(record.attempt);
        let deadline = time::Instant::now() + LAST_FIGURES_TIMEOUT;
        loop {
            let reports = figures::read::<Figures>(&*self.store, &self.cluster, &self.job.0).await?;
            let participants = self.store.children(&attempt.outputs()).await?;
            // A node that is no longer a member reports nothing more.
            let members = self.store.children(&self.cluster.members()).await?;
            let mut participants = participants.iter().filter(|node| members.contains(node));
            let all =
                participants.all(|node| reports.iter().any(|(name, report)| name == node && report.last));
            if all || time::Instant::now() >= deadline {
                tracing::debug!(job = %self.job, all, "the nodes' figures were read");
                return Ok(sum(reports.iter().map(|(_, report)| report)));
            }
            time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Returns the report of a job that is over.
    pub(crate) async fn outcome(
        &self,
        record: &JobRecord,
        variables: VariableTable,
    ) -> Result<RawReport, JobError> {
        let figures = self.figures(record).await?;
        self.report(record, &figures, variables).await
    }

    /// Returns the report of a job. For a stopped or suspended job it contains the output committed so far.
    pub(crate) async fn report(
        &self,
        record: &JobRecord,
        figures: &Figures,
        variables: VariableTable,
    ) -> Result<RawReport, JobError> {
        let attempt = self.cluster.job(&self.job.0).attempt(record.attempt);
        let mut set_aside = Vec::new();
        let output = if matches!(record.state, JobState::Done | JobState::Incomplete | JobState::Failed) {
            if record.state == JobState::Incomplete {
                set_aside = quarantine::list(&*self.store, &attempt).await?;
            }
            match job::result(&*self.store, &self.cluster, &self.job.0).await {
                // A failed job has a result only if its output reports the failure.
                Err(zk::Error::NoNode { .. }) if record.state == JobState::Failed => {
                    let reason = record.reason.clone();
                    let reason = reason.unwrap_or_else(|| "for a reason that was not recorded".to_owned());
                    return Err(JobError::Failed { reason });
                }
                outcome => RawOutput::Finished(outcome?.result),
            }
        } else {
            let outputs = job::outputs(&*self.store, &attempt).await?;
            RawOutput::Stopped(outputs.into_iter().map(|(_, output)| output).collect())
        };
        let variables = self.variables(variables).await?;
        let elapsed = self.took.get().copied().unwrap_or_else(|| self.started.elapsed());
        let suspended = record.state == JobState::Suspended;
        let is_cancelled = record.state == JobState::Cancelled;
        let cancelled = is_cancelled.then(|| record.reason.clone().unwrap_or_default());
        let describe = |(task, AboutTask { crashes, reason, .. })| SetAside { task, crashes, reason };
        let set_aside = set_aside.into_iter().map(describe).collect();
        Ok(RawReport { output, suspended, cancelled, set_aside, figures: *figures, elapsed, variables })
    }
}

impl RawReport {
    /// Decodes the output.
    ///
    /// # Errors
    /// If the output cannot be decoded.
    pub(crate) fn decode<T: Task>(self) -> Result<Report<T>, JobError> {
        let Self { output, suspended, cancelled, set_aside, figures, elapsed, variables } = self;
        let unreadable = |error: DecodeError| JobError::Result { reason: error.to_string() };
        let (output, finished) = match output {
            RawOutput::Finished(output) => {
                (codec::decode(&output).map_err(unreadable)?, set_aside.is_empty())
            }
            RawOutput::Stopped(outputs) => {
                let merged =
                    merge(&outputs).map_err(|error| JobError::Result { reason: error.to_string() })?;
                (merged, false)
            }
        };
        Ok(Report { output, finished, suspended, cancelled, set_aside, figures, elapsed, variables })
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use zk::{Fate, Faults, MemoryTree};

    use super::*;
    use crate::{
        context::Context,
        report::variables_of,
        task::Outcome,
        variable::{Variable, Variables},
    };

    #[derive(Debug, Serialize, Deserialize)]
    struct Nothing;

    struct Best;

    impl Variable for Best {
        type Value = u64;
        const NAME: &'static str = "best";
        fn improves(new: &u64, old: &u64) -> bool {
            new < old
        }
    }

    impl Task for Nothing {
        type Shared = ();
        type Output = u64;

        fn variables(declare: &mut Variables) {
            declare.declare::<Best>();
        }

        fn search(&mut self, _: &mut Context<'_, Self>) -> Outcome {
            Outcome::Complete
        }

        fn split(&mut self, (): &()) -> Option<Self> {
            None
        }
    }

    /// Loses the n-th request from now.
    struct LoseOne(usize, Fate);

    impl Faults for LoseOne {
        fn judge(&mut self, _: i64, _: &'static str, _: &str) -> Fate {
            self.0 = self.0.saturating_sub(1);
            if self.0 == 1 { self.1 } else { Fate::Answered }
        }
    }

    #[test]
    fn work_of_earlier_attempts_is_counted_separately() {
        let said = |attempt, worked, worked_earlier| NodeFigures {
            attempt,
            figures: Figures { worked, worked_earlier, done_attos: 5, ..Figures::default() },
            last: true,
            ..NodeFigures::default()
        };
        // One node was lost in the first attempt, one continued in the second attempt, one joined there.
        let sum = sum([said(1, 100, 0), said(2, 80, 30), said(2, 7, 0)].iter());
        assert_eq!((sum.worked, sum.worked_earlier, sum.done_attos), (187, 130, 10));
    }

    #[tokio::test]
    async fn lost_read_causes_an_error_instead_of_a_missing_solution() {
        for fate in [Fate::LostBefore, Fate::LostAfter] {
            let tree = MemoryTree::new();
            let cluster = ClusterPaths::new("test").unwrap();
            let store = tree.connect();
            cluster.prepare(&*store).await.unwrap();
            let order = Submission {
                release: &Release { program: "test".to_owned(), version: "1".to_owned() },
                kind: "",
                task_type: "",
                name: "",
                submitter: "",
                attempts_max: 1,
                crashes_max: 3,
                require: Labels::NONE,
                after: &[],
                stays_open: false,
                share: Share::default(),
                shared: SharedData::Stored(&[]),
                brought: None,
                start_values: &[("best".to_owned(), codec::encode(&7_u64).unwrap())],
            };
            let root = Root::new(Nothing).unwrap();
            let draft = Draft::new(&root, &order);
            let submitted = Tracked::submit(store, cluster, &draft, Instant::now()).await.unwrap();
            let record = submitted.stop("enough").await.unwrap();
            let mut errors = 0;
            for lost in 2.. {
                tree.set_faults(LoseOne(lost, fate));
                let read = submitted.report(&record, &Figures::default(), variables_of::<Nothing>()).await;
                match read.and_then(RawReport::decode::<Nothing>) {
                    Ok(report) => {
                        assert_eq!(
                            report.var::<Best>().as_deref(),
                            Some(&7),
                            "{fate:?} of request {}",
                            lost - 1
                        );
                        break;
                    }
                    Err(JobError::Coordination(error)) if error.is_transient() => errors += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(errors >= 2, "the outputs and the variable are read");
        }
    }
}
