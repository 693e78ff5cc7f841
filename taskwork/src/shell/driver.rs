//! The loop that drives a node: waits for something to happen, asks the core, performs what it says.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    sync::{Notify, mpsc, oneshot},
    time,
};

use zk::figures::EventKind;

use super::{
    clock::Clock,
    coordination::{ORDERS_MAX, Order},
    mail::Mail,
    platform::Network,
    timeline::Timeline,
    transport::{Arrival, UnderWay},
};
use crate::{
    core::{self, Action, Departure, Event, Message},
    figures::Figures,
    id::{Attempt, JobId, NodeId},
    pool::{Batch, PoolFault, Source, Work},
    wire::{
        codec,
        parcel::{Parcel, RIDER_BYTES_MAX, RIDER_FRAME_BYTES_MAX, RIDERS_BYTES_MAX},
    },
};

/// Everything a node is made of, ready to run.
pub(crate) struct Driver {
    pub(crate) core: core::Node,
    pub(crate) job: JobId,
    pub(crate) pool: Arc<dyn Work>,
    /// What happens in the znode tree.
    pub(crate) events: mpsc::Receiver<Event>,
    /// Messages that came by way of it, with their senders.
    pub(crate) letters: mpsc::Receiver<(NodeId, Parcel)>,
    /// Which messages are to go that way.
    pub(crate) mail: Mail,
    /// What is to be done there.
    pub(crate) orders: mpsc::Sender<Order>,
    /// Wakes whoever writes improved variables to their znodes.
    pub(crate) publish: Arc<Notify>,
    /// `None` where there is nobody to talk to: a single node within one process.
    pub(crate) network: Option<Network>,
    pub(crate) shutdown: oneshot::Receiver<()>,
    /// The node is to leave, and to hand on what is unfinished.
    pub(crate) drain: Arc<Notify>,
    /// The node's figures, for whoever watches.
    pub(crate) figures: Arc<Mutex<Figures>>,
    /// What has happened to the node, for whoever looks later.
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) clock: Clock,
    /// Whether there was ever a task here.
    pub(crate) fed: bool,
    /// The variables of the pool as they were when last looked at.
    pub(crate) epoch: u64,
}

/// Why a node's loop has ended.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was told to.
    ShutDown,
    /// The job is over.
    JobOver,
    /// A mistake of ours: the loop has panicked.
    BrokenDown,
    /// It left the cluster.
    Departed(Departure),
}

/// What the loop has been waiting for.
enum Happening {
    Event(Event),
    Arrival(Arrival),
    Letter(NodeId, Parcel),
    PoolChanged,
    Due,
    ShutDown,
}

impl Driver {
    /// Runs the node until it has left, the job is over, or it is shut down. The pool is closed then; the
    /// network is given back.
    pub(crate) async fn run(mut self) -> (Ended, Option<Network>) {
        let mut faulty = false;
        let ended = loop {
            let event = match self.wait().await {
                Happening::ShutDown => break Ended::ShutDown,
                Happening::Event(event) => event,
                Happening::Arrival(arrival) => match self.open(arrival) {
                    Some(event) => event,
                    None => continue,
                },
                Happening::Letter(from, parcel) => {
                    self.mail.letter_from(from, self.clock.now_ms());
                    match self.unpack(from, parcel) {
                        Some(event) => event,
                        None => continue,
                    }
                }
                Happening::PoolChanged => self.look(),
                Happening::Due => Event::Tick,
            };
            let over = event == Event::JobOver;
            if let Some(departure) = self.handle(event) {
                break Ended::Departed(departure);
            }
            if over {
                break Ended::JobOver;
            }
            if !faulty && let Some(fault) = self.pool.fault() {
                faulty = true;
                self.order(Order::Fail(fault));
            }
        };
        self.pool.close();
        (ended, self.network)
    }

    /// What has changed in the pool.
    fn look(&self) -> Event {
        match self.pool.ready_batch() {
            Ok(batch) => batch.map_or(Event::Look, told_batch),
            Err(fault) => {
                self.order(Order::Fail(fault));
                Event::Look
            }
        }
    }

    /// # Cancellation safety
    /// Every branch is: nothing that has happened is lost when another branch wins.
    async fn wait(&mut self) -> Happening {
        let due = self.core.deadline().map(|ms| self.clock.instant(time::Duration::from_millis(ms)));
        let far = time::Instant::now() + time::Duration::from_secs(3600);
        let arrivals = self.network.as_mut().map(|network| &mut network.arrivals);
        // In this order, so that a run can be replayed. Nobody starves by it: whatever the event, the core
        // looks at the pool and at the time as they are.
        tokio::select! {
            biased;
            _ = &mut self.shutdown => Happening::ShutDown,
            () = self.drain.notified() => Happening::Event(Event::Drain),
            event = self.events.recv() => event.map_or(Happening::ShutDown, Happening::Event),
            Some(arrival) = receive(arrivals) => Happening::Arrival(arrival),
            Some((from, parcel)) = self.letters.recv() => Happening::Letter(from, parcel),
            () = self.pool.changed() => Happening::PoolChanged,
            () = time::sleep_until(due.unwrap_or(far)) => Happening::Due,
        }
    }

    /// Reads what came from a peer. What cannot be read is dropped: the sender is a member, but of another
    /// make.
    fn open(&mut self, arrival: Arrival) -> Option<Event> {
        match arrival {
            Arrival::Unreachable { to } => {
                self.mail.unreachable(to, self.clock.now_ms());
                Some(Event::Unreachable { to })
            }
            // It takes its room until it is read.
            Arrival::Message { from, payload, room: _room } => {
                self.mail.heard_of(from);
                match codec::decode::<Parcel>(&payload) {
                    Ok(parcel) => self.unpack(from, parcel),
                    Err(error) => {
                        tracing::warn!(%from, %error, "a message could not be read and was dropped");
                        None
                    }
                }
            }
        }
    }

    fn unpack(&self, from: NodeId, parcel: Parcel) -> Option<Event> {
        if parcel.job == self.job.number() {
            self.take_riders(from, &parcel.riders);
            return Some(Event::Message { from, attempt: parcel.attempt, message: parcel.message });
        }
        self.deny_elsewhere(from, &parcel);
        None
    }

    /// Who steals for another job than this node's is denied at once, so that it need not wait for an answer.
    fn deny_elsewhere(&self, from: NodeId, asked: &Parcel) {
        let Some(denial) = asked.denial() else { return };
        // A few bytes; nothing is lost for good by a denial that is not heard.
        let _ = self.send_parcel(from, &denial);
    }

    fn take_riders(&self, from: NodeId, riders: &[(u32, Vec<u8>)]) {
        for (slot, value) in riders {
            let slot = usize::try_from(*slot).unwrap_or(usize::MAX);
            let variables = self.pool.variables();
            if let Err(error) = variables.offer_encoded(slot, value, Source::Node, self.pool.signals()) {
                tracing::warn!(%from, slot, %error, "the value of a variable could not be read and was dropped");
            }
        }
    }

    /// Gives an event to the core and performs what it says, and what follows from that, to the end.
    fn handle(&mut self, event: Event) -> Option<Departure> {
        let epoch = self.pool.signals().epoch();
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            self.publish.notify_one();
        }
        if let Event::Left { node, .. } = &event {
            self.mail.left(*node);
        }
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let actions = self.core.handle(self.clock.now(), self.pool.view(), event);
            let look_again = actions.iter().any(Action::touches_pool);
            for action in actions {
                match self.perform(action) {
                    Ok(Some(answer)) => events.push_back(answer),
                    Ok(None) => {}
                    Err(Refusal::Departs(departure)) => return Some(departure),
                    Err(Refusal::Fault(fault)) => self.order(Order::Fail(fault)),
                }
            }
            if look_again && events.is_empty() {
                events.push_back(Event::Look);
            }
        }
        self.show_figures();
        None
    }

    /// Performs an action. Answers with the event that it asks for, if any.
    fn perform(&mut self, action: Action) -> Result<Option<Event>, Refusal> {
        match action {
            Action::Send { to, attempt, message } => self.send(to, attempt, message)?,
            Action::Put { tasks, asked } => {
                if !tasks.is_empty() && !std::mem::replace(&mut self.fed, true) {
                    tracing::info!("the node has its first task");
                    self.timeline.note(EventKind::FirstTask, "");
                }
                self.pool.put(tasks, asked.map(|at| self.clock.instant(at)))?;
            }
            Action::Take { thief, request, tasks_max, bytes_max } => {
                let tasks = self.pool.take(tasks_max, bytes_max)?;
                return Ok(Some(Event::Taken { thief, request, tasks }));
            }
            Action::Thieves { waiting } => self.pool.set_thieves(waiting),
            Action::Stop => self.pool.stop(),
            Action::Resume => self.pool.resume(),
            Action::Discard => self.pool.discard(),
            Action::Unload => return Ok(Some(Event::Unloaded { tasks: self.pool.unload()? })),
            Action::TakeBatch => {
                // Otherwise the pool says so when it is ready.
                return Ok(self.pool.take_batch()?.map(told_batch));
            }
            Action::Enrol { attempt } => self.order(Order::Enrol { attempt }),
            Action::Transact { attempt, transaction } => self.order(Order::Transact { attempt, transaction }),
            Action::Leave { departure } => return Err(Refusal::Departs(departure)),
        }
        Ok(None)
    }

    fn send(&mut self, to: NodeId, attempt: Attempt, message: Message) -> Result<(), PoolFault> {
        // What is said again while it is on its way, and gets on, needs no copy and no other way.
        let under_way = self.under_way(to, &message);
        if under_way == UnderWay::Moves {
            return Ok(());
        }
        let asks_or_gives = matches!(message, Message::Steal { .. } | Message::Grant { .. });
        let riders = if asks_or_gives { self.riders() } else { Vec::new() };
        let parcel = Parcel { job: self.job.number(), attempt, message, riders };
        if under_way == UnderWay::No {
            self.send_parcel(to, &parcel)?;
        }
        // Letters are said again, transactions are not: half of the room is kept for these.
        let room = self.orders.capacity() > ORDERS_MAX / 2;
        if room && self.mail.is_due(to, &parcel.message, self.clock.now_ms()) {
            self.order(Order::Post { to, parcel });
        }
        Ok(())
    }

    fn under_way(&self, to: NodeId, message: &Message) -> UnderWay {
        let subject = Mail::subject(self.job.number(), message);
        match (&self.network, subject) {
            (Some(network), Some(subject)) => network.carrier.under_way(to, subject),
            _ => UnderWay::No,
        }
    }

    /// # Errors
    /// If the message cannot be encoded. Tasks in it were encoded, and are few enough: it is a mistake of
    /// ours, but one that must not be said again for ever.
    fn send_parcel(&self, to: NodeId, parcel: &Parcel) -> Result<(), PoolFault> {
        let Some(network) = &self.network else { return Ok(()) };
        let message = &parcel.message;
        match parcel.payload() {
            Ok(payload) => network.carrier.send(to, Mail::subject(parcel.job, message), payload),
            Err(error) => {
                tracing::error!(%to, %error, "a message could not be encoded");
                if let Message::Grant { tasks, .. } = message
                    && let Some(task) = tasks.first()
                {
                    return Err(PoolFault::Unsendable { task: task.id, reason: error.to_string() });
                }
            }
        }
        Ok(())
    }

    /// The values of the variables that are small enough to ride along, as far as there is room for them.
    fn riders(&self) -> Vec<(u32, Vec<u8>)> {
        let variables = self.pool.variables();
        let value = |slot| variables.encoded(slot).ok().flatten().filter(|v| v.len() <= RIDER_BYTES_MAX);
        let slots = (0..variables.len()).zip(0_u32..);
        let mut room = RIDERS_BYTES_MAX;
        let mut has_room = |rider: &(u32, Vec<u8>)| {
            let left = room.checked_sub(rider.1.len() + RIDER_FRAME_BYTES_MAX);
            room = left.unwrap_or(room);
            left.is_some()
        };
        slots.filter_map(|(slot, number)| Some((number, value(slot)?))).filter(|r| has_room(r)).collect()
    }

    fn order(&self, order: Order) {
        // The core asks for one transaction and one enrolment at a time, so the channel is full only if
        // attempts come faster than they can be joined; closed, it is only when the node ends.
        if let Err(error) = self.orders.try_send(order) {
            tracing::warn!(%error, "the coordination is behind and was not told");
        }
    }

    fn show_figures(&self) {
        let mut figures = self.pool.figures();
        figures += self.core.figures();
        *self.figures.lock().unwrap_or_else(PoisonError::into_inner) = figures;
    }
}

fn told_batch(batch: Batch) -> Event {
    Event::Batch { toggles: batch.toggles, output: batch.output }
}

/// Why an action came to nothing.
enum Refusal {
    Departs(Departure),
    Fault(PoolFault),
}

impl From<PoolFault> for Refusal {
    fn from(fault: PoolFault) -> Self {
        Self::Fault(fault)
    }
}

async fn receive(arrivals: Option<&mut mpsc::Receiver<Arrival>>) -> Option<Arrival> {
    match arrivals {
        Some(arrivals) => arrivals.recv().await,
        None => std::future::pending().await,
    }
}
