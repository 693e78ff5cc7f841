//! The travelling salesman's program and its readers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod about;
mod command;
mod log;
mod plot;
mod reader;
