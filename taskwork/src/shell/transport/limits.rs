//! The limits of the transport.

use std::time::Duration;

/// The limits of one node's connections.
#[derive(Debug, Clone)]
pub(crate) struct TransportLimits {
    /// The longest message, in bytes.
    pub(crate) message_bytes_max: usize,
    /// How many messages may wait for one peer; more are dropped.
    pub(crate) queued_messages_max: usize,
    /// How many messages of one peer may be on their way at a time.
    pub(crate) streams_max: u32,
    /// How long a connection may take to be made, hello included.
    pub(crate) dial: Duration,
    /// How long a message may take to arrive once it has begun to.
    pub(crate) message: Duration,
    /// After what silence a connection is given up.
    pub(crate) idle: Duration,
    /// After what silence a sign of life is sent.
    pub(crate) keep_alive: Duration,
    /// How long the end waits for messages that were not delivered.
    pub(crate) close: Duration,
    /// How long the end waits for its own last words to be sent.
    pub(crate) farewell: Duration,
}

impl Default for TransportLimits {
    fn default() -> Self {
        Self {
            message_bytes_max: 32 << 20,
            queued_messages_max: 256,
            streams_max: 64,
            dial: Duration::from_secs(3),
            message: Duration::from_secs(30),
            idle: Duration::from_secs(10),
            keep_alive: Duration::from_secs(3),
            close: Duration::from_secs(1),
            farewell: Duration::from_millis(20),
        }
    }
}
