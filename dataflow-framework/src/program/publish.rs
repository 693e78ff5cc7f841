//! Files that leave a workflow.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use thiserror::Error;

use super::data::Data;
use crate::{failure::Failure, file::File};

/// The only folder into which programs may publish files, if there is one.
static FOLDER: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Lets programs that run in this process publish files only into this folder, and below it. Symbolic links that lead
/// out of it are refused. By default they may write wherever the user of the process may.
///
/// # Errors
/// If the folder does not exist.
pub fn set_publish_dir(folder: impl AsRef<Path>) -> io::Result<()> {
    let folder = folder.as_ref();
    let canonical = fs::canonicalize(folder)?;
    if !canonical.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a folder"));
    }
    *FOLDER.lock().unwrap_or_else(PoisonError::into_inner) = Some(canonical);
    Ok(())
}

/// Why a file was not published.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PublishError {
    /// A call has failed, so the file will never be there.
    #[error(transparent)]
    Call(#[from] Failure),
    /// It could not be written; what was at the path before is there still.
    #[error("{} cannot be published: {source}", path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// What has happened.
        source: io::Error,
    },
}

impl Data<File> {
    /// Waits for the file, and writes a copy of it to this path, on the machine where the program runs.
    ///
    /// A regular file is replaced atomically, and its mode is kept: at every moment either the previous file or the whole
    /// new one is there. A symbolic link is kept, and its target is written. A device or a FIFO is written directly, as
    /// by a shell redirection, so that nothing is atomic then. See [`OutputFile`](taskwork::OutputFile).
    ///
    /// A temporary file, whose name begins with a dot, is written next to the target and renamed. If the node is killed
    /// before that, the next attempt removes the temporary file.
    ///
    /// It happens once: when that is done it is recorded, so a program that begins anew on another node does not do it
    /// again. Only if the node is lost between the two it does, with the same content.
    ///
    /// # Errors
    /// If a call has failed on which it depends; or the file cannot be written.
    pub fn publish(&self, path: impl AsRef<Path>) -> Result<(), PublishError> {
        let path = path.as_ref();
        let operation = self.operation();
        let folder = FOLDER.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let done = self.once(&format!("publish {}", path.display()), |file| {
            file.put_at(path, operation.as_deref(), folder.as_deref()).map_err(|error| error.to_string())
        })?;
        done.map_err(|reason| PublishError::Write { path: path.to_owned(), source: io::Error::other(reason) })
    }
}
