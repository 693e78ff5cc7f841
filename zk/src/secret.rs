//! Files with secrets, which others must not be able to read.

use std::{
    fs::{File, Metadata},
    io::{self, Read as _},
    path::Path,
};

use thiserror::Error as ThisError;

/// Why a secret could not be read from a file.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum SecretError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// Others can read the file.
    #[error("other users of this machine can read it (mode {mode:03o}): give it mode 600 (chmod 600)")]
    Exposed {
        /// Its permissions.
        mode: u32,
    },
    /// The file is larger than it may be.
    #[error("it has more than {bytes_max} bytes")]
    TooLarge {
        /// The maximum size, in bytes.
        bytes_max: u64,
    },
}

/// Reads a text of at most this many bytes from a file that is readable only by its owner, or by a group to
/// which root has given it.
///
/// # Errors
/// See [`SecretError`].
pub fn read_secret(file: &Path, bytes_max: u64) -> Result<String, SecretError> {
    let from = File::open(file)?;
    let access = Access::of(&from.metadata()?);
    if access.is_exposed() {
        return Err(SecretError::Exposed { mode: access.mode });
    }
    read_at_most(from, bytes_max)
}

/// Reads a text of at most this many bytes from a file, such as certificates in PEM. It may be a pipe, such
/// as the shell's `<(…)`.
///
/// # Errors
/// [`SecretError::Read`] or [`SecretError::TooLarge`].
pub fn read_text(file: &Path, bytes_max: u64) -> Result<String, SecretError> {
    read_at_most(File::open(file)?, bytes_max)
}

fn read_at_most(from: File, bytes_max: u64) -> Result<String, SecretError> {
    let mut text = String::new();
    // A device may have no end.
    from.take(bytes_max.saturating_add(1)).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max { Err(SecretError::TooLarge { bytes_max }) } else { Ok(text) }
}

/// The owner and permissions of a file.
#[derive(Debug, Clone, Copy)]
struct Access {
    owner: u32,
    group: u32,
    mode: u32,
}

impl Access {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self { owner: metadata.uid(), group: metadata.gid(), mode: metadata.mode() & 0o777 }
    }

    #[cfg(not(unix))]
    fn of(_: &Metadata) -> Self {
        Self { owner: 0, group: 0, mode: 0 }
    }

    /// Returns whether others than its owner may read it. Root may make it readable for another group, so
    /// that services that do not run as root get their secrets, for example in Kubernetes.
    fn is_exposed(self) -> bool {
        let at_most_read_by_group = self.mode & !0o740 == 0;
        let given_to_a_group = self.owner == 0 && self.group != 0 && at_most_read_by_group;
        self.mode & 0o077 != 0 && !given_to_a_group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn secret_readable_by_others_is_refused() {
        use std::{fs, os::unix::fs::PermissionsExt as _};
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        fs::write(&file, "1234").unwrap();
        let allow = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        allow(0o600);
        assert_eq!(read_secret(&file, 4).unwrap(), "1234");
        assert!(matches!(read_secret(&file, 3), Err(SecretError::TooLarge { bytes_max: 3 })));
        for exposed in [0o644, 0o604, 0o620, 0o660] {
            allow(exposed);
            assert!(matches!(read_secret(&file, 4), Err(SecretError::Exposed { mode }) if mode == exposed));
        }
        assert!(matches!(read_secret(&folder.path().join("none"), 4), Err(SecretError::Read(_))));
    }

    #[test]
    fn secret_of_root_may_be_readable_by_group() {
        let exposed = |owner, group, mode| Access { owner, group, mode }.is_exposed();
        assert!(!exposed(0, 65532, 0o440) && !exposed(0, 65532, 0o640));
        assert!(exposed(0, 0, 0o440), "the default group of root");
        assert!(exposed(1000, 1000, 0o440), "a user's own group may have others");
        assert!(exposed(0, 65532, 0o444) && exposed(0, 65532, 0o460) && exposed(0, 65532, 0o644));
        assert!(!exposed(1000, 1000, 0o600) && !exposed(0, 0, 0o400));
    }
}
