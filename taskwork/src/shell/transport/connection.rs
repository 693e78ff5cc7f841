//! Making connections, on both sides, and reading what comes over them.

use std::{fmt, sync::Arc};

use quinn::{Connection, Incoming, RecvStream};
use rustls::pki_types::CertificateDer;
use tokio::{task::JoinSet, time};

use super::{Arrival, Fingerprint, Hub, verify};
use crate::{
    id::NodeId,
    wire::{
        VERSION, codec,
        hello::{HELLO_BYTES_MAX, Hello, Welcome},
    },
};

/// Why a connection was not made.
#[derive(Debug)]
pub(super) struct Refused(String);

impl Refused {
    fn because(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Takes connections until the endpoint is closed.
pub(super) async fn accept_all(hub: Arc<Hub>) {
    let mut greetings = JoinSet::new();
    while let Some(incoming) = hub.endpoint.accept().await {
        while greetings.try_join_next().is_some() {}
        if greetings.len() >= GREETINGS_MAX {
            incoming.refuse();
            continue;
        }
        greetings.spawn(accept(Arc::clone(&hub), incoming));
    }
}

/// How many connections may be about to be made to this node at a time, or open.
const GREETINGS_MAX: usize = 4096;

async fn accept(hub: Arc<Hub>, incoming: Incoming) {
    let remote = incoming.remote_address();
    match time::timeout(hub.limits.dial, greet(&hub, incoming)).await {
        Ok(Ok((node, connection))) => {
            hub.remember(node, connection.clone());
            read_all(hub, node, connection).await;
        }
        Ok(Err(refused)) => tracing::warn!(node = %hub.me, %remote, %refused, "a connection was refused"),
        Err(_) => tracing::warn!(node = %hub.me, %remote, "a connection was refused: no hello in time"),
    }
}

/// The accepting side of the hello.
async fn greet(hub: &Hub, incoming: Incoming) -> Result<(NodeId, Connection), Refused> {
    let connection = incoming.await.map_err(Refused::because)?;
    let (mut answer, mut question) = connection.accept_bi().await.map_err(Refused::because)?;
    let bytes = question.read_to_end(HELLO_BYTES_MAX).await.map_err(Refused::because)?;
    let hello: Hello = codec::decode(&bytes).map_err(Refused::because)?;
    let welcome = match fingerprint(&connection) {
        _ if hello.version != VERSION => Welcome::Version(VERSION),
        Some(fingerprint) if hub.peers.is_member(hello.node, fingerprint) => Welcome::Yes,
        _ => Welcome::Stranger,
    };
    let bytes = codec::encode(&welcome).map_err(Refused::because)?;
    answer.write_all(&bytes).await.map_err(Refused::because)?;
    answer.finish().map_err(Refused::because)?;
    if welcome == Welcome::Yes {
        return Ok((hello.node, connection));
    }
    // Until the answer has arrived, so that the other side learns why.
    let _ = answer.stopped().await;
    Err(Refused(format!("{} said {hello:?} and was answered {welcome:?}", connection.remote_address())))
}

/// Makes a connection to a member.
pub(super) async fn dial(hub: &Arc<Hub>, to: NodeId) -> Result<Connection, Refused> {
    let connection = time::timeout(hub.limits.dial, introduce(hub, to))
        .await
        .map_err(|_| Refused(format!("no answer within {:?}", hub.limits.dial)))??;
    hub.remember(to, connection.clone());
    tokio::spawn(read_all(Arc::clone(hub), to, connection.clone()));
    Ok(connection)
}

/// The dialling side of the hello.
async fn introduce(hub: &Hub, to: NodeId) -> Result<Connection, Refused> {
    let peer = hub.peers.get(to).ok_or_else(|| Refused("it is no member".to_owned()))?;
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

/// Reads messages until the connection ends, or the peer is no member any more.
async fn read_all(hub: Arc<Hub>, from: NodeId, connection: Connection) {
    let Some(fingerprint) = fingerprint(&connection) else { return };
    // A message each: as many as the peer may have streams.
    let mut messages = JoinSet::new();
    loop {
        tokio::select! {
            stream = connection.accept_uni() => match stream {
                Ok(stream) => {
                    while messages.try_join_next().is_some() {}
                    messages.spawn(read(Arc::clone(&hub), from, fingerprint, connection.clone(), stream));
                }
                Err(_) => break,
            },
            () = hub.peers.gone(from, fingerprint) => {
                connection.close(1_u32.into(), b"no member");
                break;
            }
        }
    }
    hub.forget(from, &connection);
    // What has arrived is acknowledged, and nobody sends it again: it is read although the connection has ended.
    while messages.join_next().await.is_some() {}
}

async fn read(
    hub: Arc<Hub>,
    from: NodeId,
    fingerprint: Fingerprint,
    connection: Connection,
    mut stream: RecvStream,
) {
    let reading = stream.read_to_end(hub.limits.message_bytes_max);
    match time::timeout(hub.limits.message, reading).await {
        Ok(Ok(payload)) => {
            // It may have ceased to be a member while it spoke.
            if hub.peers.is_member(from, fingerprint) {
                // Fails only at the end of the node.
                let _ = hub.arrivals.send(Arrival::Message { from, payload }).await;
            }
        }
        Ok(Err(quinn::ReadToEndError::TooLong)) => {
            tracing::warn!(node = %hub.me, %from, "a message is longer than allowed; the connection is closed");
            connection.close(2_u32.into(), b"message too long");
        }
        Ok(Err(error)) => tracing::debug!(node = %hub.me, %from, %error, "a message was cut off"),
        Err(_) => {
            tracing::warn!(node = %hub.me, %from, "a message did not arrive in time; the connection is closed");
            connection.close(3_u32.into(), b"message too slow");
        }
    }
}
