//! What a program may ask of its surroundings: the time, chance, the environment.
//!
//! A program that begins anew on another node has to make the same calls, so it must not depend on anything that may be
//! something else then. What these functions return is recorded before the program goes on, and is the same when it
//! begins anew. Where a workflow runs on one machine only, in tasks, and outside of workflows, they just ask.
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

/// Returns the time, as the clock of the node says it on which the program first asks.
///
/// # Panics
/// If the clock says a time before 1970.
#[must_use]
pub fn now() -> SystemTime {
    ask("now", SystemTime::now)
}

/// Returns a random number.
#[must_use]
pub fn random() -> u64 {
    ask("random", || RandomState::new().hash_one(()))
}

/// Returns a variable of the environment of the node on which the program first asks; `None` if it is not set, or not
/// Unicode.
#[must_use]
pub fn env(name: &str) -> Option<String> {
    ask(&format!("env {name}"), || environment::var(name).ok())
}

/// Returns what the surroundings say, or have said when the program first came here.
///
/// `what` names the question: a program that asks something else when it begins anew fails.
///
/// # Panics
/// If the answer cannot be encoded.
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
    let flow = Flow::current();
    let chosen = flow.decide(what, || {
        let encoded = encode(&answer());
        Ok::<_, Infallible>(encoded.unwrap_or_else(|failed| panic!("{what}: {}", failed.reason)))
    });
    let Ok(chosen) = chosen;
    decode(&chosen).unwrap_or_else(|failed| panic!("{what}: {}", failed.reason))
}
