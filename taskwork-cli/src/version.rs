//! `--version`: the version, the build by which nodes and jobs are matched, and the commit of the runtime.

use std::{
    fmt::Write as _,
    time::{Duration, UNIX_EPOCH},
};

use taskwork::Release;

/// What the build script has found out; empty if it is not known.
const COMMIT: &str = env!("TASKWORK_COMMIT");
/// When the commit was made, or what `SOURCE_DATE_EPOCH` says, in seconds since 1970.
const EPOCH: &str = env!("TASKWORK_EPOCH");

/// Returns what a command says of its version.
pub(crate) fn text(name: &str, version: &str) -> String {
    let mut text = format!("{name} {version}\n");
    if let Ok(release) = Release::this_build(name, version) {
        // The fingerprint stands behind the version.
        let build = release.version().strip_prefix(version).unwrap_or_default();
        let _ = writeln!(text, "build {}", build.trim_start_matches('-'));
    }
    let _ = writeln!(text, "taskwork {}{}", env!("CARGO_PKG_VERSION"), origin(COMMIT, EPOCH));
    text
}

/// Says which commit it was built from, and the date.
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
    // The last time that can be formatted is at the end of the year 9999.
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(253_402_300_799));
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.split_once('T').map(|(date, _)| date.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_a_build_is_not_told() {
        assert_eq!(origin("4dbfe0e1a2b3", "1795563000"), ", commit 4dbfe0e1a2b3, 2026-11-24");
        assert_eq!(origin("", "0"), ", 1970-01-01");
        assert_eq!(origin("4dbfe0e1a2b3", ""), ", commit 4dbfe0e1a2b3");
        assert_eq!(origin("", "yesterday"), ", a build of no known commit");
        assert_eq!(date(&u64::MAX.to_string()).as_deref(), Some("9999-12-31"));
    }

    #[test]
    fn the_first_line_is_the_version_and_the_second_the_build() {
        let text = text("leaves", "1.2.3");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "leaves 1.2.3");
        let release = Release::this_build("leaves", "1.2.3").unwrap();
        let build = lines[1].strip_prefix("build ").unwrap();
        assert_eq!(release.version(), format!("1.2.3-{build}"));
        assert!(lines[2].starts_with("taskwork ") && lines.len() == 3, "{text}");
    }
}
