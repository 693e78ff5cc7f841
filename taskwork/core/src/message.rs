//! The messages between nodes.
//!
//! ```text
//!   thief                                victim
//!     │ ── Steal{request} ─────────────────▶ │   queued tasks: take some; only running ones: raise demand
//!     │ ◀── Deny{request} ────────────────── │   nothing to give, or no split came in time
//!     │ ◀── Grant{grant, request, tasks} ─── │   repeats it until …
//!     │ ── Ack{grant} ─────────────────────▶ │   … this, but holds the tasks until they are written
//!     │ ◀── Settled{grant} ───────────────── │   the thief may forget the grant too, and may leave
//!     ┊                                      ┊
//!     │ ◀── Confirmed{grants} ────────────── │   written to ZooKeeper: the thief may write it as its own
//!     │ ◀── Void{grants} ─────────────────── │   it never will be: the thief drops its effects
//!     │ ── Pending{grants} ────────────────▶ │   neither was received: asks for the decision
//! ```
//!
//! Every message may be lost, repeated, delayed or overtaken. A draining node sends grants without a request,
//! and a node that accepts no more tasks answers a grant with `Refuse`; a decision about a grant never changes.

use serde::{Deserialize, Serialize};

use crate::envelope::Envelope;

/// A message, as in the diagram above. It belongs to an attempt, and is ignored if that is not the current
/// one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The sender is hungry.
    Steal { request: u64 },
    /// The sender has nothing to give.
    Deny { request: u64 },
    /// The tasks belong to the receiver once it acknowledges them.
    Grant {
        /// The number, unique among all grants of the sender.
        grant: u64,
        /// The answered steal request, if any.
        request: Option<u64>,
        /// Every grant of the sender to this node with a lower number is settled.
        settled_below: u64,
        tasks: Vec<Envelope>,
    },
    /// The tasks of this grant belong to the sender now.
    Ack { grant: u64 },
    /// The tasks of this grant still belong to the receiver.
    Refuse { grant: u64 },
    /// The sender has received the decision about this grant.
    Settled {
        grant: u64,
        /// As in `Grant`.
        settled_below: u64,
    },
    /// The sender has taken these grants of the receiver, and does not know whether they are written.
    Pending {
        grants: Vec<u64>,
        /// Whether the sender has nothing to do but to wait for the answer.
        urgent: bool,
    },
    /// The sender's grants that are written.
    Confirmed { grants: Vec<u64> },
    /// The sender's grants that will never be written.
    Void { grants: Vec<u64> },
}
