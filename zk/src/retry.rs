//! When something that failed for the moment is tried again: the one policy of everything that asks a tree
//! of znodes.
//!
//! | what has failed | is tried again | until |
//! |---|---|---|
//! | a request: no connection, no answer in time, others were faster | after a pause, from 50 ms to 1 s | it succeeds, or the session is over |
//! | a request that was refused for good | each second, should an operator mend what is wrong; it is said in the log | the same |
//! | the way to a server, for a first session or to take one up again | after a pause, from 50 ms to 1 s | a server answers, or the time for it is up |
//! | a session, and with it the seat of a node | after a pause, from 200 ms to 5 s | the node has a seat, or is told to leave |
//!
//! Each pause is twice as long as the one before, up to the longest, and a part of it is left to chance, so
//! that those that failed together
//! do not come back together. Where there is no connection the pause begins when there is one again, but is
//! not waited for longer than
//! the longest: what failed because a server went goes on as soon as another one answers.
//!
//! Chance is an argument: who is to be replayed gives a seed of its own, such as the id of its node.
//!
//! Two things are not tried again here. A transaction whose outcome is unknown is for whoever decided on it,
//! since nothing else may be
//! decided meanwhile. A letter is said again by whoever said it, if it still matters.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use tokio::time;

use crate::{
    error::Error,
    store::{Session, Store},
};

/// How long the pauses between tries are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The first pause.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
}

impl Policy {
    /// For requests, and for the way to a server.
    pub const REQUEST: Self = Self { first: Duration::from_millis(50), longest: Duration::from_secs(1) };
    /// For a session anew.
    pub const SESSION: Self = Self { first: Duration::from_millis(200), longest: Duration::from_secs(5) };

    /// The same with no pause longer than this.
    #[must_use]
    pub fn at_most(self, longest: Duration) -> Self {
        Self { first: self.first.min(longest), longest: self.longest.min(longest) }
    }
}

/// How much longer each pause is than the one before.
const FACTOR: u32 = 2;
/// Up to which part of a pause is left to chance: one in so many.
const CHANCE_PART: u64 = 4;

/// The tries of one thing.
#[derive(Debug, Clone)]
pub struct Retry {
    policy: Policy,
    /// The next pause, without what is left to chance.
    next: Duration,
    chance: u64,
    /// It was said that a request is refused for good.
    said: bool,
}

impl Retry {
    /// Nothing has failed yet. Those that are not to come back together have different seeds.
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self { policy, next: policy.first, chance: seed, said: false }
    }

    /// It has succeeded: what fails next is a first failure.
    pub fn succeeded(&mut self) {
        self.next = self.policy.first;
        self.said = false;
    }

    /// The pause before the next try.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (FACTOR * pause).min(self.policy.longest);
        self.shortened(pause)
    }

    /// Waits before the next try of a request that failed with this error. False, at once, if the session is
    /// over: then no try will help.
    ///
    /// # Cancellation safety
    /// Dropping the future shortens the pause, and nothing else.
    #[must_use = "a session that is over answers nothing any more"]
    pub async fn again(&mut self, store: &dyn Store, what: &str, error: &Error) -> bool {
        let session = store.session();
        if *error == Error::SessionExpired || *session.borrow() == Session::Expired {
            return false;
        }
        if is_refused(error) {
            if std::mem::replace(&mut self.said, true) {
                tracing::debug!(%error, what, "refused again");
            } else {
                tracing::warn!(%error, what, "refused; it is tried again, but something must be mended first");
            }
            let longest = self.policy.longest;
            time::sleep(self.shortened(longest)).await;
            return true;
        }
        tracing::debug!(%error, what, "not now; it is tried again");
        // Looked at again and again instead of being waited for: those that wait for the same are woken in
        // an order that is not the same
        // in a replay.
        let give_up = time::Instant::now() + self.policy.longest;
        while *session.borrow() == Session::Disconnected && time::Instant::now() < give_up {
            time::sleep(self.policy.first).await;
        }
        time::sleep(self.pause()).await;
        true
    }

    /// The same for what is not to be replayed.
    pub fn by_chance(policy: Policy) -> Self {
        Self::new(policy, RandomState::new().hash_one(()))
    }

    /// A pause without a part of it that is left to chance.
    fn shortened(&mut self, pause: Duration) -> Duration {
        // SplitMix64 (Steele, Lea and Flood, 2014): enough to keep those apart that failed together.
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = self.chance;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        drawn ^= drawn >> 31;
        // Whole milliseconds, as timers have: what is to be replayed must not depend on how they round.
        let whole_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(whole_ms - drawn % (whole_ms / CHANCE_PART + 1))
    }
}

/// Whether the same would be refused for as long as nobody mends what is wrong. What is there or not, and at
/// which version, changes by
/// itself.
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
        | Error::SessionExpired => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryTree;

    #[test]
    fn pauses_grow_to_the_longest_and_begin_anew_after_a_success() {
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
    fn chance_is_the_same_for_the_same_seed_and_keeps_others_apart() {
        let first = |seed| Retry::new(Policy::SESSION, seed).pause();
        assert_eq!(first(1), first(1));
        let mut pauses: Vec<Duration> = (0..50).map(first).collect();
        pauses.sort();
        pauses.dedup();
        assert!(pauses.len() > 20, "{} different pauses", pauses.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_that_no_session_is_left_for_is_not_made() {
        let store = MemoryTree::new().connect();
        let mut retry = Retry::new(Policy::REQUEST, 1);
        assert!(retry.again(&*store, "a test", &Error::ConnectionLost).await);
        assert!(!retry.again(&*store, "a test", &Error::SessionExpired).await);
        store.close().await.unwrap();
        assert!(!retry.again(&*store, "a test", &Error::ConnectionLost).await);
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_without_a_connection_goes_on_when_there_is_one() {
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
    async fn what_is_refused_for_good_is_asked_for_seldom() {
        let store = MemoryTree::new().connect();
        let (mut retry, before) = (Retry::new(Policy::REQUEST, 1), time::Instant::now());
        let error = Error::NoAuth { path: "/x".to_owned() };
        for _ in 0..4 {
            assert!(retry.again(&*store, "a test", &error).await);
        }
        assert!(before.elapsed() >= 3 * Policy::REQUEST.longest);
    }
}
