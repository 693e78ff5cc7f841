//! ZooKeeper: three servers with the same log of committed operations, each of which has applied a prefix of
//! it.
//!
//! ```text
//!   a write  ─▶ the leader's tree decides ─▶ log ─▶ replica 0, 1, 2   each with a delay
//!   a read   ─▶ the replica that the session is connected to, which may be stale
//!   sync     ─▶ brings that replica up to the end of the log
//! ```
//!
//! A session's requests are executed in the order in which they were sent, and answered in that order, with
//! the events of its watches in between. The answer to a write is sent when the session's own replica has
//! applied it. After a reconnect, a session sees a tree that is no older than what its client was *answered*:
//! operations whose answers were lost may be missing, until a `sync`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::{Rng as _, seq::IndexedRandom as _};
use tokio::sync::{mpsc, oneshot, watch};
use zk::{
    Error, Op, OpAnswer, Result, Session, WatchEvent,
    tree::{Fired, SessionId, Tree, WatchId, WatchKind},
};

use super::{MachineId, State, proposals::Proposals, stamps::Stamps};
use crate::invariants::Seen;

/// The time that a session survives its last sign of life, in milliseconds.
pub(crate) const SESSION_MS: u64 = 1_000;
pub(super) const REPLICAS: usize = 3;
/// The session of outside observers.
pub(crate) const AUDITOR: SessionId = 1;

#[derive(Debug, Clone)]
enum Entry {
    Open,
    End(SessionId),
    Write(SessionId, Vec<Op>),
}

#[derive(Debug)]
pub(super) struct Replica {
    pub(super) tree: Tree,
    /// The number of entries of the log that it has applied.
    pub(super) applied: u64,
    /// The time before which it receives no more committed entries.
    hears_at: u64,
    /// Whether it is down: it receives nothing, and no client reaches it.
    pub(super) down: bool,
}

/// The servers, and their sessions.
#[derive(Debug)]
pub(crate) struct Servers {
    /// The tree after all committed entries.
    pub(crate) tree: Tree,
    log: VecDeque<Entry>,
    /// The number of entries removed from the log's front, which every replica has applied.
    forgotten: u64,
    pub(super) replicas: [Replica; REPLICAS],
    pub(super) sessions: BTreeMap<SessionId, Client>,
    /// The session of each watch, by the replica that has it.
    pub(super) owners: BTreeMap<(usize, WatchId), SessionId>,
    /// Whether the servers are unavailable for all clients.
    pub(super) away: bool,
    /// The proposals that wait until the leader commits again.
    pub(super) proposals: Proposals,
    pub(super) stamps: Stamps,
}

/// A session, from the servers' and the client's side.
pub(super) struct Client {
    pub(super) machine: MachineId,
    pub(super) replica: usize,
    /// The state that the client knows.
    pub(super) state: watch::Sender<Session>,
    /// Incremented whenever the connection is lost.
    pub(super) connection: u32,
    pub(super) connected: bool,
    /// Whether the servers have ended it.
    pub(super) ended: bool,
    /// Whether the client knows that it has ended.
    pub(super) told: bool,
    /// The time since which the servers have not heard from it.
    pub(super) silent: Option<u64>,
    /// The position in the log up to which the client has seen answers.
    pub(super) seen: u64,
    /// The connection on which requests wait for the leader; later requests wait, too.
    pub(super) held: Option<u32>,
    /// The times before which no further request is executed, and no answer is sent.
    next_arrival: u64,
    next_answer: u64,
    /// The requests without an answer.
    pub(super) pending: Vec<Box<dyn Pending>>,
    /// The number of pending requests at which answered ones are removed.
    pub(super) pending_max: usize,
    pub(super) one_shots: BTreeMap<WatchId, Awaited>,
    pub(super) streams: BTreeMap<WatchId, mpsc::UnboundedSender<WatchEvent>>,
    /// Persistent watches that have lost their connection: they report nothing and do not end.
    pub(super) silenced: Vec<mpsc::UnboundedSender<WatchEvent>>,
}

pub(super) trait Pending: Send {
    fn is_answered(&self) -> bool;
    /// Reports that no answer will arrive.
    fn fail(&self, error: Error);
}

/// A one-time watch on its client's side. It stays until its event has arrived.
pub(super) struct Awaited {
    pub(super) path: String,
    pub(super) kind: WatchKind,
    /// Whether the znode did not exist when the watch was set.
    pub(super) absent: bool,
    pub(super) waiting: oneshot::Sender<WatchEvent>,
}

impl Servers {
    pub(super) fn new() -> Self {
        let replica = || Replica { tree: Tree::new(), applied: 0, hears_at: 0, down: false };
        let mut servers = Self {
            tree: Tree::new(),
            log: VecDeque::new(),
            forgotten: 0,
            replicas: [replica(), replica(), replica()],
            sessions: BTreeMap::new(),
            owners: BTreeMap::new(),
            away: false,
            proposals: Proposals::default(),
            stamps: Stamps::default(),
        };
        // This watch has no receiver; it reveals which paths each operation has changed.
        servers.tree.watch_tree("/");
        let auditor = servers.tree.open_session();
        debug_assert_eq!(auditor, AUDITOR);
        servers.log.push_back(Entry::Open);
        servers
    }

    pub(super) fn committed(&self) -> u64 {
        self.forgotten + self.log.len() as u64
    }

    pub(super) fn unwatch(&mut self, replica: usize, gone: &BTreeSet<WatchId>) {
        self.owners.retain(|(at, watch), _| *at != replica || !gone.contains(watch));
        self.replicas[replica].tree.unwatch(gone);
    }

    /// Returns the committed data of a znode.
    pub(crate) fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.tree.get(AUDITOR, path).ok().map(|(data, _)| data)
    }

    /// Returns the number of watches that clients hold.
    pub(crate) fn watches(&self) -> usize {
        let of = |client: &Client| {
            let streams = client.streams.values().chain(&client.silenced).filter(|it| !it.is_closed());
            client.one_shots.values().filter(|it| !it.waiting.is_closed()).count() + streams.count()
        };
        self.sessions.values().map(of).sum()
    }

    /// Returns the committed number of a znode's children; `None` if it does not exist.
    pub(crate) fn count(&self, path: &str) -> Option<u32> {
        Some(self.tree.exists(AUDITOR, path).ok()??.children)
    }

    /// Returns the committed names of a znode's children.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        self.tree.children(AUDITOR, path).unwrap_or_default()
    }
}

impl Client {
    pub(super) fn watches(&self) -> BTreeSet<WatchId> {
        self.one_shots.keys().chain(self.streams.keys()).copied().collect()
    }
}

impl State {
    /// Starts a session for a machine; `None` if it reaches no server.
    pub(super) fn open_session(&mut self, machine: MachineId) -> Option<SessionId> {
        let up: Vec<usize> = (0..REPLICAS).filter(|&it| !self.servers.replicas[it].down).collect();
        let replica = up.choose(&mut self.random).copied()?;
        // The start of a session is committed like any other change.
        if self.servers.away || self.servers.proposals.is_stalled() || self.machines.get(machine).cut_off {
            return None;
        }
        let id = self.servers.tree.open_session();
        self.servers.log.push_back(Entry::Open);
        let client = Client {
            machine,
            replica,
            state: watch::Sender::new(Session::Connected),
            connection: 0,
            connected: true,
            ended: false,
            told: false,
            silent: None,
            seen: 0,
            held: None,
            next_arrival: 0,
            next_answer: 0,
            pending: Vec::new(),
            pending_max: 0,
            one_shots: BTreeMap::new(),
            streams: BTreeMap::new(),
            silenced: Vec::new(),
        };
        self.servers.sessions.insert(id, client);
        // Its server answers after applying that commit, and so everything before.
        self.catch_up(replica, self.servers.committed());
        self.note(format_args!("{machine} opens session {id}"));
        Some(id)
    }

    /// Commits a session's operations, if they succeed.
    pub(super) fn commit(&mut self, session: SessionId, ops: Vec<Op>, one: bool) -> Result<Vec<OpAnswer>> {
        self.counts.writes += 1;
        let mut fired = Vec::new();
        let answers = match (one, ops.first()) {
            (true, Some(op)) => self.servers.tree.apply(session, op, &mut fired).map(|answer| vec![answer]),
            _ => self.servers.tree.multi(session, &ops, &mut fired),
        };
        let verdict = if answers.is_ok() { "done" } else { "refused" };
        let (first, count) = (ops.first().map_or("nothing", Op::path).to_owned(), ops.len());
        self.note(format_args!("session {session} writes {count} {first}: {verdict}"));
        let Ok(answers) = answers else { return answers };
        self.count_losses(&fired);
        self.see_written(session, &ops);
        self.append(Entry::Write(session, ops), &fired);
        Ok(answers)
    }

    /// Counts the members that are gone while they take part in a job, because their sessions have ended or
    /// they have resigned.
    fn count_losses(&mut self, fired: &Fired) {
        let members = format!("{}/", self.invariants.facts.cluster.members());
        let lost = |event: &WatchEvent| {
            let WatchEvent::Deleted(path) = event else { return false };
            let node = path.strip_prefix(&members).and_then(|name| name.parse().ok());
            node.is_some_and(|node| self.invariants.facts.takes_part(node))
        };
        self.counts.members_lost += fired.iter().filter(|(_, event)| lost(event)).count() as u64;
    }

    fn see_written(&mut self, session: SessionId, ops: &[Op]) {
        let now = self.now;
        let Self { invariants, servers, .. } = self;
        invariants.see(now, &Seen::Wrote { session, ops, servers });
    }

    /// Appends a committed entry to the log, with the paths that it has changed.
    fn append(&mut self, entry: Entry, changed: &Fired) {
        let servers = &mut self.servers;
        servers.log.push_back(entry);
        servers.stamps.note(servers.forgotten + servers.log.len() as u64, servers.forgotten, changed);
        self.spread();
    }

    /// Schedules the replicas to apply committed entries, each with a delay.
    fn spread(&mut self) {
        let committed = self.servers.committed();
        for replica in 0..REPLICAS {
            let lag = if self.chance(self.rates.lagging) {
                self.random.random_range(1..=self.rates.lag_ms.max(1))
            } else {
                1
            };
            // Later entries do not overtake: a lagging replica continues to lag for a while.
            let hears_at = &mut self.servers.replicas[replica].hears_at;
            *hears_at = (self.now + lag).max(*hears_at);
            let wait = *hears_at - self.now;
            self.after(wait, move |state| {
                if !state.servers.replicas[replica].down {
                    state.catch_up(replica, committed);
                }
            });
        }
    }

    /// Makes a replica apply the log up to an entry.
    pub(super) fn catch_up(&mut self, replica: usize, upto: u64) {
        while self.servers.replicas[replica].applied < upto {
            let it = &mut self.servers.replicas[replica];
            let place = usize::try_from(it.applied - self.servers.forgotten).unwrap_or(usize::MAX);
            let mut fired = Vec::new();
            match &self.servers.log[place] {
                Entry::Open => {
                    it.tree.open_session();
                }
                Entry::End(session) => fired = it.tree.end_session(*session),
                Entry::Write(session, ops) => {
                    // Operations that succeed on the leader's tree succeed on every tree at the same position.
                    if let [op] = ops.as_slice() {
                        let _done = it.tree.apply(*session, op, &mut fired);
                    } else {
                        let _done = it.tree.multi(*session, ops, &mut fired);
                    }
                }
            }
            it.applied += 1;
            self.fire(replica, fired);
        }
        let everywhere = self.servers.replicas.iter().map(|it| it.applied).min().unwrap_or(0);
        while self.servers.forgotten < everywhere {
            self.servers.log.pop_front();
            self.servers.forgotten += 1;
        }
    }

    /// Delivers the events of a replica's watches.
    fn fire(&mut self, replica: usize, fired: Fired) {
        for (watch, event) in fired {
            let Some(&session) = self.servers.owners.get(&(replica, watch)) else { continue };
            let Some(client) = self.servers.sessions.get_mut(&session) else { continue };
            if !client.connected {
                continue;
            }
            if client.one_shots.contains_key(&watch) {
                self.servers.owners.remove(&(replica, watch));
                self.answer(session, move |state| state.awaken(session, watch, event));
            } else if let Some(stream) = client.streams.get(&watch) {
                let stream = stream.clone();
                self.answer(session, move |_| drop(stream.send(event)));
            }
        }
    }

    /// Delivers the event of a one-time watch to its observer.
    pub(super) fn awaken(&mut self, session: SessionId, watch: WatchId, event: WatchEvent) {
        let client = self.servers.sessions.get_mut(&session);
        if let Some(awaited) = client.and_then(|client| client.one_shots.remove(&watch)) {
            // The observer may have been dropped.
            let _ = awaited.waiting.send(event);
        }
    }

    /// Sends an answer to a session's client, after all earlier answers; it is dropped if the connection is
    /// lost on the way.
    pub(super) fn answer(&mut self, session: SessionId, deliver: impl FnOnce(&mut Self) + Send + 'static) {
        let latency = self.latency();
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        client.next_answer = client.next_answer.max(self.now + latency);
        let (wait, machine, connection) = (client.next_answer - self.now, client.machine, client.connection);
        let arrive = move |state: &mut Self| {
            if state.servers.sessions.get(&session).is_some_and(|client| client.connection == connection) {
                deliver(state);
            }
        };
        self.after(wait, move |state| state.at(machine, arrive));
    }

    /// Returns the delay until a session's next request arrives, after all its earlier requests.
    pub(super) fn arrival(&mut self, session: SessionId) -> u64 {
        let latency = self.latency();
        let Some(client) = self.servers.sessions.get_mut(&session) else { return latency };
        client.next_arrival = client.next_arrival.max(self.now + latency);
        client.next_arrival - self.now
    }

    /// Executes a session's read on its replica.
    pub(super) fn read_at_replica<T>(
        &mut self,
        session: SessionId,
        read: impl FnOnce(&mut Tree) -> Result<T>,
    ) -> Result<T> {
        self.counts.reads += 1;
        let client = self.servers.sessions.get(&session).filter(|client| !client.ended);
        let replica = client.ok_or(Error::SessionExpired)?.replica;
        read(&mut self.servers.replicas[replica].tree)
    }

    /// Returns how much of the log a session's replica has applied.
    pub(super) fn applied_for(&self, session: SessionId) -> u64 {
        self.servers.sessions.get(&session).map_or(0, |client| self.servers.replicas[client.replica].applied)
    }

    /// Records that an answer has shown a client this much of the log.
    pub(super) fn show(&mut self, session: SessionId, upto: u64) {
        if let Some(client) = self.servers.sessions.get_mut(&session) {
            client.seen = client.seen.max(upto);
        }
    }

    /// Makes a session's replica apply everything that is committed.
    pub(super) fn sync(&mut self, session: SessionId) {
        if let Some(client) = self.servers.sessions.get(&session) {
            self.catch_up(client.replica, self.servers.committed());
        }
    }

    /// Sets a one-time watch for a session.
    pub(super) fn watch(
        &mut self,
        session: SessionId,
        path: &str,
        kind: WatchKind,
        absent: bool,
    ) -> oneshot::Receiver<WatchEvent> {
        let (waiting, receiver) = oneshot::channel();
        self.set_watch(session, Awaited { path: path.to_owned(), kind, absent, waiting });
        receiver
    }

    /// Sets a one-time watch at the replica that its session is connected to.
    pub(super) fn set_watch(&mut self, session: SessionId, awaited: Awaited) -> Option<WatchId> {
        let client = self.servers.sessions.get_mut(&session)?;
        let id = self.servers.replicas[client.replica].tree.watch(&awaited.path, awaited.kind);
        client.one_shots.insert(id, awaited);
        self.servers.owners.insert((client.replica, id), session);
        Some(id)
    }

    /// Sets a persistent watch for a session.
    pub(super) fn watch_tree(
        &mut self,
        session: SessionId,
        path: &str,
    ) -> mpsc::UnboundedReceiver<WatchEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        if let Some(client) = self.servers.sessions.get_mut(&session) {
            let id = self.servers.replicas[client.replica].tree.watch_tree(path);
            client.streams.insert(id, sender);
            self.servers.owners.insert((client.replica, id), session);
        }
        receiver
    }

    /// Ends a session on the servers.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        if std::mem::replace(&mut client.ended, true) {
            return;
        }
        if self.servers.proposals.is_stalled() {
            return self.servers.proposals.end(session);
        }
        self.commit_end(session);
    }

    /// Commits the end of a session and deletes its ephemerals.
    pub(super) fn commit_end(&mut self, session: SessionId) {
        self.note(format_args!("session {session} ends"));
        let fired = self.servers.tree.end_session(session);
        self.count_losses(&fired);
        self.see_written(session, &[]);
        self.append(Entry::End(session), &fired);
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("machine", &self.machine)
            .field("connected", &self.connected)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
