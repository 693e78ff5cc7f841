//! Streams over connections to owners: the existing one, or a new one. Concurrent fetches from one owner dial once.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, Weak},
};

use bytes::Bytes;
use quinn::{Connection, RecvStream};
use tokio::{sync::Mutex as AsyncMutex, time};

use super::{
    super::{
        Hub,
        connection::{self, Refused},
        locks::lock,
    },
    FetchError, Opening, Reading, Stream, Streams,
};
use crate::id::NodeId;

/// The owners being dialled for fetches.
#[derive(Debug, Default)]
pub(in super::super) struct Dials(Mutex<BTreeMap<NodeId, Weak<AsyncMutex<()>>>>);

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
        let dial = self.dials.of(peer);
        let _turn = dial.lock().await;
        match self.connection(peer) {
            Some(connection) => Ok(connection),
            None => connection::dial(self, peer).await,
        }
    }
}

/// The streams of a node's connections.
pub(in super::super) struct OverQuic(pub(in super::super) Arc<Hub>);

impl fmt::Debug for OverQuic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OverQuic").field(&self.0.me).finish()
    }
}

impl Streams for OverQuic {
    fn node(&self) -> NodeId {
        self.0.me
    }

    fn open(&self, owner: NodeId, ask: Vec<u8>) -> Opening<'_> {
        Box::pin(async move {
            let connection = self.0.reach(owner).await.map_err(FetchError::cut_off)?;
            let Ok(opened) = time::timeout(self.0.limits.dial, connection.open_bi()).await else {
                // The maximum number of requests is open.
                return Err(FetchError::Busy);
            };
            let (mut question, answer) = opened.map_err(FetchError::cut_off)?;
            question.write_chunk(Bytes::from(ask)).await.map_err(FetchError::cut_off)?;
            question.finish().map_err(FetchError::cut_off)?;
            Ok(Box::new(answer) as Box<dyn Stream>)
        })
    }
}

impl Stream for RecvStream {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Reading<'a> {
        Box::pin(async move {
            let read = Self::read(self, buffer).await.map_err(FetchError::cut_off)?;
            Ok(read.unwrap_or(0))
        })
    }
}
