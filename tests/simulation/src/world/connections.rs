//! What becomes of the connections between clients and servers: they are lost and made anew, at another server; sessions whose clients
//! are not heard of end, and their clients learn it late.

use rand::Rng as _;
use zk::{Error, Session, WatchEvent, tree::SessionId};

use super::{
    MachineId, State,
    servers::{Client, REPLICAS, SESSION_MS},
};
use crate::invariants::Seen;

impl State {
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
