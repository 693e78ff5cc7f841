//! Scripts that tests run in place of the commands of a provider.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

/// Writes a shell script by another process. A child that another test forks at this moment would keep a file of this
/// process open for writing, and such a file cannot be run.
pub(super) fn write(path: &Path, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", r#"cat > "$0" && chmod 755 "$0""#])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut to = writer.stdin.take().expect("a pipe");
    write!(to, "#!/bin/sh\n{text}\n").expect("the script is written");
    drop(to);
    assert!(writer.wait().expect("the shell ends").success());
}
