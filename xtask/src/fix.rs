//! `cargo xtask fix`: what clippy and rustfmt can mend by themselves.

use anyhow::Result;

use crate::step::{self, Step};

/// Rewrites the sources in place.
///
/// # Errors
/// The workspace does not compile, or cannot be formatted.
pub(crate) fn run() -> Result<()> {
    step::run_all(&[
        // Uncommitted changes are what one fixes, so they must not be in the way.
        Step::cargo("lints", "clippy --fix --workspace --all-targets --allow-dirty --allow-staged"),
        // Last: clippy's suggestions are not formatted.
        Step::cargo("format", "fmt --all"),
    ])
}
