//! Files that leave a workflow.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use taskwork::OutputFile;
use thiserror::Error;

use super::{File, is_executable};
use crate::{Data, Failure};

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
    /// by a shell redirection, so that nothing is atomic then. See [`OutputFile`].
    ///
    /// The new file is first written next to the target, under a name with a dot. If the node is killed meanwhile, the
    /// next attempt removes the part that was left there.
    ///
    /// It happens once: when that is done it is recorded, so a program that begins anew on another node does not do it
    /// again. Only if the node is lost between the two it does, with the same content.
    ///
    /// # Errors
    /// If a call has failed on which it depends; or the file cannot be written.
    pub fn publish(&self, path: impl AsRef<Path>) -> Result<(), PublishError> {
        let path = path.as_ref();
        let what = format!("publish {}", path.display());
        let operation = self.operation(&what);
        let done =
            self.once(&what, |file| file.put_at(path, operation).map_err(|error| error.to_string()))?;
        done.map_err(|reason| PublishError::Write { path: path.to_owned(), source: io::Error::other(reason) })
    }
}

impl File {
    fn put_at(&self, path: &Path, operation: Option<u64>) -> io::Result<()> {
        let mut content = fs::File::open(self.path()).map_err(|error| self.cannot("read", &error))?;
        let mode = if is_executable(&content.metadata()?) { 0o777 } else { 0o666 };
        let mut output = OutputFile::new(path).mode(mode);
        if let Some(operation) = operation {
            output = output.attempt_of(operation);
        }
        output.write(|to| io::copy(&mut content, to).map(drop))
    }
}
