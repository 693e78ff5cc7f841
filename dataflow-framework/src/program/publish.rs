//! Publishing files to paths outside of a workflow.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use thiserror::Error;

use super::data::Data;
use crate::{failure::Failure, file::File};

/// The only folder into which programs may publish files, if it is restricted.
static FOLDER: Mutex<Option<PathBuf>> = Mutex::new(None);

/// See [`Settings::publish_dir`](crate::Settings::publish_dir).
pub(crate) fn set_publish_dir(folder: &Path) -> io::Result<()> {
    let canonical = fs::canonicalize(folder)?;
    if !canonical.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a folder"));
    }
    *FOLDER.lock().unwrap_or_else(PoisonError::into_inner) = Some(canonical);
    Ok(())
}

impl File {
    /// Writes a copy of it to this path on the machine of the task, as [`Data::publish`] does on that of the program. A task
    /// that is repeated publishes its files again.
    ///
    /// # Errors
    /// If it cannot be written, also because of [`Settings::publish_dir`](crate::Settings::publish_dir).
    pub fn publish(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.put_at(path.as_ref(), Some("task"), folder().as_deref())
    }
}

/// Returns whether programs may publish only into a folder.
#[cfg(feature = "stores")]
pub(crate) fn is_publishing_restricted() -> bool {
    folder().is_some()
}

fn folder() -> Option<PathBuf> {
    FOLDER.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The reason why a file was not published.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PublishError {
    /// A call has failed, so the file will never exist.
    #[error(transparent)]
    Call(#[from] Failure),
    /// The file could not be written; the previous file at the path is unchanged.
    #[error("{} cannot be published: {source}", path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl Data<File> {
    /// Waits for the file, and writes a copy of it to this path on the machine that runs the program.
    ///
    /// A regular file is replaced atomically: at any time either the previous file or the whole new one exists. Its mode
    /// is kept, except for the executable bits, which are those of the new file. A symbolic link is kept, and its target is written. A device or a FIFO is written directly, as
    /// by a shell redirection, and not atomically. See [`OutputFile`](taskwork::lowlevel::OutputFile).
    ///
    /// A temporary file, whose name starts with a dot, is written next to the target and renamed. If the node is
    /// killed before that, the next attempt removes the temporary file.
    ///
    /// The file is published once: success is recorded, so a program that restarts on another node does not publish
    /// it again. If the node is lost between publishing and recording, it is published again with the same content.
    ///
    /// # Errors
    /// If a call on which it depends has failed, or the file cannot be written.
    pub fn publish(&self, path: impl AsRef<Path>) -> Result<(), PublishError> {
        let path = path.as_ref();
        let operation = self.operation();
        let folder = folder();
        let done = self.once(&format!("publish {}", path.display()), |file| {
            file.put_at(path, operation.as_deref(), folder.as_deref()).map_err(|error| error.to_string())
        })?;
        done.map_err(|reason| PublishError::Write { path: path.to_owned(), source: io::Error::other(reason) })
    }
}
