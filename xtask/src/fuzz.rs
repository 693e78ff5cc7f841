//! `cargo xtask fuzz`: feeds arbitrary input to every parser for a while, guided by code coverage.

use anyhow::Result;

use crate::{
    install,
    step::{self, Step},
};

/// The targets, as in `tests/fuzz/src/lib.rs`.
const TARGETS: &[&str] = &["wire", "workflows", "znodes", "view", "tsplib", "csv", "instances", "names"];

/// Runs each target for this many seconds. Requires a nightly toolchain, for the instrumentation.
///
/// # Errors
/// A target has failed; the input is in `tests/fuzz/artifacts`.
pub(crate) fn run(seconds: u32, only: Option<&str>) -> Result<()> {
    let mut steps: Vec<Step> = install::cargo_fuzz().into_iter().collect();
    for target in TARGETS.iter().filter(|target| only.is_none_or(|only| only == **target)) {
        // New inputs go to a temporary folder; the corpus itself is only read.
        let line = format!(
            "run nightly cargo fuzz run --fuzz-dir tests/fuzz --features libfuzzer {target} target/fuzz-corpus/{target} \
             tests/fuzz/corpus/{target} -- -max_total_time={seconds} -max_len=4096 -print_final_stats=1"
        );
        let folder = crate::workspace::root().join("target/fuzz-corpus").join(target);
        std::fs::create_dir_all(folder)?;
        // Each target is a separate program: optimising across crates would take longer than running it.
        let step = Step::new("fuzz", "rustup", line.split_whitespace());
        steps.push(
            step.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
        );
    }
    step::run_chain(&steps)
}
