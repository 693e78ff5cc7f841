//! The identity of a program: of the program that a node runs, and of the program that a job is for.
//!
//! Tasks travel between nodes as bytes, and all nodes must have the same encoding. A
//! version is set by hand, which is easily forgotten during development; [`Release::this_build`] therefore
//! adds the fingerprint of the program's file to it.

use std::{fs, io::Read as _};

use ring::digest::{Context, SHA256};
use thiserror::Error;
use zk::is_name;

/// A program in one version: nodes take only jobs of their own release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release(zk::Release);

/// An error in creating a [`Release`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The program's name or version cannot be part of a znode's name.
    #[error(
        "{name:?} cannot be a program's name or version: it takes 1 to {NAME_BYTES_MAX} letters, digits, \
         dots, `-` or `_`"
    )]
    Name {
        /// The rejected name.
        name: String,
    },
    /// The program's own file cannot be read.
    #[error("{THIS_FILE}: this program's own file cannot be read: {reason}")]
    File {
        /// The cause.
        reason: String,
    },
}

/// The file of this process on Linux, even if it has been replaced on disk.
const THIS_FILE: &str = "/proc/self/exe";
/// The number of bytes of the fingerprint that are shown and compared.
const SHOWN_BYTES: usize = 6;
/// The maximum length of a program's name or version, in bytes.
const NAME_BYTES_MAX: usize = 60;

impl Release {
    /// Creates a release with a version that is set by hand: it must change whenever the encoding of tasks,
    /// shared data or outputs does. Builds of the same version accept each other's jobs.
    ///
    /// # Errors
    /// If the name or the version is empty, longer than 60 characters, or has characters other than letters,
    /// digits, dots, `-` and `_`.
    pub fn new(program: &str, version: &str) -> Result<Self, ReleaseError> {
        for name in [program, version] {
            if !is_name(name) || name.len() > NAME_BYTES_MAX {
                return Err(ReleaseError::Name { name: name.to_owned() });
            }
        }
        Ok(Self(zk::Release { program: program.to_owned(), version: version.to_owned() }))
    }

    /// Creates a release of this build: only processes that were started from the same file accept its
    /// jobs.
    ///
    /// # Errors
    /// As [`new`](Self::new); and if the file of this process cannot be read.
    pub fn this_build(program: &str, version: &str) -> Result<Self, ReleaseError> {
        let Self(release) = Self::new(program, version)?;
        let build = fingerprint().map_err(|error| ReleaseError::File { reason: error.to_string() })?;
        Ok(Self(zk::Release { version: format!("{version}-{build}"), ..release }))
    }

    /// Returns the name of the program.
    pub fn program(&self) -> &str {
        &self.0.program
    }

    /// Returns the version, with the fingerprint if the release is of one build.
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// Returns whether `version`, of the same program, is another build of this release's version.
    pub fn is_other_build(&self, version: &str) -> bool {
        is_other_build(&self.0.version, version)
    }

    pub(crate) fn inner(&self) -> &zk::Release {
        &self.0
    }
}

fn is_other_build(version: &str, other: &str) -> bool {
    let release = |version: &str| version.rsplit_once('-').map_or(version, |(release, _)| release).to_owned();
    version != other
        && (release(version) == release(other) || release(version) == other || version == release(other))
}

/// Returns the path of this program's own file.
pub(crate) fn this_file() -> &'static str {
    THIS_FILE
}

/// Returns the first digits of the SHA-256 of this program's file.
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
    fn same_file_has_the_same_fingerprint() {
        let build = fingerprint().unwrap();
        assert_eq!((build.len(), &build), (2 * SHOWN_BYTES, &fingerprint().unwrap()));
        assert!(is_name(&build));
    }

    #[test]
    fn build_is_distinguished_from_version() {
        assert!(is_other_build("1.0-00ff", "1.0-00fe"));
        assert!(is_other_build("1.0-00ff", "1.0"));
        assert!(is_other_build("1.0", "1.0-00ff"));
        assert!(!is_other_build("1.0-00ff", "1.0-00ff"));
        assert!(!is_other_build("1.0-00ff", "1.1-00ff"));
    }
}
