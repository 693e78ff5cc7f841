//! Calls that run in separate processes, for tasks that may crash, take too much memory, or never return: if the
//! process dies, only its call fails.
//!
//! ```text
//!   node (parent.rs)                        the same program again (child.rs)
//!     start it, with a variable ──────────▶ if the variable is set, it runs only the call
//!               ◀── greeting ── stdout ──
//!     the call and its inputs ────── stdin ─▶ limits its memory; runs the task
//!               ◀───────── output ─────────
//!     stdin is closed, also if the node is killed ─▶ exits
//! ```
//!
//! Output that the task prints goes to the standard error, since the standard output carries the reply.

mod child;
mod parent;

use std::os::unix::process::parent_id;

use serde::{Deserialize, Serialize};

pub use self::child::serve_isolated;
pub(crate) use self::parent::run;
use crate::{failure::FailureKind, ids::Argument};

/// The environment variable that makes a process run an isolated call: the id of the process that has started it. The
/// children of that process inherit the variable, but have another parent.
const VARIABLE: &str = "DATAFLOW_ISOLATED";

/// The first bytes that a child sends.
const GREETING: &[u8] = b"dataflow isolated call 1\n";

/// A call for a child. Its inputs follow it.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    module: String,
    name: String,
    arguments: Vec<Argument>,
    /// The number of inputs.
    inputs: usize,
    left_ms: Option<u64>,
    memory_max: Option<u64>,
    once_token: Option<u128>,
    is_cached: bool,
}

/// The outcome of a call in a child. Its output follows it.
#[derive(Debug, Serialize, Deserialize)]
enum Response {
    /// The number of output versions.
    Written(usize),
    Failed {
        reason: String,
        kind: FailureKind,
        /// Whether the node is the cause, and not the task.
        is_of_node: bool,
    },
}

/// Returns whether this process was started to run a call.
pub(crate) fn is_child() -> bool {
    std::env::var(VARIABLE).is_ok_and(|parent| parent == parent_id().to_string())
}
