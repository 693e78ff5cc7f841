//! Directories for the files of one process, and the removal of directories left by dead processes.
//!
//! A process holds a lock on its directory until it exits, for any reason. A directory that can be locked has no
//! owner, and the next process that uses the same place removes it.

use std::{fs, io, path::Path};

use tempfile::TempDir;

/// A file in each directory that was locked by a process. A directory with such a name but without this file belongs
/// to another user or program.
const MARK: &str = ".directory-of-a-process";

/// A directory for the files of this process. It is removed with its content when this is dropped.
#[derive(Debug)]
pub struct WorkDir {
    /// Removed before it is unlocked.
    directory: TempDir,
    _lock: fs::File,
}

impl WorkDir {
    /// Creates a directory in a place, with a name that starts with this prefix.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn within(place: &Path, prefix: &str) -> io::Result<Self> {
        // Absolute, since the process may change its current directory.
        let directory = tempfile::Builder::new().prefix(prefix).tempdir_in(std::path::absolute(place)?)?;
        let lock = fs::File::open(directory.path())?;
        if lock.try_lock().is_ok() {
            // Without the mark no other process removes the directory, so it is marked only when it is locked.
            fs::write(directory.path().join(MARK), "")?;
        }
        Ok(Self { directory, _lock: lock })
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes the directories of dead processes in a place, as far as possible.
pub fn sweep(place: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let is_one = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix))
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && entry.path().join(MARK).exists();
        let Some(lock) = is_one.then(|| fs::File::open(entry.path()).ok()).flatten() else { continue };
        if lock.try_lock().is_ok() {
            let directory = entry.path();
            match fs::remove_dir_all(&directory) {
                Ok(()) => tracing::debug!(?directory, "removed the files of a dead process"),
                Err(error) => tracing::warn!(?directory, %error, "cannot remove a directory of files"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{MARK, WorkDir, sweep};

    const PREFIX: &str = "work-";

    #[test]
    fn sweep_removes_only_directories_of_dead_processes() {
        let place = tempfile::tempdir().unwrap();
        let lives = WorkDir::within(place.path(), PREFIX).unwrap();
        let at = |name: &str| place.path().join(format!("{PREFIX}{name}"));
        for name in ["gone", "other", "empty"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("gone").join(MARK), "").unwrap();
        fs::create_dir_all(at("gone").join("0/deep")).unwrap();
        fs::write(at("other").join("data"), "of another program").unwrap();
        fs::write(at("file"), "").unwrap();
        sweep(place.path(), PREFIX);
        assert!(!at("gone").exists());
        assert!(at("other").join("data").exists() && at("empty").exists() && at("file").exists());
        assert!(lives.path().join(MARK).exists());
        let its = lives.path().to_owned();
        drop(lives);
        assert!(!its.exists());
    }
}
