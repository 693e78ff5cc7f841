//! The limits of the transport.

use std::time::Duration;

use crate::wire::codec::ENCODED_BYTES_MAX;

/// The limits of one node's connections.
#[derive(Debug, Clone)]
pub(crate) struct TransportLimits {
    /// The longest message, in bytes: whatever can be encoded.
    pub(crate) message_bytes_max: usize,
    /// Up to what length a message is small, in bytes: small ones overtake the others.
    pub(crate) small_bytes_max: usize,
    /// How many small messages may wait for one peer; more are dropped.
    pub(crate) queued_messages_max: usize,
    /// How many bytes the others that wait for one peer or are on their way to it may have together; of more,
    /// messages are dropped. At least `message_bytes_max`.
    pub(crate) queued_bytes_max: usize,
    /// How many bytes of small messages may be read or wait to be taken; while there are more, no others are
    /// read.
    pub(crate) arriving_small_bytes_max: usize,
    /// The same of the other messages. At least `message_bytes_max`.
    pub(crate) arriving_large_bytes_max: usize,
    /// The same of the other messages of one peer. At least `message_bytes_max`.
    pub(crate) arriving_peer_bytes_max: usize,
    /// How many messages of one peer may be on their way at a time.
    pub(crate) streams_max: u32,
    /// How many of these may be other than small.
    pub(crate) large_streams_max: usize,
    /// How many bytes of one connection may have arrived and not been read.
    pub(crate) unread_bytes_max: u32,
    /// How many connections one peer may have with this node; of more, the oldest is closed.
    pub(crate) connections_max: usize,
    /// How many connections may be about to be made to this node by members, and how many by others.
    pub(crate) handshakes_max: usize,
    /// While more are about to be made, whoever wants one must first show that it is where it says.
    pub(crate) handshakes_trusted_max: usize,
    /// After what time a connection that is about to be made has to give way to another, if too many are.
    pub(crate) handshake_grace: Duration,
    /// How often it is said that connections were refused.
    pub(crate) refusals_told: Duration,
    /// How long a connection may take to be made, hello included.
    pub(crate) dial: Duration,
    /// How long the next piece of a message may take.
    pub(crate) piece: Duration,
    /// After what silence what is kept to send to a peer is given up.
    pub(crate) link_idle: Duration,
    /// After what silence a connection is given up.
    pub(crate) idle: Duration,
    /// After what silence a sign of life is sent.
    pub(crate) keep_alive: Duration,
    /// How long the end waits for messages that were not delivered.
    pub(crate) close: Duration,
    /// How long the end waits for its own last words to be sent.
    pub(crate) farewell: Duration,
}

/// How many bytes of a message must have gone, or come, each time before its deadline begins anew.
pub(super) const PIECE_BYTES: usize = 64 << 10;

impl Default for TransportLimits {
    fn default() -> Self {
        Self {
            message_bytes_max: ENCODED_BYTES_MAX,
            small_bytes_max: 64 << 10,
            queued_messages_max: 256,
            queued_bytes_max: 128 << 20,
            arriving_small_bytes_max: 32 << 20,
            arriving_large_bytes_max: 256 << 20,
            arriving_peer_bytes_max: 96 << 20,
            streams_max: 64,
            large_streams_max: 4,
            unread_bytes_max: 16 << 20,
            connections_max: 4,
            handshakes_max: 64,
            handshakes_trusted_max: 16,
            handshake_grace: Duration::from_millis(500),
            refusals_told: Duration::from_secs(5),
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
