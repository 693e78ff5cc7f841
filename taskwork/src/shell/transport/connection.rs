//! Establishing connections, on both sides, and reading messages from them.

use std::{fmt, future::Future, sync::Arc};

use quinn::{Connection, Incoming, RecvStream};
use rustls::pki_types::CertificateDer;
use tokio::{task::JoinSet, time};

use super::{
    Arrival, Fingerprint, Hub, bulk,
    limits::PIECE_BYTES,
    rooms::{PeerRoom, Room},
    verify,
};
use crate::{
    id::NodeId,
    steps,
    wire::{
        VERSION, codec,
        hello::{HELLO_BYTES_MAX, Hello, Welcome},
    },
};

/// The reason why a connection was not established.
#[derive(Debug)]
pub(super) struct Refused(String);

impl Refused {
    pub(super) fn because(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Performs the accepting side of the hello.
pub(super) async fn greet(hub: &Hub, incoming: Incoming) -> Result<(NodeId, Connection), Refused> {
    let connection = incoming.await.map_err(Refused::because)?;
    let (mut answer, mut question) = connection.accept_bi().await.map_err(Refused::because)?;
    let bytes = question.read_to_end(HELLO_BYTES_MAX).await.map_err(Refused::because)?;
    let hello: Hello = codec::decode(&bytes).map_err(Refused::because)?;
    let welcome = if hello.version == VERSION {
        // Reading its record may be necessary, within the timeout of the handshake.
        let member = hub.peers.find(hello.node).await.map(|peer| peer.fingerprint);
        let is_member = member.is_some() && member == fingerprint(&connection);
        if is_member { Welcome::Yes } else { Welcome::Stranger }
    } else {
        Welcome::Version(VERSION)
    };
    let bytes = codec::encode(&welcome).map_err(Refused::because)?;
    answer.write_all(&bytes).await.map_err(Refused::because)?;
    answer.finish().map_err(Refused::because)?;
    if welcome == Welcome::Yes {
        verify::admit(&connection, &hub.limits);
        return Ok((hello.node, connection));
    }
    // Waits until the answer has arrived, so that the other side learns the reason.
    let _ = answer.stopped().await;
    Err(Refused(format!("{} sent {hello:?} and was answered {welcome:?}", connection.remote_address())))
}

pub(super) async fn dial(hub: &Arc<Hub>, to: NodeId) -> Result<Connection, Refused> {
    let connection = time::timeout(hub.limits.dial, introduce(hub, to))
        .await
        .map_err(|_| Refused(format!("no answer within {:?}", hub.limits.dial)))??;
    hub.remember(to, connection.clone());
    tokio::spawn(read_all(Arc::clone(hub), to, connection.clone()));
    Ok(connection)
}

/// Performs the dialling side of the hello.
async fn introduce(hub: &Hub, to: NodeId) -> Result<Connection, Refused> {
    let peer =
        hub.peers.find(to).await.ok_or_else(|| Refused("it is not a member of this release".to_owned()))?;
    let config = verify::client_config(&hub.identity, &hub.peers, peer.fingerprint, &hub.limits);
    let config = config.map_err(Refused::because)?;
    let dialled = hub.endpoint.connect_with(config, peer.address, "node").map_err(Refused::because)?;
    let connection = dialled.await.map_err(Refused::because)?;
    let (mut question, mut answer) = connection.open_bi().await.map_err(Refused::because)?;
    let hello = codec::encode(&Hello { version: VERSION, node: hub.me }).map_err(Refused::because)?;
    question.write_all(&hello).await.map_err(Refused::because)?;
    question.finish().map_err(Refused::because)?;
    let bytes = answer.read_to_end(HELLO_BYTES_MAX).await.map_err(Refused::because)?;
    match codec::decode(&bytes).map_err(Refused::because)? {
        Welcome::Yes => Ok(connection),
        refusal => Err(Refused(format!("it answered {refusal:?}"))),
    }
}

fn fingerprint(connection: &Connection) -> Option<Fingerprint> {
    let identity = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    identity.first().map(Fingerprint::of)
}

/// Reads messages and serves requests for objects until the connection ends or the peer is no longer a member.
pub(super) async fn read_all(hub: Arc<Hub>, from: NodeId, connection: Connection) {
    let Some(fingerprint) = fingerprint(&connection) else { return };
    // Each stream is one message, up to the limit of streams. Messages that wait for the driver count.
    let (mut messages, streams_max) = (JoinSet::new(), hub.limits.streams_max as usize);
    let room = PeerRoom::new(&hub.limits);
    // Before the hello, the limit is one stream.
    let requests_max = hub.limits.bulk_streams_max;
    connection.set_max_concurrent_bi_streams(requests_max.into());
    let (mut requests, mut asks) = (JoinSet::new(), true);
    loop {
        tokio::select! {
            stream = connection.accept_uni(), if messages.len() < streams_max => match stream {
                Ok(stream) => {
                    let reader = Reader { hub: Arc::clone(&hub), from, fingerprint, room: room.clone() };
                    messages.spawn(reader.read(connection.clone(), stream));
                }
                Err(_) => break,
            },
            Some(_) = messages.join_next() => {}
            stream = connection.accept_bi(), if asks && requests.len() < requests_max as usize => {
                match stream {
                    Ok((answer, question)) => {
                        let hub = Arc::clone(&hub);
                        requests.spawn(async move { bulk::serve(&hub, from, answer, question).await });
                    }
                    // Messages may have arrived that were not accepted yet.
                    Err(_) => asks = false,
                }
            }
            Some(_) = requests.join_next() => {}
            () = hub.peers.gone(from, fingerprint) => {
                connection.close(1_u32.into(), b"no member");
                break;
            }
        }
    }
    hub.forget(from, &connection);
    drop(requests);
    // Arrived messages are acknowledged and not sent again, so they are read even after the connection has ended.
    while messages.join_next().await.is_some() {}
}

/// Reads one message.
struct Reader {
    hub: Arc<Hub>,
    from: NodeId,
    fingerprint: Fingerprint,
    room: PeerRoom,
}

/// The reasons why a message was not read.
enum Unread {
    /// A violation of the protocol: the connection is closed.
    Misused(&'static str),
    /// The message was incomplete.
    CutOff(String),
}

impl Reader {
    async fn read(self, connection: Connection, mut stream: RecvStream) {
        let Self { hub, from, fingerprint, .. } = &self;
        match self.receive(&mut stream).await {
            Ok((payload, room)) => {
                steps::arrived(*from, payload.len());
                // The peer may have left the cluster in the meantime.
                if hub.peers.is_member(*from, *fingerprint) {
                    // Fails only when the node stops.
                    let _ = hub.arrivals.send(Arrival::Message { from: *from, payload, room }).await;
                }
            }
            Err(Unread::Misused(how)) => {
                tracing::warn!(
                    node = %hub.me, %from, how,
                    "a message could not be read; the connection is closed"
                );
                connection.close(2_u32.into(), how.as_bytes());
            }
            Err(Unread::CutOff(error)) => {
                tracing::debug!(node = %hub.me, %from, error, "a message was cut off");
            }
        }
    }

    async fn receive(&self, stream: &mut RecvStream) -> Result<(Vec<u8>, Room), Unread> {
        let mut length = [0; 4];
        self.in_time(stream.read_exact(&mut length)).await?;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > self.hub.limits.message_bytes_max {
            return Err(Unread::Misused("message too long"));
        }
        let room = self.hub.rooms.enter(length, &self.room).await;
        // The announced length is not trusted: memory is allocated as data arrives.
        let mut payload = Vec::with_capacity(length.min(PIECE_BYTES));
        while payload.len() < length {
            let end = length.min(payload.len() + PIECE_BYTES);
            self.in_time(read_up_to(end, &mut payload, stream)).await?;
        }
        match self.in_time(stream.read_chunk(1, true)).await? {
            None => Ok((payload, room)),
            Some(_) => Err(Unread::Misused("message longer than announced")),
        }
    }

    /// Reads the next piece within its deadline.
    async fn in_time<T, E: fmt::Display>(
        &self,
        reading: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Unread> {
        match time::timeout(self.hub.limits.piece, reading).await {
            Ok(Ok(read)) => Ok(read),
            Ok(Err(error)) => Err(Unread::CutOff(error.to_string())),
            Err(_) => Err(Unread::CutOff("timeout while reading it".to_owned())),
        }
    }
}

/// Reads until `payload` has `end` bytes.
async fn read_up_to(end: usize, payload: &mut Vec<u8>, stream: &mut RecvStream) -> Result<(), String> {
    while payload.len() < end {
        match stream.read_chunk(end - payload.len(), true).await {
            Ok(Some(chunk)) => payload.extend_from_slice(&chunk.bytes),
            Ok(None) => return Err("it ends too early".to_owned()),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}
