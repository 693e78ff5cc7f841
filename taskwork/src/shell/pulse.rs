//! How a node is, for whoever asks its process.

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

/// How a node is.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Health {
    /// Its present id; `None` while it is no member.
    pub node: Option<NodeId>,
    /// Whether it is connected to ZooKeeper. If not, it goes on with what it has.
    pub is_connected: bool,
    /// What it would report now of each job that it works on.
    pub jobs: BTreeMap<JobId, NodeFigures<Figures>>,
}

impl Health {
    /// Returns whether the node is a member, and connected.
    ///
    /// # Errors
    /// Why it is not.
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

/// Where a node's process can see how the node is.
#[derive(Default)]
pub(crate) struct Pulse(Mutex<Beat>);

#[derive(Default)]
struct Beat {
    seat: Option<(NodeId, watch::Receiver<Session>)>,
    parts: Vec<Weak<Coordination>>,
}

impl Pulse {
    /// Notes that the node is a member.
    pub(crate) fn seated(&self, seat: &Seat) {
        *self.lock() = Beat { seat: Some((seat.node, seat.store.session())), parts: Vec::new() };
    }

    /// Notes that it is none any more.
    pub(crate) fn unseated(&self) {
        *self.lock() = Beat::default();
    }

    /// Notes that it begins to work on a job.
    pub(crate) fn works(&self, part: &Arc<Coordination>) {
        let mut beat = self.lock();
        beat.parts.retain(|part| part.strong_count() > 0);
        beat.parts.push(Arc::downgrade(part));
    }

    /// Returns how the node is now.
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
