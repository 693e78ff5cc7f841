//! `flow`: runs shell commands, each after the commands that write its inputs, on the cores of a machine or on a cluster.
//!
#![doc = include_str!("../README.md")]

mod job_file;
mod object;
mod map;
mod pattern;
mod plan;
mod record;
mod work;
mod command;

pub use self::command::{main, run};
