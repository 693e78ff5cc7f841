//! The locks and atomics of the queue and the signals: those of the standard library, or of loom, which explores all
//! interleavings of threads.

#[cfg(feature = "loom")]
pub(super) use loom::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU64};
#[cfg(not(feature = "loom"))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU64};
