//! The reception of versions from other nodes: from their replies, or as objects.

use std::{sync::Arc, time::Duration};

use taskwork::{
    NodeId,
    companion::{FetchError, ObjectName},
};
use tokio::sync::oneshot;

use super::{
    answers::Answer,
    executor::{Executor, Network},
    fetches::Next,
};
use crate::{
    ids::VersionId,
    spilled::{Arriving, LARGE_BYTES_MIN},
    value::Value,
};

/// The time without a byte of an object after which its transfer fails.
const PATIENCE: Duration = Duration::from_secs(5);

impl Executor {
    /// Handles the reply of a node to a request.
    pub(crate) fn on_answer(self: &Arc<Self>, from: NodeId, version: VersionId, answer: Answer, now_ms: u64) {
        let mut fetches = self.fetches();
        match fetches.on_answer(from, version, answer, now_ms) {
            Next::Nothing => {}
            Next::Arrived(arrived) => self.on_arrived(fetches, arrived),
            Next::Fetch(name, stopped) => {
                drop(tokio::spawn(Arc::clone(self).receive(version, name, stopped)));
            }
        }
    }

    /// Fetches the object with a version.
    async fn receive(self: Arc<Self>, version: VersionId, name: ObjectName, stopped: oneshot::Receiver<()>) {
        let Some(network) = self.network() else { return };
        let fetched = tokio::select! {
            biased;
            _ = stopped => return,
            fetched = self.receive_value(network, version, name) => fetched,
        };
        let mut fetches = self.fetches();
        if let Next::Arrived(arrived) = fetches.on_fetched(version, name, fetched) {
            self.on_arrived(fetches, arrived);
        }
        network.wake.notify_one();
    }

    /// Fetches an object: into memory, or into a file if it is large.
    async fn receive_value(
        self: &Arc<Self>,
        network: &Network,
        version: VersionId,
        name: ObjectName,
    ) -> Result<Value, FetchError> {
        let executor = Arc::clone(self);
        let owners = move || executor.fetches().owners(version);
        if name.bytes() < LARGE_BYTES_MIN {
            let content = network.objects.fetch(name, owners, PATIENCE).await?;
            return Ok(Value::from_object(content, name));
        }
        let (arriving, file) = Arriving::new().map_err(FetchError::Sink)?;
        match network.objects.fetch_to_file(name, file, owners, PATIENCE).await {
            Ok(()) => Ok(Value::from_spilled(arriving.end(name))),
            Err(FetchError::Sink(error)) => Err(FetchError::Sink(arriving.cannot(&error))),
            Err(error) => Err(error),
        }
    }
}
