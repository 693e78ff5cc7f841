//! A store that counts its requests, to measure what a job costs ZooKeeper.

use std::{
    ops::{AddAssign, Sub},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{
    error::{Error, Result},
    store::{Answer, CreateMode, Events, OneShot, Op, OpAnswer, Session, Stat, Store, Version},
};

/// The number of requests that were sent to a store.
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
        self.reads += other.reads;
        self.writes += other.writes;
        self.multis += other.multis;
        self.failed_multis += other.failed_multis;
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

#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    multis: AtomicU64,
    failed_multis: AtomicU64,
}

/// A store with a count of its requests.
#[derive(Debug)]
pub struct Counted {
    inner: Arc<dyn Store>,
    counters: Arc<Counters>,
}

impl Counted {
    /// Creates a store that counts from now on.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, counters: Arc::default() }
    }

    /// Returns the count so far.
    pub fn requests(&self) -> Requests {
        let Counters { reads, writes, multis, failed_multis } = &*self.counters;
        Requests {
            reads: reads.load(Relaxed),
            writes: writes.load(Relaxed),
            multis: multis.load(Relaxed),
            failed_multis: failed_multis.load(Relaxed),
        }
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
        self.write().create(path, data, mode)
    }

    fn set(&self, path: &str, data: &[u8], version: Option<Version>) -> Answer<Version> {
        self.write().set(path, data, version)
    }

    fn delete(&self, path: &str, version: Option<Version>) -> Answer<()> {
        self.write().delete(path, version)
    }

    fn get(&self, path: &str) -> Answer<(Vec<u8>, Stat)> {
        self.read().get(path)
    }

    fn exists(&self, path: &str) -> Answer<Option<Stat>> {
        self.read().exists(path)
    }

    fn children(&self, path: &str) -> Answer<Vec<String>> {
        self.read().children(path)
    }

    fn multi(&self, ops: Vec<Op>) -> Answer<Vec<OpAnswer>> {
        let (answer, counters) = (self.inner.multi(ops), Arc::clone(&self.counters));
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
