//! The travelling salesman's program and its readers.

#![allow(clippy::unwrap_used, reason = "an error fails the test")]

mod about;
mod command;
mod log;
mod plot;
mod reader;
