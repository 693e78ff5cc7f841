//! The locks and atomics of the queue and the signals: the standard library's, or loom's, which explores all
//! interleavings of the threads.

#[cfg(feature = "loom")]
pub(super) use loom::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU64};
#[cfg(not(feature = "loom"))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU64};
