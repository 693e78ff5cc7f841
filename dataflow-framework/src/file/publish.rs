//! Files that leave a workflow.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::{File, is_executable, refused};
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
    /// Waits for the file, and puts a copy of it at this path, on the machine where the program runs. A file that is
    /// there is replaced.
    ///
    /// At every moment either the file before or the whole new one is there: it is written beside, under a name that
    /// begins with a dot, and gets its name when it is on the disk.
    ///
    /// It happens once: when that is done it is recorded, so a program that begins anew on another node does not do it
    /// again. Only if the node is lost between the two it does, with the same content.
    ///
    /// # Errors
    /// If a call has failed on which it depends; or the file cannot be written.
    pub fn publish(&self, path: impl AsRef<Path>) -> Result<(), PublishError> {
        let path = path.as_ref();
        let done = self.once(&format!("publish {}", path.display()), |file| {
            file.put_at(path).map_err(|error| error.to_string())
        })?;
        done.map_err(|reason| PublishError::Write { path: path.to_owned(), source: io::Error::other(reason) })
    }
}

impl File {
    fn put_at(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().ok_or_else(|| refused("it does not end with a name"))?;
        if path.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "there is a directory of this name"));
        }
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let mut content = fs::File::open(self.path()).map_err(|error| self.cannot("read", &error))?;
        // What the umask leaves of it is that of any new file.
        let mode = if is_executable(&content.metadata()?) { 0o777 } else { 0o666 };
        let beside = tempfile::Builder::new()
            .prefix(&prefix(name.to_string_lossy().as_ref()))
            .permissions(fs::Permissions::from_mode(mode))
            .tempfile_in(directory)
            .map_err(|error| {
                io::Error::new(error.kind(), format!("no file can be made beside it: {error}"))
            })?;
        io::copy(&mut content, &mut beside.as_file())?;
        beside.as_file().sync_all()?;
        beside.persist(path).map_err(|error| error.error)?;
        // The new name is on the disk when its directory is.
        fs::File::open(directory)?.sync_all()
    }
}

/// Returns how the name begins under which a file is written. A name may be as long as the file system allows.
fn prefix(name: &str) -> String {
    let shown: String = name.chars().take(32).collect();
    format!(".{shown}.")
}
