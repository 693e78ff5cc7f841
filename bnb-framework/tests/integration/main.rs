//! Tests of the framework as a user sees it.
#![expect(clippy::unwrap_used, reason = "a test that fails")]

mod wrong_programs;
