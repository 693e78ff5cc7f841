//! Tests of the command in processes of its own.

#![allow(clippy::unwrap_used, reason = "an error fails the test")]

mod isolation;
mod tenants;
