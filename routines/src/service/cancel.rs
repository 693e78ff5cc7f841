//! Requests to cancel single calls of jobs.

use std::time::Duration;

use serde_json::json;
use taskwork::{ClientError, JobId};

use super::{Service, ServiceError, blocking, is_over, missing, word};
use crate::{batch::Batch, store::StoreError};

/// The maximum time to wait for a node that notes the request. Later, the next node that works on the job finds it.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The maximum number of calls of a job that are cancelled singly.
const CANCELLED_MAX: u64 = 10_000;

impl Service {
    /// Cancels one call of a job. If it has a result, the request has no effect.
    pub(crate) async fn cancel_call(&self, id: &JobId, index: u64) -> Result<(), ServiceError> {
        let record = self.client.record(id).await.map_err(|error| missing(error, id))?;
        let name = self.name_of(&record, id)?;
        if name.calls.is_none() {
            return Err(ServiceError::Invalid(format!(
                "job {id} is a search, which is cancelled as a whole"
            )));
        }
        let state = word(self.client.job(id).await.map_err(|error| missing(error, id))?.stage);
        if is_over(state) {
            return Err(ServiceError::Over { job: id.clone(), state });
        }
        let (store, key, job) = (self.store.clone(), name.key.to_owned(), id.clone());
        let note = move || {
            if !store.order(&key)?.calls().contains(index) {
                return Err(ServiceError::NoCall { job, index });
            }
            let failed = |error| StoreError::Io { name: key.clone(), error };
            if store.cancelled(&key).map_err(failed)?.len() >= CANCELLED_MAX {
                let reason = format!("job {job} has {CANCELLED_MAX} cancelled calls: cancel it as a whole");
                return Err(ServiceError::Invalid(reason));
            }
            Ok(store.cancel(&key, index).map_err(failed)?)
        };
        let number = blocking(note).await??;
        let submitted = self.client.submitted::<Batch>(id).await?;
        match submitted.inject(json!(number), ANSWER_MAX).await {
            // The request stays with the job.
            Ok(_) | Err(ClientError::TimedOut { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
