//! Archives that depend only on the names and contents of the files: sorted, owned by root, and with one modification
//! time.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, GzBuilder};

use super::files::Files;

/// Makes a compressed archive of files, all below the folder `top`. `epoch` is the time of all of them, in seconds
/// since 1970.
///
/// # Errors
/// If tar fails.
pub(crate) fn tar_gz(files: &Files, top: &str, epoch: u64) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir().context("a folder to pack")?;
    files.write(&folder.path().join(top))?;
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=gnu", "--sort=name", "--owner=root:0", "--group=root:0"])
        // Independent of the user's umask.
        .args(["--mode=u=rwX,go=rX", &format!("--mtime=@{epoch}"), top])
        .current_dir(folder.path())
        .stderr(Stdio::inherit());
    let output = tar.output().context("cannot start tar")?;
    ensure!(output.status.success(), "{tar:?}: {}", output.status);
    gzip(&output.stdout)
}

/// Compresses bytes, without a name and a time in the result.
///
/// # Errors
/// None in practice: it is written to memory.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).context("bytes in memory cannot be compressed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_contains_only_names_contents_and_given_time() {
        let mut files = Files::default();
        files.add_program("bin/tsp", "program").unwrap();
        files.add("README", "text").unwrap();
        let packed = tar_gz(&files, "t-1", 1_700_000_000).unwrap();
        assert!(packed == tar_gz(&files, "t-1", 1_700_000_000).unwrap());
        // Of gzip's header: no name, no time, no system.
        assert_eq!((packed[3], &packed[4..8], packed[9]), (0, &[0; 4][..], 255));
        let archive = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(archive.path(), packed).unwrap();
        let list = Command::new("tar").env("TZ", "UTC").arg("-tvzf").arg(archive.path()).output().unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        let lines: Vec<_> =
            list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "drwxr-xr-x root/root 0 2023-11-14 22:13 t-1/",
                "-rw-r--r-- root/root 4 2023-11-14 22:13 t-1/README",
                "drwxr-xr-x root/root 0 2023-11-14 22:13 t-1/bin/",
                "-rwxr-xr-x root/root 7 2023-11-14 22:13 t-1/bin/tsp",
            ]
        );
    }
}
