//! Determines the commit of a release build, for `--version`.
//!
//! | where | commit | date |
//! |---|---|---|
//! | `TASKWORK_COMMIT`, `SOURCE_DATE_EPOCH` are set | from the variables, in any profile | |
//! | a profile like `release`, in a clone | of the clone | of the commit |
//! | the same, in an archive made by `git archive` | in `commit.txt` | of the commit |
//! | otherwise, such as in a package or in another project's clone | unknown | unknown |
//!
//! Development builds do not depend on the commit, since otherwise each commit would rebuild everything that links this
//! crate. Equal sources and variables give equal results, so builds can be reproduced.

use std::{env, fs, path::Path, process::Command};

/// The number of displayed characters of a commit.
const SHOWN: usize = 12;

/// The folder of this crate in a clone of the project.
const FOLDER: &str = "taskwork/cli/";

fn main() {
    for variable in ["TASKWORK_COMMIT", "SOURCE_DATE_EPOCH"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=commit.txt");
    println!("cargo::rerun-if-changed=build.rs");
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let found = if is_release { in_archive().or_else(in_clone) } else { None };
    let (commit, epoch) = found.unwrap_or_default();
    let commit = env::var("TASKWORK_COMMIT").unwrap_or(commit);
    let epoch = env::var("SOURCE_DATE_EPOCH").unwrap_or(epoch);
    // Sanitized, because it is displayed on one line.
    let commit: String = commit.chars().filter(char::is_ascii_alphanumeric).take(SHOWN).collect();
    let epoch: String = epoch.chars().filter(char::is_ascii_digit).collect();
    println!("cargo::rustc-env=TASKWORK_COMMIT={commit}");
    println!("cargo::rustc-env=TASKWORK_EPOCH={epoch}");
}

/// Reads the file filled in by `git archive` (`export-subst` in `.gitattributes`).
fn in_archive() -> Option<(String, String)> {
    pair(&fs::read_to_string("commit.txt").ok()?)
}

/// Queries git, unless the clone is another project's, which contains this crate among its dependencies.
fn in_clone() -> Option<(String, String)> {
    if git(&["rev-parse", "--show-prefix"])? != FOLDER {
        return None;
    }
    // Updated by each commit, checkout and merge.
    for file in ["logs/HEAD", "HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]).filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    pair(&git(&["log", "-1", "--no-show-signature", "--format=%H %ct"])?)
}

fn pair(text: &str) -> Option<(String, String)> {
    let (commit, epoch) = text.trim().split_once(' ')?;
    let is_hash = commit.len() >= SHOWN && commit.chars().all(|c| c.is_ascii_hexdigit());
    is_hash.then(|| (commit.to_owned(), epoch.to_owned()))
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
