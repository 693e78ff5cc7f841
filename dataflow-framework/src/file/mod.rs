//! Data that is a file.

mod encoding;
mod run;
mod sandbox;
pub(crate) mod trouble;
#[cfg(test)]
mod tests;
mod work_dir;

use std::{
    fmt::{self, Display},
    fs,
    io::{self, BufReader, BufWriter, ErrorKind, Write},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    str::FromStr,
};

use taskwork::OutputFile;

#[cfg(feature = "cli")]
pub(crate) use self::work_dir::remove_work_dir;
pub use self::{run::Run, work_dir::set_work_dir};
pub(crate) use self::{
    run::{hear, shown},
    work_dir::{Folder, VARIABLE as WORK_DIR_VARIABLE},
};

/// Data that is a file: what tasks read by its path, and rewrite.
///
/// A file is a file of its own, under its name, in a directory of its own. Nobody else has that path, so a task that
/// takes `&mut File` may do with its file what it likes, and one that takes `&File` may give its path to anything that
/// reads. The file is removed when this is dropped. Where files are kept: [`set_work_dir`].
///
/// As data it is treated as any other: it goes to the nodes that need it, where it gets another path; it is copied when
/// a task updates it and others read the version before; it is made again if it was lost. Its name, its content and
/// whether it may be executed stay the same, and nothing else does. Its content is in memory only while it is under way
/// to this node; but a file that is a part of other data is encoded with it.
///
/// # Examples
/// ```
/// use std::io;
/// use dataflow_framework::{Data, File, Workflow, task, tasks};
///
/// #[task]
/// fn increment(counter: &mut File) -> io::Result<()> {
///     let number: u64 = counter.read()?;
///     counter.write(number + 1)
/// }
///
/// let result = std::env::temp_dir().join(format!("counter-{}.txt", std::process::id()));
/// Workflow::new(tasks![increment])?.run(|| {
///     let mut counter = Data::new(File::new("counter", "1")?);
///     for _ in 0..9 {
///         increment(&mut counter);
///     }
///     counter.publish(&result)?;
///     assert_eq!(counter.get()?.read::<u64>()?, 10);
///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
/// })?;
/// assert_eq!(std::fs::read_to_string(&result)?, "10");
/// # std::fs::remove_file(&result)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct File {
    path: PathBuf,
    /// Its name is UTF-8, so that it is the same everywhere.
    name: String,
    _folder: Folder,
}

/// The maximum length of a name, in bytes, on all usual file systems.
const NAME_BYTES_MAX: usize = 255;

/// The maximum number of bytes of a content that an error shows.
const SHOWN_BYTES_MAX: usize = 80;

/// Adds to an error on which file it happened, and what of it.
pub(crate) fn told(path: &Path, what: &str, error: &io::Error) -> io::Error {
    trouble::note(error);
    io::Error::new(error.kind(), format!("{}: {what}: {error}", path.display()))
}

fn refused(reason: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, reason.into())
}

/// Refuses names that would lead out of a directory, or that a file cannot have.
fn check(name: &str) -> io::Result<()> {
    let wrong = match name {
        "" => "it is empty",
        "." | ".." => "it names a directory",
        _ if name.contains('/') => "it contains `/`",
        _ if name.contains('\0') => "it contains a zero byte",
        _ if name.len() > NAME_BYTES_MAX => "it is longer than 255 bytes",
        _ => return Ok(()),
    };
    let shown: String = name.chars().take(SHOWN_BYTES_MAX).collect();
    Err(refused(format!("{shown:?} cannot be the name of a file: {wrong}")))
}

impl File {
    /// Makes a file of this content.
    ///
    /// # Errors
    /// If the name is empty, `.` or `..`, contains `/` or a zero byte, or is longer than 255 bytes; or the file cannot
    /// be written.
    pub fn new(name: &str, content: impl AsRef<[u8]>) -> io::Result<Self> {
        Self::made(name, |to| to.write_all(content.as_ref()))
    }

    /// Makes a file of what the closure writes.
    ///
    /// # Errors
    /// As [`new`](Self::new), and those of the closure.
    pub fn made(
        name: &str,
        write: impl FnOnce(&mut BufWriter<fs::File>) -> io::Result<()>,
    ) -> io::Result<Self> {
        let mut file = Self::nothing(name)?;
        file.write_with(write)?;
        Ok(file)
    }

    /// Makes a file of what is at this path, under the last part of its name. It is a copy: neither is changed with the
    /// other.
    ///
    /// # Errors
    /// If the path is not that of a file, its name is not UTF-8, or it cannot be read or copied.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let cannot = |error: io::Error| told(path, "it cannot be taken in", &error);
        let name = path.file_name().ok_or_else(|| cannot(refused("it does not end with a name")))?;
        let name = name.to_str().ok_or_else(|| cannot(refused("its name is not UTF-8")))?;
        Self::taken(path, name).map_err(cannot)
    }

    /// Makes a file of this name with a copy of what is at the path.
    fn taken(path: &Path, name: &str) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        if metadata.is_dir() {
            return Err(io::Error::new(ErrorKind::IsADirectory, "it is a directory, not a file"));
        }
        if !metadata.is_file() {
            // To read a pipe or a device might never end.
            return Err(refused("it is not a regular file"));
        }
        let file = Self::nothing(name)?;
        fs::copy(path, &file.path)?;
        file.set_executable(is_executable(&metadata))?;
        Ok(file)
    }

    /// Makes a file of this name of what is at the path, which need not be there any more then.
    fn moved(path: &Path, name: &str) -> io::Result<Self> {
        if !is_single(path)? {
            return Self::taken(path, name);
        }
        let file = Self::nothing(name)?;
        fs::rename(path, &file.path)?;
        file.set_executable(is_executable(&fs::metadata(&file.path)?))?;
        Ok(file)
    }

    /// Returns one that is not there yet.
    fn nothing(name: &str) -> io::Result<Self> {
        check(name)?;
        let folder = Folder::new()?;
        Ok(Self { path: folder.path().join(name), name: name.to_owned(), _folder: folder })
    }

    /// Returns another file of the same name and content.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn copy(&self) -> io::Result<Self> {
        Self::taken(&self.path, &self.name).map_err(|error| self.cannot("copied", &error))
    }

    /// Returns its path, which nobody else has. A task that takes `&File` must only read there.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its name: the last part of its path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its size, in bytes.
    ///
    /// # Errors
    /// If it is not there any more.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    /// Returns whether it has no content.
    ///
    /// # Errors
    /// If it is not there any more.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    fn metadata(&self) -> io::Result<fs::Metadata> {
        fs::metadata(&self.path).map_err(|error| self.cannot("found", &error))
    }

    /// Returns a reader of its content.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn reader(&self) -> io::Result<BufReader<fs::File>> {
        let file = fs::File::open(&self.path).map_err(|error| self.cannot("read", &error))?;
        Ok(BufReader::new(file))
    }

    /// Returns its content.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_bytes(&self) -> io::Result<Vec<u8>> {
        fs::read(&self.path).map_err(|error| self.cannot("read", &error))
    }

    /// Returns its content as a text.
    ///
    /// # Errors
    /// If it cannot be read, or is not UTF-8.
    pub fn read_to_string(&self) -> io::Result<String> {
        fs::read_to_string(&self.path).map_err(|error| self.cannot("read", &error))
    }

    /// Returns the value that its content is a text of, such as a number. White space around it does not count.
    ///
    /// # Errors
    /// If it cannot be read, or is not such a value.
    pub fn read<T: FromStr<Err: Display>>(&self) -> io::Result<T> {
        let text = self.read_to_string()?;
        text.trim().parse().map_err(|error| {
            let shown: String = text.trim().chars().take(SHOWN_BYTES_MAX).collect();
            let error = io::Error::new(ErrorKind::InvalidData, format!("{error} in {shown:?}"));
            self.cannot("understood", &error)
        })
    }

    /// Replaces its content by the text of a value.
    ///
    /// # Errors
    /// If it cannot be written; it may then have a part of the new content.
    pub fn write(&mut self, value: impl Display) -> io::Result<()> {
        self.write_with(|to| write!(to, "{value}"))
    }

    /// Replaces its content by what the closure writes.
    ///
    /// # Errors
    /// If it cannot be written, or the closure returns an error; it may then have a part of the new content.
    pub fn write_with(
        &mut self,
        write: impl FnOnce(&mut BufWriter<fs::File>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.written(fs::File::create(&self.path), write)
    }

    /// Adds the text of a value to its end.
    ///
    /// # Errors
    /// If it cannot be written; a part of it may then be added.
    pub fn append(&mut self, value: impl Display) -> io::Result<()> {
        let file = fs::OpenOptions::new().append(true).open(&self.path);
        self.written(file, |to| write!(to, "{value}"))
    }

    fn written(
        &self,
        file: io::Result<fs::File>,
        write: impl FnOnce(&mut BufWriter<fs::File>) -> io::Result<()>,
    ) -> io::Result<()> {
        let written = file.and_then(|file| {
            let mut to = BufWriter::new(file);
            write(&mut to)?;
            // Dropped, it would not tell of errors.
            to.flush()
        });
        written.map_err(|error| self.cannot("written", &error))
    }

    /// Sets whether it may be executed. It can always be read and written by its owner.
    fn set_executable(&self, is_executable: bool) -> io::Result<()> {
        let mode = if is_executable { 0o700 } else { 0o600 };
        fs::set_permissions(&self.path, fs::Permissions::from_mode(mode))
            .map_err(|error| self.cannot("written", &error))
    }

    fn cannot(&self, done: &str, error: &io::Error) -> io::Error {
        told(&self.path, &format!("it cannot be {done}"), error)
    }
}

/// Returns whether the path is that of a file that has no other name, and is no link.
fn is_single(path: &Path) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    Ok(metadata.is_file() && metadata.nlink() == 1)
}

impl File {
    /// Writes a copy of it to this path; `operation` identifies the attempts of one operation.
    pub(crate) fn put_at(
        &self,
        path: &Path,
        operation: Option<&str>,
        folder: Option<&Path>,
    ) -> io::Result<()> {
        let mut content = fs::File::open(self.path()).map_err(|error| self.cannot("read", &error))?;
        let mode = if is_executable(&content.metadata()?) { 0o777 } else { 0o666 };
        let mut output = OutputFile::new(path).mode(mode);
        if let Some(folder) = folder {
            output = output.within(folder);
        }
        if let Some(operation) = operation {
            output = output.attempt_of(operation);
        }
        let written = output.write(|to| io::copy(&mut content, to).map(drop));
        written.map_err(|error| match folder {
            Some(_) if error.kind() == ErrorKind::PermissionDenied => {
                let why = "the node that runs the program was started with --publish-to";
                io::Error::new(error.kind(), format!("{error}: {why}"))
            }
            _ => error,
        })
    }
}

/// Returns whether its owner may execute a file.
fn is_executable(metadata: &fs::Metadata) -> bool {
    metadata.permissions().mode() & 0o100 != 0
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.path).finish_non_exhaustive()
    }
}
