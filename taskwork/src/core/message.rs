//! What nodes say to each other.
//!
//! ```text
//!   thief                                victim
//!     │ ── Steal{request} ─────────────────▶ │   queued tasks? take some.  Only running ones? raise demand
//!     │ ◀── Deny{request} ────────────────── │   nothing to give, or no split came in time
//!     │ ◀── Grant{grant, request, tasks} ─── │   keeps the tasks; says it again until …
//!     │ ── Ack{grant} ─────────────────────▶ │   … this: now forgets them
//!     │ ◀── Settled{grant} ───────────────── │   the thief may forget the grant too, and may leave
//! ```
//!
//! Every message may be lost, repeated, delayed or overtaken. A draining node sends grants that nobody asked
//! for, and a node that takes no more tasks answers a grant with `Refuse`; a decision about a grant is never
//! changed.

use serde::{Deserialize, Serialize};

use crate::envelope::Envelope;

/// See the picture above. A message belongs to an attempt; what belongs to another than the current one is
/// passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The sender is hungry.
    Steal { request: u64 },
    /// Nothing for you.
    Deny { request: u64 },
    /// These tasks are yours once you acknowledge them.
    Grant {
        /// Unique among all grants of the sender.
        grant: u64,
        /// The steal request it answers, if any.
        request: Option<u64>,
        /// Every grant of the sender to this node below this number is settled.
        settled_below: u64,
        tasks: Vec<Envelope>,
    },
    /// The tasks of this grant are mine now.
    Ack { grant: u64 },
    /// The tasks of this grant are still yours.
    Refuse { grant: u64 },
    /// I have heard what you decided about this grant.
    Settled {
        grant: u64,
        /// As in `Grant`.
        settled_below: u64,
    },
}
