//! Quotas: the maximum numbers of calls and jobs, and of bytes, of each tenant.
//!
//! A gateway counts its own direct calls, and reads the numbers of jobs and bytes before it adds one. So several gateways,
//! or uploads at the same time, may exceed a number once.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Service, ServiceError, blocking, word};
use crate::{NAME, job_name::Name, resource::ResourceError, store::Store, tenant::Tenant};

/// The limits of a tenant; a missing one is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    /// The number of direct calls at a time.
    running: Option<usize>,
    /// The number of direct calls that wait for those.
    waiting: Option<usize>,
    /// The number of jobs that are not over.
    jobs: Option<usize>,
    /// The size of all resources, including replaced contents that jobs may use.
    resource_bytes: Option<u64>,
    /// The size of the results of all jobs.
    result_bytes: Option<u64>,
}

/// The file: limits of all tenants, and those of some instead.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    default: Limits,
    #[serde(default)]
    tenants: BTreeMap<String, Limits>,
}

/// The quotas of all tenants, and their direct calls in this process.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    file: File,
    calls: Mutex<HashMap<Tenant, Arc<Calls>>>,
}

#[derive(Debug)]
struct Calls {
    running: Arc<Semaphore>,
    /// The number of running and waiting calls.
    present: AtomicUsize,
}

/// The turn of a direct call, until it has ended.
#[derive(Debug)]
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
    _present: Present,
}

#[derive(Debug)]
struct Present(Arc<Calls>);

impl Drop for Present {
    fn drop(&mut self) {
        self.0.present.fetch_sub(1, Relaxed);
    }
}

impl Quotas {
    /// Reads a file.
    ///
    /// # Errors
    /// The reason if it is invalid.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        match file.tenants.keys().find(|name| Tenant::parse(name).is_none()) {
            Some(name) => Err(format!("{name:?} is no name of a tenant")),
            None => Ok(Self { file, calls: Mutex::default() }),
        }
    }

    fn of(&self, tenant: &Tenant) -> &Limits {
        self.file.tenants.get(&tenant.to_string()).unwrap_or(&self.file.default)
    }

    /// Waits for the turn of a direct call, unless too many wait.
    async fn turn(&self, tenant: &Tenant) -> Result<Option<Turn>, ServiceError> {
        let limits = self.of(tenant);
        let Some(running) = limits.running else { return Ok(None) };
        let calls = {
            let mut all = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            let none = || {
                let running = Arc::new(Semaphore::new(running.min(Semaphore::MAX_PERMITS)));
                Arc::new(Calls { running, present: AtomicUsize::new(0) })
            };
            Arc::clone(all.entry(tenant.clone()).or_insert_with(none))
        };
        let waiting = limits.waiting.unwrap_or(usize::MAX);
        let before = calls.present.fetch_add(1, Relaxed);
        let present = Present(Arc::clone(&calls));
        if before >= running.saturating_add(waiting) {
            let what = format!("{running} direct calls at a time, while {waiting} wait");
            return Err(exceeded("`running` and `waiting`", &what));
        }
        let permit = Arc::clone(&calls.running).acquire_owned().await;
        let permit = permit.map_err(|_| ServiceError::Busy)?;
        Ok(Some(Turn { _permit: permit, _present: present }))
    }
}

fn exceeded(limit: &str, most: &str) -> ServiceError {
    ServiceError::Quota(format!(
        "the quota {limit} of the tenant permits at most {most}: repeat the request later"
    ))
}

impl Service {
    /// Returns the service with quotas.
    pub(crate) fn with_quotas(self, quotas: Quotas) -> Self {
        Self { quotas: Arc::new(quotas), ..self }
    }

    /// Waits for the turn of a direct call.
    pub(super) async fn turn(&self) -> Result<Option<Turn>, ServiceError> {
        self.quotas.turn(&self.store.tenant).await
    }

    /// Returns whether the number of jobs is limited.
    pub(super) fn limits_jobs(&self) -> bool {
        self.quotas.of(&self.store.tenant).jobs.is_some()
    }

    /// Checks that the tenant may have another job.
    pub(super) async fn check_quota(&self) -> Result<(), ServiceError> {
        let limits = *self.quotas.of(&self.store.tenant);
        if limits.jobs.is_none() && limits.result_bytes.is_none() {
            return Ok(());
        }
        let (mut keys, mut running) = (Vec::new(), 0);
        for entry in self.client.overview().await?.jobs {
            let Some(record) = entry.record.filter(|record| record.program == NAME) else { continue };
            let Some(name) = Name::parse(&record.name).filter(|name| name.tenant == self.store.tenant) else {
                continue;
            };
            keys.push(name.key.to_owned());
            running += usize::from(!super::is_over(word(entry.stage)));
        }
        if let Some(jobs) = limits.jobs.filter(|jobs| running >= *jobs) {
            return Err(exceeded("`jobs`", &format!("{jobs} jobs that are not over")));
        }
        let Some(result_bytes) = limits.result_bytes else { return Ok(()) };
        // Of jobs that the cluster has forgotten, too.
        self.read_usage().await?;
        keys.extend(self.usage.keys_of(&self.store.tenant));
        keys.sort_unstable();
        let store = self.store.clone();
        let sum = move || {
            let sizes = store.objects.sizes("jobs")?.into_iter();
            let is_own = |name: &str| {
                name.split_once('/')
                    .is_some_and(|(key, _)| keys.binary_search_by(|it| it.as_str().cmp(key)).is_ok())
            };
            Ok(sizes.filter(|(name, _)| is_own(name)).map(|(_, bytes)| bytes).sum::<u64>())
        };
        let bytes = blocking(sum).await?.map_err(ResourceError::Io)?;
        if bytes >= result_bytes {
            let most = format!("{result_bytes} bytes of results in the store, and there are {bytes}");
            return Err(exceeded("`result_bytes`", &most));
        }
        Ok(())
    }

    /// Returns the number of bytes that the tenant may still upload.
    pub(crate) async fn resource_bytes_left(&self) -> Result<Option<u64>, ServiceError> {
        let Some(most) = self.quotas.of(&self.store.tenant).resource_bytes else { return Ok(None) };
        let bytes = self.with_store(Store::resource_bytes).await?;
        Ok(Some(most.saturating_sub(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_tenant_replace_those_of_all() {
        let text = "[default]\njobs = 2\nrunning = 1\n[tenants.anna]\njobs = 5\n";
        let quotas = Quotas::parse(text).unwrap();
        let of = |name| *quotas.of(&Tenant::parse(name).unwrap());
        assert_eq!(of("anna"), Limits { jobs: Some(5), ..Limits::default() });
        assert_eq!(of("bert"), Limits { jobs: Some(2), running: Some(1), ..Limits::default() });
        for (wrong, says) in [
            ("[default]\njob = 2", "job"),
            ("jobs = 2", "jobs"),
            ("[tenants.\"a b\"]", "a b"),
            ("[default]\njobs = -1", "jobs"),
        ] {
            let refused = Quotas::parse(wrong).unwrap_err();
            assert!(refused.contains(says), "{wrong}: {refused}");
        }
    }

    #[tokio::test]
    async fn calls_beyond_running_wait_and_beyond_waiting_are_refused() {
        let quotas = Arc::new(Quotas::parse("[default]\nrunning = 1\nwaiting = 1").unwrap());
        let [anna, bert] = ["anna", "bert"].map(|name| Tenant::parse(name).unwrap());
        let first = quotas.turn(&anna).await.unwrap();
        let (its, tenant) = (Arc::clone(&quotas), anna.clone());
        let second = tokio::spawn(async move { its.turn(&tenant).await.unwrap() });
        while quotas.calls.lock().unwrap()[&anna].present.load(Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        let refused = quotas.turn(&anna).await.unwrap_err().to_string();
        assert!(refused.contains("`waiting`"), "{refused}");
        assert!(quotas.turn(&bert).await.unwrap().is_some(), "another tenant has its own");
        drop(first);
        let second = second.await.unwrap();
        assert_eq!(quotas.calls.lock().unwrap()[&anna].present.load(Relaxed), 1);
        drop(second);
        assert_eq!(quotas.calls.lock().unwrap()[&anna].present.load(Relaxed), 0);
    }
}
