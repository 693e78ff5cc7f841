//! `cargo xtask fix`: applies the fixes that clippy and rustfmt make automatically.

use anyhow::Result;

use crate::step::{self, Step};

/// Rewrites the sources in place.
///
/// # Errors
/// The workspace does not compile, or cannot be formatted.
pub(crate) fn run() -> Result<()> {
    step::run_all(&[
        // The working tree usually has uncommitted changes, which must not prevent the fixes.
        Step::cargo("lints", "clippy --fix --workspace --all-targets --allow-dirty --allow-staged"),
        // Last, because clippy's suggestions are not formatted.
        Step::cargo("format", "fmt --all"),
    ])
}
