//! The exchange of objects for companions.

use std::{any::Any, fs, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{FetchError, FileSink, Object, ObjectContent, WeakBulk};
use crate::{
    companion::{Exchange, Owners, Work},
    wire::bulk::ObjectName,
};

impl Exchange for WeakBulk {
    fn offer(&self, name: ObjectName, content: Bytes) -> Box<dyn Any + Send + Sync> {
        Box::new(WeakBulk::offer(self, Object::named(name, content)))
    }

    fn offer_content(&self, name: ObjectName, content: Arc<dyn ObjectContent>) -> Box<dyn Any + Send + Sync> {
        Box::new(WeakBulk::offer(self, Object::elsewhere(name, content)))
    }

    fn fetch(
        &self,
        name: ObjectName,
        owners: Owners,
        patience: Duration,
    ) -> Result<Work<Vec<u8>>, FetchError> {
        let bulk = self.upgrade().ok_or(FetchError::Over)?;
        let runtime = bulk.runtime().clone();
        Ok((runtime, Box::pin(async move { bulk.fetch(name, Vec::new(), owners, patience).await })))
    }

    fn fetch_to_file(
        &self,
        name: ObjectName,
        file: fs::File,
        owners: Owners,
        patience: Duration,
    ) -> Result<Work<()>, FetchError> {
        let bulk = self.upgrade().ok_or(FetchError::Over)?;
        let (runtime, sink) = (bulk.runtime().clone(), FileSink::new(file, bulk.blocking()));
        Ok((runtime, Box::pin(async move { bulk.fetch(name, sink, owners, patience).await.map(drop) })))
    }
}
