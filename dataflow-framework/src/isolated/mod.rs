//! Calls that run in a process of their own, for tasks that may crash, take too much memory, or not end: what happens
//! to that process is the failure of the call, and of nothing else.
//!
//! ```text
//!   node (parent.rs)                        the same program again (child.rs)
//!     start it, with a variable ──────────▶ is the variable there? then this, and nothing else
//!               ◀── greeting ── stdout ──
//!     the call, and what it reads ─ stdin ─▶ takes less memory from now on; runs the task
//!               ◀─ what it has written ──
//!     stdin is closed, also if the node is killed ─▶ ends
//! ```
//!
//! What the task prints goes to the standard error, since the standard output is the way of the answer.

mod child;
mod parent;
mod stream;

use std::os::unix::process::parent_id;

use serde::{Deserialize, Serialize};

pub use self::child::serve_isolated;
pub(crate) use self::parent::run;
use crate::ids::Argument;

/// The environment variable that tells a process that it is to run a call: the number of the process that has started
/// it. Those that it starts itself have another parent.
const VARIABLE: &str = "DATAFLOW_ISOLATED";

/// What a process says first that is to run a call.
const GREETING: &[u8] = b"dataflow isolated call 1\n";

/// A call for another process. What it reads follows it.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    module: String,
    name: String,
    arguments: Vec<Argument>,
    /// The number of versions that it reads.
    inputs: usize,
    left_ms: Option<u64>,
    memory_max: Option<u64>,
    once_token: Option<u128>,
}

/// How a call has ended in another process. What it has written follows it.
#[derive(Debug, Serialize, Deserialize)]
enum Response {
    /// So many versions.
    Written(usize),
    Failed {
        reason: String,
        /// Whether that says something of the node, and nothing of the task.
        is_of_node: bool,
    },
}

/// Returns whether this process was started to run a call.
pub(crate) fn is_child() -> bool {
    std::env::var(VARIABLE).is_ok_and(|parent| parent == parent_id().to_string())
}
