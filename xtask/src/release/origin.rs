//! The commit of a release, its time, which all files of the release have, and its source.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

/// The number of characters of a commit that programs show.
const SHOWN: usize = 12;

/// The suffix of the abbreviated commit if the source has uncommitted changes.
const CHANGED: &str = "dirty";

/// A commit of a clone.
#[derive(Debug)]
pub(super) struct Origin {
    clone: PathBuf,
    /// The exported commit: with uncommitted changes, a commit of them that no branch has.
    exported: String,
    /// The commit, as programs show it.
    pub(super) commit: String,
    /// Its time, in seconds since 1970.
    pub(super) epoch: String,
}

impl Origin {
    /// Returns the commit of a clone. Files that git does not know are not a part of it.
    ///
    /// # Errors
    /// If this is no clone, or it has uncommitted changes and `may_differ` is not set.
    pub(super) fn find(clone: &Path, may_differ: bool) -> Result<Self> {
        let head = git(clone, &["log", "-1", "--no-show-signature", "--format=%H %ct"])
            .context("a release is made from a commit of a clone")?;
        let (head, epoch) =
            head.split_once(' ').with_context(|| format!("git prints no commit with its time: {head}"))?;
        let (mut exported, mut commit) = (head.to_owned(), head.chars().take(SHOWN).collect::<String>());
        let changes = git(clone, &["status", "--porcelain", "--untracked-files=no"])?;
        if !changes.is_empty() {
            ensure!(
                may_differ,
                "a release is made from a commit, but there are changes (git status):\n{changes}\nCommit them, or \
                 use --allow-dirty"
            );
            exported = git(clone, &["stash", "create"])?;
            commit.truncate(SHOWN - CHANGED.len());
            commit += CHANGED;
        }
        Ok(Self { clone: clone.to_owned(), exported, commit, epoch: epoch.to_owned() })
    }

    /// Writes the source into a folder. All files get new times: cargo compares times, and would otherwise regard a file
    /// that is older than the previous build as built.
    ///
    /// # Errors
    /// If git or tar fails.
    pub(super) fn export(&self, folder: &Path) -> Result<()> {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let mut archive = Command::new("git")
            .arg("-C")
            .arg(&self.clone)
            .args(["archive", "--format=tar", &self.exported])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start git")?;
        let content = archive.stdout.take().context("git has no output")?;
        let mut unpack = Command::new("tar");
        let unpacked = unpack.args(["--extract", "--touch", "-C"]).arg(folder).stdin(content).status();
        let is_complete = unpacked.context("cannot start tar")?.success() && archive.wait()?.success();
        ensure!(is_complete, "the source of {} cannot be written to {}", self.commit, folder.display());
        Ok(())
    }
}

/// Returns the output of git in a clone.
fn git(clone: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").arg("-C").arg(clone).args(arguments).output();
    let output = output.context("cannot start git")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_of_commit_or_of_declared_changes() {
        let folder = tempfile::tempdir().unwrap();
        let clone = folder.path().join("clone");
        fs::create_dir(&clone).unwrap();
        let error = format!("{:#}", Origin::find(&clone, true).unwrap_err());
        assert!(error.starts_with("a release is made from a commit of a clone: git log"), "{error}");
        let commit = ["-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-q", "-m", "Add a"];
        fs::write(clone.join("a"), "1").unwrap();
        for arguments in [&["init", "-q"][..], &["add", "a"], &commit] {
            git(&clone, arguments).unwrap();
        }
        fs::write(clone.join("unknown"), "").unwrap();
        let clean = Origin::find(&clone, false).unwrap();
        assert!(clean.exported.starts_with(&clean.commit) && clean.commit.len() == SHOWN, "{clean:?}");

        fs::write(clone.join("a"), "2").unwrap();
        let error = Origin::find(&clone, false).unwrap_err().to_string();
        assert!(error.contains("M a") && error.contains("--allow-dirty"), "{error}");
        let changed = Origin::find(&clone, true).unwrap();
        assert_eq!(changed.commit, format!("{}dirty", &clean.commit[..7]));
        let source = folder.path().join("source");
        for (origin, content) in [(changed, "2"), (clean, "1")] {
            origin.export(&source).unwrap();
            assert_eq!(fs::read_to_string(source.join("a")).unwrap(), content);
            assert!(!source.join("unknown").exists());
            let time = |folder: &Path| folder.join("a").metadata().unwrap().modified().unwrap();
            assert!(time(&source) >= time(&clone), "cargo could regard it as built");
        }
    }
}
