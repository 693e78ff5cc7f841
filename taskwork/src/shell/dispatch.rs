//! Assigns the messages that arrive at a node to its jobs.
//!
//! ```text
//!   arrivals ─▶ dispatch ─▶ line of a job ─▶ its driver
//!                  │ no such job here, or the node has left it: answered at once
//! ```
//!
//! A thief without an answer would wait until its timeout, which would dominate the duration of a small job. A
//! job that receives more than it handles loses messages, as the network may, and delays no other.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::mpsc, task::JoinSet};

use super::{
    platform::Network,
    transport::{Arrival, Carrier, Room, Subject, UnderWay},
};
use crate::{
    id::NodeId,
    wire::{codec, parcel::Parcel, payload::Payload},
};

/// The maximum number of messages that wait for a job.
const INBOX_MAX: usize = 1024;

/// A node's connection to the other nodes, shared by its jobs.
pub(crate) struct Dispatch {
    // Shared by the lines.
    carrier: Arc<Box<dyn Carrier>>,
    table: Arc<Table>,
    /// The loop that receives.
    receiving: JoinSet<()>,
}

/// The jobs, by number.
#[derive(Default)]
struct Table(Mutex<BTreeMap<u64, Entry>>);

enum Entry {
    /// The node works on it.
    Open(mpsc::Sender<Delivery>),
    /// The node has left it cleanly, and holds nothing.
    Left,
}

/// A job's connection to the other nodes.
pub(crate) struct Line {
    job: u64,
    carrier: Arc<Box<dyn Carrier>>,
    pub(crate) inbox: mpsc::Receiver<Delivery>,
    table: Arc<Table>,
    has_left: bool,
}

/// What arrives at a job.
pub(crate) enum Delivery {
    /// A message about it and its sender, with the room that it occupies until it was handled.
    Message { from: NodeId, parcel: Parcel, room: Room },
    /// A message could not be sent to this node.
    Unreachable { to: NodeId },
}

impl Dispatch {
    /// Begins to receive.
    pub(crate) fn start(network: Network) -> Self {
        let Network { carrier, mut arrivals } = network;
        let (carrier, table) = (Arc::new(carrier), Arc::<Table>::default());
        let mut receiving = JoinSet::new();
        let (its_carrier, its_table) = (Arc::clone(&carrier), Arc::clone(&table));
        receiving.spawn(async move {
            while let Some(arrival) = arrivals.recv().await {
                its_table.deliver(arrival, &**its_carrier);
            }
        });
        Self { carrier, table, receiving }
    }

    /// Opens the line of a job.
    pub(crate) fn open(&self, job: u64) -> Line {
        let (deliveries, inbox) = mpsc::channel(INBOX_MAX);
        self.table.lock().insert(job, Entry::Open(deliveries));
        let (carrier, table) = (Arc::clone(&self.carrier), Arc::clone(&self.table));
        Line { job, carrier, inbox, table, has_left: false }
    }

    /// Delivers what is queued, as far as possible within a time limit, and closes all connections. All lines must
    /// be closed.
    pub(crate) async fn close(mut self) {
        self.receiving.shutdown().await;
        if let Some(carrier) = Arc::into_inner(self.carrier) {
            carrier.close().await;
        } else {
            tracing::debug!("a job still uses the network; its connections end with it");
        }
    }
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, arrival: Arrival, carrier: &dyn Carrier) {
        let Arrival::Message { from, payload, room } = arrival else {
            let Arrival::Unreachable { to } = arrival else { return };
            for entry in self.lock().values() {
                if let Entry::Open(deliveries) = entry {
                    // If there is no room for it, the thief's timeout takes effect.
                    let _ = deliveries.try_send(Delivery::Unreachable { to });
                }
            }
            return;
        };
        let parcel = match codec::decode::<Parcel>(&payload) {
            Ok(parcel) => parcel,
            // The sender is a member, but of another version.
            Err(error) => {
                tracing::warn!(%from, %error, "a message could not be read and was dropped");
                return;
            }
        };
        let answer = match self.lock().get(&parcel.job) {
            Some(Entry::Open(deliveries)) => {
                if deliveries.try_send(Delivery::Message { from, parcel, room }).is_err() {
                    tracing::debug!(%from, "a job has too many messages; one was dropped");
                }
                return;
            }
            Some(Entry::Left) => parcel.denial().or_else(|| parcel.refusal()),
            None => parcel.denial(),
        };
        // A lost answer does no lasting harm.
        if let Some(answer) = answer.and_then(|answer| answer.payload().ok()) {
            carrier.send(from, None, answer);
        }
    }
}

impl Line {
    /// Sends a message, as [`Carrier::send`].
    pub(crate) fn send(&self, to: NodeId, subject: Option<Subject>, payload: Payload) {
        self.carrier.send(to, subject, payload);
    }

    /// Returns the progress of a message, as [`Carrier::under_way`].
    pub(crate) fn under_way(&self, to: NodeId, subject: Subject) -> UnderWay {
        self.carrier.under_way(to, subject)
    }

    /// Notes that the node has left the job cleanly: whatever is still sent to it is refused.
    pub(crate) fn leave(&mut self) {
        self.has_left = true;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        if self.has_left {
            table.insert(self.job, Entry::Left);
        } else {
            table.remove(&self.job);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::Pin};

    use super::*;
    use crate::{
        core::Message,
        id::Attempt,
        shell::transport::{Rooms, TransportLimits},
    };

    /// Remembers what was sent.
    #[derive(Clone, Default)]
    struct Sent(Arc<Mutex<Vec<(NodeId, Parcel)>>>);

    impl Carrier for Sent {
        fn send(&self, to: NodeId, _: Option<Subject>, payload: Payload) {
            self.0.lock().unwrap().push((to, codec::decode(&payload.to_vec()).unwrap()));
        }

        fn under_way(&self, _: NodeId, _: Subject) -> UnderWay {
            UnderWay::No
        }

        fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(std::future::ready(()))
        }
    }

    fn parcel(job: u64, message: Message) -> Parcel {
        Parcel { job, attempt: Attempt(1), message, riders: Vec::new() }
    }

    fn grant() -> Message {
        Message::Grant { grant: 7, request: None, settled_below: 0, tasks: Vec::new() }
    }

    #[tokio::test]
    async fn each_job_gets_its_messages_and_the_others_are_answered() {
        let sent = Sent::default();
        let (network_in, arrivals) = mpsc::channel(8);
        let dispatch = Dispatch::start(Network { carrier: Box::new(sent.clone()), arrivals });
        let rooms = Rooms::new(&TransportLimits::default());
        let arrive = |parcel: Parcel| {
            let payload = codec::encode(&parcel).unwrap();
            let room = rooms.try_enter(payload.len()).unwrap();
            network_in.try_send(Arrival::Message { from: NodeId(9), payload, room }).unwrap();
        };
        let (mut first, second, mut third) = (dispatch.open(1), dispatch.open(2), dispatch.open(3));
        third.leave();
        drop((second, third));
        let steal = || Message::Steal { request: 5 };
        for message in [parcel(2, steal()), parcel(2, grant()), parcel(3, steal()), parcel(3, grant())] {
            arrive(message);
        }
        network_in.try_send(Arrival::Unreachable { to: NodeId(4) }).unwrap();
        arrive(parcel(1, steal()));
        assert!(matches!(first.inbox.recv().await, Some(Delivery::Unreachable { to: NodeId(4) })));
        let Some(Delivery::Message { from: NodeId(9), parcel: came, .. }) = first.inbox.recv().await else {
            panic!("it is for this job")
        };
        assert_eq!(came, parcel(1, steal()));
        let deny = || Message::Deny { request: 5 };
        let answers = [parcel(2, deny()), parcel(3, deny()), parcel(3, Message::Refuse { grant: 7 })];
        assert_eq!(*sent.0.lock().unwrap(), answers.map(|parcel| (NodeId(9), parcel)));
        drop(first);
        dispatch.close().await;
    }
}
