//! Which build of a program this process runs.

use clap::Args;
use taskwork::{Release, ReleaseError};

use crate::Failure;

#[derive(Debug, Clone, Copy, Args)]
#[group(skip)]
pub(crate) struct BuildArguments {
    /// Match nodes and jobs by the program's version alone, not by its very file. To be said on both sides,
    /// and only if all their builds are of the same source.
    #[arg(long)]
    any_build: bool,
}

impl BuildArguments {
    /// What a program's nodes run, and what its jobs are for.
    ///
    /// # Panics
    /// If the program's name or version cannot be part of a znode's name: a mistake in the program.
    pub(crate) fn release(self, program: &str, version: &str) -> Result<Release, Failure> {
        let release = if self.any_build {
            Release::new(program, version)
        } else {
            Release::this_build(program, version)
        };
        release.map_err(|error| match error {
            ReleaseError::Name { .. } => panic!("{error}"),
            error => Failure::failed(error),
        })
    }
}
