//! Files that must not change: versions, and files that every node has.
//!
//! A version is read-only while it is one, so that external programs can read it through a link instead of a copy. The mode
//! does not stop a program that sets it, so the size and the time of the last change are compared before each call that
//! reads the file, and after each program that had a link to it.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
    sync::OnceLock,
    time::{Duration, UNIX_EPOCH},
};

use nix::{
    errno::Errno,
    unistd::{AccessFlags, eaccess},
};
use serde::{Deserialize, Serialize};

use super::{File, check, is_executable, refused, told, trouble};
use crate::failure::Failed;

/// The size of a file, in bytes, and the time of its last change since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    bytes: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self { bytes: metadata.len(), seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() }
    }

    /// Returns it without the part of the time that archives and other file systems drop.
    fn in_seconds(self) -> Self {
        Self { nanoseconds: 0, ..self }
    }

    fn shown(self) -> String {
        let time = u64::try_from(self.seconds).ok().map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
        let time = time.map_or_else(
            || "before 1970".to_owned(),
            |time| humantime::format_rfc3339_seconds(time).to_string(),
        );
        format!("{} bytes of {time}", self.bytes)
    }
}

impl File {
    /// Refers to a file that every node has at this path: on a shared file system, or in an installed data base. Nothing is
    /// copied or sent to other nodes. Its size and the time of its last change, in seconds, have to be the same on all
    /// nodes. A node on which the file is missing or differs does not run the calls that read it: others run them; if there
    /// are none, the calls fail.
    ///
    /// A task with `&File` gets this path. [`Run`](crate::Run) gives its program a symbolic link to it, which the program must
    /// not write to. A task with `&mut File` gets a copy. A file within other data is not copied: a task that
    /// changes that data must not write to the path of the file.
    ///
    /// # Errors
    /// If the path is not absolute or not UTF-8, or there is no regular file on this node.
    ///
    /// # Examples
    /// ```
    /// use std::io;
    /// use dataflow_framework::{Data, File, Workflow, task, tasks};
    ///
    /// #[task]
    /// fn lines(of: &File) -> io::Result<u64> {
    ///     Ok(of.read_to_string()?.lines().count() as u64)
    /// }
    ///
    /// let lines = Workflow::new(tasks![lines])?.run(|| {
    ///     let accounts = Data::new(File::everywhere("/etc/passwd")?);
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(*lines(&accounts).get()?)
    /// })?;
    /// assert!(lines > 0);
    /// # Ok::<(), dataflow_framework::WorkflowError>(())
    /// ```
    pub fn everywhere(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let text = path.to_str().ok_or_else(|| refused(format!("{}: it is not UTF-8", path.display())))?;
        let file = Self::reference(text, None)?;
        let metadata = file.regular()?;
        let _ = file.stamp.set(Stamp::of(&metadata).in_seconds());
        Ok(file)
    }

    /// Returns a reference to a file that every node has, and which is not accessed yet.
    pub(super) fn reference(path: &str, stamp: Option<Stamp>) -> io::Result<Self> {
        let shown = || format!("{path:?} cannot be that of a file that every node has");
        if !path.starts_with('/') {
            return Err(refused(format!("{}: it is not absolute", shown())));
        }
        let (_, name) = path.rsplit_once('/').unwrap_or_default();
        check(name).map_err(|error| refused(format!("{}: {error}", shown())))?;
        let stamp = stamp.map_or_else(OnceLock::new, OnceLock::from);
        Ok(Self { path: PathBuf::from(path), name: name.to_owned(), folder: None, stamp })
    }

    /// Returns whether it is a file that every node has, and not one of this process.
    pub(crate) fn is_everywhere(&self) -> bool {
        self.folder.is_none()
    }

    /// Returns the expected size and time; `None` while it may be changed.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        self.stamp.get().copied()
    }

    /// Makes it read-only, because it becomes a version. A file for which that fails is copied for programs.
    pub(crate) fn seal(&self) {
        if self.stamp.get().is_some() {
            return;
        }
        let sealed = fs::metadata(&self.path).and_then(|metadata| {
            self.set_mode(if is_executable(&metadata) { 0o500 } else { 0o400 })?;
            Ok(Stamp::of(&metadata))
        });
        match sealed {
            Ok(stamp) => drop(self.stamp.set(stamp)),
            Err(error) => {
                tracing::debug!(path = %self.path.display(), %error, "cannot make a file read-only");
            }
        }
    }

    /// Makes it a file that only its owner has, and may change: a copy, if there are other links to it.
    pub(crate) fn make_changeable(&mut self) -> io::Result<()> {
        if self.stamp.get().is_none() {
            return Ok(());
        }
        let metadata = self.metadata()?;
        if self.is_everywhere() || metadata.nlink() > 1 {
            *self = self.copy()?;
        } else {
            self.set_executable(is_executable(&metadata))?;
            self.stamp.take();
        }
        Ok(())
    }

    /// Returns whether its content is the expected one.
    pub(super) fn is_unchanged(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|metadata| self.is_stamp_of(&metadata))
    }

    fn is_stamp_of(&self, metadata: &Metadata) -> bool {
        self.stamp.get().is_none_or(|expected| *expected == self.found(metadata))
    }

    fn found(&self, metadata: &Metadata) -> Stamp {
        let found = Stamp::of(metadata);
        if self.is_everywhere() { found.in_seconds() } else { found }
    }

    /// Refuses a file with another size or time than expected.
    pub(super) fn refuse_changes(&self, metadata: &Metadata) -> io::Result<()> {
        let Some(expected) = self.stamp.get().filter(|_| !self.is_stamp_of(metadata)) else { return Ok(()) };
        let why = if self.is_everywhere() {
            let (found, expected) = (self.found(metadata).shown(), expected.shown());
            format!(
                "it has changed since the program began, or differs on this node: it has {found}, not {expected}. \
                 `File::everywhere` needs the same file on every node: restore it, or start the program again"
            )
        } else {
            "it has changed since it was written: a task, or a program of a task, has changed its read-only input"
                .to_owned()
        };
        let error = io::Error::other(format!("{}: {why}", self.path.display()));
        trouble::note(&error);
        Err(error)
    }

    /// Returns the metadata of a file that every node has.
    fn regular(&self) -> io::Result<Metadata> {
        // The file is opened to find out whether it can be read. To open a FIFO would wait for its writer.
        let metadata = fs::metadata(&self.path).and_then(|metadata| {
            if !metadata.is_file() {
                return Err(io::Error::other("it is not a regular file"));
            }
            fs::File::open(&self.path)?.metadata()
        });
        metadata.map_err(|error| {
            let what =
                "`File::everywhere` needs it on every node: install it on this one, or mount its file system";
            told(&self.path, what, &error)
        })
    }

    /// Checks that it can be read, and has not changed.
    pub(crate) fn check(&self) -> Result<(), Failed> {
        if self.is_everywhere() {
            let checked = self.regular().and_then(|metadata| self.refuse_changes(&metadata));
            return checked.map_err(Failed::of_node);
        }
        self.check_content().map_err(Failed::of_content)
    }

    /// Makes it available at another path, for reading. Returns `false` if it has to be copied: a program that may change
    /// it through a link would change the version of other readers.
    pub(super) fn link(&self, to: &Path) -> bool {
        if self.is_everywhere() {
            // Only a symbolic link leads to another file system. The file is not one of this process, as if the user had
            // named its path.
            return symlink(&self.path, to).is_ok();
        }
        let is_protected = || eaccess(&self.path, AccessFlags::W_OK) == Err(Errno::EACCES);
        self.stamp.get().is_some()
            && is_protected()
            && (fs::hard_link(&self.path, to).is_ok() || symlink(&self.path, to).is_ok())
    }
}
