//! Archives of packages: one object in the store, which nodes unpack on their own disk.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use tar::{Archive, Builder, Header};

use super::{FILES_MAX, PACKAGE_BYTES_MAX, Package, PackageError};

/// The maximum size of an archive, in bytes: that of the files, and of the head and the end of each.
const ARCHIVE_BYTES_MAX: u64 = PACKAGE_BYTES_MAX + FILES_MAX as u64 * 4096;

impl Package {
    /// Writes an archive, which is the same for each package with this digest.
    pub(crate) fn pack(&self, to: &mut impl Write) -> Result<(), PackageError> {
        let mut archive = Builder::new(to);
        for file in &self.files {
            let path = self.folder.join(file);
            let mut add = || {
                let content = File::open(&path)?;
                let data = content.metadata()?;
                let mut header = Header::new_gnu();
                header.set_size(data.len());
                header.set_mode(if data.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 });
                archive.append_data(&mut header, file, content.take(data.len()))
            };
            add().map_err(|error| PackageError::Io { path: path.clone(), error })?;
        }
        let failed = |error| PackageError::Io { path: self.folder.clone(), error };
        archive.finish().map_err(failed)
    }

    /// Unpacks an archive as the folder with the name of its digest, which is checked.
    pub(crate) fn unpack(archive: impl Read, digest: &str, within: &Path) -> Result<Self, PackageError> {
        let to = within.join(digest);
        let failed = |error| PackageError::Io { path: to.clone(), error };
        let draft = tempfile::tempdir_in(within).map_err(failed)?;
        extract(archive, draft.path()).map_err(failed)?;
        let package = Self::read(draft.path())?;
        if package.digest != digest {
            return Err(PackageError::Changed { path: to, found: package.digest });
        }
        match fs::rename(draft.path(), &to) {
            // Another thread has unpacked the same content.
            Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {
            }
            renamed => {
                renamed.map_err(failed)?;
                // It has another name now.
                let _ = draft.keep();
            }
        }
        Ok(Self { folder: to, ..package })
    }
}

/// Extracts an archive that may come from anywhere.
fn extract(archive: impl Read, to: &Path) -> io::Result<()> {
    let mut archive = Archive::new(archive.take(ARCHIVE_BYTES_MAX));
    archive.set_preserve_mtime(false);
    let invalid = |reason| Err(io::Error::new(ErrorKind::InvalidData, reason));
    for (number, entry) in archive.entries()?.enumerate() {
        let mut entry = entry?;
        if number >= FILES_MAX {
            return invalid("the archive has too many files");
        }
        if !entry.header().entry_type().is_file() {
            return invalid("the archive contains something else than files");
        }
        if !entry.unpack_in(to)? {
            return invalid("the archive contains a path that leaves it");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;
    use crate::testing::package;

    #[test]
    fn unpacked_package_is_the_packed_one() {
        let (source, nodes) = (tempdir().unwrap(), tempdir().unwrap());
        let package = package(source.path(), "def run(): pass", "run", "");
        let long = package.folder.join("more").join("x".repeat(150));
        fs::create_dir_all(long.parent().unwrap()).unwrap();
        fs::write(&long, "1").unwrap();
        fs::set_permissions(&long, fs::Permissions::from_mode(0o755)).unwrap();
        let package = Package::read(&package.folder).unwrap();
        let mut archive = Vec::new();
        package.pack(&mut archive).unwrap();
        for _ in 0..2 {
            let unpacked = Package::unpack(&*archive, &package.digest, nodes.path()).unwrap();
            assert_eq!((&unpacked.digest, &unpacked.files), (&package.digest, &package.files));
            assert_eq!(unpacked.folder, nodes.path().join(&package.digest));
        }
        archive[513] ^= 1;
        let changed = Package::unpack(&*archive, &package.digest, nodes.path());
        assert!(matches!(changed, Err(PackageError::Changed { .. })));
        assert_eq!(fs::read_dir(nodes.path()).unwrap().count(), 1, "no drafts are left");
    }

    #[test]
    fn archives_of_others_are_refused() {
        let nodes = tempdir().unwrap();
        let within = nodes.path().join("within");
        fs::create_dir(&within).unwrap();
        let refused = |change: &dyn Fn(&mut Header)| {
            let mut header = Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(0);
            header.set_path("file").unwrap();
            change(&mut header);
            header.set_cksum();
            let mut archive = Builder::new(Vec::new());
            archive.append(&header, io::empty()).unwrap();
            let archive = archive.into_inner().unwrap();
            Package::unpack(&*archive, "0", &within).unwrap_err().to_string()
        };
        let escapes = |header: &mut Header| header.as_old_mut().name[..5].copy_from_slice(b"../it");
        assert!(refused(&escapes).contains("leaves"));
        let links = |header: &mut Header| {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_link_name("/etc/passwd").unwrap();
        };
        assert!(refused(&links).contains("files"));
        assert_eq!(fs::read_dir(nodes.path()).unwrap().count(), 1);
        assert_eq!(fs::read_dir(&within).unwrap().count(), 0);
    }
}
