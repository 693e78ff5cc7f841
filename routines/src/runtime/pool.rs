//! The idle runtimes of a node.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use super::Runtime;

/// Idle runtimes, each with the key of its tenant and the package that it has loaded, the least recently used first.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: Mutex<VecDeque<(String, Runtime)>>,
    idle_max: usize,
}

impl Pool {
    pub(crate) fn new(idle_max: usize) -> Self {
        Self { idle: Mutex::default(), idle_max }
    }

    pub(crate) fn take(&self, key: &str) -> Option<Runtime> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let place = idle.iter().rposition(|(of, _)| of == key)?;
        idle.remove(place).map(|(_, runtime)| runtime)
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(key, _)| key.clone()).collect()
    }

    /// Adds a runtime without calls. The least recently used one is stopped if there are too many.
    pub(crate) fn put(&self, key: &str, runtime: Runtime) {
        let surplus = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push_back((key.to_owned(), runtime));
            if idle.len() > self.idle_max { idle.pop_front() } else { None }
        };
        // Outside of the lock, since it waits for the end of the process.
        drop(surplus);
    }
}
