//! Limits each session to one action at a time, and to a number of actions per minute.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use thiserror::Error;

/// The maximum number of actions that a session may start within [`WINDOW`].
const ACTIONS_MAX: usize = 20;
const WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of sessions that have started an action within [`WINDOW`].
const SESSIONS_MAX: usize = 1_000;

/// The sessions of operators.
#[derive(Debug, Default)]
pub(super) struct Sessions(Arc<Mutex<HashMap<String, Session>>>);

#[derive(Debug, Default)]
struct Session {
    is_busy: bool,
    /// The start times of recent actions.
    begun: VecDeque<Instant>,
}

/// A running action; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Busy {
    sessions: Arc<Mutex<HashMap<String, Session>>>,
    session: String,
}

/// The reason why an action must not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum Refused {
    /// Another action of the session is running.
    #[error("your previous action is not done yet: wait for it")]
    Busy,
    /// The session has started too many actions.
    #[error("the limit is {ACTIONS_MAX} actions in a minute: wait, and try again")]
    TooMany,
    /// Too many sessions are active.
    #[error("too many operators act at the same time: wait for a minute")]
    TooManySessions,
}

impl Sessions {
    /// Starts an action of a session.
    ///
    /// # Errors
    /// If the session must wait.
    pub(super) fn enter(&self, session: &str, now: Instant) -> Result<Busy, Refused> {
        let mut sessions = lock(&self.0);
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < WINDOW;
        sessions.retain(|_, known| known.is_busy || known.begun.iter().any(is_recent));
        if sessions.len() >= SESSIONS_MAX && !sessions.contains_key(session) {
            return Err(Refused::TooManySessions);
        }
        let known = sessions.entry(session.to_owned()).or_default();
        if known.is_busy {
            return Err(Refused::Busy);
        }
        known.begun.retain(is_recent);
        if known.begun.len() >= ACTIONS_MAX {
            return Err(Refused::TooMany);
        }
        known.begun.push_back(now);
        known.is_busy = true;
        Ok(Busy { sessions: Arc::clone(&self.0), session: session.to_owned() })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(session) = lock(&self.sessions).get_mut(&self.session) {
            session.is_busy = false;
        }
    }
}

fn lock(sessions: &Mutex<HashMap<String, Session>>) -> MutexGuard<'_, HashMap<String, Session>> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_runs_one_action_at_a_time() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let first = sessions.enter("a", now).unwrap();
        assert_eq!(sessions.enter("a", now).unwrap_err(), Refused::Busy);
        assert!(sessions.enter("b", now).is_ok(), "another one is not kept from it");
        drop(first);
        assert!(sessions.enter("a", now).is_ok());
    }

    #[test]
    fn session_starts_limited_actions_per_window() {
        let (sessions, begin) = (Sessions::default(), Instant::now());
        let enter = |seconds| sessions.enter("a", begin + Duration::from_secs(seconds)).map(drop);
        assert!((0..ACTIONS_MAX as u64).all(|second| enter(second).is_ok()));
        assert_eq!(enter(59), Err(Refused::TooMany));
        assert_eq!((enter(60), enter(60)), (Ok(()), Err(Refused::TooMany)));
    }

    #[test]
    fn expired_sessions_are_removed() {
        let (sessions, begin) = (Sessions::default(), Instant::now());
        for number in 0..SESSIONS_MAX {
            drop(sessions.enter(&number.to_string(), begin).unwrap());
        }
        assert_eq!(sessions.enter("more", begin).unwrap_err(), Refused::TooManySessions);
        assert!(sessions.enter("more", begin + WINDOW).is_ok());
        assert_eq!(lock(&sessions.0).len(), 1);
    }
}
