//! `flow`: runs a file of shell commands in the order of their files, on the cores of a machine or on a cluster.
//!
#![doc = include_str!("../README.md")]

mod job_file;
mod pattern;
mod plan;
mod record;
mod work;
mod command;

pub use self::command::{main, run};
