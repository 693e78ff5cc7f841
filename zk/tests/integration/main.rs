//! The public interface of the crate, and processes that are killed while they use it.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod crashes;
mod durable;
