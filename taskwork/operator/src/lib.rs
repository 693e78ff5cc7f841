//! `taskwork`: shows and controls a cluster, whichever programs its nodes run.
//!
//! A separate crate from `taskwork-cli`, so that programs do not link a dashboard, a terminal interface and an
//! autoscaler.

mod command;
mod act;
mod agent;
mod compare;
mod completions;
mod connection;
mod dashboard;
mod events;
mod findings;
mod job;
mod jobs;
mod nodes;
mod node;
mod json;
mod ledger;
mod report;
mod scale;
mod selection;
mod show;
mod status;
mod table;
mod top;
mod up;
mod wait;
mod web;
mod whatif;

pub use self::command::{main, run};
