//! The removal of jobs that are over, with all their data.

use serde::Serialize;
use taskwork::JobId;
use utoipa::ToSchema;

use super::{Service, ServiceError, blocking, is_over, missing, word};
use crate::store::{MANIFEST, ORDER, Store, StoreError};

/// The content of the order of a removed job.
const MARK: &str = "{}";

/// The removed data of a job, and the objects that remain.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Removed {
    /// The number of objects in the store that were removed, and their size.
    objects: u64,
    bytes: u64,
    /// The objects that could not be removed. The job remains, so that the removal can be repeated.
    left: Vec<Left>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Left {
    object: String,
    reason: String,
}

impl Removed {
    pub(crate) fn is_complete(&self) -> bool {
        self.left.is_empty()
    }
}

impl Service {
    /// Removes the results, the arguments and the record of a job that is over. Its usage remains.
    pub(crate) async fn remove(&self, id: &JobId) -> Result<Removed, ServiceError> {
        let details = self.client.job(id).await.map_err(|error| missing(error, id))?;
        let (key, state) = (self.name_of(&details.record, id)?.key.to_owned(), word(details.stage));
        if !is_over(state) {
            return Err(ServiceError::Runs { job: id.clone(), state });
        }
        // The usage is computed from the record.
        self.write_usage().await?;
        self.recent(|recent| *recent = None);
        let store = self.store.clone();
        let removed = blocking(move || remove(&store, &key)).await??;
        if removed.is_complete() {
            self.client.forget(std::slice::from_ref(id), false).await.map_err(|error| missing(error, id))?;
        }
        Ok(removed)
    }
}

/// Removes the objects of a job: first the manifest, so that no part of the results is read as all of them. Of the order, a mark
/// remains, so that no other job has this key, since late writes could add results to it.
fn remove(store: &Store, key: &str) -> Result<Removed, StoreError> {
    let folder = Store::job(key);
    let failed = |error| StoreError::Io { name: folder.clone(), error };
    let mut objects = store.objects.sizes(&folder).map_err(failed)?;
    objects.sort_by_key(|(name, _)| !name.ends_with(MANIFEST));
    let mut removed = Removed::default();
    for (name, bytes) in objects {
        let object = format!("{folder}/{name}");
        let outcome = match &*name {
            ORDER if bytes == MARK.len() as u64 => continue,
            ORDER => store.objects.put(&object, MARK),
            _ => store.objects.delete(&object),
        };
        match outcome {
            Ok(()) => {
                removed.objects += 1;
                removed.bytes += bytes;
            }
            Err(error) => removed.left.push(Left { object, reason: error.to_string() }),
        }
    }
    Ok(removed)
}
