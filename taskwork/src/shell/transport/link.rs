//! The sending side of the connection to one peer: sends the messages of its queue one by one. Large messages are
//! sent in parallel, so that no small one waits for them. A link stops when the peer is no longer a member, or
//! when it has been idle for [`TransportLimits::link_idle`](super::TransportLimits::link_idle).

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use quinn::{Connection, SendStream};
use tokio::{sync::mpsc, task::JoinSet, time};

use super::{Hub, connection, limits::PIECE_BYTES, outgoing::Outgoing};
use crate::{id::NodeId, steps};

/// Small messages take precedence over data that is already being sent.
const SMALL_PRIORITY: i32 = 1;
/// The error code of a message that was not completed.
const GIVEN_UP: u32 = 1;

/// The link to one peer.
pub(super) struct Link {
    hub: Arc<Hub>,
    to: NodeId,
    queue: mpsc::UnboundedReceiver<Outgoing>,
    /// Large messages that wait for others to be sent.
    large: VecDeque<Outgoing>,
    /// Large messages that are being sent.
    sending: JoinSet<Result<(), String>>,
    /// Small messages that were sent and may not have arrived.
    on_their_way: JoinSet<()>,
}

impl Link {
    pub(super) fn new(hub: Arc<Hub>, to: NodeId, queue: mpsc::UnboundedReceiver<Outgoing>) -> Self {
        let (sending, on_their_way) = (JoinSet::new(), JoinSet::new());
        Self { hub, to, queue, large: VecDeque::new(), sending, on_their_way }
    }

    /// Sends queued messages until the queue is closed and all of them have arrived, or until the peer is no
    /// longer a member.
    pub(super) async fn run(mut self) {
        let hub = Arc::clone(&self.hub);
        let mut open = true;
        while open || !self.sending.is_empty() {
            let rests = open && self.sending.is_empty();
            tokio::select! {
                biased;
                () = hub.peers.absent(self.to) => {
                    // Under the lock of the queues: otherwise a message could be queued later and lost without a
                    // report.
                    hub.retire(self.to, || true);
                    if self.has_any() {
                        self.drop_queued("the recipient is not a member");
                    }
                    return;
                }
                Some(sent) = self.sending.join_next() => {
                    if let Ok(Err(reason)) = sent {
                        self.report_loss(&reason);
                    }
                    self.send_large().await;
                }
                message = self.queue.recv(), if open => match message {
                    Some(message) => self.take(message).await,
                    None => open = false,
                },
                () = time::sleep(hub.limits.link_idle), if rests => {
                    if hub.retire(self.to, || self.queue.is_empty()) {
                        break;
                    }
                }
            }
        }
        while self.on_their_way.join_next().await.is_some() {}
    }

    async fn take(&mut self, message: Outgoing) {
        while self.on_their_way.try_join_next().is_some() {}
        if message.payload.len() > self.hub.limits.message_bytes_max {
            // No encoded value is this large.
            tracing::error!(
                node = %self.hub.me, to = %self.to, bytes = message.payload.len(),
                "a message is too large"
            );
            return self.hub.unreachable(self.to);
        }
        if message.is_large() {
            self.large.push_back(message);
            return self.send_large().await;
        }
        let Some(connection) = self.connection().await else { return };
        let writing = write(&self.hub, &connection, &message, SMALL_PRIORITY);
        match writing.await {
            Ok(stream) => {
                steps::sent(self.to, message.payload.len());
                let patience = self.hub.limits.piece;
                self.on_their_way.spawn(async move {
                    let _ = time::timeout(patience, stream.stopped()).await;
                });
            }
            Err(reason) => self.report_loss(&reason),
        }
    }

    /// Starts sending large messages, up to the limit of streams.
    async fn send_large(&mut self) {
        while self.sending.len() < self.hub.limits.large_streams_max && !self.large.is_empty() {
            let Some(connection) = self.connection().await else { return };
            let Some(message) = self.large.pop_front() else { return };
            let hub = Arc::clone(&self.hub);
            self.sending.spawn(async move {
                let stream = write(&hub, &connection, &message, 0).await?;
                // Completes when all data was acknowledged or the connection has ended.
                let arrived = time::timeout(hub.limits.piece, stream.stopped()).await;
                arrived
                    .map_err(|_| "timeout before it was acknowledged".to_owned())?
                    .map_err(|e| e.to_string())?;
                Ok(())
            });
        }
    }

    /// Returns the existing connection or a new one. If none can be established, all queued messages are lost.
    async fn connection(&mut self) -> Option<Connection> {
        if let Some(connection) = self.hub.connection(self.to) {
            return Some(connection);
        }
        match connection::dial(&self.hub, self.to).await {
            Ok(connection) => Some(connection),
            Err(refused) => {
                self.drop_queued(&refused.to_string());
                None
            }
        }
    }

    fn has_any(&self) -> bool {
        !(self.queue.is_empty() && self.large.is_empty() && self.sending.is_empty())
    }

    /// Drops all queued messages and reports the loss.
    fn drop_queued(&mut self, reason: &str) {
        self.large.clear();
        while self.queue.try_recv().is_ok() {}
        self.report_loss(reason);
    }

    fn report_loss(&self, reason: &str) {
        tracing::debug!(node = %self.hub.me, to = %self.to, reason, "a message could not be sent");
        self.hub.unreachable(self.to);
    }
}

/// Writes a message to a new stream, preceded by its length. Each piece has a deadline, but the whole has none,
/// so that large messages also arrive over slow connections.
async fn write(
    hub: &Hub,
    connection: &Connection,
    message: &Outgoing,
    priority: i32,
) -> Result<SendStream, String> {
    let in_time = |_| "timeout while sending".to_owned();
    let opening = time::timeout(hub.limits.piece, connection.open_uni());
    let mut stream = opening.await.map_err(in_time)?.map_err(|error| error.to_string())?;
    message.mark_moving();
    let length = u32::try_from(message.payload.len()).map_err(|error| error.to_string())?.to_le_bytes();
    let written = async {
        // Fails only if the stream is closed, in which case the next write fails as well.
        let _ = stream.set_priority(priority);
        let length = Bytes::copy_from_slice(&length);
        for piece in std::iter::once(length).chain(message.payload.slices(PIECE_BYTES)) {
            let writing = time::timeout(hub.limits.piece, stream.write_chunk(piece));
            writing.await.map_err(in_time)?.map_err(|error| error.to_string())?;
        }
        stream.finish().map_err(|error| error.to_string())
    };
    match written.await {
        Ok(()) => Ok(stream),
        Err(reason) => {
            // Without the reset, the message would seem to be complete.
            let _ = stream.reset(GIVEN_UP.into());
            Err(reason)
        }
    }
}
