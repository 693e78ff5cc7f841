//! Data that is a file.

mod encoding;
#[cfg(test)]
mod input_tests;
#[cfg(feature = "stores")]
mod objects;
#[cfg(all(test, feature = "stores"))]
mod objects_tests;
#[cfg(test)]
mod publish_tests;
mod run;
mod sandbox;
mod stamp;
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
    sync::OnceLock,
};

use taskwork::lowlevel::OutputFile;

#[cfg(feature = "stores")]
pub(crate) use self::objects::TASKS;
pub use self::run::Run;
use self::stamp::Stamp;
#[cfg(feature = "cli")]
pub(crate) use self::work_dir::remove_work_dir;
pub(crate) use self::work_dir::set_work_dir;
pub(crate) use self::work_dir::{Folder, VARIABLE as WORK_DIR_VARIABLE};

/// Data stored as a file, which tasks read through its path and rewrite.
///
/// Each `File` is a separate file, under its name, in a directory of its own. No other `File` has that path, so a
/// task that takes `&mut File` may modify its file in any way, and a task that takes `&File` may pass the path to any
/// reader. The file is removed when the `File` is dropped. [`Settings::work_dir`](crate::Settings::work_dir) sets the place of the directories.
/// [`File::everywhere`] refers to a file outside of them.
///
/// A file that is data is read-only. A change of its size or of the time of its last change fails its readers; the file is
/// then recomputed, if its call can run again.
///
/// A file is handled like other data: it is sent to the nodes that need it, under another path; it is copied when a
/// task updates it while others read the previous version; it is recomputed if it is lost. Only its name, its content
/// and its executable flag are preserved. Its content is in memory only during the transfer to a node; but a file
/// within other data is encoded with that data.
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
    /// The name is UTF-8, so that it is the same on every node.
    name: String,
    /// The directory of the file; `None` if it is one that every node has.
    folder: Option<Folder>,
    /// The size and time that the file has to keep; none while it may be changed.
    stamp: OnceLock<Stamp>,
}

/// The built-in tasks.
#[cfg(not(feature = "stores"))]
pub(crate) const TASKS: [&crate::TaskDef; 0] = [];

/// The maximum length of a name, in bytes, on all usual file systems.
const NAME_BYTES_MAX: usize = 255;

/// The maximum number of characters of a name or a content in an error.
const SHOWN_BYTES_MAX: usize = 80;

/// Adds the path and the failed operation to an error.
pub(crate) fn told(path: &Path, what: &str, error: &io::Error) -> io::Error {
    trouble::note(error);
    io::Error::new(error.kind(), format!("{}: {what}: {error}", path.display()))
}

fn refused(reason: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, reason.into())
}

/// Refuses a name that leads out of its directory, or is invalid for a file.
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
    /// Creates a file with this content.
    ///
    /// # Errors
    /// If the name is empty, `.` or `..`, contains `/` or a zero byte, or is longer than 255 bytes; or if the file
    /// cannot be written.
    pub fn new(name: &str, content: impl AsRef<[u8]>) -> io::Result<Self> {
        Self::made(name, |to| to.write_all(content.as_ref()))
    }

    /// Creates a file with the content that the closure writes.
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

    /// Creates a copy of the file at this path, under the last component of the path. Later changes of one do not
    /// affect the other.
    ///
    /// # Errors
    /// If the path is not that of a regular file, its name is not UTF-8, or it cannot be read or copied.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let cannot = |error: io::Error| told(path, "it cannot be imported", &error);
        let name = path.file_name().ok_or_else(|| cannot(refused("it does not end with a name")))?;
        let name = name.to_str().ok_or_else(|| cannot(refused("its name is not UTF-8")))?;
        Self::taken(path, name).map_err(cannot)
    }

    /// Creates a file of this name as a copy of the file at the path.
    fn taken(path: &Path, name: &str) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        if metadata.is_dir() {
            return Err(io::Error::new(ErrorKind::IsADirectory, "it is a directory, not a file"));
        }
        if !metadata.is_file() {
            // Reading a pipe or a device might never complete.
            return Err(refused("it is not a regular file"));
        }
        let file = Self::nothing(name)?;
        fs::copy(path, &file.path)?;
        file.set_executable(is_executable(&metadata))?;
        Ok(file)
    }

    /// Creates a file of this name from the file at the path, which is moved if possible.
    fn moved(path: &Path, name: &str) -> io::Result<Self> {
        if !is_single(path)? {
            return Self::taken(path, name);
        }
        let file = Self::nothing(name)?;
        fs::rename(path, &file.path)?;
        file.set_executable(is_executable(&fs::metadata(&file.path)?))?;
        Ok(file)
    }

    /// Returns a `File` whose file does not exist yet.
    fn nothing(name: &str) -> io::Result<Self> {
        check(name)?;
        let folder = Folder::new()?;
        let path = folder.path().join(name);
        Ok(Self { path, name: name.to_owned(), folder: Some(folder), stamp: OnceLock::new() })
    }

    /// Returns another file of the same name and content.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn copy(&self) -> io::Result<Self> {
        self.refuse_changes(&self.metadata()?)?;
        Self::taken(&self.path, &self.name).map_err(|error| self.cannot("copied", &error))
    }

    /// Returns its path. A task that takes `&File` must not write to it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its name: the last component of its path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its size, in bytes.
    ///
    /// # Errors
    /// If it no longer exists.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    /// Returns whether it has no content.
    ///
    /// # Errors
    /// If it no longer exists.
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

    /// Returns its content as text.
    ///
    /// # Errors
    /// If it cannot be read, or is not UTF-8.
    pub fn read_to_string(&self) -> io::Result<String> {
        fs::read_to_string(&self.path).map_err(|error| self.cannot("read", &error))
    }

    /// Parses its content as a value, such as a number, without leading and trailing white space.
    ///
    /// # Errors
    /// If it cannot be read or parsed.
    pub fn read<T: FromStr<Err: Display>>(&self) -> io::Result<T> {
        let text = self.read_to_string()?;
        text.trim().parse().map_err(|error| {
            let shown: String = text.trim().chars().take(SHOWN_BYTES_MAX).collect();
            let error = io::Error::new(ErrorKind::InvalidData, format!("{error} in {shown:?}"));
            self.cannot("parsed", &error)
        })
    }

    /// Replaces its content with the formatted value.
    ///
    /// # Errors
    /// If it cannot be written; it may then contain a part of the new content.
    pub fn write(&mut self, value: impl Display) -> io::Result<()> {
        self.write_with(|to| write!(to, "{value}"))
    }

    /// Replaces its content with the output of the closure.
    ///
    /// # Errors
    /// If it cannot be written, or the closure returns an error; it may then contain a part of the new content.
    pub fn write_with(
        &mut self,
        write: impl FnOnce(&mut BufWriter<fs::File>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.make_changeable()?;
        self.written(fs::File::create(&self.path), write)
    }

    /// Appends the formatted value.
    ///
    /// # Errors
    /// If it cannot be written; a part of the value may then be appended.
    pub fn append(&mut self, value: impl Display) -> io::Result<()> {
        self.make_changeable()?;
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
            // Dropping the writer would hide errors.
            to.flush()
        });
        written.map_err(|error| self.cannot("written", &error))
    }

    /// Sets the executable flag. The owner can always read and write the file.
    fn set_executable(&self, is_executable: bool) -> io::Result<()> {
        self.set_mode(if is_executable { 0o700 } else { 0o600 })
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        fs::set_permissions(&self.path, fs::Permissions::from_mode(mode))
            .map_err(|error| self.cannot("written", &error))
    }

    fn cannot(&self, done: &str, error: &io::Error) -> io::Error {
        told(&self.path, &format!("it cannot be {done}"), error)
    }
}

/// Returns whether the path is that of a regular file with only one name.
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
        let mut output = OutputFile::new(path).executable(is_executable(&content.metadata()?));
        if let Some(folder) = folder {
            output = output.within(folder);
        }
        if let Some(operation) = operation {
            output = output.attempt_of(operation);
        }
        let written = output.write(|to| io::copy(&mut content, to).map(drop));
        written.map_err(|error| match folder {
            Some(_) if error.kind() == ErrorKind::PermissionDenied => {
                let why = "the node that writes it was started with --publish-to";
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
