//! The shared folder: packages, and the results of jobs.
//!
//! | path | content | written |
//! |---|---|---|
//! | `id` | a random id; nodes with another store do not take its jobs | once |
//! | `packages/DIGEST/` | the files of a package | once, by `deploy` |
//! | `names/NAME@VERSION` | the digest of the package | once, by `deploy` |
//! | `jobs/KEY/WRITER-NUMBER.seg` | results of a job | once, by a node |
//! | `values/ID` | a large argument or result of a direct call | once; removed by its caller, or after a day |
//! | `jobs/KEY/manifest.json` | the results that count | once, by the first reader after the end |
//!
//! Files appear complete under their names, and synced: they are written under another name first.

mod body;
mod manifest;
mod segment;
mod writer;

use std::{
    fs::{self, File, Permissions},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use taskwork::{LabelError, Labels};
use tempfile::NamedTempFile;
use thiserror::Error;

pub(crate) use self::{
    body::Body,
    manifest::{Results, ResultsError},
    segment::Outcome,
    writer::Writer,
};
use crate::package::{Package, PackageError, is_name};

/// The name of the label of nodes; its value is the id of the store.
const LABEL: &str = "routines-store";

/// The name of the label of nodes and gateways.
const DIRECT_LABEL: &str = "routines-direct";

/// The length of a digest in hexadecimal digits.
const DIGEST_DIGITS: usize = 64;

/// The shared folder.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    folder: PathBuf,
    id: String,
}

/// The reasons for which a routine is not found or deployed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    #[error("{routine:?} is neither NAME@VERSION nor a digest")]
    Name { routine: String },
    #[error("there is no routine {routine}: routines deploy FOLDER adds it")]
    Missing { routine: String },
    #[error(
        "{name} is deployed with other content already (digest {digest}): a version never changes, so choose \
         another one"
    )]
    Taken { name: String, digest: String },
    #[error(transparent)]
    Package(#[from] PackageError),
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl Store {
    /// Opens a folder, which is created if it is missing.
    pub(crate) fn open(folder: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::Io { path: folder.to_owned(), error };
        let folder = std::path::absolute(folder).map_err(failed)?;
        for inner in ["packages", "names", "jobs", "values"] {
            fs::create_dir_all(folder.join(inner)).map_err(failed)?;
        }
        let path = folder.join("id");
        let id = || {
            create_new(&path, format!("{:032x}", rand::random::<u128>()).as_bytes())?;
            fs::read_to_string(&path)
        };
        Ok(Self { id: id().map_err(|error| StoreError::Io { path: path.clone(), error })?, folder })
    }

    /// Returns the label of nodes with this store.
    pub(crate) fn label(&self) -> Result<Labels, LabelError> {
        format!("{LABEL}={}", self.id).parse()
    }

    /// Returns the folder of a job's results.
    pub(crate) fn job(&self, key: &str) -> PathBuf {
        self.folder.join("jobs").join(key)
    }

    /// Returns the label of nodes and gateways with this store.
    pub(crate) fn direct_label(&self) -> Result<Labels, LabelError> {
        format!("{DIRECT_LABEL}={}", self.id).parse()
    }

    /// Returns a package after a check of its content.
    pub(crate) fn package(&self, digest: &str) -> Result<Package, PackageError> {
        let path = self.folder.join("packages").join(digest);
        let package = Package::read(&path)?;
        if package.digest != digest {
            return Err(PackageError::Changed { path, found: package.digest });
        }
        Ok(package)
    }

    /// Copies a package into the store. Its name and version are permanent.
    pub(crate) fn deploy(&self, package: &Package) -> Result<(), StoreError> {
        let to = self.folder.join("packages").join(&package.digest);
        let failed = |error| StoreError::Io { path: to.clone(), error };
        if !to.exists() {
            self.copy(package, &to).map_err(failed)?;
        }
        let name = self.folder.join("names").join(package.name());
        if !create_new(&name, package.digest.as_bytes()).map_err(failed)? {
            let digest = fs::read_to_string(&name).map_err(failed)?;
            if digest != package.digest {
                return Err(StoreError::Taken { name: package.name(), digest });
            }
        }
        Ok(())
    }

    fn copy(&self, package: &Package, to: &Path) -> io::Result<()> {
        let within = self.folder.join("packages");
        let draft = tempfile::Builder::new()
            .prefix(".draft-")
            .permissions(Permissions::from_mode(0o777))
            .tempdir_in(&within)?;
        for file in &package.files {
            let copy = draft.path().join(file);
            if let Some(parent) = copy.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::copy(package.folder.join(file), &copy)?;
            File::open(&copy)?.sync_all()?;
        }
        match fs::rename(draft.path(), to) {
            // Another process has deployed the same content.
            Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {
            }
            renamed => {
                renamed?;
                // It has another name now.
                let _ = draft.keep();
            }
        }
        File::open(within)?.sync_all()
    }

    /// Returns the package of `NAME@VERSION` or a digest.
    pub(crate) fn resolve(&self, routine: &str) -> Result<Package, StoreError> {
        let is_digest = routine.len() == DIGEST_DIGITS
            && routine.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let missing = || StoreError::Missing { routine: routine.to_owned() };
        let digest = if is_digest {
            routine.to_owned()
        } else {
            let parts = routine.split_once('@').filter(|(name, version)| is_name(name) && is_name(version));
            parts.ok_or_else(|| StoreError::Name { routine: routine.chars().take(200).collect() })?;
            let path = self.folder.join("names").join(routine);
            match fs::read_to_string(&path) {
                Ok(digest) => digest,
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing()),
                Err(error) => return Err(StoreError::Io { path, error }),
            }
        };
        if !self.folder.join("packages").join(&digest).is_dir() {
            return Err(missing());
        }
        Ok(self.package(&digest)?)
    }
}

/// Creates a temporary file with the permissions of an ordinary one: other users may run the gateway.
fn draft(folder: &Path) -> io::Result<NamedTempFile> {
    let ordinary = Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(".draft-").permissions(ordinary).tempfile_in(folder)
}

/// Writes a file that appears complete and synced under its name. An existing one is replaced.
pub(crate) fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut draft = draft(folder)?;
    draft.write_all(content)?;
    draft.as_file().sync_all()?;
    draft.persist(path)?;
    File::open(folder)?.sync_all()
}

/// Writes a file that appears complete and synced under its name, unless one exists. Returns whether it was written.
pub(crate) fn create_new(path: &Path, content: &[u8]) -> io::Result<bool> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut draft = draft(folder)?;
    draft.write_all(content)?;
    draft.as_file().sync_all()?;
    match fs::hard_link(draft.path(), path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        linked => linked?,
    }
    File::open(folder)?.sync_all()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;

    fn package(folder: &Path, code: &str) -> Package {
        let text = "name = 'pi'\nversion = '1'\nruntime = 'python3'\nentry = 'pi:run'\n";
        fs::create_dir_all(folder.join("more")).unwrap();
        fs::write(folder.join("routine.toml"), text).unwrap();
        fs::write(folder.join("more/pi.py"), code).unwrap();
        Package::read(folder).unwrap()
    }

    #[test]
    fn name_resolves_to_one_digest_permanently() {
        let (folder, source) = (tempdir().unwrap(), tempdir().unwrap());
        let store = Store::open(folder.path()).unwrap();
        let first = package(source.path(), "1");
        assert!(matches!(store.resolve("pi@1"), Err(StoreError::Missing { .. })));
        store.deploy(&first).unwrap();
        store.deploy(&first).unwrap();
        for name in ["pi@1", &first.digest] {
            assert_eq!(store.resolve(name).unwrap().digest, first.digest);
        }
        let second = package(source.path(), "2");
        assert!(
            matches!(store.deploy(&second), Err(StoreError::Taken { digest, .. }) if digest == first.digest)
        );
        assert_eq!(store.resolve("pi@1").unwrap().digest, first.digest);
        for wrong in ["pi", "", "../pi@1", "pi@", "pi@1/..", "@1"] {
            assert!(matches!(store.resolve(wrong), Err(StoreError::Name { .. })), "{wrong}");
        }
    }

    #[test]
    fn changed_package_is_refused() {
        let (folder, source) = (tempdir().unwrap(), tempdir().unwrap());
        let store = Store::open(folder.path()).unwrap();
        let package = package(source.path(), "1");
        store.deploy(&package).unwrap();
        let file = folder.path().join("packages").join(&package.digest).join("more/pi.py");
        fs::write(file, "2").unwrap();
        assert!(matches!(store.resolve("pi@1"), Err(StoreError::Package(PackageError::Changed { .. }))));
    }

    #[test]
    fn created_file_is_not_replaced() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("file");
        assert!(create_new(&path, b"first").unwrap());
        assert!(!create_new(&path, b"second").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no drafts are left");
    }
}
