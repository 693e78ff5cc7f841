//! Connections between clients and servers: they break and are re-established to another server. Sessions of
//! silent clients end, and their clients learn that late.

use rand::{Rng as _, seq::IndexedRandom as _};
use zk::{
    Error, Session, WatchEvent,
    tree::{SessionId, WatchKind},
};

use super::{
    MachineId, State,
    servers::{Awaited, Client, REPLICAS, SESSION_MS},
};
use crate::invariants::Seen;

/// The time without a server after which a client's library considers the session expired, in milliseconds;
/// its watches end then. The servers may still resume the session.
const WATCHES_END_MS: u64 = SESSION_MS * 14 / 10;

impl State {
    pub(super) fn notify_end(&mut self, session: SessionId) {
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        client.told = true;
        client.connected = false;
        client.state.send_replace(Session::Expired);
        // Dropping the senders notifies the observers that their watches have ended.
        let pending = std::mem::take(&mut client.pending);
        self.drop_watches(session);
        for waiting in pending {
            waiting.fail(Error::SessionExpired);
        }
    }

    fn drop_watches(&mut self, session: SessionId) {
        self.unwatch_all(session);
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        client.one_shots.clear();
        client.streams.clear();
        client.silenced.clear();
    }

    /// Removes all watches of a session from the servers.
    fn unwatch_all(&mut self, session: SessionId) {
        let Some(client) = self.servers.sessions.get(&session) else { return };
        let (replica, gone) = (client.replica, client.watches());
        self.servers.unwatch(replica, &gone);
    }

    /// Breaks a session's connection: pending requests have an unknown outcome. The client soon tries to
    /// reconnect.
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
        let (machine, connection) = (client.machine, client.connection);
        for waiting in pending {
            waiting.fail(Error::ConnectionLost);
        }
        self.unwatch_all(session);
        self.note(format_args!("session {session} loses its connection"));
        self.expect_sign_of_life(session);
        self.after(WATCHES_END_MS, move |state| {
            state.at(machine, move |state| state.end_watches(session, connection));
        });
        let soon = self.random.random_range(5..=120);
        self.after(soon, move |state| state.connect_anew(session));
    }

    /// Ends the session unless the servers hear from it in time.
    fn expect_sign_of_life(&mut self, session: SessionId) {
        let Some(since) = self.servers.sessions.get(&session).and_then(|client| client.silent) else {
            return;
        };
        self.after(SESSION_MS, move |state| {
            let silent = state.servers.sessions.get(&session).and_then(|client| client.silent);
            // Unavailable servers end no sessions; when they are available again, all sessions have their
            // full timeout.
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
            return self.notify_end(session);
        }
        let seen = client.seen;
        // A server that has seen less than the client rejects it.
        let fit = |&replica: &usize| {
            let it = &self.servers.replicas[replica];
            !it.down && it.applied >= seen
        };
        let fit: Vec<usize> = (0..REPLICAS).filter(fit).collect();
        let Some(replica) = fit.choose(&mut self.random).copied() else {
            let again = self.random.random_range(10..=50);
            return self.after(again, move |state| state.connect_anew(session));
        };
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        client.replica = replica;
        client.connected = true;
        client.silent = None;
        client.state.send_replace(Session::Connected);
        let streams = std::mem::take(&mut client.streams);
        client.silenced.retain(|stream| !stream.is_closed());
        client.silenced.extend(streams.values().cloned());
        let awaited = std::mem::take(&mut client.one_shots);
        self.note(format_args!("session {session} is connected again, to server {replica}"));
        for awaited in awaited.into_values().filter(|awaited| !awaited.waiting.is_closed()) {
            self.watch_again(session, awaited);
        }
        // Reported by the client itself, not sent over a connection.
        for stream in streams.into_values() {
            let _ = stream.send(WatchEvent::Rescan);
        }
    }

    /// Sets a one-time watch at another server, which immediately reports the changes that the client has
    /// missed.
    fn watch_again(&mut self, session: SessionId, awaited: Awaited) {
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        let it = &self.servers.replicas[client.replica];
        let Awaited { path, kind, absent, .. } = &awaited;
        let there = it.tree.exists(session, path).is_ok_and(|stat| stat.is_some());
        let missed = match (there, absent) {
            (true, true) => Some(WatchEvent::Created(path.clone())),
            (false, false) => Some(WatchEvent::Deleted(path.clone())),
            (true, false) if self.servers.stamps.has_changed(path, *kind, client.seen, it.applied) => {
                let path = path.clone();
                Some(match kind {
                    WatchKind::Data => WatchEvent::DataChanged(path),
                    WatchKind::Children => WatchEvent::ChildrenChanged(path),
                })
            }
            _ => None,
        };
        let id = self.set_watch(session, awaited);
        if let (Some(id), Some(event)) = (id, missed) {
            // If that is lost, the client still has the watch.
            self.answer(session, move |state| state.awaken(session, id, event));
        }
    }

    /// Ends the watches of a client that has been without a server for too long, unless it has reconnected.
    /// Its session may continue.
    fn end_watches(&mut self, session: SessionId, connection: u32) {
        let Some(client) = self.servers.sessions.get(&session) else { return };
        if !client.connected && client.connection == connection && !client.told {
            self.note(format_args!("the watches of session {session} end"));
            self.drop_watches(session);
        }
    }

    /// Makes a machine silent: its sessions will end unless that changes.
    pub(super) fn silence(&mut self, machine: MachineId) {
        for session in self.sessions_of(machine) {
            if let Some(client) = self.servers.sessions.get_mut(&session) {
                client.silent.get_or_insert(self.now);
                self.expect_sign_of_life(session);
            }
        }
    }

    /// Ends a session of a healthy client, unless the servers are unavailable.
    pub(crate) fn expire(&mut self, session: SessionId) {
        if !self.servers.away {
            self.end_session(session);
        }
        self.lose_connection(session);
    }

    /// Records that a client is gone without having closed its session, so that the session will end.
    pub(super) fn lose_client(&mut self, session: SessionId) {
        let Some(client) = self.servers.sessions.get_mut(&session) else { return };
        client.connected = false;
        client.told = true;
        client.silent.get_or_insert(self.now);
        self.expect_sign_of_life(session);
    }

    /// Reconnects a thawed machine. Its clients find out the state of their sessions.
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

    /// Stops one server for a while. Its clients find others. If it leads, the others serve no requests until
    /// they have elected another leader.
    pub(crate) fn server_away(&mut self, ms: u64) {
        const ELECTION_MS: u64 = 600;
        let which = self.random.random_range(0..REPLICAS);
        // With a second server down there would be no quorum.
        if self.servers.away || self.servers.replicas.iter().any(|it| it.down) {
            return;
        }
        self.servers.replicas[which].down = true;
        self.note(format_args!("server {which} goes down"));
        let its = |client: &Client| client.replica == which;
        let all: Vec<SessionId> =
            self.servers.sessions.iter().filter(|(_, client)| its(client)).map(|(&id, _)| id).collect();
        if self.random.random_range(0..REPLICAS) == 0 {
            let ms = self.random.random_range(100..=ELECTION_MS);
            self.servers_away(ms);
        }
        for session in all {
            self.lose_connection(session);
        }
        self.after(ms, move |state| {
            state.note(format_args!("server {which} is back"));
            state.servers.replicas[which].down = false;
            state.catch_up(which, state.servers.committed());
        });
    }

    /// Stops all servers for a while.
    pub(crate) fn servers_away(&mut self, ms: u64) {
        if self.servers.away {
            return;
        }
        self.servers.away = true;
        self.lose_proposals();
        self.see(&Seen::ServersAway { away: true });
        let all: Vec<SessionId> = self.servers.sessions.keys().copied().collect();
        for session in all {
            self.lose_connection(session);
        }
        self.after(ms, |state| {
            state.servers.away = false;
            state.see(&Seen::ServersAway { away: false });
            state.commit_proposals();
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
