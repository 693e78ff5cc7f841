//! Files with secrets, which others must not be able to read.

use std::{
    fs::{File, Metadata},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

/// Reads a text that is a secret.
///
/// # Errors
/// If it cannot be read, others than its owner can read it, or it has more bytes than it may have; the text says why.
pub(super) fn read(file: &Path, bytes_max: u64) -> Result<String, String> {
    let said = |error: io::Error| error.to_string();
    let from = File::open(file).map_err(said)?;
    let access = Access::of(&from.metadata().map_err(said)?);
    if access.is_exposed() {
        return Err(format!(
            "other users of this machine can read it (mode {:03o}): chmod 600 {}",
            access.mode,
            file.display()
        ));
    }
    let mut text = String::new();
    // A device has no end.
    from.take(bytes_max + 1).read_to_string(&mut text).map_err(said)?;
    if text.len() as u64 > bytes_max { Err(format!("it has more than {bytes_max} bytes")) } else { Ok(text) }
}

/// Who may read a file.
#[derive(Debug, Clone, Copy)]
struct Access {
    owner: u32,
    group: u32,
    mode: u32,
}

impl Access {
    fn of(metadata: &Metadata) -> Self {
        Self { owner: metadata.uid(), group: metadata.gid(), mode: metadata.mode() & 0o777 }
    }

    /// Returns whether others than its owner may read it, by the rule for credentials of ZooKeeper: root may let a group
    /// read it that is not its own, as services get their secrets that do not run as root.
    fn is_exposed(self) -> bool {
        let at_most_read_by_group = self.mode & !0o740 == 0;
        let given_to_a_group = self.owner == 0 && self.group != 0 && at_most_read_by_group;
        self.mode & 0o077 != 0 && !given_to_a_group
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    /// Writes a file that only its owner may read.
    pub(in crate::web) fn write(file: &Path, content: &str) {
        fs::write(file, content).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn what_others_can_read_is_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        write(&file, "1234");
        assert_eq!(read(&file, 4).unwrap(), "1234");
        assert!(read(&file, 3).unwrap_err().contains("more than 3 bytes"));
        for mode in [0o644, 0o604, 0o620, 0o660] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let refused = read(&file, 4).unwrap_err();
            assert!(refused.contains(&format!("{mode:o}")) && refused.contains("chmod 600"), "{refused}");
        }
        assert!(read(&folder.path().join("none"), 4).is_err());
    }

    #[test]
    fn root_may_give_it_to_a_group() {
        let exposed = |owner, group, mode| Access { owner, group, mode }.is_exposed();
        assert!(!exposed(0, 7, 0o440) && !exposed(0, 7, 0o640) && !exposed(7, 7, 0o400));
        assert!(exposed(0, 7, 0o660) && exposed(0, 7, 0o444) && exposed(0, 0, 0o440) && exposed(7, 7, 0o440));
    }
}
