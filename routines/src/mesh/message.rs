//! Messages between the companions of nodes and gateways.

use serde::{Deserialize, Serialize};

use crate::{store::Body, tenant::Tenant};

/// The maximum size of a message, in bytes.
const BYTES_MAX: usize = 1 << 20;

/// A message. Any of them may be lost, repeated, or overtaken by another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Report your load.
    Hello,
    Load(Load),
    /// Make a call. Its caller has given no other call to this node the same number.
    Call {
        number: u64,
        spec: Spec,
    },
    /// Repeat your last message about a call.
    Ask {
        number: u64,
    },
    /// Stop the call: its request is gone.
    Cancel {
        number: u64,
    },
    /// The call runs, or waits for its turn.
    Accepted {
        number: u64,
        load: Load,
    },
    /// The call was not accepted, and never will be.
    Busy {
        number: u64,
        load: Load,
    },
    Answer {
        number: u64,
        outcome: Body,
        load: Load,
    },
    /// The answer was received.
    Settled {
        number: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) digest: String,
    pub(crate) argument: Body,
    /// The time limit, including the time in the queue of the node and to load the routine.
    pub(crate) limit_ms: u64,
    pub(crate) tenant: Tenant,
}

impl Spec {
    /// Returns the key of idle runtimes that can make the call.
    pub(super) fn warm_key(&self) -> u64 {
        warm_key(&self.tenant.key(&self.digest))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Load {
    /// The number of calls that may run; 0 if the node accepts none.
    pub(crate) slots: u32,
    /// The number of running and waiting calls.
    pub(crate) calls: u32,
    /// The [keys](warm_key) of idle runtimes.
    pub(crate) warm: Vec<u64>,
}

impl Message {
    /// Returns whether a caller has sent it.
    pub(super) fn is_of_caller(&self) -> bool {
        use Message::{Ask, Call, Cancel, Hello, Settled};
        matches!(self, Hello | Call { .. } | Ask { .. } | Cancel { .. } | Settled { .. })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let encoded = bincode::serde::encode_to_vec(self, bincode::config::standard());
        encoded.expect("texts and numbers can be encoded")
    }

    /// Decodes a message; `None` if it is damaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let config = bincode::config::standard().with_limit::<BYTES_MAX>();
        let (message, read) = bincode::serde::decode_from_slice(bytes, config).ok()?;
        (read == bytes.len()).then_some(message)
    }
}

/// Returns a short form of a key of the pool.
pub(crate) fn warm_key(key: &str) -> u64 {
    blake3::hash(key.as_bytes()).as_bytes().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
