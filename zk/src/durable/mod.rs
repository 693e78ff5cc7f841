//! A tree that survives its process: the tree of `memory.rs`, with a file that has every change before it is
//! answered.
//!
//! It is for one process at a time, on one machine, which may be killed, or find its disk full, at any
//! moment. The next process that opens the same folder finds everything that was acknowledged, each multi
//! whole. What belongs to sessions is gone, as on a server whose clients have all been lost: ephemerals and
//! watches.
//!
//! ```text
//!   request ─▶ tree.rs executes it ─▶ file.rs commits what it has changed, with fsync ─▶ answer, watches
//!                     ▲                     │ fails: the disk is full, or broken
//!                     └──── undone ◀────────┴─▶ all sessions end; every further request gets this error
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | opening a folder, and what may be wrong with it |
//! | `file.rs` | the database in it: a table of znodes |
//! | `../tree/kept.rs` | what of a tree is kept |

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
/// The file that the process locks that uses the folder. The system releases the lock when the process ends,
/// however that happens.
const LOCK_FILE: &str = "lock";

/// Why a folder with a tree cannot be used.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process uses the folder.
    #[error("{dir} is in use by another process: wait for its end, or use another directory")]
    InUse {
        /// The folder.
        dir: String,
    },
    /// The file was not written by this store.
    #[error("{file} is not a state of this program ({reason}): use another directory, or move the file away")]
    Foreign {
        /// The file.
        file: String,
        /// What it is instead, as far as known.
        reason: String,
    },
    /// The file was changed by something else, or the disk has lost a part of it.
    #[error(
        "{file} is damaged ({reason}): what is in it cannot be trusted. Use another directory, or delete the \
         file to begin anew"
    )]
    Damaged {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused something.
    #[error("{file} cannot be used: {reason}")]
    Io {
        /// The file or folder.
        file: String,
        /// The operating system's reason.
        reason: String,
    },
}

/// Opens the tree that is kept in a folder; a missing folder is created, with an empty tree. The folder is
/// locked until the last handle to the tree, and the last of its sessions, is gone.
///
/// Each write waits for the disk, on the thread that makes the request.
///
/// # Errors
/// See [`OpenError`]. What the file says is the same afterwards.
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
    /// Closing the file would not be enough: a process that another thread is about to start has a copy of the
    /// descriptor for a moment, and the lock is gone only with the last of them.
    fn drop(&mut self) {
        // What cannot be unlocked is still unlocked when it is closed.
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

/// Creates the file under another name first: a file that is there is complete.
fn create(dir: &Path, path: &Path) -> Result<(), OpenError> {
    let new = dir.join(NEW_FILE);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused(&new, &error)),
        _ => {}
    }
    DatabaseFile::create(&new).map_err(|cause| unreadable(&new, cause))?;
    fs::rename(&new, path).map_err(|error| refused(path, &error))?;
    // The name is as durable as the content only after this.
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
    fn a_folder_is_free_at_once_although_a_process_that_is_being_started_still_has_the_descriptor() {
        let dir = tempfile::tempdir().expect("a folder");
        let held = lock(dir.path()).expect("a new folder");
        let inherited = held.0.try_clone().expect("a second descriptor");
        assert!(matches!(lock(dir.path()), Err(OpenError::InUse { .. })));
        drop(held);
        assert!(lock(dir.path()).is_ok());
        drop(inherited);
    }
}
