//! The usage of tenants, in the store.
//!
//! | object | content | written |
//! |---|---|---|
//! | `usage/KEY` | that of a job of calls | once, by the first gateway that sees the end of the job |
//! | `usage/direct-ID` | that of the direct calls of a gateway process | repeatedly by this process |
//!
//! The usage of a job is a part of the exact output of its tasks, and counts once by its key, also after the cluster has
//! forgotten the job.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskwork::client::Stage;
use tokio::time::sleep;
use utoipa::ToSchema;

use super::{Service, ServiceError, blocking};
use crate::{
    NAME,
    job_name::Name,
    store::{Store, StoreError},
    tenant::Tenant,
    usage::Usage,
};

/// The folder in the store.
const FOLDER: &str = "usage";

/// The prefix of the names of objects that change.
const DIRECT: &str = "direct-";

/// The usage of a routine by a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Usage)]
pub(crate) struct Record {
    #[schema(value_type = String)]
    pub(crate) tenant: Tenant,
    pub(crate) routine: String,
    #[serde(flatten)]
    pub(crate) usage: Usage,
}

/// The usage that this process knows.
#[derive(Debug)]
pub(super) struct Book {
    /// The name of the object of this process.
    own: String,
    /// The records of objects, by their names.
    known: Mutex<BTreeMap<String, Vec<Record>>>,
    direct: Mutex<BTreeMap<(Tenant, String), Usage>>,
}

impl Default for Book {
    fn default() -> Self {
        let own = format!("{DIRECT}{:032x}", rand::random::<u128>());
        Self { own, known: Mutex::default(), direct: Mutex::default() }
    }
}

impl Book {
    /// Counts a direct call.
    pub(super) fn add_direct(&self, tenant: &Tenant, routine: String, usage: &Usage) {
        let mut direct = self.direct.lock().unwrap_or_else(PoisonError::into_inner);
        direct.entry((tenant.clone(), routine)).or_default().merge(usage);
    }

    fn direct(&self) -> Vec<Record> {
        let direct = self.direct.lock().unwrap_or_else(PoisonError::into_inner);
        records(direct.clone())
    }

    /// Returns the keys of the jobs of a tenant that are over.
    pub(super) fn keys_of(&self, tenant: &Tenant) -> Vec<String> {
        let is_its = |records: &[Record]| records.iter().any(|record| record.tenant == *tenant);
        let known = self.known();
        known.iter().filter(|(_, records)| is_its(records)).map(|(name, _)| name.clone()).collect()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Record>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the objects of other processes: those of jobs once.
    fn read(&self, store: &Store) -> Result<(), StoreError> {
        let failed = |error| StoreError::Io { name: FOLDER.to_owned(), error };
        for name in store.objects.list(FOLDER).map_err(failed)? {
            let is_read = !name.starts_with(DIRECT) && self.known().contains_key(&name);
            if name == self.own || is_read {
                continue;
            }
            let text = store.objects.get(&object(&name)).map_err(failed)?;
            match serde_json::from_slice(&text) {
                Ok(records) => drop(self.known().insert(name, records)),
                Err(error) => tracing::warn!(name, %error, "a record of usage is damaged"),
            }
        }
        Ok(())
    }

    fn write(&self, store: &Store, name: &str, records: &[Record]) -> Result<(), StoreError> {
        let failed = |error| StoreError::Io { name: name.to_owned(), error };
        let text = serde_json::to_vec(records).map_err(|error| failed(error.into()))?;
        if name == self.own {
            return store.objects.put(&object(name), text).map_err(failed);
        }
        // Another gateway may have written the same.
        store.objects.create(&object(name), text).map(drop).map_err(failed)
    }
}

impl Service {
    /// Writes the usage of jobs that are over, and of direct calls, at this interval.
    pub(crate) async fn keep_usage(&self, every: Duration) -> Infallible {
        loop {
            sleep(every).await;
            if let Err(error) = self.write_usage().await {
                tracing::warn!(%error, "the usage cannot be written");
            }
        }
    }

    /// Reads the usage that other processes have written.
    pub(super) async fn read_usage(&self) -> Result<(), ServiceError> {
        let (book, store) = (self.usage.clone(), self.store.clone());
        Ok(blocking(move || book.read(&store)).await??)
    }

    pub(super) async fn write_usage(&self) -> Result<(), ServiceError> {
        self.read_usage().await?;
        let label = self.store.label().map_err(|error| ServiceError::Invalid(error.to_string()))?;
        for entry in self.client.overview().await?.jobs {
            let is_over = matches!(entry.stage, Stage::Done | Stage::Incomplete);
            let is_own = |record: &_| is_over && is_of(record, &label);
            let Some(record) = entry.record.filter(is_own) else { continue };
            let name = Name::parse(&record.name).filter(|name| name.calls.is_some());
            let (Some(name), Ok(id)) = (name, entry.id.parse()) else { continue };
            if self.usage.known().contains_key(name.key) {
                continue;
            }
            let usage = match self.tally(&id).await {
                Ok(tally) => Usage::of_job(&tally),
                Err(error) => {
                    tracing::debug!(%id, %error, "the usage of a job is not available");
                    continue;
                }
            };
            let records = vec![Record { tenant: name.tenant, routine: name.routine.to_owned(), usage }];
            self.write_records(name.key.to_owned(), records).await?;
        }
        let direct = self.usage.direct();
        if direct.is_empty() {
            return Ok(());
        }
        self.write_records(self.usage.own.clone(), direct).await
    }

    async fn write_records(&self, name: String, records: Vec<Record>) -> Result<(), ServiceError> {
        let (book, store) = (self.usage.clone(), self.store.clone());
        let write = move || {
            book.write(&store, &name, &records)?;
            book.known().insert(name, records);
            Ok::<_, StoreError>(())
        };
        Ok(blocking(write).await??)
    }

    /// Returns the usage of this tenant, or of all tenants, sorted by tenant and routine.
    pub(crate) async fn usage(&self, is_of_all: bool) -> Result<Vec<Record>, ServiceError> {
        self.write_usage().await?;
        let mut sums = BTreeMap::<_, Usage>::new();
        for Record { tenant, routine, usage } in self.usage.known().values().flatten() {
            if is_of_all || *tenant == self.store.tenant {
                sums.entry((tenant.clone(), routine.clone())).or_default().merge(usage);
            }
        }
        Ok(records(sums))
    }
}

/// Returns whether a job is one of this program with the store of a label.
fn is_of(record: &taskwork::client::records::JobRecord, label: &taskwork::Labels) -> bool {
    record.program == NAME && record.require == *label
}

fn records(sums: BTreeMap<(Tenant, String), Usage>) -> Vec<Record> {
    sums.into_iter().map(|((tenant, routine), usage)| Record { tenant, routine, usage }).collect()
}

fn object(name: &str) -> String {
    format!("{FOLDER}/{name}")
}
