//! The memory limit of a store.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::size;

/// The environment variable with the limit.
const VARIABLE: &str = "DATAFLOW_STORE";

/// The assumed memory of a machine whose memory is unknown, in bytes.
const MEMORY_BYTES: u64 = 4 << 30;

/// The limit set by the program, in bytes; 0 if none was set.
static SET: AtomicU64 = AtomicU64::new(0);

/// The number of stores that share the memory of the machine.
static SHARING: AtomicU64 = AtomicU64::new(0);

/// See [`Settings::store`](crate::Settings::store).
pub(crate) fn set_store(bytes: u64) {
    SET.store(bytes, Relaxed);
}

/// The memory limit of a store.
#[derive(Debug)]
pub(crate) enum Room {
    Bytes(u64),
    /// An equal share of this number of bytes, which is divided among all stores of this kind.
    Share(u64),
}

impl Room {
    /// Returns the limit of a node of a cluster.
    pub(crate) fn of_node() -> Self {
        match SET.load(Relaxed) {
            0 => {}
            bytes => return Self::Bytes(bytes),
        }
        if let Ok(text) = std::env::var(VARIABLE) {
            match size::parse(&text) {
                Ok(bytes) => return Self::Bytes(bytes),
                Err(error) => tracing::warn!("{VARIABLE} is ignored: {error}"),
            }
        }
        SHARING.fetch_add(1, Relaxed);
        Self::Share(memory() / 2)
    }

    /// Returns the current limit, in bytes.
    pub(super) fn now(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => *bytes,
            Self::Share(bytes) => bytes / SHARING.load(Relaxed).max(1),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Self::Share(_) = self {
            SHARING.fetch_sub(1, Relaxed);
        }
    }
}

/// Returns the memory available to this process, in bytes.
fn memory() -> u64 {
    match taskwork::lowlevel::available_memory() {
        0 => MEMORY_BYTES,
        bytes => bytes,
    }
}
