//! The process that outlives a program to kill the servers that the program has left running.

use std::{
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result};

/// Waits for the end of its standard input, which closes when the program exits; then kills processes, and
/// removes a folder.
const SCRIPT: &str = r#"read -r _; folder=$1; shift; kill -KILL "$@"; rm -rf "$folder""#;

/// Starts the guard. Its standard input has to stay open for as long as the servers are needed.
pub(crate) fn start(processes: impl Iterator<Item = u32>, folder: &Path) -> Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT, "sh"]).arg(folder).args(processes.map(|id| id.to_string()));
    // Ctrl-C on a terminal ends the program, and not the guard.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().context("sh cannot be started")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn processes_are_killed_and_their_folder_is_removed_when_standard_input_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Command::new("sleep").arg("600").spawn().unwrap();
        let mut guard = start([process.id()].into_iter(), folder.path()).unwrap();
        assert_eq!(process.try_wait().unwrap(), None, "the guard waits");
        drop(guard.stdin.take());
        assert!(guard.wait().unwrap().success());
        assert_eq!(process.wait().unwrap().signal(), Some(9));
        assert!(!folder.path().exists());
    }
}
