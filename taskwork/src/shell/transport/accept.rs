//! Admission of connections from other nodes.
//!
//! A connection uses resources before its hello, and anyone can start one, so the number of concurrent
//! handshakes is limited. Above a threshold, the address of a new one must be validated (by QUIC's retry, which
//! keeps no state here). Members connect from the address on which they listen, so they have separate places that
//! a flood of strangers cannot occupy. Other peers, such as members behind a NAT, replace the oldest handshake
//! once its grace period is over.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc};

use quinn::{Connection, Incoming};
use tokio::{
    task::{AbortHandle, JoinSet},
    time::{self, Instant},
};

use super::{
    Hub,
    connection::{self, Refused},
};
use crate::id::NodeId;

/// A handshake in progress.
struct Pending {
    begun: Instant,
    greeting: AbortHandle,
}

/// The handshakes of members, or of others.
#[derive(Default)]
struct Places(VecDeque<Pending>);

impl Places {
    fn taken(&mut self) -> usize {
        self.0.retain(|pending| !pending.greeting.is_finished());
        self.0.len()
    }

    /// Makes room for one more handshake, if necessary by aborting the oldest after its grace period; returns
    /// whether there is room.
    fn has_room(&mut self, hub: &Hub) -> bool {
        if self.taken() < hub.limits.handshakes_max {
            return true;
        }
        let had_its_time = |oldest: &Pending| oldest.begun.elapsed() >= hub.limits.handshake_grace;
        if !self.0.front().is_some_and(had_its_time) {
            return false;
        }
        if let Some(oldest) = self.0.pop_front() {
            oldest.greeting.abort();
        }
        true
    }
}

type Greeted = (SocketAddr, Result<(NodeId, Connection), Refused>);

/// Accepts connections until the endpoint is closed.
pub(super) async fn accept_all(hub: Arc<Hub>) {
    let (mut members, mut others) = (Places::default(), Places::default());
    let mut greetings: JoinSet<Greeted> = JoinSet::new();
    let mut readers = JoinSet::new();
    loop {
        tokio::select! {
            incoming = hub.endpoint.accept() => {
                let Some(incoming) = incoming else { return };
                let crowded = members.taken() + others.taken() >= hub.limits.handshakes_trusted_max;
                let places =
                    if hub.peers.listens_at(incoming.remote_address()) { &mut members } else { &mut others };
                if let Some(pending) = consider(&hub, incoming, crowded, places, &mut greetings) {
                    places.0.push_back(pending);
                }
            }
            Some(greeted) = greetings.join_next() => match greeted {
                Ok((_, Ok((node, connection)))) => {
                    hub.remember(node, connection.clone());
                    readers.spawn(connection::read_all(Arc::clone(&hub), node, connection));
                }
                Ok((remote, Err(refused))) => hub.log_refusal(remote, &refused),
                // The handshake was aborted to make room.
                Err(_) => {}
            },
            Some(_) = readers.join_next() => {}
        }
    }
}

/// Starts a handshake, or rejects it.
fn consider(
    hub: &Arc<Hub>,
    incoming: Incoming,
    crowded: bool,
    places: &mut Places,
    greetings: &mut JoinSet<Greeted>,
) -> Option<Pending> {
    let remote = incoming.remote_address();
    if crowded && !incoming.remote_address_validated() {
        // Fails only for a validated address.
        let _ = incoming.retry();
        return None;
    }
    if !places.has_room(hub) {
        // No answer: a genuine peer retries.
        incoming.ignore();
        hub.log_refusal(remote, &"too many handshakes are in progress");
        return None;
    }
    let its_hub = Arc::clone(hub);
    let greeting = greetings.spawn(async move {
        let greeted = time::timeout(its_hub.limits.dial, connection::greet(&its_hub, incoming)).await;
        (remote, greeted.unwrap_or_else(|_| Err(Refused::because("no hello in time"))))
    });
    Some(Pending { begun: Instant::now(), greeting })
}

impl Hub {
    fn log_refusal(&self, remote: SocketAddr, reason: &dyn std::fmt::Display) {
        self.refusals.note(self.me, remote, reason, self.limits.refusal_log_interval);
    }
}
