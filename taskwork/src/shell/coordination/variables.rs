//! Synchronises variables between the node and their znodes, in both directions (paper, 3.6).

use std::sync::Arc;

use zk::{
    Store as _,
    figures::EventKind,
    variable::{self, Published, VariableWatch},
};

use super::Coordination;
use crate::pool::{PoolFault, Source, Unpublished};

impl Coordination {
    /// Writes improved variables whenever there are any.
    pub(super) async fn publish_variables(self: Arc<Self>) {
        let mut retry = self.retry();
        loop {
            self.publish.notified().await;
            match self.flush_variables().await {
                Ok(()) => retry.succeeded(),
                Err(error) if retry.again(&*self.store, "writing a variable", &error).await => {
                    self.publish.notify_one();
                }
                Err(_) => return,
            }
        }
    }

    /// Waits until every znode is at least as good as the node's copy was at the call.
    ///
    /// A batch is committed only after this. Otherwise the job could complete and its result be read before a
    /// solution found by one of the batch's tasks was written.
    pub(super) async fn flush_variables(&self) -> zk::Result<()> {
        let unpublished = match self.pool.variables().unpublished() {
            Ok(values) => values,
            Err(error) => {
                // Nothing is committed without the value: the job could complete before its best value is known.
                self.fail(&PoolFault::Unencodable { reason: error.to_string() }).await;
                return Ok(());
            }
        };
        for value in unpublished {
            self.publish_value(value).await?;
        }
        Ok(())
    }

    async fn publish_value(&self, value: Unpublished) -> zk::Result<()> {
        let variables = self.pool.variables();
        // A znode with an undecodable value is overwritten.
        let improves = |new: &[u8], old: &[u8]| variables.improves(value.slot, new, old).unwrap_or(true);
        let path = self.job_paths().var(value.name);
        match variable::publish(&*self.store, &path, &value.value, &improves).await? {
            Published::Beaten(better) => self.take(value.slot, &better),
            Published::Written => {
                tracing::debug!(value = value.detail, "this node has found a better value");
                self.timeline.note(EventKind::Improved, value.detail);
            }
        }
        variables.published(value.slot, value.version);
        Ok(())
    }

    /// Adopts every change of a variable's znode.
    pub(super) async fn follow_variable(self: Arc<Self>, slot: usize) {
        let path = self.job_paths().var(self.pool.variables().name(slot));
        let open = || VariableWatch::open(self.store(), &path);
        let Some(mut watch) = self.persist("watching a variable", open).await else { return };
        let mut retry = self.retry();
        loop {
            match watch.next().await {
                Ok(value) => {
                    retry.succeeded();
                    self.take(slot, &value);
                }
                Err(error) if retry.again(&*self.store, "reading a variable", &error).await => {}
                Err(_) => return,
            }
        }
    }

    /// Reads every variable once, so that a node starts with the known values.
    pub(super) async fn load_variables(&self) -> zk::Result<()> {
        for slot in 0..self.pool.variables().len() {
            let path = self.job_paths().var(self.pool.variables().name(slot));
            match self.store.get(&path).await {
                Ok((value, _)) => self.take(slot, &value),
                Err(zk::Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&self, slot: usize, value: &[u8]) {
        let taken = self.pool.variables().offer_encoded(slot, value, Source::Znode, self.pool.signals());
        if let Err(error) = taken {
            let variable = self.pool.variables().name(slot);
            let again = self.pool.variables().unreadable(slot);
            tracing::warn!(variable, %error, again, "the value in the znode cannot be read and is ignored");
            if again {
                self.publish.notify_one();
            }
        }
    }
}
