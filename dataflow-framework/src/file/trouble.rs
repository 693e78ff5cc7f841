//! Detection of file errors in a task: its call may succeed on another node.

use std::{cell::Cell, io};

thread_local! {
    static IN_TROUBLE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a task, and also returns whether it had a file error.
pub(crate) fn during<R>(task: impl FnOnce() -> R) -> (R, bool) {
    let before = IN_TROUBLE.replace(false);
    let result = task();
    (result, IN_TROUBLE.replace(before))
}

/// Records a file error, unless it was caused by the arguments or the data.
pub(super) fn note(error: &io::Error) {
    if !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) {
        IN_TROUBLE.set(true);
    }
}
