//! `cargo xtask check`: formatting, lints, documentation, the rules for dependencies, manifests, and the files for
//! Prometheus and Grafana.

use anyhow::Result;

use crate::{
    install, monitoring, schemas,
    step::{self, Step},
    workspace,
};

/// Runs every check; none of them changes a file of the project.
///
/// # Errors
/// A check failed, or could not be prepared.
pub(crate) fn run() -> Result<()> {
    if workspace::in_ci() {
        install::debian_packages(&[schemas::PACKAGES, monitoring::PACKAGES].concat())?;
    }
    let mut steps = steps(install::cargo_deny());
    steps.extend(schemas::steps()?);
    steps.extend(monitoring::steps()?);
    step::run_all(&steps)
}

fn steps(install_deny: Option<Step>) -> Vec<Step> {
    let mut steps = vec![
        Step::cargo("format", "fmt --all --check"),
        Step::cargo("lints", "clippy --workspace --all-targets -- -D warnings"),
        Step::cargo("no command line", "clippy -p bnb-framework -p dataflow-framework -- -D warnings"),
        // Built as by users: a program must not depend on a feature of the operator or of tests.
        Step::cargo("a program", "clippy -p tsp-example -- -D warnings"),
        Step::cargo("docs", "doc --workspace --no-deps").env("RUSTDOCFLAGS", "-Dwarnings"),
    ];
    steps.extend(install_deny);
    // Without the graphs, because a single duplicate would print a hundred lines.
    let deny = "deny check --hide-inclusion-graph bans licenses sources";
    steps.push(Step::cargo("dependencies", deny));
    steps
}
