//! Which build of a program this process runs.
//!
//! Tasks go from node to node as bytes, and each node takes for granted that the others understand them as it does. A version is given by
//! hand, and forgotten while a program is being written; so what nodes and jobs are matched by has the fingerprint of the program's file
//! in it, too.

use std::{fs, io::Read as _};

use clap::Args;
use ring::digest::{Context, SHA256};
use zk::{is_name, queue::Runs};

use super::{Failure, Program};

/// Where the operating system has the file of this process, even if another one has taken its place by now.
const THIS_FILE: &str = "/proc/self/exe";
/// How many bytes of the fingerprint are shown, and compared.
const SHOWN_BYTES: usize = 6;

#[derive(Debug, Clone, Copy, Args)]
#[group(skip)]
pub(super) struct BuildArguments {
    /// Match nodes and jobs by the program's version alone, not by its very file. To be said on both sides, and only if all their
    /// builds are of the same source.
    #[arg(long)]
    any_build: bool,
}

impl BuildArguments {
    /// What a program's nodes run, and what its jobs are for.
    ///
    /// # Panics
    /// If the program's name or version cannot be part of a znode's name: a mistake in the program.
    pub(super) fn runs<P: Program>(self) -> Result<Runs, Failure> {
        for name in [P::NAME, P::VERSION] {
            assert!(is_name(name) && name.len() <= 60, "{name:?} cannot be a program's name or version");
        }
        let version = if self.any_build {
            P::VERSION.to_owned()
        } else {
            let build = fingerprint().map_err(|error| {
                Failure::failed(format!("{THIS_FILE}: this program's own file cannot be read: {error}"))
            })?;
            format!("{}-{build}", P::VERSION)
        };
        Ok(Runs { program: P::NAME.to_owned(), version })
    }
}

/// Whether a version is that of another build of the same version of a program.
pub(super) fn is_other_build(version: &str, other: &str) -> bool {
    let release = |version: &str| version.rsplit_once('-').map_or(version, |(release, _)| release).to_owned();
    version != other
        && (release(version) == release(other) || release(version) == other || version == release(other))
}

/// The first digits of the SHA-256 of this program's file.
fn fingerprint() -> std::io::Result<String> {
    let (mut file, mut digest) = (fs::File::open(THIS_FILE)?, Context::new(&SHA256));
    let mut some = vec![0; 1 << 20];
    loop {
        match file.read(&mut some)? {
            0 => break,
            bytes => digest.update(&some[..bytes]),
        }
    }
    let digest = digest.finish();
    let first = digest.as_ref().iter().take(SHOWN_BYTES);
    Ok(first.fold(String::new(), |digits, byte| format!("{digits}{byte:02x}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_file_has_the_same_fingerprint() {
        let build = fingerprint().unwrap();
        assert_eq!((build.len(), &build), (2 * SHOWN_BYTES, &fingerprint().unwrap()));
        assert!(is_name(&build));
    }

    #[test]
    fn builds_of_one_version_are_told_from_versions() {
        assert!(is_other_build("1.0-00ff", "1.0-00fe"));
        assert!(is_other_build("1.0-00ff", "1.0"));
        assert!(is_other_build("1.0", "1.0-00ff"));
        assert!(!is_other_build("1.0-00ff", "1.0-00ff"));
        assert!(!is_other_build("1.0-00ff", "1.1-00ff"));
    }
}
