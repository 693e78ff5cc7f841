//! `cargo xtask test`: the tests of one path, those that need no server, or all of them on a machine with nothing but
//! Rust.

mod covering;

use std::{collections::BTreeSet, num::NonZeroUsize, path::PathBuf, thread};

use anyhow::Result;
use clap::Args;

use crate::{
    axe,
    data::{self, Data},
    install, monitoring, release,
    step::{self, Step},
    workspace,
};

/// The packages that simulate several hosts on one machine.
const NETWORK_PACKAGES: &[&str] = &["iproute2", "nftables"];

/// The packages used by scripts of `deploy/` to read JSON.
const SCRIPT_PACKAGES: &[&str] = &["jq"];

/// The packages that run routines, and the commands of their guide.
const ROUTINE_PACKAGES: &[&str] =
    &["curl", "default-jdk-headless", "nodejs", "octave", "python3", "r-base-core", "r-cran-jsonlite"];

/// The packages that install the generator of requests to the gateway of routines.
const REQUEST_PACKAGES: &[&str] = &["python3-venv"];

/// The packages that check the models.
const MODEL_PACKAGES: &[&str] = &["gcc", "libc6-dev", "spin"];

/// The packages that the tests of the dashboard's pages need.
const BROWSER_PACKAGES: &[&str] = &["chromium", "chromium-driver"];

/// The packages that the test of the connector to Slurm needs.
const SLURM_PACKAGES: &[&str] = &["munge", "slurm-client", "slurmctld", "slurmd"];

/// The integration tests that compute, in virtual time or none. They run while the scenarios wait.
const COMPUTING: &[&str] = &["long", "policy", "seeds", "workflows"];

/// The tests to run.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Run only the tests that cover these files or folders, such as taskwork/core/src or tests/scenarios/elastic.rs
    paths: Vec<PathBuf>,
    /// Run everything that starts no server and no node process
    #[arg(long, conflicts_with = "paths")]
    quick: bool,
    /// Run more seeds, larger instances, tests in a browser and on Slurm, the packages, and the oldest Rust
    #[arg(long, conflicts_with = "quick")]
    long: bool,
}

/// Runs the chosen tests.
///
/// # Errors
/// A step failed, a package could not be installed, CI has no data folder, or no test covers a path.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { paths, quick, long } = arguments;
    let data = Data::locate();
    let prepare = |steps: Vec<Step>| -> Vec<Step> {
        steps.into_iter().map(|step| with_environment(step, &data, *long)).collect()
    };
    if *quick {
        return step::run_all(&prepare(quick_steps()));
    }
    if !paths.is_empty() {
        let covering = covering::steps(paths)?;
        if covering.start_processes {
            install_packages(*long)?;
        }
        return step::run_chain(&prepare(covering.steps));
    }
    install_packages(*long)?;
    data.require(workspace::in_ci())?;
    let mut steps = all_steps(*long, &workspace::test_targets()?);
    if *long {
        steps.extend(install::release_tools(&release::tools()?.to_string_lossy()));
        steps.push(Step::cargo("packages of a release", "test -p xtask -- --ignored"));
    }
    let outcome = step::run_all(&prepare(steps));
    // Repeated, since the first warning has scrolled away. In CI it was already an error.
    data.require(false)?;
    outcome
}

/// Installs the programs that tests start in addition to those of the workspace.
fn install_packages(long: bool) -> Result<()> {
    install::debian_packages(
        &[
            zk_server::PACKAGES,
            NETWORK_PACKAGES,
            MODEL_PACKAGES,
            SCRIPT_PACKAGES,
            ROUTINE_PACKAGES,
            monitoring::PACKAGES,
        ]
        .concat(),
    )?;
    if long {
        install::debian_packages(
            &[BROWSER_PACKAGES, SLURM_PACKAGES, REQUEST_PACKAGES, axe::PACKAGES].concat(),
        )?;
        axe::prepare()?;
    }
    Ok(())
}

/// Builds every program that a scenario starts. All targets at once: a build of the programs alone has other features
/// of the dependencies, and half of everything would be compiled twice.
fn build() -> Step {
    Step::cargo("build", "build --workspace --all-targets")
}

fn quick_steps() -> Vec<Step> {
    vec![Step::cargo(
        "quick tests",
        "test --workspace --exclude taskwork-tests --exclude taskwork-simulation --lib --bins --tests --no-fail-fast",
    )]
}

/// All packages in each step, since a choice of packages has other features of the dependencies. `targets` are the integration
/// tests.
fn all_steps(long: bool, targets: &BTreeSet<String>) -> Vec<Step> {
    let chosen = |is_chosen: &dyn Fn(&str) -> bool| -> String {
        let names = targets.iter().filter(|name| is_chosen(name));
        names.flat_map(|name| [" --test ", name]).collect()
    };
    let computing = chosen(&|name| COMPUTING.contains(&name));
    let others = chosen(&|name| name != "scenarios" && !COMPUTING.contains(&name));
    // One failing crate must not hide the results of the others.
    let mut steps = vec![
        build(),
        with_threads(Step::cargo(
            "tests",
            &["test --workspace --no-fail-fast --lib --bins --examples --benches", &others].concat(),
        )),
        with_threads(Step::cargo("scenarios", "test --workspace --test scenarios")).concurrent(),
        Step::cargo("simulations", &["test --workspace --no-fail-fast", &computing].concat())
            .at_low_priority(),
        Step::cargo("doc tests", "test --workspace --doc --no-fail-fast").at_low_priority(),
        // The other tests of the crate are compiled for nothing here, so they are not optimised.
        Step::cargo(
            "interleavings",
            "test -p taskwork --lib --features loom --config profile.dev.package.taskwork.opt-level=0 \
             interleavings",
        )
        .at_low_priority(),
    ];
    if long {
        let pages = Step::cargo("pages", "test -p taskwork-tests --test pages -- --ignored");
        steps.push(pages.env(axe::VARIABLE, axe::script().to_string_lossy()));
        steps.push(Step::cargo("Slurm", "test -p taskwork-tests --test slurm -- --ignored"));
        steps.push(Step::new("S3", "python3", ["tests/s3.py"]));
        steps.push(Step::cargo("packages", "xtask package"));
        let oldest =
            concat!("run --install ", env!("CARGO_PKG_RUST_VERSION"), " cargo check --workspace --locked");
        steps.push(Step::new("the oldest Rust", "rustup", oldest.split_whitespace()));
    }
    steps
}

/// Scenarios mostly wait, for servers, processes and time: on a small machine more of them run at once than there are
/// processors.
fn with_threads(step: Step) -> Step {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).max(4);
    step.env("RUST_TEST_THREADS", threads.to_string())
}

fn with_environment(step: Step, data: &Data, long: bool) -> Step {
    let step = step.env(data::VARIABLE, data.folder().to_string_lossy());
    if long { step.env("TASKWORK_LONG", "1") } else { step }
}
