//! Inputs of a program from its environment: time, random numbers, variables.
//!
//! A program that restarts on another node has to make the same calls, so it must not depend on values that may
//! have changed. The results of these functions are recorded before the program continues, and are the same
//! after a restart. In a workflow on one machine and in tasks they are not recorded.
//!
//! ```
//! use std::time::SystemTime;
//! use dataflow_framework::{Failure, Workflow, flow, tasks};
//!
//! let (now, chance) = Workflow::new(tasks![])?.run(|| Ok::<_, Failure>((flow::now(), flow::random())))?;
//! assert!(now <= SystemTime::now());
//! # let _ = chance;
//! # Ok::<(), dataflow_framework::WorkflowError>(())
//! ```

use std::{
    convert::Infallible,
    env as environment,
    hash::{BuildHasher as _, RandomState},
    time::SystemTime,
};

use serde::{Serialize, de::DeserializeOwned};

use super::flow::Flow;
use crate::encoding::{decode, encode};

/// Returns the clock time of the node on which the program first calls this.
///
/// # Panics
/// Panics outside of a workflow, and if the clock is before 1970.
#[must_use]
pub fn now() -> SystemTime {
    ask_as("flow::now", "now", SystemTime::now)
}

/// Returns a random number.
///
/// # Panics
/// Panics outside of a workflow.
#[must_use]
pub fn random() -> u64 {
    ask_as("flow::random", "random", || RandomState::new().hash_one(()))
}

/// Returns an environment variable of the node on which the program first calls this; `None` if it is not set,
/// or not Unicode.
///
/// # Panics
/// Panics outside of a workflow.
#[must_use]
pub fn env(name: &str) -> Option<String> {
    ask_as("flow::env", &format!("env {name}"), || environment::var(name).ok())
}

/// Returns the answer of the closure, or the recorded answer of an earlier run.
///
/// `what` names the question: a restarted program that asks another question fails.
///
/// # Panics
/// Panics outside of a workflow, and if the answer cannot be encoded.
///
/// # Examples
/// ```
/// use dataflow_framework::{Failure, Workflow, flow, tasks};
///
/// let processors = Workflow::new(tasks![])?.run(|| {
///     Ok::<_, Failure>(flow::ask("processors", || std::thread::available_parallelism().map_or(1, |n| n.get())))
/// })?;
/// assert!(processors > 0);
/// # Ok::<(), dataflow_framework::WorkflowError>(())
/// ```
pub fn ask<T: Serialize + DeserializeOwned>(what: &str, answer: impl FnOnce() -> T) -> T {
    ask_as("flow::ask", what, answer)
}

/// Asks for `function`, which a panic outside of a workflow names.
fn ask_as<T: Serialize + DeserializeOwned>(function: &str, what: &str, answer: impl FnOnce() -> T) -> T {
    let flow = Flow::current(function);
    let chosen = flow.decide(what, || {
        let encoded = encode(&answer());
        Ok::<_, Infallible>(encoded.unwrap_or_else(|failed| panic!("{what}: {}", failed.reason)))
    });
    let Ok(chosen) = chosen;
    decode(&chosen).unwrap_or_else(|failed| panic!("{what}: {}", failed.reason))
}
