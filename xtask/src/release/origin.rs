//! The origin of a release: the commit, and its time, which all files of the release have.

use std::{
    env, fs,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};

use crate::workspace;

/// The number of characters of a commit that programs show.
const SHOWN: usize = 12;

/// The suffix of the abbreviated commit if the source has uncommitted changes.
const CHANGED: &str = "dirty";

/// The file that `git archive` writes the commit and its time into.
const ARCHIVED: &str = "taskwork/cli/commit.txt";

/// The last second of the year 9999, after which no format has a time.
const EPOCH_MAX: u64 = 253_402_300_799;

/// A commit and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The commit, as programs show it.
    pub(crate) commit: String,
    /// Its time, in seconds since 1970.
    pub(crate) epoch: u64,
}

impl Origin {
    /// Determines the origin of the workspace: the commit of the clone; without a clone, `TASKWORK_COMMIT` and
    /// `SOURCE_DATE_EPOCH`, or the commit of the archive from which it was unpacked.
    ///
    /// # Errors
    /// If none of them is known, or the clone has uncommitted changes and `may_differ` is not set.
    pub(crate) fn find(may_differ: bool) -> Result<Self> {
        // A clone knows better than variables that may be about another source.
        if !workspace::root().join(".git").exists() {
            if let (Ok(commit), Ok(epoch)) = (env::var("TASKWORK_COMMIT"), env::var("SOURCE_DATE_EPOCH")) {
                return Self::parse(&format!("{commit} {epoch}")).with_context(|| {
                    format!(
                        "TASKWORK_COMMIT is {commit:?}, SOURCE_DATE_EPOCH is {epoch:?}: no commit and its time"
                    )
                });
            }
            return Self::of_archive(&workspace::root()).context(
                "the commit is not known: this is neither a clone nor an archive by `git archive`. Set \
                 TASKWORK_COMMIT and SOURCE_DATE_EPOCH (seconds since 1970)",
            );
        }
        let changes = git(&["status", "--porcelain"])?;
        if !may_differ {
            ensure!(
                changes.is_empty(),
                "a release is made from a commit, but there are changes (git status):\n{}\nCommit them, or say \
                 --allow-dirty",
                changes.trim_end()
            );
        }
        let text = git(&["log", "-1", "--no-show-signature", "--format=%H %ct"])?;
        let origin = Self::parse(&text)
            .with_context(|| format!("the output of git is no commit with its time: {text:?}"))?;
        Ok(if changes.is_empty() { origin } else { origin.changed() })
    }

    fn of_archive(root: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(root.join(ARCHIVED)).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let (commit, epoch) = text.trim().split_once(' ')?;
        let epoch = epoch.parse().ok().filter(|epoch| *epoch <= EPOCH_MAX)?;
        let is_plain = !commit.is_empty() && commit.chars().all(|c| c.is_ascii_alphanumeric());
        is_plain.then(|| Self { commit: commit.chars().take(SHOWN).collect(), epoch })
    }

    /// Says in the commit that the source is not the commit's.
    fn changed(self) -> Self {
        let commit = self.commit.chars().take(SHOWN - CHANGED.len()).collect::<String>() + CHANGED;
        Self { commit, ..self }
    }

    /// Returns the day as in `2026-11-24`, which programs show.
    pub(crate) fn day(&self) -> String {
        let time =
            humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(self.epoch)).to_string();
        time.split('T').next().unwrap_or_default().to_owned()
    }

    /// Returns the time as in `Tue, 24 Nov 2026 17:00:00 +0000`.
    pub(crate) fn mail_date(&self) -> String {
        httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(self.epoch)).replace("GMT", "+0000")
    }
}

/// Returns the output of git in the workspace.
///
/// # Errors
/// If git fails.
pub(crate) fn git(arguments: &[&str]) -> Result<String> {
    let output = workspace::command("git").args(arguments).output().context("cannot start git")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), error.trim());
    String::from_utf8(output.stdout).with_context(|| format!("git {}: not UTF-8", arguments.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_and_time_are_parsed_strictly() {
        let origin = Origin::parse("1f1e8d6aa0b1c2d3e4f5 1795539600\n").unwrap();
        assert_eq!(origin.commit, "1f1e8d6aa0b1");
        assert_eq!(origin.day(), "2026-11-24");
        assert_eq!(origin.mail_date(), "Tue, 24 Nov 2026 17:00:00 +0000");
        for text in [
            "",
            "1f1e8d6",
            "$Format:%H %ct$",
            "1f1e8d6 yesterday",
            "1f1e8d6 -1",
            "../x 5",
            " 5",
            "1f1e8d6 253402300800",
        ] {
            assert_eq!(Origin::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn source_with_changes_is_marked() {
        let origin = Origin::parse("1f1e8d6aa0b1c2d3e4f5 0").unwrap().changed();
        assert_eq!(origin.commit, "1f1e8d6dirty");
        assert_eq!(origin.commit.len(), SHOWN);
    }

    #[test]
    fn archive_has_its_commit() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Origin::of_archive(root.path()), None);
        fs::create_dir_all(root.path().join("taskwork/cli")).unwrap();
        fs::write(root.path().join(ARCHIVED), "1f1e8d6aa0b1c2d3 12").unwrap();
        assert_eq!(Origin::of_archive(root.path()).unwrap().epoch, 12);
    }
}
