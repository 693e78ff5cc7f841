//! The main loop of a node: waits for an event, passes it to the core, and performs the resulting actions.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time,
};

use zk::figures::EventKind;

use super::{
    clock::Clock,
    coordination::{Deadline, ORDERS_MAX, Order},
    dispatch::{Delivery, Line},
    givers::Givers,
    mail::Mail,
    platform::Probe,
    timeline::Timeline,
    transport::UnderWay,
};
use crate::{
    core::{self, Action, Departure, Event, LedgerState, Message},
    figures::Figures,
    id::{Attempt, JobId, NodeId},
    pool::{PoolFault, Source, Work},
    steps,
    wire::parcel::{Parcel, RIDER_BYTES_MAX, RIDER_FRAME_BYTES_MAX, RIDERS_BYTES_MAX},
};

/// The parts of a node, ready to run.
pub(crate) struct Driver {
    pub(crate) core: core::Node,
    pub(crate) probe: Arc<dyn Probe>,
    pub(crate) job: JobId,
    pub(crate) pool: Arc<dyn Work>,
    /// Events from the znode tree.
    pub(crate) events: mpsc::Receiver<Event>,
    /// Messages received through the znode tree, with their senders.
    pub(crate) letters: mpsc::Receiver<(NodeId, Parcel)>,
    /// Decides which messages are also sent through the znode tree.
    pub(crate) mail: Mail,
    /// Writes to the znode tree.
    pub(crate) orders: mpsc::Sender<Order>,
    /// Wakes the loop that writes improved variables to their znodes.
    pub(crate) publish: Arc<Notify>,
    /// Wakes the loop that detects which waits of tasks are complete.
    pub(crate) waits: Arc<Notify>,
    /// Wakes the loop that looks for work of lost nodes.
    pub(crate) orphan_looks: watch::Sender<u64>,
    /// `None` for a single node within one process, which has no peers.
    pub(crate) line: Option<Line>,
    pub(crate) shutdown: oneshot::Receiver<()>,
    /// Requests that the node leaves within a deadline and hands over its unfinished tasks.
    pub(crate) drain: mpsc::Receiver<Deadline>,
    /// The node's figures, for observers.
    pub(crate) figures: Arc<Mutex<Figures>>,
    /// The written state of the node's holdings, for observers.
    pub(crate) ledger: Arc<Mutex<Option<LedgerState>>>,
    /// The nodes from which its tasks came, for observers.
    pub(crate) givers: Arc<Mutex<Givers>>,
    /// The nodes that cannot be reached over the network, for observers; `None` if there were none yet.
    pub(crate) cut_off: Arc<Mutex<Option<BTreeSet<NodeId>>>>,
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) clock: Clock,
    /// Whether the node ever had a task.
    pub(crate) fed: bool,
    /// The last seen epoch of the pool's variables.
    pub(crate) epoch: u64,
}

/// The reasons why a node's loop has stopped.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was requested.
    ShutDown,
    JobOver,
    /// A bug of the runtime: the loop has panicked.
    BrokenDown,
    Departed(Departure),
}

enum Input {
    Event(Event),
    Delivery(Delivery),
    Letter(NodeId, Parcel),
    PoolChanged,
    Due,
    ShutDown,
}

impl Driver {
    /// Runs the node until it has left, the job is over, or it is shut down. Then closes the pool.
    pub(crate) async fn run(mut self) -> Ended {
        let mut faulty = false;
        let ended = loop {
            let event = match self.wait().await {
                Input::ShutDown => break Ended::ShutDown,
                Input::Event(event) => event,
                Input::Delivery(delivery) => match self.open(delivery) {
                    Some(event) => event,
                    None => continue,
                },
                Input::Letter(from, parcel) => {
                    self.mail.on_letter(from, self.clock.now_ms());
                    match self.unpack(from, parcel) {
                        Some(event) => event,
                        None => continue,
                    }
                }
                Input::PoolChanged => self.look(),
                Input::Due => Event::Tick,
            };
            // A fault is reported before anything else is written.
            if !faulty && let Some(fault) = self.pool.fault() {
                faulty = true;
                self.order(Order::Fail(fault));
            }
            let over = event == Event::JobOver;
            if let Some(departure) = self.handle(event) {
                break Ended::Departed(departure);
            }
            if over {
                break Ended::JobOver;
            }
        };
        self.pool.close();
        if ended == Ended::Departed(Departure::Clean)
            && let Some(line) = &mut self.line
        {
            line.leave();
        }
        ended
    }

    /// Returns the event for a change of the pool, which may be an external wake-up.
    fn look(&self) -> Event {
        self.pool.wake_rung();
        match Arc::clone(&self.pool).ready_cut() {
            Ok(cut) => cut.map_or(Event::Look, Event::Cut),
            Err(fault) => {
                self.order(Order::Fail(fault));
                Event::Look
            }
        }
    }

    /// # Cancellation safety
    /// All branches are cancel safe: nothing is lost when another branch completes first.
    async fn wait(&mut self) -> Input {
        let due = self.core.deadline().map(|ms| self.clock.instant(time::Duration::from_millis(ms)));
        let far = time::Instant::now() + time::Duration::from_secs(3600);
        let inbox = self.line.as_mut().map(|line| &mut line.inbox);
        // The order is fixed, so that a run can be replayed. No branch starves: for any event, the core examines the
        // current state of the pool and the time.
        tokio::select! {
            biased;
            _ = &mut self.shutdown => Input::ShutDown,
            Some(Deadline { at_ms, deadline_ms }) = self.drain.recv() => {
                Input::Event(Event::Drain { ms_ago: self.clock.now_ms().saturating_sub(at_ms), deadline_ms })
            },
            event = self.events.recv() => event.map_or(Input::ShutDown, Input::Event),
            Some(delivery) = receive(inbox) => Input::Delivery(delivery),
            Some((from, parcel)) = self.letters.recv() => Input::Letter(from, parcel),
            () = self.pool.changed() => Input::PoolChanged,
            () = time::sleep_until(due.unwrap_or(far)) => Input::Due,
        }
    }

    fn open(&mut self, delivery: Delivery) -> Option<Event> {
        match delivery {
            Delivery::Unreachable { to } => {
                if self.mail.unreachable(to, self.clock.now_ms()) {
                    tracing::warn!(
                        %to,
                        "a node cannot be reached over the network: check its --listen and --advertise (`taskwork nodes` \
                         shows its address), and that firewalls let UDP pass"
                    );
                    self.note_cut_off();
                }
                Some(Event::Unreachable { to })
            }
            Delivery::Message { from, parcel, room: _room } => {
                if self.mail.on_message(from) {
                    tracing::info!(%from, "the node is reached over the network again");
                    self.note_cut_off();
                }
                self.unpack(from, parcel)
            }
        }
    }

    /// Returns the event of a message; `None` if it belongs to another job, which is possible only for letters.
    fn unpack(&self, from: NodeId, parcel: Parcel) -> Option<Event> {
        if parcel.job != self.job.number() {
            return None;
        }
        steps::handled(&parcel.message, from, false);
        self.apply_riders(from, &parcel.riders);
        Some(Event::Message { from, attempt: parcel.attempt, message: parcel.message })
    }

    fn apply_riders(&self, from: NodeId, riders: &[(u32, Vec<u8>)]) {
        for (slot, value) in riders {
            let slot = usize::try_from(*slot).unwrap_or(usize::MAX);
            let variables = self.pool.variables();
            if let Err(error) = variables.offer_encoded(slot, value, Source::Node, self.pool.signals()) {
                tracing::warn!(
                    %from, slot, %error,
                    "the value of a variable could not be read and was dropped"
                );
            }
        }
    }

    /// Passes an event to the core, and performs the resulting actions and all of their consequences.
    fn handle(&mut self, event: Event) -> Option<Departure> {
        let epoch = self.pool.signals().epoch();
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            self.publish.notify_one();
        }
        if let Event::Left { node, .. } = &event
            && self.mail.left(*node)
        {
            self.note_cut_off();
        }
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let actions = self.core.handle(self.clock.now(), self.pool.view(), event);
            self.probe.on_event(&self.core);
            self.note_givers();
            let look_again = actions.iter().any(Action::touches_pool);
            for action in actions {
                match self.perform(action) {
                    Ok(Some(answer)) => events.push_back(answer),
                    Ok(None) => {}
                    Err(Refusal::Stop(departure)) => return Some(departure),
                    Err(Refusal::Fault(fault)) => self.order(Order::Fail(fault)),
                }
            }
            if look_again && events.is_empty() {
                events.push_back(Event::Look);
            }
        }
        if self.pool.view().waiting > 0 {
            self.waits.notify_one();
        }
        self.show_figures();
        None
    }

    /// Shows observers the nodes that cannot be reached.
    fn note_cut_off(&self) {
        *self.cut_off.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.mail.cut_off().clone());
    }

    /// Records the nodes from which tasks have just come.
    fn note_givers(&mut self) {
        let received = self.core.take_received();
        if received.is_empty() {
            return;
        }
        let mut givers = self.givers.lock().unwrap_or_else(PoisonError::into_inner);
        for (giver, tasks) in received {
            givers.note(giver, tasks);
        }
    }

    /// Performs an action, and returns the event that answers it, if any.
    fn perform(&mut self, action: Action) -> Result<Option<Event>, Refusal> {
        match action {
            Action::Send { to, attempt, message } => self.send(to, attempt, message)?,
            Action::Put { tasks, basis, asked } => {
                if !tasks.is_empty() && !std::mem::replace(&mut self.fed, true) {
                    tracing::info!("the node has its first task");
                    self.timeline.note(EventKind::FirstTask, "");
                }
                self.pool.put(tasks, basis, asked.map(|at| self.clock.instant(at)))?;
            }
            Action::Take { thief, request, tasks_max, bytes_max } => {
                let (basis, tasks) = self.pool.take(tasks_max, bytes_max)?;
                return Ok(Some(Event::Taken { thief, request, tasks, basis }));
            }
            Action::Thieves { waiting } => self.pool.set_thieves(waiting),
            Action::Stop => self.pool.stop(),
            Action::Resume => self.pool.resume(),
            Action::Discard => self.pool.discard(),
            Action::Unload => return Ok(Some(Event::Unloaded { tasks: self.pool.unload()? })),
            Action::Cut { firm } => {
                self.pool.begin_cut(&firm)?;
                // If the cut is not ready yet, the pool notifies the driver later.
                return Ok(Arc::clone(&self.pool).ready_cut()?.map(Event::Cut));
            }
            Action::Try { task } => self.pool.begin_trial(task),
            Action::Void { bases } => self.pool.void(&bases),
            Action::LookForOrphans { look } => {
                let _ = self.orphan_looks.send(look);
            }
            Action::Enrol { attempt } => self.order(Order::Enrol { attempt }),
            Action::Transact { attempt, transaction } => self.order(Order::Transact { attempt, transaction }),
            Action::Leave { departure } => return Err(Refusal::Stop(departure)),
        }
        Ok(None)
    }

    fn send(&mut self, to: NodeId, attempt: Attempt, message: Message) -> Result<(), PoolFault> {
        // A repeated message that is still being sent and makes progress needs neither a copy nor a letter.
        let under_way = self.under_way(to, &message);
        if under_way == UnderWay::Moves {
            return Ok(());
        }
        steps::handled(&message, to, true);
        let asks_or_gives = matches!(message, Message::Steal { .. } | Message::Grant { .. });
        let riders = if asks_or_gives { self.riders() } else { Vec::new() };
        let parcel = Parcel { job: self.job.number(), attempt, message, riders };
        if under_way == UnderWay::No {
            self.send_parcel(to, &parcel)?;
        }
        // Letters are repeated, transactions are not: half of the room is reserved for transactions.
        let room = self.orders.capacity() > ORDERS_MAX / 2;
        if room && self.mail.is_due(to, &parcel.message, self.clock.now_ms()) {
            self.order(Order::Post { to, parcel });
        }
        Ok(())
    }

    fn under_way(&self, to: NodeId, message: &Message) -> UnderWay {
        let subject = Mail::subject(self.job.number(), message);
        match (&self.line, subject) {
            (Some(line), Some(subject)) => line.under_way(to, subject),
            _ => UnderWay::No,
        }
    }

    /// # Errors
    /// If a grant cannot be encoded. Its tasks were encoded before and are limited in size, so this is a bug of the
    /// runtime; the error prevents endless retries. Other messages that cannot be encoded are only logged.
    fn send_parcel(&self, to: NodeId, parcel: &Parcel) -> Result<(), PoolFault> {
        let Some(line) = &self.line else { return Ok(()) };
        let message = &parcel.message;
        match parcel.payload() {
            Ok(payload) => line.send(to, Mail::subject(parcel.job, message), payload),
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

    /// Returns the values of variables that are small enough to be riders, as long as there is room.
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
        // The core has at most one transaction and one enrolment of an attempt open, and letters leave half of the
        // channel free. So the channel is full only if orders come faster than they are received, and closed only when
        // the node stops.
        if let Err(error) = self.orders.try_send(order) {
            tracing::warn!(%error, "the coordination is overloaded; a write was dropped");
        }
    }

    fn show_figures(&self) {
        let mut figures = self.pool.figures();
        figures += self.core.counts().into();
        *self.figures.lock().unwrap_or_else(PoisonError::into_inner) = figures;
        *self.ledger.lock().unwrap_or_else(PoisonError::into_inner) = self.core.ledger();
    }
}

/// The reasons why an action was not performed.
enum Refusal {
    Stop(Departure),
    Fault(PoolFault),
}

impl From<PoolFault> for Refusal {
    fn from(fault: PoolFault) -> Self {
        Self::Fault(fault)
    }
}

async fn receive(inbox: Option<&mut mpsc::Receiver<Delivery>>) -> Option<Delivery> {
    match inbox {
        Some(inbox) => inbox.recv().await,
        None => std::future::pending().await,
    }
}
