//! Which program a node runs, which one a job is for.
//!
//! Tasks go from node to node as bytes, and each node takes for granted that the others understand them as it
//! does. A version is given by hand, and forgotten while a program is being written; so
//! [`Release::this_build`] puts the fingerprint of the program's file in it, too.

use std::{fs, io::Read as _};

use ring::digest::{Context, SHA256};
use thiserror::Error;
use zk::is_name;

/// A program in one version: nodes take only jobs of their own release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release(zk::Release);

/// Why there is no such release.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The program's name or version cannot be part of a znode's name.
    #[error(
        "{name:?} cannot be a program's name or version: it takes 1 to {NAME_BYTES_MAX} letters, digits, dots, `-` or `_`"
    )]
    Name {
        /// What was given.
        name: String,
    },
    /// The program's own file cannot be read.
    #[error("{THIS_FILE}: this program's own file cannot be read: {reason}")]
    File {
        /// Why.
        reason: String,
    },
}

/// Where the operating system has the file of this process, even if another one has taken its place by now.
const THIS_FILE: &str = "/proc/self/exe";
/// How many bytes of the fingerprint are shown, and compared.
const SHOWN_BYTES: usize = 6;
/// The longest name or version of a program, in bytes.
const NAME_BYTES_MAX: usize = 60;

impl Release {
    /// A program in a version that is given by hand: it must change whenever tasks, shared data or outputs
    /// look different. Builds of the same version take each other's jobs.
    ///
    /// # Errors
    /// If the name or the version has other characters than letters, digits, dots, `-` and `_`, none, or more
    /// than 60.
    pub fn new(program: &str, version: &str) -> Result<Self, ReleaseError> {
        for name in [program, version] {
            if !is_name(name) || name.len() > NAME_BYTES_MAX {
                return Err(ReleaseError::Name { name: name.to_owned() });
            }
        }
        Ok(Self(zk::Release { program: program.to_owned(), version: version.to_owned() }))
    }

    /// A program in a version, of this very build: only processes that were started from the same file take
    /// its jobs.
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

    /// Returns its version, with the fingerprint of the build if it is of one.
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// Whether a version of the same program is of another build of the same version.
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
