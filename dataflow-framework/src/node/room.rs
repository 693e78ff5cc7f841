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

/// Sets the memory limit for the data of a job on each node of this process, in bytes. Nodes that have already joined
/// a job keep their limit.
///
/// Data is counted by its encoded size, so its values may take more memory, such as small numbers that are stored as
/// large ones. Memory that tasks and the program allocate for themselves is not counted, and neither is the output of
/// a running call. Beyond the limit, copies that other nodes have are dropped, and other data is moved to files
/// ([`set_work_dir`](crate::set_work_dir)) and read when it is needed. If the inputs of a call exceed the limits of all
/// nodes, the call waits for a node with a larger limit; in a program that runs in one process, it fails.
///
/// Without this setting the limit is the environment variable `DATAFLOW_STORE`, such as `4GiB`, or half of the memory
/// of the machine or of its control group. The nodes of a process share that half.
///
/// # Panics
/// If it is 0.
pub fn set_store(bytes: u64) {
    assert!(bytes > 0, "a store of no bytes holds nothing");
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
    match taskwork::available_memory() {
        0 => MEMORY_BYTES,
        bytes => bytes,
    }
}
