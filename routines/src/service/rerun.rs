//! Jobs of the failed calls of other jobs.

use taskwork::JobId;

use super::{SUCCESSFUL, Service, ServiceError, blocking, missing};
use crate::{
    job_name::{Name, job_name, rerun_key_of},
    order::Order,
    wire::EntryKind,
};

impl Service {
    /// Submits a job of the failed calls of a successful one, with their indices. If there is one, that is returned, and
    /// not new.
    pub(crate) async fn rerun(&self, of: &JobId) -> Result<(JobId, bool), ServiceError> {
        let results = self.results(of).await?;
        let record = self.client.record(of).await.map_err(|error| missing(error, of))?;
        let Name { routine, key: of_job, digest, .. } = self.name_of(&record, of)?;
        let (store, key) = (self.store.clone(), of_job.to_owned());
        let read = blocking(move || Ok::<_, ServiceError>((store.order(&key)?, results.failed()?)));
        let (order, failed) = read.await??;
        if failed.is_empty() {
            return Err(ServiceError::NoFailures(of.clone()));
        }
        let _one = self.submitting.lock().await;
        // An earlier job that was cancelled or has failed keeps its key.
        let mut number = 0;
        let key = loop {
            let key = rerun_key_of(of_job, number);
            if let Some((id, _)) = self.with_key(&key).await? {
                let status = self.status(&id).await?;
                if !status.is_over() || status.state == SUCCESSFUL {
                    return Ok((id, false));
                }
            } else if !self.is_used(&key).await? {
                break key;
            }
            number += 1;
        };
        self.check_quota().await?;
        let title = job_name(&key, Some(failed.len()), digest, routine, &self.store.tenant);
        let order = Order { key, only: Some(failed), ..order };
        Ok((self.send(order, EntryKind::Function, title).await?, true))
    }
}
