//! Connections to owners: the existing one, or a new one. Concurrent fetches from one owner dial once.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
};

use quinn::Connection;
use tokio::sync::Mutex as AsyncMutex;

use super::super::{
    Hub,
    connection::{self, Refused},
    locks::lock,
};
use crate::id::NodeId;

/// The owners being dialled for fetches.
#[derive(Debug, Default)]
pub(super) struct Dials(Mutex<BTreeMap<NodeId, Weak<AsyncMutex<()>>>>);

impl Dials {
    fn of(&self, peer: NodeId) -> Arc<AsyncMutex<()>> {
        let mut dials = lock(&self.0);
        dials.retain(|_, dial| dial.strong_count() > 0);
        if let Some(dial) = dials.get(&peer).and_then(Weak::upgrade) {
            return dial;
        }
        let dial = Arc::default();
        dials.insert(peer, Arc::downgrade(&dial));
        dial
    }
}

impl Hub {
    /// Returns a connection to a member. Waits for at most one dial timeout per concurrent fetch.
    pub(super) async fn reach(self: &Arc<Self>, peer: NodeId) -> Result<Connection, Refused> {
        if let Some(connection) = self.connection(peer) {
            return Ok(connection);
        }
        let dial = self.bulk.dials.of(peer);
        let _turn = dial.lock().await;
        match self.connection(peer) {
            Some(connection) => Ok(connection),
            None => connection::dial(self, peer).await,
        }
    }
}
