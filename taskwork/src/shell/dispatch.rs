//! Routes messages that arrive at a node to its jobs.
//!
//! ```text
//!   arrivals ─▶ dispatch ─▶ line of a job ─▶ its driver
//!                  │ no such job here, or the node has left it: answered immediately
//! ```
//!
//! A thief without an answer would wait until its timeout, which would dominate the duration of a small job. A
//! job that receives more messages than it handles loses some of them, but delays no other job.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::{sync::mpsc, task::JoinSet};

use super::{
    platform::Network,
    transport::{Arrival, Carrier, Room, Subject, UnderWay},
};
use crate::{
    companion::{COMPANION_MESSAGE_BYTES_MAX, Desk, Refusal},
    id::NodeId,
    wire::{
        codec,
        packet::{Note, NoteContent, Packet},
        parcel::Parcel,
        payload::Payload,
    },
};

/// The maximum number of messages that wait for a job.
const INBOX_MAX: usize = 1024;

/// A node's connection to the other nodes, shared by its jobs.
pub(crate) struct Dispatch {
    // Shared with the lines.
    carrier: Arc<Box<dyn Carrier>>,
    table: Arc<Table>,
    receiving: JoinSet<()>,
}

/// The jobs, by number.
#[derive(Default)]
struct Table(Mutex<BTreeMap<u64, Entry>>);

enum Entry {
    /// The node works on the job, perhaps with a companion.
    Open(mpsc::Sender<Delivery>, Option<Arc<Desk>>),
    /// The node has left the job cleanly, and holds no tasks of it.
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

/// An arrival for a job.
pub(crate) enum Delivery {
    /// A message, its sender, and the room that it occupies until it has been handled.
    Message { from: NodeId, parcel: Parcel, room: Room },
    /// A message could not be sent to this node.
    Unreachable { to: NodeId },
}

impl Dispatch {
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

    /// Opens the line of a job and of its companion, if there is one.
    pub(crate) fn open(&self, job: u64, companion: Option<Arc<Desk>>) -> Line {
        let (deliveries, inbox) = mpsc::channel(INBOX_MAX);
        self.table.lock().insert(job, Entry::Open(deliveries, companion));
        let (carrier, table) = (Arc::clone(&self.carrier), Arc::clone(&self.table));
        Line { job, carrier, inbox, table, has_left: false }
    }

    /// Returns the carrier while the connections are open.
    pub(crate) fn carrier(&self) -> Weak<Box<dyn Carrier>> {
        Arc::downgrade(&self.carrier)
    }

    /// Delivers queued messages as far as possible within a time limit, and closes all connections. All lines must
    /// be closed.
    pub(crate) async fn close(mut self) {
        self.receiving.shutdown().await;
        if let Some(carrier) = Arc::into_inner(self.carrier) {
            carrier.close().await;
        } else {
            tracing::debug!("a job still uses the network; the connections are closed when it stops");
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
                if let Entry::Open(deliveries, _) = entry {
                    // If there is no room for it, the thief's timeout takes effect.
                    let _ = deliveries.try_send(Delivery::Unreachable { to });
                }
            }
            return;
        };
        let parcel = match codec::decode::<Packet>(&payload) {
            Ok(Packet::Protocol(parcel)) => parcel,
            Ok(Packet::Companion(note)) => return self.deliver_note(from, note, carrier),
            // The sender is a member, but of another version.
            Err(error) => {
                tracing::warn!(%from, %error, "a message could not be read and was dropped");
                return;
            }
        };
        let answer = match self.lock().get(&parcel.job) {
            Some(Entry::Open(deliveries, _)) => {
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

impl Table {
    fn deliver_note(&self, from: NodeId, note: Note, carrier: &dyn Carrier) {
        let Note { job, number, content } = note;
        let desk = match self.lock().get(&job) {
            Some(Entry::Open(_, desk)) => desk.clone(),
            Some(Entry::Left) | None => None,
        };
        let refused = match (content, desk) {
            (NoteContent::Message(bytes), _) if bytes.len() > COMPANION_MESSAGE_BYTES_MAX => {
                tracing::warn!(%from, bytes = bytes.len(), "a companion's message is too large and was dropped");
                Ok(())
            }
            (NoteContent::Message(bytes), Some(desk)) => desk.message(from, bytes.into()),
            (NoteContent::Message(_), None) => Err(Refusal::Absent),
            (NoteContent::Refused(why), desk) => {
                if let Some(desk) = desk {
                    desk.refused(from, number, why);
                }
                Ok(())
            }
        };
        if let Err(why) = refused
            && let Ok(answer) = (Note { job, number, content: NoteContent::Refused(why) }).payload()
        {
            // If the refusal is lost, the sender considers the message lost.
            let _ = carrier.send_note(from, answer);
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

    /// Records that the node has left the job cleanly: further tasks sent to it are refused.
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
        companion::{CompanionEvent, NotSent},
        core::Message,
        id::Attempt,
        shell::transport::{Rooms, TransportLimits},
    };

    /// A carrier that records messages.
    #[derive(Clone, Default)]
    struct Sent(Arc<Mutex<Vec<(NodeId, Packet)>>>);

    impl Carrier for Sent {
        fn send(&self, to: NodeId, _: Option<Subject>, payload: Payload) {
            self.0.lock().unwrap().push((to, codec::decode(&payload.to_vec()).unwrap()));
        }

        fn send_note(&self, to: NodeId, payload: Payload) -> Result<(), NotSent> {
            self.send(to, None, payload);
            Ok(())
        }

        fn under_way(&self, _: NodeId, _: Subject) -> UnderWay {
            UnderWay::No
        }

        fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(std::future::ready(()))
        }
    }

    fn parcel(job: u64, message: Message) -> Packet {
        Packet::Protocol(Parcel { job, attempt: Attempt(1), message, riders: Vec::new() })
    }

    fn note(job: u64, content: NoteContent) -> Packet {
        Packet::Companion(Note { job, number: 3, content })
    }

    fn grant() -> Message {
        Message::Grant { grant: 7, request: None, settled_below: 0, tasks: Vec::new() }
    }

    #[tokio::test]
    async fn messages_are_routed_by_job_and_answered_without_one() {
        let sent = Sent::default();
        let (network_in, arrivals) = mpsc::channel(8);
        let dispatch = Dispatch::start(Network { carrier: Box::new(sent.clone()), arrivals });
        let rooms = Rooms::new(&TransportLimits::default());
        let arrive = |packet: Packet| {
            let payload = codec::encode(&packet).unwrap();
            let room = rooms.try_enter(payload.len()).unwrap();
            network_in.try_send(Arrival::Message { from: NodeId(9), payload, room }).unwrap();
        };
        let (mut first, second, mut third) =
            (dispatch.open(1, None), dispatch.open(2, None), dispatch.open(3, None));
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
        assert_eq!(Packet::Protocol(came), parcel(1, steal()));
        let deny = || Message::Deny { request: 5 };
        let answers = [parcel(2, deny()), parcel(3, deny()), parcel(3, Message::Refuse { grant: 7 })];
        assert_eq!(*sent.0.lock().unwrap(), answers.map(|parcel| (NodeId(9), parcel)));
        drop(first);
        dispatch.close().await;
    }

    #[tokio::test]
    async fn companion_messages_are_delivered_or_refused() {
        let sent = Sent::default();
        let (network_in, arrivals) = mpsc::channel(8);
        let dispatch = Dispatch::start(Network { carrier: Box::new(sent.clone()), arrivals });
        let rooms = Rooms::new(&TransportLimits::default());
        let arrive = |packet: Packet| {
            let payload = codec::encode(&packet).unwrap();
            let room = rooms.try_enter(payload.len()).unwrap();
            network_in.try_send(Arrival::Message { from: NodeId(9), payload, room }).unwrap();
        };
        let message = || NoteContent::Message(vec![5; 2].into());
        let desk = Arc::new(Desk::default());
        let (_with, _without) = (dispatch.open(1, Some(Arc::clone(&desk))), dispatch.open(2, None));
        // A refusal is not answered by another refusal.
        arrive(note(2, NoteContent::Refused(Refusal::Full)));
        arrive(note(2, message()));
        arrive(note(3, message()));
        arrive(note(1, NoteContent::Refused(Refusal::Full)));
        arrive(note(1, message()));
        let next = async || desk.next().await.unwrap();
        let refused = next().await;
        assert!(matches!(refused, CompanionEvent::Refused { to: NodeId(9), number: 3, why: Refusal::Full }));
        let CompanionEvent::Message { from, bytes } = next().await else {
            panic!("it is for this companion")
        };
        assert_eq!((from, bytes), (NodeId(9), vec![5; 2]));
        let absent = |job| (NodeId(9), note(job, NoteContent::Refused(Refusal::Absent)));
        assert_eq!(*sent.0.lock().unwrap(), [absent(2), absent(3)]);
        desk.end();
        arrive(note(1, message()));
        let answered = async {
            while sent.0.lock().unwrap().len() < 3 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), answered).await.expect("it is refused");
        assert_eq!(sent.0.lock().unwrap()[2], absent(1));
    }
}
