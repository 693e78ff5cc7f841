//! `taskwork`: shows and controls a cluster, whatever programs its nodes run.
//!
//! The crate is apart from `taskwork-cli`, so that programs do without a dashboard, a terminal's picture and a controller
//! of machines.

mod command;
mod act;
mod compare;
mod dashboard;
mod findings;
mod job;
mod jobs;
mod nodes;
mod json;
mod ledger;
mod report;
mod scale;
mod status;
mod table;
mod top;
mod wait;
mod web;
mod whatif;
mod workflow;

use self::command::{Common, Desk};

pub use self::command::{main, run};
