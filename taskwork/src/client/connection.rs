//! A connection that outlives outages: requests that fail because ZooKeeper is temporarily unavailable are
//! retried, in a new session if the old one has expired.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::time::{self, Instant};
use zk::{Connect, ConnectError, Error, Session, Store};

use super::ClientError;
use crate::report::JobError;

const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// The interval of session checks while no request is in flight.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The duration after which an outage is first reported.
const REPORT_AFTER: Duration = Duration::from_secs(1);
/// The interval of further reports.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// A notification to the observer about an outage of ZooKeeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outage {
    /// No server has answered for some time; requests are retried. Reported after one second, and then every
    /// minute.
    Lasts {
        /// The start of the outage, by this machine's clock.
        since: SystemTime,
        /// Its duration so far.
        lasted: Duration,
    },
    /// ZooKeeper answers again. Reported only if the outage itself was reported.
    Over {
        /// Its duration.
        lasted: Duration,
    },
}

pub(crate) type OutageObserver = Box<dyn Fn(Outage) + Send + Sync>;

/// A connection to ZooKeeper that outlives sessions.
pub(crate) struct Connection {
    pub(crate) connect: Connect,
    observer: Option<OutageObserver>,
    state: Mutex<State>,
}

struct State {
    store: Arc<dyn Store>,
    away: Option<Away>,
    /// The number of callers that are retrying, and would notice that ZooKeeper answers again.
    trying: usize,
}

/// A caller that waits for an answer. After the last one has left, the end of an outage is not noticed: the next
/// failure starts another one.
#[derive(Debug)]
#[must_use]
pub(crate) struct Trying<'a>(&'a Connection);

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.trying -= 1;
        if state.trying == 0
            && let Some(away) = &mut state.away
        {
            away.left.get_or_insert_with(Instant::now);
        }
    }
}

/// The state during an outage.
#[derive(Clone, Copy)]
struct Away {
    since: Instant,
    /// The wall-clock time, for display.
    at: SystemTime,
    reported: Option<Instant>,
    /// When the last caller stopped trying.
    left: Option<Instant>,
}

impl Away {
    fn beginning(now: Instant) -> Self {
        Self { since: now, at: SystemTime::now(), reported: None, left: None }
    }
}

impl Connection {
    /// Connects, within the timeout for a first connection.
    pub(crate) async fn open(
        connect: Connect,
        observer: Option<OutageObserver>,
    ) -> Result<Self, ClientError> {
        let deadline = Instant::now() + connect.connect_timeout;
        let store = loop {
            match connect.open().await {
                Ok(store) => break store,
                // A server that shuts down at this moment is a temporary failure.
                Err(ConnectError::Unreachable { .. }) if Instant::now() + RETRY_PAUSE < deadline => {
                    time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        Ok(Self { connect, observer, state: Mutex::new(State { store, away: None, trying: 0 }) })
    }

    /// Registers a caller that retries after failures: see [`recover`](Self::recover).
    pub(crate) fn trying(&self) -> Trying<'_> {
        self.state().trying += 1;
        Trying(self)
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.state().store)
    }

    /// Retries a request until there is an answer, or ZooKeeper was unavailable for longer than `patience`
    /// (`None`: without limit). The request must be idempotent.
    pub(crate) async fn ask<T, E: Into<JobError>, F: Future<Output = Result<T, E>>>(
        &self,
        patience: Option<Duration>,
        mut ask: impl FnMut(Arc<dyn Store>) -> F,
    ) -> Result<T, ClientError> {
        let trying = self.trying();
        loop {
            // Boxed because the future may be large and requests are rare: otherwise every future that waits
            // for one would contain it.
            let error = match Box::pin(ask(self.store())).await {
                Ok(answer) => {
                    self.record_answer();
                    return Ok(answer);
                }
                Err(error) => error.into(),
            };
            self.recover(&trying, patience, error).await?;
        }
    }

    /// Prepares for a retry after an error.
    ///
    /// # Errors
    /// The error itself, if a retry would not help; or that ZooKeeper was unavailable for too long.
    pub(crate) async fn recover(
        &self,
        _: &Trying<'_>,
        patience: Option<Duration>,
        error: JobError,
    ) -> Result<(), ClientError> {
        let error = match error {
            JobError::Coordination(error) if error.is_transient() => error.0,
            other => return Err(other.into()),
        };
        tracing::debug!(%error, "retrying the request");
        self.record_outage(patience)?;
        let pause = async {
            time::sleep(RETRY_PAUSE).await;
            if error == Error::SessionExpired || self.session() == Session::Expired {
                self.renew(patience).await
            } else {
                Ok(())
            }
        };
        match self.deadline(patience) {
            Some(deadline) => {
                time::timeout_at(deadline, pause).await.unwrap_or_else(|_| self.record_outage(patience))
            }
            None => pause.await,
        }
    }

    async fn renew(&self, patience: Option<Duration>) -> Result<(), ClientError> {
        loop {
            match self.connect.open().await {
                Ok(store) => {
                    self.state().store = store;
                    return Ok(());
                }
                Err(ConnectError::Unreachable { .. }) => {
                    self.record_outage(patience)?;
                    time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Watches the session while the caller waits for an event. Returns when ZooKeeper was unavailable for
    /// too long.
    pub(crate) async fn watch_over(&self, patience: Option<Duration>) -> ClientError {
        let _trying = self.trying();
        loop {
            time::sleep(LOOK_EVERY).await;
            if self.session() == Session::Connected {
                self.record_answer();
            } else if let Err(error) = self.record_outage(patience) {
                return error;
            }
        }
    }

    /// Closes the session, so that the servers need not wait for its timeout.
    pub(crate) async fn close(&self) {
        // Without a server the request would fail, and the session expires by itself.
        if self.session() == Session::Connected
            && let Err(error) = self.store().close().await
        {
            tracing::debug!(%error, "the session could not be closed; it will expire");
        }
    }

    fn session(&self) -> Session {
        *self.store().session().borrow()
    }

    fn deadline(&self, patience: Option<Duration>) -> Option<Instant> {
        let since = self.state().away.map_or_else(Instant::now, |away| away.since);
        patience.and_then(|patience| since.checked_add(patience))
    }

    fn record_outage(&self, patience: Option<Duration>) -> Result<(), ClientError> {
        let now = Instant::now();
        let mut state = self.state();
        let away = state.away.take_if(|away| away.left.is_none());
        let away = state.away.insert(away.unwrap_or_else(|| Away::beginning(now)));
        let lasted = now.duration_since(away.since);
        let since = away.at;
        if patience.is_some_and(|patience| lasted >= patience) {
            return Err(ClientError::GaveUp { hosts: self.connect.hosts.clone(), since, waited: lasted });
        }
        let due = away.reported.map_or(away.since + REPORT_AFTER, |reported| reported + REPORT_EVERY);
        if now >= due {
            away.reported = Some(now);
            drop(state);
            self.notify(Outage::Lasts { since, lasted });
        }
        Ok(())
    }

    pub(crate) fn record_answer(&self) {
        let away = self.state().away.take();
        if let Some(Away { since, reported: Some(_), left, .. }) = away {
            let lasted = left.unwrap_or_else(Instant::now).duration_since(since);
            self.notify(Outage::Over { lasted });
        }
    }

    fn notify(&self, outage: Outage) {
        tracing::debug!(?outage, "ZooKeeper");
        if let Some(observer) = &self.observer {
            observer(outage);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("hosts", &self.connect.hosts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use zk::MemoryTree;

    use super::*;

    /// Longer than the pause before a retry.
    const PATIENCE: Option<Duration> = Some(Duration::from_millis(500));

    fn connection() -> Connection {
        let state = State { store: MemoryTree::new().connect(), away: None, trying: 0 };
        Connection { connect: Connect::new("a:1"), observer: None, state: Mutex::new(state) }
    }

    async fn ask_nobody(connection: &Connection) -> Result<(), ClientError> {
        connection.ask(PATIENCE, |_| async { Err(Error::ConnectionLost) }).await
    }

    /// Makes a request that fails once, like the first request after an outage.
    async fn ask_again(connection: &Connection) -> Result<usize, ClientError> {
        let asked = &AtomicUsize::new(0);
        connection
            .ask(PATIENCE, |_| async move {
                let before = asked.fetch_add(1, Relaxed);
                if before == 0 { Err(Error::ConnectionLost) } else { Ok(before) }
            })
            .await
    }

    #[tokio::test]
    async fn request_after_others_gave_up_is_answered() {
        let connection = connection();
        let gave_up = ask_nobody(&connection).await;
        assert!(matches!(gave_up, Err(ClientError::GaveUp { .. })), "{gave_up:?}");
        assert_eq!(ask_again(&connection).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn dropped_request_leaves_no_outage() {
        let connection = connection();
        let forever = connection.ask(None, |_| async { Err::<(), _>(Error::ConnectionLost) });
        assert!(time::timeout(PATIENCE.unwrap(), forever).await.is_err());
        assert_eq!(ask_again(&connection).await.unwrap(), 1);
        // A refusal is an answer, too.
        let asked = &AtomicUsize::new(0);
        let refused = connection.ask(None, |_| async move {
            match asked.fetch_add(1, Relaxed) {
                0..2 => Err::<(), _>(Error::ConnectionLost),
                _ => Err(Error::NoNode { path: "/none".to_owned() }),
            }
        });
        assert!(matches!(refused.await, Err(ClientError::Job(_))));
        assert_eq!(ask_again(&connection).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn outage_duration_is_shared_between_concurrent_callers() {
        let connection = connection();
        let forever = connection.ask(None, |_| async { Err::<(), _>(Error::ConnectionLost) });
        let others = async {
            ask_nobody(&connection).await.unwrap_err();
            ask_nobody(&connection).await.unwrap_err()
        };
        let reported = tokio::select! {
            _ = forever => unreachable!("it is not answered"),
            reported = others => reported,
        };
        let ClientError::GaveUp { waited, .. } = reported else { panic!("{reported}") };
        assert!(Some(waited) >= PATIENCE);
    }
}
