//! Jobs of routines: submission, state, results. The gateway and the commands use it.

mod arguments;
mod cancel;
mod direct;
mod quota;
mod remove;
mod rerun;
mod usage;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::Serialize;
use taskwork::{
    Client, Job, JobId, Release, Task,
    client::{ClientError, Stage, records::JobRecord},
};
use thiserror::Error;
use tokio::task::JoinError;
use utoipa::ToSchema;

use self::{
    arguments::{check_kind, checked, checked_groups},
    usage::Book,
};
pub(crate) use self::{quota::Quotas, remove::Removed, usage::Record};
use crate::{
    NAME,
    batch::{Batch, reduced_name},
    job_name::{Name, job_name, key_of},
    library::{Library, Page, Query},
    order::{Order, Work},
    reduce::Reduced,
    reduction::Reduce,
    resource::ResourceError,
    runtime::{Installed, Packages},
    search::{Best, Foreign, result_of},
    signature::Parameters,
    space::Space,
    store::{Line, Results, ResultsError, Store, StoreError},
    table::{Table, TableError},
    tally::{Counted, Tally},
    tenant::Tenant,
    wire::EntryKind,
};

/// Access to the jobs of a tenant in a cluster, and their results. There are no other jobs for it.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    client: Client,
    store: Store,
    /// The results that were read last, since users read page after page.
    recent: Arc<Mutex<Recent>>,
    /// Held while a job with a key of a user, or a limited number of jobs, is looked for and submitted.
    submitting: Arc<tokio::sync::Mutex<()>>,
    packages: Arc<Packages>,
    library: Arc<Library>,
    usage: Arc<Book>,
    quotas: Arc<Quotas>,
}

/// A job and its results.
type Recent = Option<(JobId, Tenant, Arc<Results>)>;

/// The reasons for which a request is refused or fails.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum ServiceError {
    #[error("{0}")]
    Invalid(String),
    #[error("there is no job {0} of routines")]
    NoJob(JobId),
    #[error("job {job} is {state}: it has results once it is successful")]
    NotOver { job: JobId, state: &'static str },
    #[error("job {job} is {state}, so it has no results{}", .reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default())]
    NoResults { job: JobId, state: &'static str, reason: Option<String> },
    #[error("job {job} is {state}: its calls cannot be cancelled")]
    Over { job: JobId, state: &'static str },
    #[error("job {job} is {state}: cancel it, and remove it when it is over")]
    Runs { job: JobId, state: &'static str },
    #[error("job {job} has no call {index}")]
    NoCall { job: JobId, index: u64 },
    #[error("job {0} has no failed calls: there is nothing to repeat")]
    NoFailures(JobId),
    #[error("all nodes are busy with other calls: repeat the request later")]
    Busy,
    #[error("there is no node that makes direct calls: start one by routines node")]
    NoNode,
    #[error("{0}")]
    Quota(String),
    #[error("the key was used for other calls, in job {0}: choose another one")]
    KeyTaken(JobId),
    #[error("the request cannot be served: {0}")]
    Unserved(JoinError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Resource(#[from] ResourceError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Results(#[from] ResultsError),
    #[error(transparent)]
    Client(#[from] ClientError),
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Job)]
pub(crate) struct Status {
    pub(crate) job: String,
    pub(crate) routine: String,
    pub(crate) state: &'static str,
    /// The number of calls; `None` if the job is a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) calls: Option<u64>,
    /// The number of calls that have ended; while the job runs, as its nodes have last reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tally: Option<Counted>,
    /// The numbers that `reduce` has requested, by their names; numbers that are not finite have the form of values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reduced: Option<serde_json::Value>,
    /// The numbers of each group that `by` has requested, with its arguments in `by`, sorted by them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) groups: Option<Vec<serde_json::Value>>,
    /// The reason for which it waits, has ended early, or has results that are not combined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

impl Status {
    pub(crate) fn is_over(&self) -> bool {
        is_over(self.state)
    }
}

impl Service {
    /// # Errors
    /// If the folder for packages cannot be created.
    pub(crate) fn new(client: Client, store: Store) -> Result<Self, ServiceError> {
        let packages = Packages::within(&std::env::temp_dir());
        let packages = packages
            .map_err(|error| ServiceError::Invalid(format!("no folder for temporary files: {error}")))?;
        Ok(Self {
            client,
            store,
            recent: Arc::default(),
            submitting: Arc::default(),
            packages: Arc::new(packages),
            library: Arc::default(),
            usage: Arc::default(),
            quotas: Arc::default(),
        })
    }

    /// Returns the service of a tenant.
    pub(crate) fn of(&self, tenant: Tenant) -> Self {
        Self { store: self.store.of(tenant), ..self.clone() }
    }

    /// Submits a job. If there is one with the same key of the user, that is returned, and not new.
    pub(crate) async fn submit(
        &self,
        routine: &str,
        work: Work,
        key: Option<&str>,
    ) -> Result<(JobId, bool), ServiceError> {
        let installed = self.package(routine, Duration::ZERO).await?;
        let package = &installed.package;
        let (kind, name, digest) = (package.description.kind, package.name(), package.digest.clone());
        check_kind(&work, package)?;
        // Before the files are read: a repeated request may find other contents.
        let arguments = work.digest();
        let is_one = key.is_some() || self.limits_jobs();
        let _one = if is_one { Some(self.submitting.lock().await) } else { None };
        let mut number = 0;
        let of_job = loop {
            let Some(key) = key else { break format!("{:032x}", rand::random::<u128>()) };
            let of_job = key_of(&self.store.tenant, key, number);
            if let Some((id, record)) = self.with_key(&of_job).await? {
                let is_same = self.name_of(&record, &id)?.is_of(routine, &name, &arguments);
                return if is_same { Ok((id, false)) } else { Err(ServiceError::KeyTaken(id)) };
            }
            if !self.is_used(&of_job).await? {
                break of_job;
            }
            number += 1;
        };
        self.check_quota().await?;
        let work = self.with_files(work).await?;
        if let Work::Calls { space, .. } = &work {
            space.check_len().map_err(ServiceError::Invalid)?;
        }
        let work = checked_groups(work).await?;
        let title = job_name(&of_job, work.calls(), &arguments, &name, &self.store.tenant);
        let (space, mut reduce) = match work {
            Work::Calls { space, reduce } => (space, reduce),
            Work::Search(argument) => (Space::List(vec![argument]), Reduce::default()),
        };
        let space = checked(&installed, space, Parameters::check_space).await?;
        let space = self.referred(space, kind).await?;
        if let Some(routine) = &mut reduce.routine {
            *routine = self.reducer(routine).await?;
        }
        let order = Order { tenant: self.store.tenant.clone(), ..Order::new(digest, of_job, space, reduce) };
        Ok((self.send(order, kind, title).await?, true))
    }

    /// Returns the digest of a routine that combines results.
    async fn reducer(&self, routine: &str) -> Result<String, ServiceError> {
        let installed = self.package(routine, Duration::ZERO).await?;
        let package = &installed.package;
        if package.description.reducer {
            return Ok(package.digest.clone());
        }
        Err(ServiceError::Invalid(format!(
            "{} is no reducer: deploy a version with `reducer = true` in routine.toml, which routines check tests",
            package.name()
        )))
    }

    /// Returns the job with a key.
    async fn with_key(&self, key: &str) -> Result<Option<(JobId, JobRecord)>, ServiceError> {
        for entry in self.client.overview().await?.jobs {
            let Some(record) = entry.record.filter(|record| record.program == NAME) else { continue };
            if Name::parse(&record.name).is_some_and(|its| its.key == key) {
                let id = entry.id.parse().map_err(|_| ServiceError::Invalid("a job has no id".to_owned()))?;
                return Ok(Some((id, record)));
            }
        }
        Ok(None)
    }

    /// Returns whether an earlier job with a key, which was forgotten, may have results in the store.
    async fn is_used(&self, key: &str) -> Result<bool, ServiceError> {
        let (store, key) = (self.store.clone(), key.to_owned());
        Ok(blocking(move || store.has_order(&key)).await??)
    }

    /// Returns a key that work has in common with the same work of this version of a routine in this store only.
    pub(crate) async fn key_of(&self, routine: &str, work: &Work) -> Result<String, ServiceError> {
        let installed = self.package(routine, Duration::ZERO).await?;
        let label = self.store.label().map_err(|error| ServiceError::Invalid(error.to_string()))?;
        Ok(format!("{label} {} {}", installed.package.digest, work.digest()))
    }

    async fn send(&self, order: Order, kind: EntryKind, name: String) -> Result<JobId, ServiceError> {
        match kind {
            EntryKind::Function => {
                let store = self.store.clone();
                let order = blocking(move || store.put_order(&order).map(|()| order)).await??;
                self.send_job(Batch::job(order, name)).await
            }
            EntryKind::Search => self.send_job(Foreign::job(order, name)).await,
        }
    }

    async fn send_job<T: Task>(&self, job: Job<T>) -> Result<JobId, ServiceError> {
        let label = self.store.label().map_err(|error| ServiceError::Invalid(error.to_string()))?;
        let submitted = self.client.submit(job.require(label)).await?;
        if submitted.brings_data() {
            let reason = "the arguments have more than 64 MiB: submit several jobs".to_owned();
            submitted.cancel(&reason).await?;
            return Err(ServiceError::Invalid(reason));
        }
        Ok(submitted.id().clone())
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Accesses resources.
    pub(crate) async fn with_store<R: Send + 'static>(
        &self,
        access: impl FnOnce(&Store) -> Result<R, ResourceError> + Send + 'static,
    ) -> Result<R, ServiceError> {
        let store = self.store.clone();
        Ok(blocking(move || access(&store)).await??)
    }

    /// Returns the package of a routine, of which the latest version at most this time ago is selected by a name alone.
    pub(crate) async fn package(
        &self,
        routine: &str,
        age_max: Duration,
    ) -> Result<Arc<Installed>, ServiceError> {
        let (service, of) = (self.clone(), routine.to_owned());
        Ok(blocking(move || service.packages.named(&service.store, &of, age_max)).await??)
    }

    /// Returns a page of the routines that a query matches.
    pub(crate) async fn find(&self, query: Query) -> Result<Page, ServiceError> {
        let (store, library) = (self.store.clone(), Arc::clone(&self.library));
        Ok(blocking(move || library.find(&store, &query)).await??)
    }

    pub(crate) async fn status(&self, id: &JobId) -> Result<Status, ServiceError> {
        let details = self.client.job(id).await.map_err(|error| missing(error, id))?;
        let record = &details.record;
        let name = self.name_of(record, id)?;
        let state = word(details.stage);
        let has_tally = name.calls.is_some() && (state == SUCCESSFUL || state == INCOMPLETE);
        let tally = if has_tally { Some(self.tally(id).await?) } else { None };
        let reduced = tally.as_ref().and_then(|tally| tally.reduced.as_deref());
        let mut shown = reduced.and_then(Reduced::shown);
        if tally.as_ref().is_some_and(|tally| tally.is_combined) {
            let (store, object) = (self.store.clone(), reduced_name(name.key));
            let read = blocking(move || {
                store.objects.get(&object).map_err(|error| StoreError::Io { name: object, error })
            });
            let value = serde_json::from_slice(&read.await??).map_err(|error| {
                ServiceError::Invalid(format!("the combined result of job {id} is damaged: {error}"))
            })?;
            shown.get_or_insert_with(|| serde_json::json!({}))["routine"] = value;
        }
        let uncombined = tally.as_ref().and_then(|tally| tally.uncombined.as_ref());
        let uncombined = uncombined.map(|(_, reason)| format!("the results are not combined: {reason}"));
        let reported = name.calls.map(|calls| details.sums().0.worked.min(calls));
        Ok(Status {
            job: id.to_string(),
            routine: name.routine.to_owned(),
            state,
            calls: name.calls,
            ended: tally.as_ref().map(|tally| tally.ended).or(reported),
            reduced: shown,
            groups: reduced.and_then(Reduced::shown_groups),
            tally: tally.as_ref().map(Tally::counted),
            reason: record.reason.clone().or(details.missing).or(uncombined),
        })
    }

    /// Returns the version of the program that runs a job if it is not this release; `None` if the job is over.
    pub(crate) async fn other_build(
        &self,
        id: &JobId,
        release: &Release,
    ) -> Result<Option<String>, ServiceError> {
        let record = self.client.record(id).await.map_err(|error| missing(error, id))?;
        let is_other = !record.state.is_over() && record.program_version != release.version();
        Ok(is_other.then_some(record.program_version))
    }

    /// Waits until a job of routines is over.
    pub(crate) async fn wait(&self, id: &JobId) -> Result<(), ServiceError> {
        let record = self.client.record(id).await.map_err(|error| missing(error, id))?;
        self.name_of(&record, id)?;
        self.client.wait(id).await.map(drop).map_err(|error| missing(error, id))
    }

    pub(crate) async fn cancel(&self, id: &JobId, reason: &str) -> Result<(), ServiceError> {
        let record = self.client.record(id).await.map_err(|error| missing(error, id))?;
        self.name_of(&record, id)?;
        Ok(self.client.cancel(id, reason).await?)
    }

    /// Returns the results of a successful job.
    pub(crate) async fn results(&self, id: &JobId) -> Result<Arc<Results>, ServiceError> {
        let is_it = |(of, owner, _): &&(JobId, Tenant, _)| of == id && *owner == self.store.tenant;
        if let Some((.., results)) = self.recent(|recent| recent.as_ref().filter(is_it).cloned()) {
            return Ok(results);
        }
        let Some(ended) = self.successful(id).await?.ended else {
            return Err(ServiceError::Invalid(format!("job {id} is a search, which has one result")));
        };
        let (objects, folder) = (self.store.objects.clone(), self.folder(id).await?);
        let results = Arc::new(blocking(move || Results::open(objects, &folder, ended)).await??);
        self.recent(|recent| *recent = Some((id.clone(), self.store.tenant.clone(), Arc::clone(&results))));
        Ok(results)
    }

    /// Returns the columns of results.
    pub(crate) async fn table(&self, results: &Arc<Results>) -> Result<Table, ServiceError> {
        let results = Arc::clone(results);
        Ok(blocking(move || Table::of(&results)).await??)
    }

    /// Reads results, as [`Results::lines`] does.
    pub(crate) async fn lines(
        results: &Arc<Results>,
        from: u64,
        most: usize,
        bytes_max: usize,
    ) -> Result<Vec<Line>, ServiceError> {
        let results = Arc::clone(results);
        Ok(blocking(move || results.lines(from, most, bytes_max)).await??)
    }

    /// Returns the result of a successful search as JSON; `None` if the job makes calls.
    pub(crate) async fn search_result(&self, id: &JobId) -> Result<Option<String>, ServiceError> {
        let record = self.client.record(id).await.map_err(|error| missing(error, id))?;
        if self.name_of(&record, id)?.calls.is_some() {
            return Ok(None);
        }
        self.successful(id).await?;
        let report = self.client.submitted::<Foreign>(id).await?.result().await?;
        Ok(Some(result_of(&report.output, report.var::<Best>().as_deref())))
    }

    /// Returns the state of a job that is successful.
    async fn successful(&self, id: &JobId) -> Result<Status, ServiceError> {
        let status = self.status(id).await?;
        let (job, state) = (id.clone(), status.state);
        match state {
            SUCCESSFUL => Ok(status),
            ACCEPTED | RUNNING | SUSPENDED => Err(ServiceError::NotOver { job, state }),
            _ => Err(ServiceError::NoResults { job, state, reason: status.reason }),
        }
    }

    fn recent<R>(&self, with: impl FnOnce(&mut Recent) -> R) -> R {
        with(&mut self.recent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn folder(&self, id: &JobId) -> Result<String, ServiceError> {
        let record = self.client.record(id).await.map_err(|error| missing(error, id))?;
        Ok(Store::job(self.name_of(&record, id)?.key))
    }

    /// Parses the name of a job of routines.
    fn name_of<'a>(&self, record: &'a JobRecord, id: &JobId) -> Result<Name<'a>, ServiceError> {
        let is_own = |name: &Name| record.program == NAME && name.tenant == self.store.tenant;
        Name::parse(&record.name).filter(is_own).ok_or_else(|| ServiceError::NoJob(id.clone()))
    }

    async fn tally(&self, id: &JobId) -> Result<Tally, ServiceError> {
        Ok(self.client.submitted::<Batch>(id).await?.result().await?.output)
    }
}

fn missing(error: ClientError, id: &JobId) -> ServiceError {
    match error {
        ClientError::NoJob { .. } | ClientError::NoCluster { .. } => ServiceError::NoJob(id.clone()),
        error => error.into(),
    }
}

/// Runs a function that accesses files.
async fn blocking<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> Result<R, ServiceError> {
    let ran = tokio::task::spawn_blocking(run).await;
    ran.map_err(ServiceError::Unserved)
}

const ACCEPTED: &str = "accepted";
const RUNNING: &str = "running";
const SUSPENDED: &str = "suspended";
pub(crate) const SUCCESSFUL: &str = "successful";
const INCOMPLETE: &str = "incomplete";
const FAILED: &str = "failed";
const CANCELLED: &str = "cancelled";

fn is_over(state: &str) -> bool {
    !matches!(state, ACCEPTED | RUNNING | SUSPENDED)
}

/// Returns the state of a job at this stage.
fn word(stage: Stage) -> &'static str {
    match stage {
        Stage::Running => RUNNING,
        Stage::Suspended => SUSPENDED,
        Stage::Done => SUCCESSFUL,
        Stage::Incomplete => INCOMPLETE,
        Stage::Failed | Stage::Abandoned | Stage::Unreadable => FAILED,
        Stage::Cancelled => CANCELLED,
        _ => ACCEPTED,
    }
}
