//! Jobs of routines: submission, state, results. The gateway and the commands use it.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use serde::Serialize;
use taskwork::{
    Client, JobId,
    client::{ClientError, JobRecord, Stage},
};
use thiserror::Error;

use crate::{
    NAME,
    batch::Batch,
    order::{Order, Space},
    store::{Results, ResultsError, Store, StoreError},
    tally::Tally,
};

/// The number of hexadecimal digits of a key.
const KEY_DIGITS: usize = 32;

/// Access to the jobs of a cluster and their results.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    client: Client,
    store: Store,
    /// The results that were read last, since users read page after page.
    recent: Arc<Mutex<Recent>>,
    /// Held while a job with a key of a user is looked for and submitted.
    submitting: Arc<tokio::sync::Mutex<()>>,
}

/// A job and its results.
type Recent = Option<(JobId, Arc<Results>)>;

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
    #[error("the key was used for other calls, in job {0}: choose another one")]
    KeyTaken(JobId),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Results(#[from] ResultsError),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// The state of a job.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    pub(crate) job: String,
    pub(crate) routine: String,
    pub(crate) state: &'static str,
    /// The number of calls.
    pub(crate) calls: u64,
    /// The number of calls that have ended; while the job runs, as its nodes have last reported it.
    pub(crate) ended: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tally: Option<Tally>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// The parts of a job's name, from which any gateway finds its results.
struct Name<'a> {
    routine: &'a str,
    key: &'a str,
    calls: u64,
}

impl<'a> Name<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let mut parts = name.split(' ');
        let (routine, key, calls) = (parts.next()?, parts.next()?, parts.next()?);
        let is_key = key.len() == KEY_DIGITS && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_key && parts.next().is_none()).then_some(Self { routine, key, calls: calls.parse().ok()? })
    }
}

impl Service {
    pub(crate) fn new(client: Client, store: Store) -> Self {
        Self { client, store, recent: Arc::default(), submitting: Arc::default() }
    }

    /// Submits a job. If there is one with the same key of the user, that is returned, and not new.
    pub(crate) async fn submit(
        &self,
        routine: &str,
        space: Space,
        key: Option<&str>,
    ) -> Result<(JobId, bool), ServiceError> {
        let (store, of) = (self.store.clone(), routine.to_owned());
        let package = blocking(move || store.resolve(&of)).await??;
        let name = package.name();
        let Some(key) = key else {
            let order =
                Order { digest: package.digest, key: format!("{:032x}", rand::random::<u128>()), space };
            return Ok((self.send(order, &name).await?, true));
        };
        let order = Order { digest: package.digest, key: key_of(key), space };
        let _one = self.submitting.lock().await;
        for entry in self.client.overview().await?.jobs {
            let Some(record) = entry.record.filter(|record| record.program == NAME) else { continue };
            if Name::parse(&record.name).is_some_and(|its| its.key == order.key) {
                let id = entry.id.parse().map_err(|_| ServiceError::Invalid("a job has no id".to_owned()))?;
                let is_same = record.name == job_name(&order, &name);
                return if is_same { Ok((id, false)) } else { Err(ServiceError::KeyTaken(id)) };
            }
        }
        Ok((self.send(order, &name).await?, true))
    }

    async fn send(&self, order: Order, name: &str) -> Result<JobId, ServiceError> {
        let name = job_name(&order, name);
        let label = self.store.label().map_err(|error| ServiceError::Invalid(error.to_string()))?;
        let submitted = self.client.submit(Batch::job(order, name).require(label)).await?;
        if submitted.brings_data() {
            let reason = "the arguments have more than 64 MiB: submit several jobs".to_owned();
            submitted.cancel(&reason).await?;
            return Err(ServiceError::Invalid(reason));
        }
        Ok(submitted.id().clone())
    }

    /// Returns the state of a job.
    pub(crate) async fn status(&self, id: &JobId) -> Result<Status, ServiceError> {
        let details = self.client.job(id).await.map_err(|error| missing(error, id))?;
        let record = &details.record;
        let name = name_of(record, id)?;
        let state = word(details.stage);
        let tally =
            if state == SUCCESSFUL || state == INCOMPLETE { Some(self.tally(id).await?) } else { None };
        let reported = details.sums().0.worked.min(name.calls);
        Ok(Status {
            job: id.to_string(),
            routine: name.routine.to_owned(),
            state,
            calls: name.calls,
            ended: tally.as_ref().map_or(reported, |tally| tally.ended),
            tally,
            reason: record.reason.clone().or(details.missing),
        })
    }

    /// Waits until a job is over.
    pub(crate) async fn wait(&self, id: &JobId) -> Result<(), ServiceError> {
        self.client.wait(id).await.map(drop).map_err(|error| missing(error, id))
    }

    /// Cancels a job.
    pub(crate) async fn cancel(&self, id: &JobId, reason: &str) -> Result<(), ServiceError> {
        let record = self.client.record(id).await.map_err(|error| missing(error, id))?;
        name_of(&record, id)?;
        Ok(self.client.cancel(id, reason).await?)
    }

    /// Returns the results of a successful job.
    pub(crate) async fn results(&self, id: &JobId) -> Result<Arc<Results>, ServiceError> {
        if let Some(results) = self.recent(|recent| recent.as_ref().filter(|(of, _)| of == id).cloned()) {
            return Ok(results.1);
        }
        let Status { state, reason, ended, .. } = self.status(id).await?;
        match state {
            SUCCESSFUL => {}
            ACCEPTED | RUNNING | SUSPENDED => return Err(ServiceError::NotOver { job: id.clone(), state }),
            _ => return Err(ServiceError::NoResults { job: id.clone(), state, reason }),
        }
        let folder = self.folder(id).await?;
        let results = Arc::new(blocking(move || Results::open(&folder, ended)).await??);
        self.recent(|recent| *recent = Some((id.clone(), Arc::clone(&results))));
        Ok(results)
    }

    fn recent<R>(&self, with: impl FnOnce(&mut Recent) -> R) -> R {
        with(&mut self.recent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn folder(&self, id: &JobId) -> Result<PathBuf, ServiceError> {
        let record = self.client.record(id).await.map_err(|error| missing(error, id))?;
        Ok(self.store.job(name_of(&record, id)?.key))
    }

    async fn tally(&self, id: &JobId) -> Result<Tally, ServiceError> {
        Ok(self.client.submitted::<Batch>(id).await?.result().await?.output)
    }
}

/// Parses the name of a job of routines.
fn name_of<'a>(record: &'a JobRecord, id: &JobId) -> Result<Name<'a>, ServiceError> {
    let name = Name::parse(&record.name).filter(|_| record.program == NAME);
    name.ok_or_else(|| ServiceError::NoJob(id.clone()))
}

fn job_name(order: &Order, routine: &str) -> String {
    format!("{routine} {} {}", order.key, order.space.len())
}

/// Returns the key of a job from that of a user.
fn key_of(key: &str) -> String {
    let key = blake3::derive_key("routines 2026 idempotency key", key.as_bytes());
    let mut digits = blake3::Hash::from_bytes(key).to_hex().to_string();
    digits.truncate(KEY_DIGITS);
    digits
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
    ran.map_err(|error| ServiceError::Invalid(format!("the request cannot be served: {error}")))
}

const ACCEPTED: &str = "accepted";
const RUNNING: &str = "running";
const SUSPENDED: &str = "suspended";
pub(crate) const SUCCESSFUL: &str = "successful";
const INCOMPLETE: &str = "incomplete";
const FAILED: &str = "failed";
const CANCELLED: &str = "cancelled";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_name_contains_what_gateways_need() {
        let order =
            Order { digest: String::new(), key: key_of("mine"), space: Space::Range { from: 3, to: 10 } };
        let name = job_name(&order, "pi@1");
        let parsed = Name::parse(&name).unwrap();
        assert_eq!((parsed.routine, parsed.key, parsed.calls), ("pi@1", &*order.key, 7));
        assert_ne!(key_of("mine"), key_of("yours"));
        for wrong in ["", "pi@1", "pi@1 key 7", "a night's work", &format!("{name} more")] {
            assert!(Name::parse(wrong).is_none(), "{wrong}");
        }
    }
}
