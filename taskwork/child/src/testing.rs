//! Observation of processes, for tests of this crate and of its users.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

/// Waits until a process is gone.
///
/// # Panics
/// If it still exists after 60 s.
pub fn wait_until_gone(process: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let state = || fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // A zombie is gone, too, although its status was not collected.
    while !state().is_empty() && !state().contains(") Z ") {
        assert!(Instant::now() < deadline, "process {process} lives: {}", state());
        thread::sleep(Duration::from_millis(10));
    }
}
