//! A tree that survives its process: the tree of `memory.rs`, with a file to which every change is written
//! before it is acknowledged.
//!
//! It is for one process at a time, on one machine. The process may be killed, or find its disk full, at any
//! time. The next process that opens the same folder finds everything that was acknowledged, each multi
//! whole. Ephemerals and watches, which belong to sessions, are gone, as on a server that has lost all
//! clients.
//!
//! ```text
//!   request ─▶ tree.rs executes it ─▶ file.rs commits the change, with fsync ─▶ answer, watches
//!                     ▲                     │ fails: the disk is full, or broken
//!                     └──── undone ◀────────┴─▶ all sessions end; every further request gets this error
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | opening a folder, and its errors |
//! | `file.rs` | the database in it: a table of znodes |
//! | `../tree/kept.rs` | the durable part of a tree |

mod file;

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use thiserror::Error as ThisError;

use self::file::{DatabaseFile, Unreadable};
use crate::{memory::MemoryTree, tree::Tree};

/// The name of the file that holds the tree.
const TREE_FILE: &str = "tree.redb";
/// Its name until it is complete.
const NEW_FILE: &str = "tree.new";
/// The file that is locked by the process that uses the folder. The system releases the lock when the process
/// exits for any reason.
const LOCK_FILE: &str = "lock";

/// Why a folder with a tree cannot be used.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process uses the folder.
    #[error("{dir} is in use by another process: wait until it exits, or use another directory")]
    InUse {
        /// The folder.
        dir: String,
    },
    /// The file was not written by this store.
    #[error("{file} is not a state of this program ({reason}): use another directory, or move the file away")]
    Foreign {
        /// The file.
        file: String,
        /// Its actual format, as far as known.
        reason: String,
    },
    /// The file was changed by another program, or the disk has lost a part of it.
    #[error(
        "{file} is damaged ({reason}): its content cannot be trusted. Use another directory, or delete the \
         file to start from scratch"
    )]
    Damaged {
        /// The file.
        file: String,
        /// The damage that was found.
        reason: String,
    },
    /// The operating system refused an operation.
    #[error("{file} cannot be used: {reason}")]
    Io {
        /// The file or folder.
        file: String,
        /// The operating system's reason.
        reason: String,
    },
}

/// Opens the tree in a folder; a missing folder is created, with an empty tree. The folder is locked until
/// the last handle to the tree, and the last of its sessions, is dropped.
///
/// Each write waits for the disk, on the thread that makes the request.
///
/// # Errors
/// See [`OpenError`]. The file is unchanged then.
pub fn open(dir: &Path) -> Result<MemoryTree, OpenError> {
    fs::create_dir_all(dir).map_err(|error| refused(dir, &error))?;
    let lock = lock(dir)?;
    let path = dir.join(TREE_FILE);
    if !path.try_exists().map_err(|error| refused(&path, &error))? {
        create(dir, &path)?;
    }
    let mut tree = Tree::new();
    let file = DatabaseFile::open(&path, lock, &mut tree).map_err(|cause| unreadable(&path, cause))?;
    Ok(MemoryTree::kept(tree, file))
}

/// Returns the file that [`open`] keeps the tree of this folder in.
pub fn file_of(dir: &Path) -> PathBuf {
    dir.join(TREE_FILE)
}

/// The lock of a folder, until it is dropped.
#[derive(Debug)]
struct FolderLock(File);

impl Drop for FolderLock {
    /// Closing the file would not be enough: a process that another thread is starting has a copy of the
    /// descriptor until it executes its program, and the lock is released only with the last copy.
    fn drop(&mut self) {
        // If unlocking fails, closing the file still unlocks it.
        let _ = self.0.unlock();
    }
}

fn lock(dir: &Path) -> Result<FolderLock, OpenError> {
    let path = dir.join(LOCK_FILE);
    let opened = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = opened.map_err(|error| refused(&path, &error))?;
    match lock.try_lock() {
        Ok(()) => Ok(FolderLock(lock)),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { dir: dir.display().to_string() }),
        Err(TryLockError::Error(error)) => Err(refused(&path, &error)),
    }
}

/// Creates the file under a temporary name first, so that a file with the final name is complete.
fn create(dir: &Path, path: &Path) -> Result<(), OpenError> {
    let new = dir.join(NEW_FILE);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused(&new, &error)),
        _ => {}
    }
    DatabaseFile::create(&new).map_err(|cause| unreadable(&new, cause))?;
    fs::rename(&new, path).map_err(|error| refused(path, &error))?;
    // Only after this is the name as durable as the content.
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|error| refused(dir, &error))
}

fn refused(path: &Path, error: &io::Error) -> OpenError {
    OpenError::Io { file: path.display().to_string(), reason: error.to_string() }
}

fn unreadable(path: &Path, cause: Unreadable) -> OpenError {
    let file = path.display().to_string();
    match cause {
        Unreadable::Foreign(reason) => OpenError::Foreign { file, reason },
        Unreadable::Damaged(reason) => OpenError::Damaged { file, reason },
        Unreadable::Io(error) => refused(path, &error),
        Unreadable::InUse => OpenError::InUse { dir: file },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_lock_is_released_although_descriptor_was_inherited() {
        let dir = tempfile::tempdir().expect("a folder");
        let held = lock(dir.path()).expect("a new folder");
        let inherited = held.0.try_clone().expect("a second descriptor");
        assert!(matches!(lock(dir.path()), Err(OpenError::InUse { .. })));
        drop(held);
        assert!(lock(dir.path()).is_ok());
        drop(inherited);
    }
}
