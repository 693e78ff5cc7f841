//! The release of the program that this process runs.

use clap::Args;
use taskwork::{Release, client::ReleaseError};

use crate::Failure;

/// The identity of the build.
#[derive(Debug, Clone, Copy, Args)]
#[group(skip)]
pub struct BuildArguments {
    /// Match nodes and jobs by the program's version alone, not by its exact build. Required on both sides,
    /// and only safe if all builds have the same source.
    #[arg(long)]
    any_build: bool,
}

impl BuildArguments {
    /// Returns the release of a program's nodes and jobs.
    ///
    /// # Errors
    /// If the program's file cannot be read.
    ///
    /// # Panics
    /// If the program's name or version cannot be part of a znode's name, which is a bug in the program.
    pub fn release(self, program: &str, version: &str) -> Result<Release, Failure> {
        release(self.any_build, program, version)
    }
}

/// Returns the release of a program: this build, or any build of its version.
///
/// # Panics
/// If the program's name or version cannot be part of a znode's name, which is a bug in the program.
pub(crate) fn release(any_build: bool, program: &str, version: &str) -> Result<Release, Failure> {
    let release =
        if any_build { Release::new(program, version) } else { Release::this_build(program, version) };
    release.map_err(|error| match error {
        ReleaseError::Name { .. } => panic!("{error}"),
        error => Failure::failed(error),
    })
}
