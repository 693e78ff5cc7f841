//! The limits of the transport.

use std::time::Duration;

use super::bulk::Blocking;
use crate::wire::codec::ENCODED_BYTES_MAX;

/// The limits of one node's connections.
#[derive(Debug, Clone)]
pub(crate) struct TransportLimits {
    /// The maximum size of a message, in bytes: that of any encoded value.
    pub(crate) message_bytes_max: usize,
    /// The maximum size of a small message, in bytes. Small messages overtake larger ones.
    pub(crate) small_bytes_max: usize,
    /// The maximum number of small messages queued for one peer; more are dropped.
    pub(crate) queued_messages_max: usize,
    /// The maximum size of the large messages queued for one peer or being sent to it, in bytes; more are
    /// dropped. At least `message_bytes_max`.
    pub(crate) queued_bytes_max: usize,
    /// The maximum number of messages of companions that are queued for a peer.
    pub(crate) queued_notes_max: usize,
    /// The maximum total size of the companions' messages queued for a peer, in bytes.
    pub(crate) queued_notes_bytes_max: usize,
    /// The maximum total size of small messages being read or waiting to be handled, in bytes. Above it, no
    /// further small messages are read.
    pub(crate) arriving_small_bytes_max: usize,
    /// The same limit for large messages. At least `message_bytes_max`.
    pub(crate) arriving_large_bytes_max: usize,
    /// The same limit for large messages of one peer. At least `message_bytes_max`.
    pub(crate) arriving_peer_bytes_max: usize,
    /// The maximum number of messages received from one peer at a time.
    pub(crate) streams_max: u32,
    /// The maximum number of large messages received from one peer at a time.
    pub(crate) large_streams_max: usize,
    /// The maximum number of objects that one peer fetches from this node over one connection at a time.
    pub(crate) bulk_streams_max: u32,
    /// The maximum number of requests for objects served at a time.
    pub(crate) bulk_served_max: usize,
    /// The maximum number of objects fetched at a time.
    pub(crate) bulk_fetched_max: usize,
    /// The timeout for the next bytes of an object, on both sides.
    pub(crate) bulk_progress: Duration,
    /// The thread that reads, writes and hashes blocks of objects.
    pub(crate) blocking: Blocking,
    /// The maximum number of unread bytes of one connection.
    pub(crate) unread_bytes_max: u32,
    /// The maximum number of connections between one peer and this node. Above it, the oldest is closed.
    pub(crate) connections_max: usize,
    /// The maximum number of handshakes with members, and separately with others.
    pub(crate) handshakes_max: usize,
    /// The number of handshakes above which the address of a new one must be validated.
    pub(crate) handshakes_trusted_max: usize,
    /// The age at which a handshake may be aborted to make room for another one.
    pub(crate) handshake_grace: Duration,
    /// The minimum interval of log lines about refused connections.
    pub(crate) refusal_log_interval: Duration,
    /// The timeout for establishing a connection, including the hello.
    pub(crate) dial: Duration,
    /// The timeout for the next piece of a message.
    pub(crate) piece: Duration,
    /// The idle time after which the queue and the link to a peer are removed.
    pub(crate) link_idle: Duration,
    /// The time without any traffic after which a connection is closed.
    pub(crate) idle: Duration,
    /// The interval of keep-alive packets.
    pub(crate) keep_alive: Duration,
    /// The maximum time to wait for undelivered messages when a node stops.
    pub(crate) close: Duration,
    /// The maximum time to wait until the closing of connections has been sent.
    pub(crate) farewell: Duration,
}

/// The number of bytes of a message per deadline.
pub(super) const PIECE_BYTES: usize = 64 << 10;

impl Default for TransportLimits {
    fn default() -> Self {
        Self {
            message_bytes_max: ENCODED_BYTES_MAX,
            small_bytes_max: 64 << 10,
            queued_messages_max: 256,
            queued_notes_max: 1_024,
            queued_notes_bytes_max: 8 << 20,
            queued_bytes_max: 128 << 20,
            arriving_small_bytes_max: 32 << 20,
            arriving_large_bytes_max: 256 << 20,
            arriving_peer_bytes_max: 96 << 20,
            streams_max: 64,
            large_streams_max: 4,
            bulk_streams_max: 4,
            bulk_served_max: 16,
            bulk_fetched_max: 8,
            bulk_progress: Duration::from_secs(10),
            blocking: Blocking::Elsewhere,
            unread_bytes_max: 16 << 20,
            connections_max: 4,
            handshakes_max: 64,
            handshakes_trusted_max: 16,
            handshake_grace: Duration::from_millis(500),
            refusal_log_interval: Duration::from_secs(5),
            dial: Duration::from_secs(3),
            piece: Duration::from_secs(30),
            link_idle: Duration::from_secs(60),
            idle: Duration::from_secs(10),
            keep_alive: Duration::from_secs(3),
            close: Duration::from_secs(1),
            farewell: Duration::from_millis(20),
        }
    }
}
