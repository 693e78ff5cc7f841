//! Node health, for callers within its process.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::watch;
use zk::{Session, figures::NodeFigures};

use super::{coordination::Coordination, seat::Seat};
use crate::{
    figures::Figures,
    id::{JobId, NodeId},
};

/// The health of a node.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Health {
    /// Its current id; `None` while it is not a member.
    pub node: Option<NodeId>,
    /// Whether it is connected to ZooKeeper. If not, it continues with the tasks that it has.
    pub is_connected: bool,
    /// Its current report on each job on which it works.
    pub jobs: BTreeMap<JobId, NodeFigures<Figures>>,
}

impl Health {
    /// Returns whether the node is a member and connected.
    ///
    /// # Errors
    /// Why the node is not ready.
    pub fn ready(&self) -> Result<(), &'static str> {
        match (self.node, self.is_connected) {
            (None, _) => Err("the node is not a member of the cluster"),
            (Some(_), false) => {
                Err("ZooKeeper does not answer; the node continues with the tasks that it has")
            }
            (Some(_), true) => Ok(()),
        }
    }
}

/// The source of a node's health.
#[derive(Default)]
pub(crate) struct Pulse(Mutex<Beat>);

#[derive(Default)]
struct Beat {
    seat: Option<(NodeId, watch::Receiver<Session>)>,
    parts: Vec<Weak<Coordination>>,
}

impl Pulse {
    /// Records that the node is a member.
    pub(crate) fn set_seat(&self, seat: &Seat) {
        *self.lock() = Beat { seat: Some((seat.node, seat.store.session())), parts: Vec::new() };
    }

    /// Records that the node is no longer a member.
    pub(crate) fn clear_seat(&self) {
        *self.lock() = Beat::default();
    }

    /// Records that the node starts to work on a job.
    pub(crate) fn add_part(&self, part: &Arc<Coordination>) {
        let mut beat = self.lock();
        beat.parts.retain(|part| part.strong_count() > 0);
        beat.parts.push(Arc::downgrade(part));
    }

    pub(crate) fn now(&self) -> Health {
        let (seat, parts) = {
            let beat = self.lock();
            let session = beat.seat.as_ref().map(|(node, session)| (*node, *session.borrow()));
            (session, beat.parts.iter().filter_map(Weak::upgrade).collect::<Vec<_>>())
        };
        Health {
            node: seat.map(|(node, _)| node),
            is_connected: seat.is_some_and(|(_, session)| session == Session::Connected),
            jobs: parts.iter().map(|part| (part.job.clone(), part.report(false))).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Beat> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let beat = self.lock();
        f.debug_struct("Pulse")
            .field("seat", &beat.seat.as_ref().map(|(node, _)| node))
            .finish_non_exhaustive()
    }
}
