//! Runtimes: processes that run the routines of one package, and the pool of idle ones.

mod consumption;
mod interpreter;
mod log;
mod memory;
mod nested;
mod package_cache;
mod page;
mod pool;
mod process;
mod starter;
mod threads;

use std::time::Duration;

pub(crate) use self::{
    interpreter::Interpreters,
    package_cache::{Installed, Packages},
    page::Request,
    pool::Pool,
    process::{Event, Runtime},
    starter::{Program, StartError, Starter},
    threads::spawn_call,
};

/// The maximum time until a runtime has loaded its routine.
const LOAD_MAX: Duration = Duration::from_secs(60);

/// The number of runtimes in a row that do not load the routine, after which it fails.
pub(crate) const LOADS_MAX: u32 = 3;

/// The number of crashes of runtimes with a call after which it fails.
pub(crate) const CRASHES_MAX: u32 = 3;

/// The time in which a runtime collects answers, in addition to the time limit of a call.
pub(crate) const ANSWER_LATE_MAX: Duration = Duration::from_millis(50);
