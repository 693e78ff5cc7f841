//! Installs the requirements of a command that are missing: Debian packages and programs of cargo.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::{
    step::{self, Step},
    workspace,
};

/// The version to install where there is none, or one too old for `deny.toml`.
const DENY_VERSION: &str = "0.20.2";

/// The oldest version (major, minor) that can read `deny.toml`.
const DENY_OLDEST: (u32, u32) = (0, 20);

/// Maximum time for `apt-get` to wait for another instance, in seconds.
const APT_LOCK_WAIT_S: u32 = 120;

/// Installs the missing packages of `wanted` with `apt-get`. Changes nothing if all are installed.
///
/// # Errors
/// If something is missing and this is not Debian, or the user is not root, or `apt-get` failed.
pub(crate) fn debian_packages(wanted: &[&str]) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let missing = missing(wanted, &installed_listing(wanted)?);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    ensure!(
        is_root()?,
        "missing Debian packages: {names}. Only root can install them:\n    \
         sudo apt-get update && sudo apt-get install --no-install-recommends {names}"
    );
    step::run_chain(&apt_steps(&missing))
}

/// Returns the step that installs cargo-deny, unless cargo finds one that is new enough.
///
/// It is installed where `cargo install` puts other programs, not into `target`: one build of a minute
/// then serves every clone on the machine, and survives `cargo clean`.
pub(crate) fn cargo_deny() -> Option<Step> {
    let found = workspace::command("cargo").args(["deny", "--version"]).stderr(Stdio::null()).output();
    let version = found.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if version.is_ok_and(|text| is_new_enough(&text)) {
        return None;
    }
    // Not optimised: it runs for a second, and would be compiled for three minutes.
    let line = format!("install cargo-deny --version {DENY_VERSION} --locked --debug");
    Some(Step::cargo("install cargo-deny", &line))
}

/// The version of cargo-fuzz to install where there is none.
const FUZZ_VERSION: &str = "0.13.2";

/// Returns the step that installs cargo-fuzz, unless there is one.
pub(crate) fn cargo_fuzz() -> Option<Step> {
    let found = workspace::command("cargo").args(["fuzz", "--version"]).stderr(Stdio::null()).output();
    if found.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let line = format!("install cargo-fuzz --version {FUZZ_VERSION} --locked");
    Some(Step::cargo("install cargo-fuzz", &line))
}

/// Returns the steps that install the tools of a release in a folder of their own. The versions are exact, since they
/// determine the bytes of packages; cargo installs no version that is there.
pub(crate) fn release_tools(folder: &str) -> [Step; 2] {
    let install = |tools: &str| {
        let line = format!("install --quiet --locked --root {folder} {tools}");
        Step::cargo("install tools", &line)
    };
    [
        install("cargo-about@0.9.3 --features cli"),
        install("cargo-auditable@0.7.7 cargo-deb@3.8.0 cargo-generate-rpm@0.21.1"),
    ]
}

/// Returns whether a version is new enough. `text` is the output of `cargo deny --version`: `cargo-deny
/// 0.20.2`.
fn is_new_enough(text: &str) -> bool {
    let Some(version) = text.trim().strip_prefix("cargo-deny ") else { return false };
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) >= DENY_OLDEST,
        _ => false,
    }
}

/// Returns one line `package status` for each package that dpkg knows.
fn installed_listing(wanted: &[&str]) -> Result<String> {
    let output = Command::new("dpkg-query")
        .args(["--show", "--showformat=${Package} ${db:Status-Status}\\n"])
        .args(wanted)
        // Its exit status only repeats that a package is unknown; the others are listed nevertheless.
        .stderr(Stdio::null())
        .output()
        .with_context(|| {
            format!("no dpkg-query: this is not Debian. Install by hand what it calls {}", wanted.join(", "))
        })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn missing<'a>(wanted: &[&'a str], listing: &str) -> Vec<&'a str> {
    let installed =
        |package: &str| listing.lines().any(|line| line.split_once(' ') == Some((package, "installed")));
    wanted.iter().copied().filter(|package| !installed(package)).collect()
}

fn apt_steps(missing: &[&str]) -> [Step; 2] {
    let lock = format!("DPkg::Lock::Timeout={APT_LOCK_WAIT_S}");
    let common = ["-y", "-q", "-o", &lock];
    let update = Step::new("package lists", "apt-get", common.into_iter().chain(["update"]));
    let install = common.into_iter().chain(["install", "--no-install-recommends"]);
    let install = Step::new("packages", "apt-get", install.chain(missing.iter().copied()));
    [update, install].map(|step| step.env("DEBIAN_FRONTEND", "noninteractive"))
}

fn is_root() -> Result<bool> {
    let output = Command::new("id").arg("-u").output().context("cannot ask `id -u` who runs this")?;
    Ok(output.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_list_installs_nothing() {
        assert!(debian_packages(&[]).is_ok());
    }

    #[test]
    fn only_installed_packages_count() {
        let listing = "zookeeper installed\nnetcat-openbsd config-files\nlibc6 installed\n";
        assert_eq!(
            missing(&["zookeeper", "netcat-openbsd", "nftables"], listing),
            ["netcat-openbsd", "nftables"]
        );
        assert_eq!(missing(&["zoo"], listing), ["zoo"]);
        assert_eq!(missing(&["libc6"], listing), [""; 0]);
    }

    #[test]
    fn old_or_unreadable_cargo_deny_is_replaced() {
        assert!(is_new_enough("cargo-deny 0.20.2\n"));
        assert!(is_new_enough("cargo-deny 1.0.0"));
        for text in
            ["cargo-deny 0.14.2", "cargo-deny", "cargo-deny x.y", "", "error: no such command: `deny`"]
        {
            assert!(!is_new_enough(text), "{text}");
        }
    }
}
