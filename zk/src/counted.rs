//! A store that counts its requests, to measure the load that a job puts on ZooKeeper.

use std::{
    ops::{AddAssign, Sub},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};

use crate::{
    error::{Error, Result},
    histogram::Histogram,
    store::{Answer, CreateMode, Events, OneShot, Op, OpAnswer, Session, Stat, Store, Version},
};

/// The number of requests sent to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Requests {
    /// Reads of data, existence or children, with or without a watch.
    pub reads: u64,
    /// Single writes.
    pub writes: u64,
    /// Multis that succeeded.
    pub multis: u64,
    /// Multis that failed on one of their operations.
    pub failed_multis: u64,
}

impl AddAssign for Requests {
    fn add_assign(&mut self, other: Self) {
        // The numbers may come from a znode with arbitrary content.
        self.reads = self.reads.saturating_add(other.reads);
        self.writes = self.writes.saturating_add(other.writes);
        self.multis = self.multis.saturating_add(other.multis);
        self.failed_multis = self.failed_multis.saturating_add(other.failed_multis);
    }
}

/// The requests since an earlier count.
impl Sub for Requests {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
            multis: self.multis.saturating_sub(earlier.multis),
            failed_multis: self.failed_multis.saturating_sub(earlier.failed_multis),
        }
    }
}

/// The latencies of requests, from the call to the answer. Requests whose answer is not awaited are not
/// counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Latencies {
    /// Reads of data, existence and children, without a watch.
    pub reads: Histogram,
    /// Single writes and multis.
    pub writes: Histogram,
}

#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    multis: AtomicU64,
    failed_multis: AtomicU64,
    latencies: Mutex<Latencies>,
}

impl Counters {
    fn note(&self, kind: Kind, since: Instant) {
        let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        match kind {
            Kind::Read => latencies.reads.note(since.elapsed()),
            Kind::Write => latencies.writes.note(since.elapsed()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Read,
    Write,
}

/// A store with a count of its requests.
#[derive(Debug)]
pub struct Counted {
    inner: Arc<dyn Store>,
    counters: Arc<Counters>,
}

impl Counted {
    /// Creates a store whose counts are zero.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, counters: Arc::default() }
    }

    /// Returns the count so far.
    pub fn requests(&self) -> Requests {
        let Counters { reads, writes, multis, failed_multis, .. } = &*self.counters;
        Requests {
            reads: reads.load(Relaxed),
            writes: writes.load(Relaxed),
            multis: multis.load(Relaxed),
            failed_multis: failed_multis.load(Relaxed),
        }
    }

    /// Returns how long the requests so far took.
    pub fn latencies(&self) -> Latencies {
        *self.counters.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an answer that records its latency, unless no server answers.
    fn timed<T: Send + 'static>(&self, kind: Kind, answer: Answer<T>) -> Answer<T> {
        let (since, counters) = (Instant::now(), Arc::clone(&self.counters));
        Box::pin(async move {
            let answer = answer.await;
            if answered(&answer) {
                counters.note(kind, since);
            }
            answer
        })
    }

    fn read(&self) -> &dyn Store {
        self.counters.reads.fetch_add(1, Relaxed);
        &*self.inner
    }

    fn write(&self) -> &dyn Store {
        self.counters.writes.fetch_add(1, Relaxed);
        &*self.inner
    }
}

impl Store for Counted {
    fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Answer<String> {
        self.timed(Kind::Write, self.write().create(path, data, mode))
    }

    fn set(&self, path: &str, data: &[u8], version: Option<Version>) -> Answer<Version> {
        self.timed(Kind::Write, self.write().set(path, data, version))
    }

    fn delete(&self, path: &str, version: Option<Version>) -> Answer<()> {
        self.timed(Kind::Write, self.write().delete(path, version))
    }

    fn get(&self, path: &str) -> Answer<(Vec<u8>, Stat)> {
        self.timed(Kind::Read, self.read().get(path))
    }

    fn exists(&self, path: &str) -> Answer<Option<Stat>> {
        self.timed(Kind::Read, self.read().exists(path))
    }

    fn children(&self, path: &str) -> Answer<Vec<String>> {
        self.timed(Kind::Read, self.read().children(path))
    }

    fn multi(&self, ops: Vec<Op>) -> Answer<Vec<OpAnswer>> {
        let answer = self.timed(Kind::Write, self.inner.multi(ops));
        let counters = Arc::clone(&self.counters);
        Box::pin(async move {
            let answer: Result<_> = answer.await;
            match &answer {
                Ok(_) => counters.multis.fetch_add(1, Relaxed),
                Err(Error::Multi { .. }) => counters.failed_multis.fetch_add(1, Relaxed),
                Err(_) => 0,
            };
            answer
        })
    }

    fn sync(&self, path: &str) -> Answer<()> {
        self.inner.sync(path)
    }

    fn get_and_watch(&self, path: &str) -> Answer<(Vec<u8>, Stat, OneShot)> {
        self.read().get_and_watch(path)
    }

    fn exists_and_watch(&self, path: &str) -> Answer<(Option<Stat>, OneShot)> {
        self.read().exists_and_watch(path)
    }

    fn children_and_watch(&self, path: &str) -> Answer<(Vec<String>, OneShot)> {
        self.read().children_and_watch(path)
    }

    fn watch_tree(&self, path: &str) -> Answer<Box<dyn Events>> {
        self.read().watch_tree(path)
    }

    fn check_access(&self, path: &str) -> Answer<()> {
        self.inner.check_access(path)
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.inner.session()
    }

    fn close(&self) -> Answer<()> {
        self.inner.close()
    }
}

/// Returns whether a server has answered, even with a refusal.
fn answered<T>(answer: &Result<T>) -> bool {
    answer.as_ref().map_or_else(|error| !error.is_transient() && *error != Error::SessionExpired, |_| true)
}
