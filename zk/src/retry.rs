//! The retry policy for all requests to a tree of znodes.
//!
//! | failure | retried | until |
//! |---|---|---|
//! | a request: no connection, no answer in time, others were faster | after a pause of 50 ms to 1 s | it succeeds, or the session is over |
//! | a request that was refused permanently | every second, in case an operator fixes the cause; logged once | the same |
//! | a connection to a server, for a new or an existing session | after a pause of 50 ms to 1 s | a server answers, or time is up |
//! | a session, and with it the membership of a node | after a pause of 200 ms to 5 s | the node is a member, or is asked to leave |
//!
//! Each pause is twice as long as the previous one, up to the longest, minus a random part, so that requests
//! that failed together are not retried together. Without a connection the pause starts at the reconnect, or
//! after waiting for it as long as the longest pause: requests that failed because a server went down
//! continue as soon as another one answers.
//!
//! The randomness comes from a seed: code that must be replayable passes its own, such as the id of its node.
//!
//! Two cases are not handled here. A transaction whose outcome is unknown is retried by the code that decided
//! on it, since no other decision may be made before. A letter is sent again by its sender, if it still
//! matters.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use tokio::time;

use crate::{
    error::Error,
    store::{Session, Store},
};

/// The durations of the pauses between tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Policy {
    /// The policy for requests, and for connecting to a server.
    pub const REQUEST: Self = Self { first: Duration::from_millis(50), longest: Duration::from_secs(1) };
    /// The policy for a new session.
    pub const SESSION: Self = Self { first: Duration::from_millis(200), longest: Duration::from_secs(5) };

    /// Returns the same policy with no pause longer than this.
    #[must_use]
    pub fn at_most(self, longest: Duration) -> Self {
        Self { first: self.first.min(longest), longest: self.longest.min(longest) }
    }
}

/// The factor by which each pause is longer than the previous one.
const FACTOR: u32 = 2;
/// The largest random part of a pause, as a divisor of the pause.
const CHANCE_PART: u64 = 4;

/// The tries of one operation.
#[derive(Debug, Clone)]
pub struct Retry {
    policy: Policy,
    /// The next pause, before its random part is subtracted.
    next: Duration,
    chance: u64,
    /// Whether a permanent refusal was logged.
    is_logged: bool,
}

impl Retry {
    /// Creates the state before the first try. Retries that should not coincide need different seeds.
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self { policy, next: policy.first, chance: seed, is_logged: false }
    }

    /// Records a success: the next failure counts as the first.
    pub fn succeeded(&mut self) {
        self.next = self.policy.first;
        self.is_logged = false;
    }

    /// Returns the pause before the next try.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (FACTOR * pause).min(self.policy.longest);
        self.shortened(pause)
    }

    /// Waits before the next try of a request that failed with this error. Returns false at once if the
    /// session is over, since no try can succeed then.
    ///
    /// # Cancellation safety
    /// Dropping the future shortens the pause; nothing else is affected.
    #[must_use = "no try can succeed after the end of the session"]
    pub async fn again(&mut self, store: &dyn Store, what: &str, error: &Error) -> bool {
        let session = store.session();
        if *error == Error::SessionExpired || *session.borrow() == Session::Expired {
            return false;
        }
        if is_refused(error) {
            if std::mem::replace(&mut self.is_logged, true) {
                tracing::debug!(%error, what, "refused again");
            } else {
                tracing::warn!(
                    %error, what,
                    "refused; retrying, but an operator must fix the cause"
                );
            }
            let longest = self.policy.longest;
            time::sleep(self.shortened(longest)).await;
            return true;
        }
        tracing::debug!(%error, what, "failed; retrying");
        // Polled instead of awaited: several waiters would be woken in an order that differs in a replay.
        let give_up = time::Instant::now() + self.policy.longest;
        while *session.borrow() == Session::Disconnected && time::Instant::now() < give_up {
            time::sleep(self.policy.first).await;
        }
        time::sleep(self.pause()).await;
        true
    }

    /// Creates the state with a random seed, for code that need not be replayable.
    pub fn by_chance(policy: Policy) -> Self {
        Self::new(policy, RandomState::new().hash_one(()))
    }

    /// Returns a pause minus its random part.
    fn shortened(&mut self, pause: Duration) -> Duration {
        // SplitMix64 (Steele, Lea and Flood, 2014): enough to separate requests that failed together.
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = self.chance;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        drawn ^= drawn >> 31;
        // Whole milliseconds, as timers have: a replay must not depend on how they round.
        let whole_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(whole_ms - drawn % (whole_ms / CHANCE_PART + 1))
    }
}

/// Returns whether the request would be refused again until an operator fixes the cause. Whether a znode
/// exists, and its version, changes by itself.
fn is_refused(error: &Error) -> bool {
    match error {
        Error::NoAuth { .. }
        | Error::Open { .. }
        | Error::InvalidPath { .. }
        | Error::NoChildrenForEphemerals { .. }
        | Error::TooLarge { .. }
        | Error::TooMany { .. }
        | Error::Refused { .. }
        | Error::Garbled { .. } => true,
        Error::Multi { cause, .. } => is_refused(cause),
        Error::NoNode { .. }
        | Error::NodeExists { .. }
        | Error::BadVersion { .. }
        | Error::NotEmpty { .. }
        | Error::ConnectionLost
        | Error::TimedOut { .. }
        | Error::Contended { .. }
        | Error::NotKept { .. }
        | Error::SessionExpired => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryTree;

    #[test]
    fn pauses_grow_to_longest_and_restart_after_success() {
        let mut retry = Retry::new(Policy::REQUEST, 7);
        let mut pauses = |count| (0..count).map(|_| retry.pause()).collect::<Vec<_>>();
        for (pause, whole_ms) in pauses(8).into_iter().zip([50, 100, 200, 400, 800, 1_000, 1_000, 1_000]) {
            let whole = Duration::from_millis(whole_ms);
            assert!(whole * 3 / 4 <= pause && pause <= whole, "{pause:?} of {whole:?}");
        }
        retry.succeeded();
        assert!(retry.pause() <= Policy::REQUEST.first);
        let short = Policy::REQUEST.at_most(Duration::from_millis(20));
        assert!(Retry::new(short, 7).pause() <= Duration::from_millis(20));
    }

    #[test]
    fn random_part_depends_only_on_seed() {
        let first = |seed| Retry::new(Policy::SESSION, seed).pause();
        assert_eq!(first(1), first(1));
        let mut pauses: Vec<Duration> = (0..50).map(first).collect();
        pauses.sort();
        pauses.dedup();
        assert!(pauses.len() > 20, "{} different pauses", pauses.len());
    }

    #[tokio::test(start_paused = true)]
    async fn try_after_session_end_is_not_made() {
        let store = MemoryTree::new().connect();
        let mut retry = Retry::new(Policy::REQUEST, 1);
        assert!(retry.again(&*store, "a test", &Error::ConnectionLost).await);
        assert!(!retry.again(&*store, "a test", &Error::SessionExpired).await);
        store.close().await.unwrap();
        assert!(!retry.again(&*store, "a test", &Error::ConnectionLost).await);
    }

    #[tokio::test(start_paused = true)]
    async fn request_failed_by_disconnection_continues_after_reconnect() {
        let tree = MemoryTree::new();
        let store = tree.connect();
        let mut retry = Retry::new(Policy::REQUEST, 1);
        tree.set_connected(store.id(), false);
        let (before, waits) = (time::Instant::now(), retry.again(&*store, "a test", &Error::ConnectionLost));
        tokio::pin!(waits);
        let away = Duration::from_millis(700);
        assert!(time::timeout(away, &mut waits).await.is_err(), "there is no connection");
        tree.set_connected(store.id(), true);
        assert!(waits.await);
        assert!(before.elapsed() <= away + 2 * Policy::REQUEST.first);
    }

    #[tokio::test(start_paused = true)]
    async fn permanently_refused_request_is_retried_at_longest_pause() {
        let store = MemoryTree::new().connect();
        let (mut retry, before) = (Retry::new(Policy::REQUEST, 1), time::Instant::now());
        let error = Error::NoAuth { path: "/x".to_owned() };
        for _ in 0..4 {
            assert!(retry.again(&*store, "a test", &error).await);
        }
        assert!(before.elapsed() >= 3 * Policy::REQUEST.longest);
    }
}
