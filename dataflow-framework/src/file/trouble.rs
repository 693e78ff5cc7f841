//! Whether a task has had trouble with files: then its call may succeed on another node.

use std::{cell::Cell, io};

thread_local! {
    static IN_TROUBLE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a task, and returns also whether it had trouble with files.
pub(crate) fn during<R>(task: impl FnOnce() -> R) -> (R, bool) {
    let before = IN_TROUBLE.replace(false);
    let result = task();
    (result, IN_TROUBLE.replace(before))
}

/// Notes an error, unless it is one of what was asked for.
pub(super) fn note(error: &io::Error) {
    if !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) {
        IN_TROUBLE.set(true);
    }
}
