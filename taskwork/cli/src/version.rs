//! `--version`: the version, the build that nodes and jobs must match, and the commit of the runtime.

use std::{
    fmt::Write as _,
    time::{Duration, UNIX_EPOCH},
};

use taskwork::Release;

/// The commit found by the build script; empty if unknown.
pub(crate) const COMMIT: &str = env!("TASKWORK_COMMIT");
/// The time of the commit, or the value of `SOURCE_DATE_EPOCH`, in seconds since 1970.
const EPOCH: &str = env!("TASKWORK_EPOCH");

/// Returns the output of `--version`.
pub(crate) fn text(name: &str, version: &str) -> String {
    let mut text = format!("{name} {version}\n");
    if let Ok(release) = Release::this_build(name, version) {
        // The fingerprint follows the version.
        let build = release.version().strip_prefix(version).unwrap_or_default();
        let _ = writeln!(text, "build {}", build.trim_start_matches('-'));
    }
    let _ = writeln!(text, "taskwork {}{}", env!("CARGO_PKG_VERSION"), origin(COMMIT, EPOCH));
    text
}

/// Describes the commit of the build, with its date.
fn origin(commit: &str, epoch: &str) -> String {
    let mut origin = String::new();
    if !commit.is_empty() {
        let _ = write!(origin, ", commit {commit}");
    }
    if let Some(date) = date(epoch) {
        let _ = write!(origin, ", {date}");
    }
    if origin.is_empty() { ", a build of no known commit".to_owned() } else { origin }
}

/// Returns the day of a time, UTC.
fn date(epoch: &str) -> Option<String> {
    let seconds: u64 = epoch.parse().ok()?;
    // Times can be formatted up to the year 9999.
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(253_402_300_799));
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.split_once('T').map(|(date, _)| date.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_origin_is_omitted() {
        assert_eq!(origin("4dbfe0e1a2b3", "1795563000"), ", commit 4dbfe0e1a2b3, 2026-11-24");
        assert_eq!(origin("", "0"), ", 1970-01-01");
        assert_eq!(origin("4dbfe0e1a2b3", ""), ", commit 4dbfe0e1a2b3");
        assert_eq!(origin("", "yesterday"), ", a build of no known commit");
        assert_eq!(date(&u64::MAX.to_string()).as_deref(), Some("9999-12-31"));
    }

    #[test]
    fn first_line_is_version_and_second_is_build() {
        let text = text("leaves", "1.2.3");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "leaves 1.2.3");
        let release = Release::this_build("leaves", "1.2.3").unwrap();
        let build = lines[1].strip_prefix("build ").unwrap();
        assert_eq!(release.version(), format!("1.2.3-{build}"));
        assert!(lines[2].starts_with("taskwork ") && lines.len() == 3, "{text}");
    }
}
