//! `cargo xtask test`: all tests that must pass, on a machine with nothing but Rust.

use std::{num::NonZeroUsize, thread};

use anyhow::Result;

use crate::{
    axe,
    data::{self, Data},
    install, monitoring,
    step::{self, Step},
    workspace,
};

/// The packages that simulate several hosts on one machine.
const NETWORK_PACKAGES: &[&str] = &["iproute2", "nftables"];

/// The packages by which scripts of `deploy/` read JSON.
const SCRIPT_PACKAGES: &[&str] = &["jq"];

/// The packages that check the models.
const MODEL_PACKAGES: &[&str] = &["gcc", "libc6-dev", "spin"];

/// The packages that the tests of the dashboard's pages need.
const BROWSER_PACKAGES: &[&str] = &["chromium", "chromium-driver"];

/// The packages that the test of the connector to Slurm needs.
const SLURM_PACKAGES: &[&str] = &["munge", "slurm-client", "slurmctld", "slurmd"];

/// Runs the unit, integration and documentation tests of the whole workspace.
///
/// # Errors
/// A step failed, a package could not be installed, or CI has no data folder.
pub(crate) fn run(long: bool) -> Result<()> {
    // The programs that tests start besides those of the workspace.
    install::debian_packages(
        &[zk_server::PACKAGES, NETWORK_PACKAGES, MODEL_PACKAGES, SCRIPT_PACKAGES, monitoring::PACKAGES]
            .concat(),
    )?;
    if long {
        install::debian_packages(&[BROWSER_PACKAGES, SLURM_PACKAGES, axe::PACKAGES].concat())?;
        axe::prepare()?;
    }
    let data = Data::locate();
    data.require(workspace::in_ci())?;
    let outcome = step::run_all(&steps(&data, long));
    // Repeated, since the first warning has scrolled away. In CI it was already an error.
    data.require(false)?;
    outcome
}

fn steps(data: &Data, long: bool) -> Vec<Step> {
    // One failing crate must not hide the results of the others.
    let mut steps = vec![
        // Scenarios start programs of other crates too, which the tests below would build only as tests of
        // their own. All targets at once: a build of the programs alone has other features of the
        // dependencies, and half of everything would be built twice.
        Step::cargo("build", "build --all-targets"),
        // Scenarios mostly wait, for servers, processes and time: on a small machine more of them run at once
        // than there are processors.
        Step::cargo("tests", "test --all-targets --no-fail-fast")
            .env("RUST_TEST_THREADS", test_threads().to_string()),
        // On its own, since it gives the runtime a feature that no program has.
        Step::cargo("simulator", "test -p taskwork-simulation --all-targets --no-fail-fast"),
        Step::cargo("doc tests", "test --doc --no-fail-fast"),
        // The other tests of the crate are compiled for nothing here, so they are not optimised.
        Step::cargo(
            "interleavings",
            "test -p taskwork --lib --features loom --config profile.dev.package.taskwork.opt-level=0 \
             interleavings",
        ),
    ];
    if long {
        let pages = Step::cargo("pages", "test -p taskwork-tests --test pages -- --ignored");
        steps.push(pages.env(axe::VARIABLE, axe::script().to_string_lossy()));
        steps.push(Step::cargo("Slurm", "test -p taskwork-tests --test slurm -- --ignored"));
    }
    steps.into_iter().map(|step| with_environment(step, data, long)).collect()
}

/// Returns how many tests run at once: at least four, and one for each processor.
fn test_threads() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get).max(4)
}

fn with_environment(step: Step, data: &Data, long: bool) -> Step {
    let step = step.env(data::VARIABLE, data.folder().to_string_lossy());
    if long { step.env("TASKWORK_LONG", "1") } else { step }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_knows_the_data_folder() {
        let lines: Vec<_> = steps(&Data::Present("/d".into()), false).iter().map(Step::line).collect();
        let threads = test_threads();
        let tests =
            format!("RUST_TEST_THREADS={threads} TASKWORK_DATA=/d cargo test --all-targets --no-fail-fast");
        assert_eq!(
            lines,
            [
                "TASKWORK_DATA=/d cargo build --all-targets",
                tests.as_str(),
                "TASKWORK_DATA=/d cargo test -p taskwork-simulation --all-targets --no-fail-fast",
                "TASKWORK_DATA=/d cargo test --doc --no-fail-fast",
                "TASKWORK_DATA=/d cargo test -p taskwork --lib --features loom --config \
                 profile.dev.package.taskwork.opt-level=0 interleavings",
            ]
        );
    }

    #[test]
    fn long_is_said_to_every_step() {
        for step in steps(&Data::Absent("/d".into()), true) {
            assert!(step.line().contains("TASKWORK_DATA=/d TASKWORK_LONG=1 cargo "), "{step:?}");
        }
    }
}
