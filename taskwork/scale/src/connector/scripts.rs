//! Scripts that replace the commands of a provider in tests.

use std::{path::Path, process::Command};

/// Writes a shell script in another process. A child that another test forks at this time would keep a file of this
/// process open for writing, and such a file cannot be executed.
pub(super) fn write(path: &Path, text: &str) {
    let install = r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod 755 "$0""#;
    let status = Command::new("sh").args(["-c", install]).arg(path).arg(text).status().expect("a shell");
    assert!(status.success(), "{} cannot be written", path.display());
}
