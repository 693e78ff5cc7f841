//! Keeping a session until a server declares it over.
//!
//! The crate considers a session expired when no server has answered for 7/5 of its timeout. It cannot know:
//! servers that start, or elect a leader, grant every session its full timeout again, so after an outage of
//! any length the session may still exist with its ephemerals. Therefore this module keeps the session's id
//! and password, and tries to resume it with a new client until a server accepts or refuses. Until then the
//! session is `Disconnected`.
//!
//! ```text
//!   Connected ◀──▶ Disconnected ───▶ Expired     closed, or a server declares it over
//!       ▲               │ the crate gives up
//!       └── sync ◀── a new client with the same session
//! ```
//!
//! A new client does not know the last state seen by the old one and would accept a server that lags behind,
//! so it sends a `sync` before any other request. The watches of the old client are gone; each reports that
//! when the session is resumed or over.

use std::{
    convert::Infallible,
    sync::{Arc, PoisonError, RwLock},
};

use tokio::{
    sync::{oneshot, watch},
    time,
};
use zookeeper_client::{self as zookeeper, Client, SessionInfo, SessionState, StateWatcher};

use crate::{
    connect::Connect,
    error::{Error, Result},
    retry::{Policy, Retry},
    store::{Session, WatchEvent},
};

/// The longest pause, as a divisor of the session's timeout: recovered servers grant no more than the
/// timeout.
const PAUSES_IN_TIMEOUT: u32 = 8;

/// A session with its current client.
#[derive(Debug)]
pub(crate) struct KeptSession {
    open: Arc<RwLock<Option<Open>>>,
    fate: Fate,
}

/// The parts that are dropped when the session is closed.
#[derive(Debug)]
struct Open {
    client: Client,
    /// Dropped with the rest, which stops the attempts to resume the session.
    _alive: oneshot::Sender<Infallible>,
}

#[derive(Debug, Clone)]
pub(crate) struct Fate {
    session: watch::Receiver<Session>,
    taken_up: watch::Receiver<u64>,
}

impl Fate {
    /// Waits for the event of a watch whose client is gone: `Rescan` once the session is resumed, or `Ended`
    /// once it is over.
    ///
    /// # Cancellation safety
    /// Dropping the future loses nothing.
    pub(crate) async fn decided(&mut self) -> WatchEvent {
        let over = async {
            // The sender is dropped with the session.
            let _ = self.session.wait_for(|state| *state == Session::Expired).await;
        };
        tokio::select! {
            biased;
            () = over => WatchEvent::Ended,
            taken = self.taken_up.changed() => {
                if taken.is_ok() { WatchEvent::Rescan } else { WatchEvent::Ended }
            }
        }
    }

    pub(crate) async fn over(&mut self) -> WatchEvent {
        let _ = self.session.wait_for(|state| *state == Session::Expired).await;
        WatchEvent::Ended
    }
}

impl KeptSession {
    /// Starts to keep the session of a client that has just connected.
    pub(crate) fn new(client: Client, connect: Connect) -> Self {
        let (session_in, session) = watch::channel(Session::Connected);
        let (taken_in, taken_up) = watch::channel(0);
        let (alive, closed) = oneshot::channel();
        let states = client.state_watcher();
        let open = Arc::new(RwLock::new(Some(Open { client, _alive: alive })));
        let keeper =
            Keeper { open: Arc::clone(&open), connect, session: session_in, taken_up: taken_in, closed };
        tokio::spawn(keeper.keep(states));
        Self { open, fate: Fate { session, taken_up } }
    }

    /// Returns the client and the fate of its watches, or an error if a request would be pointless.
    pub(crate) fn client(&self) -> Result<(Client, Fate)> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let client = open.as_ref().ok_or(Error::SessionExpired)?.client.clone();
        // Ignore earlier resumptions.
        let mut fate = self.fate.clone();
        fate.taken_up.mark_unchanged();
        let known = *fate.session.borrow();
        match (session_of(client.state()), known) {
            (_, Session::Expired) => Err(Error::SessionExpired),
            (Session::Connected, _) => Ok((client, fate)),
            // A disconnected client would keep the request until it is connected again, however long that
            // takes, and then execute it. A client that has given up does not know the state of the session.
            (Session::Disconnected | Session::Expired, _) => Err(Error::ConnectionLost),
        }
    }

    pub(crate) fn state(&self) -> watch::Receiver<Session> {
        self.fate.session.clone()
    }

    /// Ends the session: it is closed when its last client is dropped. Each pending request holds one.
    pub(crate) fn close(&self) {
        drop(self.open.write().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Drop for KeptSession {
    fn drop(&mut self) {
        // The keeper's task has a handle, too.
        self.close();
    }
}

/// Follows the client's state, and replaces a client that has given up.
struct Keeper {
    open: Arc<RwLock<Option<Open>>>,
    connect: Connect,
    session: watch::Sender<Session>,
    taken_up: watch::Sender<u64>,
    closed: oneshot::Receiver<Infallible>,
}

impl Keeper {
    async fn keep(mut self, mut states: StateWatcher) {
        let mut state = states.peek_state();
        loop {
            if state == SessionState::Expired
                && let Some(session) = self.info()
            {
                self.session.send_replace(Session::Disconnected);
                let id = session.id();
                tracing::warn!(
                    session = %id,
                    "no ZooKeeper has answered for longer than the session's timeout; retrying until \
                     one does"
                );
                let client = tokio::select! {
                    biased;
                    _ = &mut self.closed => None,
                    client = take_up(&self.connect, session) => client,
                };
                if let Some(new) = client.and_then(|client| self.replace(client)) {
                    tracing::info!(session = %id, "a server has resumed the session");
                    states = new;
                    state = states.peek_state();
                    self.session.send_replace(session_of(state));
                    self.taken_up.send_modify(|taken| *taken += 1);
                    continue;
                }
            }
            self.session.send_replace(session_of(state));
            if state.is_terminated() {
                return;
            }
            state = states.changed().await;
        }
    }

    /// Returns the data needed to resume the session, or `None` once it is closed.
    fn info(&self) -> Option<SessionInfo> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.as_ref().map(|open| open.client.session().clone())
    }

    /// Replaces the client of the session. Returns `None` if the session was closed in the meantime; dropping
    /// the client closes it.
    fn replace(&self, client: Client) -> Option<StateWatcher> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let states = client.state_watcher();
        open.as_mut()?.client = client;
        Some(states)
    }
}

/// Tries to resume a session until a server accepts. Returns `None` if a server declares it over.
async fn take_up(connect: &Connect, session: SessionInfo) -> Option<Client> {
    let longest = connect.session_timeout / PAUSES_IN_TIMEOUT;
    let mut rounds = Retry::by_chance(Policy::REQUEST.at_most(longest));
    loop {
        let mut asked = rounds.clone();
        match connect.once(Some(session.clone())).await {
            // Dropping the client would close the session, so retry until it answers or has given up as well.
            Ok(client) => loop {
                match time::timeout(connect.request_timeout, client.sync("/")).await {
                    Ok(Ok(())) => return Some(client),
                    _ if client.state().is_terminated() => break,
                    _ => time::sleep(asked.pause()).await,
                }
            },
            Err(zookeeper::Error::SessionExpired | zookeeper::Error::AuthFailed) => return None,
            Err(error) => tracing::debug!(%error, "no server has resumed the session"),
        }
        time::sleep(rounds.pause()).await;
    }
}

/// Translates the state of a client into the state of its session.
pub(crate) fn session_of(state: SessionState) -> Session {
    match state {
        SessionState::SyncConnected => Session::Connected,
        // A server without a quorum accepts no writes, which makes it useless for a recipe.
        SessionState::Disconnected | SessionState::ConnectedReadOnly => Session::Disconnected,
        SessionState::AuthFailed | SessionState::Expired | SessionState::Closed => Session::Expired,
    }
}
