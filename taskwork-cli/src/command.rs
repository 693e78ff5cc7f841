//! The parts that other commands for clusters share with those of programs, such as the operator's `taskwork`: options,
//! output, interrupts and exit codes.

#[cfg(feature = "man")]
pub use crate::manual::Man;
pub use crate::{
    failure::{print, tell},
    interrupts::{Notes, interruptible},
    log::{Level, LogArguments},
    manual::{Completions, completions},
    program::{ended, not_parsed},
    submit::goes_on,
    target::{ClusterArguments, Patience, job_id, runtime, seconds, time},
};
