//! A session that is kept up: what fails because ZooKeeper is away for a while is tried again, by a new
//! session if the old one is over.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::time::{self, Instant};
use zk::{Connect, ConnectError, Error, Session, Store};

use super::ClientError;
use crate::report::JobError;

/// The pause before something that failed for the moment is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// How often it is looked whether the servers are there while nothing is asked of them.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// For how long ZooKeeper may be away before that is told.
const TOLD_AFTER: Duration = Duration::from_secs(1);
/// How often it is told again.
const TOLD_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What an observer is told of times without an answer from ZooKeeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outage {
    /// No server has answered for some time; requests are tried again. Told after a second, and every minute.
    Lasts {
        /// When it began, by this machine's clock.
        since: SystemTime,
        /// How long it has lasted.
        lasted: Duration,
    },
    /// ZooKeeper answers again. Told only if the outage was.
    Over {
        /// How long it has lasted.
        lasted: Duration,
    },
}

/// Is told of outages.
pub(crate) type OutageObserver = Box<dyn Fn(Outage) + Send + Sync>;

/// A way to ZooKeeper that outlives sessions.
pub(crate) struct Connection {
    pub(crate) connect: Connect,
    observer: Option<OutageObserver>,
    state: Mutex<State>,
}

struct State {
    store: Arc<dyn Store>,
    away: Option<Away>,
}

/// ZooKeeper is away.
#[derive(Clone, Copy)]
struct Away {
    since: Instant,
    /// The time of day, for people.
    at: SystemTime,
    told: Option<Instant>,
}

impl Connection {
    /// Connects, for as long as a first connection may take.
    pub(crate) async fn open(
        connect: Connect,
        observer: Option<OutageObserver>,
    ) -> Result<Self, ClientError> {
        let deadline = Instant::now() + connect.connect_timeout;
        let store: Arc<dyn Store> = loop {
            match connect.open().await {
                Ok(store) => break store,
                // A server that goes in that moment is not the end of it.
                Err(ConnectError::Unreachable { .. }) if Instant::now() + RETRY_PAUSE < deadline => {
                    time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        Ok(Self { connect, observer, state: Mutex::new(State { store, away: None }) })
    }

    /// The session as it is now.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.state().store)
    }

    /// Asks until there is an answer, or ZooKeeper was away for longer than `patience` (`None`: for ever).
    /// What is asked must be such that asking again does no harm.
    pub(crate) async fn ask<T, E: Into<JobError>, F: Future<Output = Result<T, E>>>(
        &self,
        patience: Option<Duration>,
        mut ask: impl FnMut(Arc<dyn Store>) -> F,
    ) -> Result<T, ClientError> {
        loop {
            // What is asked may be large, and is rare: it is not carried along by everything that waits for
            // it.
            let error = match Box::pin(ask(self.store())).await {
                Ok(answer) => {
                    self.is_back();
                    return Ok(answer);
                }
                Err(error) => error.into(),
            };
            self.recover(patience, error).await?;
        }
    }

    /// Makes ready for another try after an error.
    ///
    /// # Errors
    /// The error itself, if trying again would not help; or that ZooKeeper was away for too long.
    pub(crate) async fn recover(
        &self,
        patience: Option<Duration>,
        error: JobError,
    ) -> Result<(), ClientError> {
        let error = match error {
            JobError::Coordination(error) if error.is_transient() => error.0,
            other => return Err(other.into()),
        };
        tracing::debug!(%error, "the request is tried again");
        self.is_away(patience)?;
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
                time::timeout_at(deadline, pause).await.unwrap_or_else(|_| self.is_away(patience))
            }
            None => pause.await,
        }
    }

    /// Begins another session.
    async fn renew(&self, patience: Option<Duration>) -> Result<(), ClientError> {
        loop {
            match self.connect.open().await {
                Ok(store) => {
                    self.state().store = store;
                    return Ok(());
                }
                Err(ConnectError::Unreachable { .. }) => {
                    self.is_away(patience)?;
                    time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Notices that ZooKeeper is away, while a request waits and nothing else would. Ends when it was away
    /// for too long.
    pub(crate) async fn watch_over(&self, patience: Option<Duration>) -> ClientError {
        loop {
            time::sleep(LOOK_EVERY).await;
            if self.session() == Session::Connected {
                self.is_back();
            } else if let Err(error) = self.is_away(patience) {
                return error;
            }
        }
    }

    /// Ends the session, so that the servers need not wait for its end.
    pub(crate) async fn close(&self) {
        // Without a server nobody hears of it, and the session ends by itself.
        if self.session() == Session::Connected
            && let Err(error) = self.store().close().await
        {
            tracing::debug!(%error, "the session could not be closed; it ends by itself");
        }
    }

    fn session(&self) -> Session {
        *self.store().session().borrow()
    }

    fn deadline(&self, patience: Option<Duration>) -> Option<Instant> {
        let since = self.state().away.as_ref().map_or_else(Instant::now, |away| away.since);
        patience.and_then(|patience| since.checked_add(patience))
    }

    /// ZooKeeper does not answer.
    fn is_away(&self, patience: Option<Duration>) -> Result<(), ClientError> {
        let now = Instant::now();
        let mut state = self.state();
        let away = state.away.get_or_insert_with(|| Away { since: now, at: SystemTime::now(), told: None });
        let lasted = now.duration_since(away.since);
        let since = away.at;
        if patience.is_some_and(|patience| lasted >= patience) {
            return Err(ClientError::GaveUp { hosts: self.connect.hosts.clone(), since, waited: lasted });
        }
        let due = away.told.map_or(away.since + TOLD_AFTER, |told| told + TOLD_AGAIN_AFTER);
        if now >= due {
            away.told = Some(now);
            drop(state);
            self.tell(Outage::Lasts { since, lasted });
        }
        Ok(())
    }

    /// ZooKeeper answers.
    fn is_back(&self) {
        let away = self.state().away.take();
        if let Some(Away { since, told: Some(_), .. }) = away {
            self.tell(Outage::Over { lasted: since.elapsed() });
        }
    }

    fn tell(&self, outage: Outage) {
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
