//! A session that is kept up for a command: what fails because ZooKeeper is away for a while is tried again, by a new session if the
//! old one is over; and the session is closed when the command ends, however it ends.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, SystemTime},
};

use indicatif::ProgressBar;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{self, Instant},
};
use zk::{Connect, ConnectError, Error, Session, Store};

use super::Failure;
use crate::job::JobError;

/// The pause before something that failed for the moment is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// How often it is looked whether the servers are there while nothing is asked of them.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// For how long ZooKeeper may be away before that is said.
const SILENT_FOR: Duration = Duration::from_secs(1);
/// How often it is said again.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// A command's way to ZooKeeper.
pub(super) struct Line {
    connect: Connect,
    state: Mutex<State>,
    /// What is drawn on the terminal meanwhile.
    bar: OnceLock<ProgressBar>,
}

struct State {
    store: Arc<dyn Store>,
    /// For how long ZooKeeper may be away; `None` is for ever.
    patience: Option<Duration>,
    away: Option<Away>,
    /// What to say when it is given up: what is left to do then.
    hint: String,
}

/// ZooKeeper is away.
struct Away {
    since: Instant,
    /// The time of day, for people.
    at: SystemTime,
    said: Option<Instant>,
}

impl Line {
    /// Connects, for as long as a first connection may take.
    pub(super) async fn open(connect: Connect, patience: Option<Duration>) -> Result<Self, Failure> {
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
        let state = State { store, patience, away: None, hint: String::new() };
        Ok(Self { connect, state: Mutex::new(state), bar: OnceLock::new() })
    }

    /// The session as it is now.
    pub(super) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.state().store)
    }

    /// The servers.
    pub(super) fn hosts(&self) -> &str {
        &self.connect.hosts
    }

    /// For how long ZooKeeper may be away from now on.
    pub(super) fn set_patience(&self, patience: Option<Duration>) {
        self.state().patience = patience;
    }

    /// What is to be said should ZooKeeper be given up.
    pub(super) fn set_hint(&self, hint: impl Into<String>) {
        self.state().hint = hint.into();
    }

    /// What is drawn meanwhile; words go above it.
    pub(super) fn set_bar(&self, bar: Option<&ProgressBar>) {
        if let Some(bar) = bar {
            // There is one at most.
            let _ = self.bar.set(bar.clone());
        }
    }

    /// Asks until there is an answer. What is asked must be such that asking again does no harm.
    pub(super) async fn ask<T, E: Into<JobError>>(
        &self,
        mut ask: impl AsyncFnMut(Arc<dyn Store>) -> Result<T, E>,
    ) -> Result<T, Failure> {
        loop {
            let error = match ask(self.store()).await {
                Ok(answer) => {
                    self.is_back();
                    return Ok(answer);
                }
                Err(error) => error.into(),
            };
            self.recover(error).await?;
        }
    }

    /// Makes ready for another try after an error.
    ///
    /// # Errors
    /// The error itself, if trying again would not help; or that ZooKeeper was away for too long.
    pub(super) async fn recover(&self, error: JobError) -> Result<(), Failure> {
        let error = match error {
            JobError::Coordination(error) => error.cause().clone(),
            other => return Err(other.into()),
        };
        if !error.is_transient() && error != Error::SessionExpired {
            return Err(error.into());
        }
        tracing::debug!(%error, "it is tried again");
        self.is_away()?;
        let pause = async {
            time::sleep(RETRY_PAUSE).await;
            if error == Error::SessionExpired || self.session() == Session::Expired {
                self.renew().await
            } else {
                Ok(())
            }
        };
        match self.deadline() {
            Some(deadline) => time::timeout_at(deadline, pause).await.unwrap_or_else(|_| self.is_away()),
            None => pause.await,
        }
    }

    /// Begins another session.
    async fn renew(&self) -> Result<(), Failure> {
        loop {
            match self.connect.open().await {
                Ok(store) => {
                    self.state().store = store;
                    return Ok(());
                }
                Err(ConnectError::Unreachable { .. }) => {
                    self.is_away()?;
                    time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Says that ZooKeeper is away, while it is and nothing else would notice. Ends when it was away for too long.
    pub(super) async fn watches(&self) -> Failure {
        loop {
            time::sleep(LOOK_EVERY).await;
            if self.session() == Session::Connected {
                self.is_back();
            } else if let Err(failure) = self.is_away() {
                return failure;
            }
        }
    }

    /// Ends the session, so that the servers need not wait for its end.
    pub(super) async fn close(&self) {
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

    fn deadline(&self) -> Option<Instant> {
        let state = self.state();
        let since = state.away.as_ref().map_or_else(Instant::now, |away| away.since);
        state.patience.and_then(|patience| since.checked_add(patience))
    }

    /// ZooKeeper does not answer.
    fn is_away(&self) -> Result<(), Failure> {
        let now = Instant::now();
        let mut state = self.state();
        let State { patience, away, hint, .. } = &mut *state;
        let away = away.get_or_insert_with(|| Away { since: now, at: SystemTime::now(), said: None });
        let (for_s, at) =
            (now.duration_since(away.since).as_secs(), humantime::format_rfc3339_seconds(away.at));
        if patience.is_some_and(|patience| now.duration_since(away.since) >= patience) {
            return Err(Failure::unreachable(format!(
                "ZooKeeper at {} has not answered since {at}, for {for_s} s{hint}",
                self.connect.hosts
            )));
        }
        let due = away.said.map_or(away.since + SILENT_FOR, |said| said + SAY_AGAIN);
        if now >= due {
            away.said = Some(now);
            drop(state);
            self.say(&format!(
                "note: ZooKeeper has not answered since {at}, for {for_s} s; it is tried again"
            ));
        }
        Ok(())
    }

    /// ZooKeeper answers.
    fn is_back(&self) {
        let away = self.state().away.take();
        if let Some(Away { since, said: Some(_), .. }) = away {
            self.say(&format!("note: ZooKeeper answers again, after {} s", since.elapsed().as_secs()));
        }
    }

    fn say(&self, text: &str) {
        match self.bar.get() {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ctrl-C, each of them: also those that come between two waits.
pub(super) struct Interrupts(Signal);

impl Interrupts {
    pub(super) fn listen() -> Result<Self, Failure> {
        let refused = |error| Failure::failed(format!("Ctrl-C cannot be listened for: {error}"));
        signal(SignalKind::interrupt()).map(Self).map_err(refused)
    }

    pub(super) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Does something unless Ctrl-C comes before, so that the session can be closed in either case.
pub(super) async fn interruptible<T>(
    line: &Line,
    doing: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut interrupts = Interrupts::listen()?;
    tokio::select! {
        done = doing => done,
        () = interrupts.next() => Err(Failure::interrupted(&line.state().hint)),
    }
}
