//! The sending side towards one peer: takes messages from its queue, one after another.

use std::sync::Arc;

use quinn::Connection;
use tokio::{sync::mpsc, task::JoinSet, time};

use super::{Hub, connection};
use crate::id::NodeId;

/// Sends what is queued for a peer until the queue is closed, and waits until it has arrived.
pub(super) async fn run(hub: Arc<Hub>, to: NodeId, mut queue: mpsc::Receiver<Vec<u8>>) {
    let mut on_their_way = JoinSet::new();
    while let Some(payload) = queue.recv().await {
        while on_their_way.try_join_next().is_some() {}
        if let Err(reason) = deliver(&hub, to, &payload, &mut on_their_way).await {
            tracing::debug!(node = %hub.me, %to, reason, "a message could not be sent");
            hub.unreachable(to);
        }
    }
    while on_their_way.join_next().await.is_some() {}
}

/// Sends one message over the connection there is, or over a new one.
async fn deliver(
    hub: &Arc<Hub>,
    to: NodeId,
    payload: &[u8],
    on_their_way: &mut JoinSet<()>,
) -> Result<(), String> {
    if hub.peers.get(to).is_none() {
        return Err("it is no member".to_owned());
    }
    if payload.len() > hub.limits.message_bytes_max {
        return Err(format!("{} bytes are more than {}", payload.len(), hub.limits.message_bytes_max));
    }
    let connection = match hub.connection(to) {
        Some(connection) => connection,
        None => connection::dial(hub, to).await.map_err(|refused| refused.to_string())?,
    };
    let sending = time::timeout(hub.limits.message, write(&connection, payload, on_their_way, hub));
    sending.await.map_err(|_| "it took too long".to_owned())?
}

async fn write(
    connection: &Connection,
    payload: &[u8],
    on_their_way: &mut JoinSet<()>,
    hub: &Hub,
) -> Result<(), String> {
    let mut stream = connection.open_uni().await.map_err(|error| error.to_string())?;
    stream.write_all(payload).await.map_err(|error| error.to_string())?;
    stream.finish().map_err(|error| error.to_string())?;
    let patience = hub.limits.message;
    on_their_way.spawn(async move {
        // Resolves when all of it was acknowledged, or the connection has ended.
        let _ = time::timeout(patience, stream.stopped()).await;
    });
    Ok(())
}
