//! ZooKeeper: three servers that have the same log of committed operations, each applied as far as it has come.
//!
//! ```text
//!   a write  ─▶ the leader's tree decides ─▶ log ─▶ replica 0, 1, 2   each a while later
//!   a read   ─▶ the replica that the session is connected to: it may be old
//!   sync     ─▶ brings that replica up to the end of the log
//! ```
//!
//! A session's requests are done in the order in which they were sent, and answered in that order, with what its watches have seen
//! in between. The answer to a write comes when the session's own replica has applied it. A session that is connected anew never
//! sees an older tree than before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::Rng as _;
use tokio::sync::{mpsc, oneshot, watch};
use zk::{
    Error, Op, OpAnswer, Result, Session, WatchEvent,
    tree::{Fired, SessionId, Tree, WatchId, WatchKind},
};

use super::{MachineId, State};
use crate::invariants::Seen;

/// How long a session outlives its last sign of life, in milliseconds.
pub(crate) const SESSION_MS: u64 = 1_000;
const REPLICAS: usize = 3;
/// The session of those who look from outside.
pub(crate) const AUDITOR: SessionId = 1;

/// What has been committed.
#[derive(Debug, Clone)]
enum Entry {
    Open,
    End(SessionId),
    Write(SessionId, Vec<Op>),
}

#[derive(Debug)]
struct Replica {
    tree: Tree,
    /// How many entries of the log it has applied.
    applied: u64,
    /// The time before which it hears of nothing more that is committed.
    hears_at: u64,
}

/// The servers, and their sessions.
#[derive(Debug)]
pub(crate) struct Servers {
    /// The tree after everything that is committed.
    pub(crate) tree: Tree,
    log: VecDeque<Entry>,
    /// Entries before the first in the log, which every replica has applied.
    forgotten: u64,
    replicas: [Replica; REPLICAS],
    pub(super) sessions: BTreeMap<SessionId, Client>,
    /// Whose watch it is, by the replica that has it.
    owners: BTreeMap<(usize, WatchId), SessionId>,
    /// The servers are away for everybody.
    pub(super) away: bool,
}

/// A session, as the servers and its client have it.
pub(super) struct Client {
    pub(super) machine: MachineId,
    replica: usize,
    /// What the client knows of it.
    pub(super) state: watch::Sender<Session>,
    /// Grows whenever the connection is lost.
    pub(super) connection: u32,
    pub(super) connected: bool,
    /// The servers have ended it.
    ended: bool,
    /// The client has been told so.
    told: bool,
    /// Since when the servers have not heard of it.
    silent: Option<u64>,
    /// The times before which nothing else is done, and nothing else answered.
    next_arrival: u64,
    next_answer: u64,
    /// Takes the connection's loss to those that wait for an answer.
    pub(super) pending: Vec<Box<dyn FnOnce(Error) + Send>>,
    one_shots: BTreeMap<WatchId, (String, WatchKind, oneshot::Sender<WatchEvent>)>,
    streams: BTreeMap<WatchId, (String, mpsc::UnboundedSender<WatchEvent>)>,
    /// What one-time watches have seen while the client was away.
    missed: Vec<(oneshot::Sender<WatchEvent>, WatchEvent)>,
}

impl Servers {
    pub(super) fn new() -> Self {
        let replica = || Replica { tree: Tree::new(), applied: 0, hears_at: 0 };
        let mut servers = Self {
            tree: Tree::new(),
            log: VecDeque::new(),
            forgotten: 0,
            replicas: [replica(), replica(), replica()],
            sessions: BTreeMap::new(),
            owners: BTreeMap::new(),
            away: false,
        };
        let auditor = servers.tree.open_session();
        debug_assert_eq!(auditor, AUDITOR);
        servers.log.push_back(Entry::Open);
        servers
    }

    fn committed(&self) -> u64 {
        self.forgotten + self.log.len() as u64
    }

    fn unwatch(&mut self, replica: usize, gone: &BTreeSet<WatchId>) {
        self.owners.retain(|(at, watch), _| *at != replica || !gone.contains(watch));
        self.replicas[replica].tree.unwatch(gone);
    }

    /// The data of a znode, as it is committed.
    pub(crate) fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.tree.get(AUDITOR, path).ok().map(|(data, _)| data)
    }

    /// How many children a znode has, as it is committed; `None` if it does not exist.
    pub(crate) fn count(&self, path: &str) -> Option<u32> {
        Some(self.tree.exists(AUDITOR, path).ok()??.children)
    }

    /// The children of a znode, as they are committed.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        self.tree.children(AUDITOR, path).unwrap_or_default()
    }
}

impl Client {
    fn watches(&self) -> BTreeSet<WatchId> {
        self.one_shots.keys().chain(self.streams.keys()).copied().collect()
    }
}

impl State {
    /// A machine begins a session; `None` if it reaches no server.
    pub(super) fn open_session(&mut self, machine: MachineId) -> Option<SessionId> {
        if self.servers.away || self.machines.get(machine).cut_off {
            return None;
        }
        let id = self.servers.tree.open_session();
        self.servers.log.push_back(Entry::Open);
        let replica = self.random.random_range(0..REPLICAS);
        let client = Client {
            machine,
            replica,
            state: watch::Sender::new(Session::Connected),
            connection: 0,
            connected: true,
            ended: false,
            told: false,
            silent: None,
            next_arrival: 0,
            next_answer: 0,
            pending: Vec::new(),
            one_shots: BTreeMap::new(),
            streams: BTreeMap::new(),
            missed: Vec::new(),
        };
        self.servers.sessions.insert(id, client);
        self.catch_up(replica, self.servers.committed());
        self.note(format_args!("{machine} opens session {id}"));
        Some(id)
    }

    /// Commits a session's operations, if they can be done.
    pub(super) fn commit(&mut self, session: SessionId, ops: Vec<Op>, one: bool) -> Result<Vec<OpAnswer>> {
        self.counts.writes += 1;
        let before = self.servers.tree.len();
        let mut fired = Vec::new();
        let answers = match (one, ops.first()) {
            (true, Some(op)) => self.servers.tree.apply(session, op, &mut fired).map(|answer| vec![answer]),
            _ => self.servers.tree.multi(session, &ops, &mut fired),
        };
        let verdict = if answers.is_ok() { "done" } else { "refused" };
        let (first, count) = (ops.first().map_or("nothing", Op::path).to_owned(), ops.len());
        self.note(format_args!("session {session} writes {count} {first}: {verdict}"));
        let Ok(answers) = answers else { return answers };
        debug_assert!(fired.is_empty() && before > 0, "nobody watches the leader's tree");
        self.see_written(session, &ops);
        self.servers.log.push_back(Entry::Write(session, ops));
        self.spread();
        Ok(answers)
    }

    fn see_written(&mut self, session: SessionId, ops: &[Op]) {
        let now = self.now;
        let Self { invariants, servers, .. } = self;
        invariants.see(now, &Seen::Wrote { session, ops, servers });
    }

    /// The replicas hear of what is committed, each a while later.
    fn spread(&mut self) {
        let committed = self.servers.committed();
        for replica in 0..REPLICAS {
            let lag = if self.chance(self.rates.lagging) {
                self.random.random_range(1..=self.rates.lag_ms.max(1))
            } else {
                1
            };
            // What follows does not overtake: a replica that is behind stays behind for a while.
            let hears_at = &mut self.servers.replicas[replica].hears_at;
            *hears_at = (self.now + lag).max(*hears_at);
            let wait = *hears_at - self.now;
            self.after(wait, move |state| state.catch_up(replica, committed));
        }
    }

    /// A replica applies the log up to an entry.
    fn catch_up(&mut self, replica: usize, upto: u64) {
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
                    // What was done in the leader's tree is done in every tree at the same place.
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

    /// Watches of a replica have seen something.
    fn fire(&mut self, replica: usize, fired: Fired) {
        for (watch, event) in fired {
            let Some(&session) = self.servers.owners.get(&(replica, watch)) else { continue };
            let Some(client) = self.servers.sessions.get_mut(&session) else { continue };
            if let Some((_, _, waiting)) = client.one_shots.remove(&watch) {
                self.servers.owners.remove(&(replica, watch));
                if client.connected {
                    self.answer(session, move |_| drop(waiting.send(event)));
                } else {
                    client.missed.push((waiting, event));
                }
            } else if client.connected
                && let Some((_, stream)) = client.streams.get(&watch)
            {
                let stream = stream.clone();
                self.answer(session, move |_| drop(stream.send(event)));
            }
        }
    }

    /// Lets something come to a session's client, after everything that was sent to it before.
    pub(super) fn answer(&mut self, session: SessionId, deliver: impl FnOnce(&mut Self) + Send + 'static) {
        let latency = self.latency();
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        client.next_answer = client.next_answer.max(self.now + latency);
        let (wait, machine) = (client.next_answer - self.now, client.machine);
        self.after(wait, move |state| state.at(machine, deliver));
    }

    /// The time until a session's next request arrives, after everything that it has sent before.
    pub(super) fn arrival(&mut self, session: SessionId) -> u64 {
        let latency = self.latency();
        let Some(client) = self.servers.sessions.get_mut(&session) else { return latency };
        client.next_arrival = client.next_arrival.max(self.now + latency);
        client.next_arrival - self.now
    }

    /// Does a session's read at its replica.
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

    /// Brings a session's replica up to what is committed.
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
    ) -> oneshot::Receiver<WatchEvent> {
        let (sender, receiver) = oneshot::channel();
        if let Some(client) = self.servers.sessions.get_mut(&session) {
            let id = self.servers.replicas[client.replica].tree.watch(path, kind);
            client.one_shots.insert(id, (path.to_owned(), kind, sender));
            self.servers.owners.insert((client.replica, id), session);
        }
        receiver
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
            client.streams.insert(id, (path.to_owned(), sender));
            self.servers.owners.insert((client.replica, id), session);
        }
        receiver
    }

    /// The servers end a session.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        if std::mem::replace(&mut client.ended, true) {
            return;
        }
        self.note(format_args!("session {session} ends"));
        self.servers.tree.end_session(session);
        self.servers.log.push_back(Entry::End(session));
        self.see_written(session, &[]);
        self.spread();
    }

    /// A client learns that its session is over.
    pub(super) fn tell_end(&mut self, session: SessionId) {
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        client.told = true;
        client.connected = false;
        client.state.send_replace(Session::Expired);
        // Those who wait on watches hear that these have ended: their senders are gone.
        let gone = client.watches();
        client.one_shots.clear();
        client.streams.clear();
        client.missed.clear();
        let replica = client.replica;
        let pending = std::mem::take(&mut client.pending);
        self.servers.unwatch(replica, &gone);
        for fail in pending {
            fail(Error::SessionExpired);
        }
    }

    /// A session's connection is lost: whoever waits for an answer hears that it is unknown. It is tried to connect anew soon.
    pub(crate) fn lose_connection(&mut self, session: SessionId) {
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        if client.told || !client.connected {
            return;
        }
        client.connected = false;
        client.connection += 1;
        client.silent.get_or_insert(self.now);
        client.state.send_replace(Session::Disconnected);
        let pending = std::mem::take(&mut client.pending);
        for fail in pending {
            fail(Error::ConnectionLost);
        }
        self.note(format_args!("session {session} loses its connection"));
        self.expect_sign_of_life(session);
        let soon = self.random.random_range(5..=120);
        self.after(soon, move |state| state.connect_anew(session));
    }

    /// The servers end the session unless they hear of it in time.
    fn expect_sign_of_life(&mut self, session: SessionId) {
        let Some(since) = self.servers.sessions.get(&session).and_then(|client| client.silent) else {
            return;
        };
        self.after(SESSION_MS, move |state| {
            let silent = state.servers.sessions.get(&session).and_then(|client| client.silent);
            // Servers that are away end no sessions; when they are back all sessions have their time anew.
            if silent == Some(since) && !state.servers.away {
                state.end_session(session);
            }
        });
    }

    fn connect_anew(&mut self, session: SessionId) {
        let Some(client) = self.servers.sessions.get(&session) else { return };
        let machine = client.machine;
        if client.connected || client.told || self.machines.is_dead(machine) {
            return;
        }
        let frozen = self.machines.is_frozen(machine);
        if self.servers.away || self.machines.get(machine).cut_off || frozen {
            let again = self.random.random_range(50..=200);
            self.after(again, move |state| state.connect_anew(session));
            return;
        }
        if client.ended {
            self.note(format_args!("session {session} learns that it is over"));
            return self.tell_end(session);
        }
        let (old, new) = (client.replica, self.random.random_range(0..REPLICAS));
        // What the client has seen, every server that it may be connected to has seen.
        let upto = self.servers.replicas[old].applied.max(self.servers.replicas[new].applied);
        self.catch_up(old, upto);
        self.catch_up(new, upto);
        self.move_watches(session, old, new);
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        client.replica = new;
        client.connected = true;
        client.silent = None;
        client.state.send_replace(Session::Connected);
        let missed = std::mem::take(&mut client.missed);
        let streams: Vec<_> = client.streams.values().map(|(_, stream)| stream.clone()).collect();
        self.note(format_args!("session {session} is connected again"));
        for (waiting, event) in missed {
            self.answer(session, move |_| drop(waiting.send(event)));
        }
        for stream in streams {
            self.answer(session, move |_| drop(stream.send(WatchEvent::Rescan)));
        }
    }

    /// A session's watches go to another replica, which is in the same state.
    fn move_watches(&mut self, session: SessionId, from: usize, to: usize) {
        if from == to {
            return;
        }
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        let gone = client.watches();
        self.servers.unwatch(from, &gone);
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        let tree = &mut self.servers.replicas[to].tree;
        for (path, kind, waiting) in std::mem::take(&mut client.one_shots).into_values() {
            let id = tree.watch(&path, kind);
            client.one_shots.insert(id, (path, kind, waiting));
            self.servers.owners.insert((to, id), session);
        }
        for (path, stream) in std::mem::take(&mut client.streams).into_values() {
            let id = tree.watch_tree(&path);
            client.streams.insert(id, (path, stream));
            self.servers.owners.insert((to, id), session);
        }
    }

    /// Nothing is heard of a machine any more: its sessions will end unless that changes.
    pub(super) fn silence(&mut self, machine: MachineId) {
        for session in self.sessions_of(machine) {
            if let Some(client) = self.servers.sessions.get_mut(&session) {
                client.silent.get_or_insert(self.now);
                self.expect_sign_of_life(session);
            }
        }
    }

    /// A client is gone without having closed its session: it will end.
    pub(super) fn lose_client(&mut self, session: SessionId) {
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        client.connected = false;
        client.told = true;
        client.silent.get_or_insert(self.now);
        self.expect_sign_of_life(session);
    }

    /// A machine that was frozen is heard of again. Its clients find out what has become of their sessions.
    pub(super) fn hear_again(&mut self, machine: MachineId) {
        for session in self.sessions_of(machine) {
            let Some(client) = self.servers.sessions.get_mut(&session) else { continue };
            if client.connected && client.ended {
                self.lose_connection(session);
            } else if client.connected {
                client.silent = None;
            }
        }
    }

    pub(crate) fn sessions_of(&self, machine: MachineId) -> Vec<SessionId> {
        let its = |client: &Client| client.machine == machine && !client.told;
        self.servers.sessions.iter().filter(|(_, client)| its(client)).map(|(&id, _)| id).collect()
    }

    /// Cuts a machine off from the servers for a while.
    pub(crate) fn cut_off(&mut self, machine: MachineId, ms: u64) {
        self.machines.get(machine).cut_off = true;
        for session in self.sessions_of(machine) {
            self.lose_connection(session);
        }
        self.after(ms, move |state| state.machines.get(machine).cut_off = false);
    }

    /// The servers are away for a while, for everybody.
    pub(crate) fn servers_away(&mut self, ms: u64) {
        self.servers.away = true;
        self.see(&Seen::ServersAway { away: true });
        let all: Vec<SessionId> = self.servers.sessions.keys().copied().collect();
        for session in all {
            self.lose_connection(session);
        }
        self.after(ms, |state| {
            state.servers.away = false;
            state.see(&Seen::ServersAway { away: false });
            let now = state.now;
            let mut waiting = Vec::new();
            for (&session, client) in &mut state.servers.sessions {
                if client.silent.is_some() && !client.ended {
                    client.silent = Some(now);
                    waiting.push(session);
                }
            }
            for session in waiting {
                state.expect_sign_of_life(session);
            }
        });
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
