//! The directory in which a process keeps its files, and the removal of directories left by dead processes.
//!
//! A process holds a lock on its directory until it exits, for any reason. A directory that can be locked has no
//! owner, and the next process that needs a directory removes it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tempfile::TempDir;

use super::told;

/// The environment variable with the parent directory.
pub(crate) const VARIABLE: &str = "DATAFLOW_WORK_DIR";

/// The prefix of the names of the directories.
const PREFIX: &str = "dataflow-work-";

/// A file in each directory that was locked by a process. A directory with such a name but without this file belongs
/// to another user or program.
const MARK: &str = ".directory-of-a-process";

static STATE: Mutex<State> = Mutex::new(State { place: None, current: Weak::new(), is_swept: false });

struct State {
    /// The parent directory, if it was set.
    place: Option<PathBuf>,
    current: Weak<WorkDir>,
    /// Whether directories left by dead processes were removed there.
    is_swept: bool,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the directory in which this process keeps its [`File`](crate::File)s. Each one has a directory of its own,
/// which is removed with it. Existing files stay where they are.
///
/// The default is the environment variable `DATAFLOW_WORK_DIR`, or else the system's directory for temporary files.
/// The directory is created if it does not exist. A process that is killed, or that exits while its tasks run, leaves
/// its files behind; the next process that uses the same directory removes them. Creating a file takes about 10 µs in
/// memory (`tmpfs`), and up to 1 ms on a disk.
pub fn set_work_dir(directory: impl Into<PathBuf>) {
    let mut state = state();
    state.place = Some(directory.into());
    state.current = Weak::new();
    state.is_swept = false;
}

/// Removes the directory of this process, which exits now: its threads may still have files and will not drop them.
#[cfg(feature = "cli")]
pub(crate) fn remove_work_dir() {
    let Some(current) = state().current.upgrade() else { return };
    let directory = current.directory.path();
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(?directory, %error, "cannot remove a directory of files");
        }
        _ => {}
    }
}

/// The directory in which this process keeps its files. It is removed with the last of them.
///
/// It is not stored in a static, because statics are never dropped and the directory would remain.
#[derive(Debug)]
pub(super) struct WorkDir {
    /// Removed before it is unlocked.
    directory: TempDir,
    _lock: fs::File,
    /// The number of the next directory in it.
    next: AtomicU64,
}

/// A directory in a [`WorkDir`], which is removed with its content when this is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _within: Arc<WorkDir>,
}

impl WorkDir {
    fn current() -> io::Result<Arc<Self>> {
        let mut state = state();
        if let Some(current) = state.current.upgrade() {
            return Ok(current);
        }
        let place = state.place.clone();
        let place = place.or_else(|| env::var_os(VARIABLE).map(PathBuf::from)).unwrap_or_else(env::temp_dir);
        let advice =
            format!("no files can be kept there (set {VARIABLE} to a directory that can be written)");
        fs::create_dir_all(&place).map_err(|error| told(&place, &advice, &error))?;
        if !state.is_swept {
            sweep(&place);
            state.is_swept = true;
        }
        let current = Self::within(&place).map_err(|error| told(&place, &advice, &error))?;
        let current = Arc::new(current);
        state.current = Arc::downgrade(&current);
        Ok(current)
    }

    fn within(place: &Path) -> io::Result<Self> {
        // Absolute, since the process may change its current directory.
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(std::path::absolute(place)?)?;
        let lock = fs::File::open(directory.path())?;
        if lock.try_lock().is_ok() {
            // Without the mark no other process removes the directory, so it is marked only when it is locked.
            fs::write(directory.path().join(MARK), "")?;
        }
        Ok(Self { directory, _lock: lock, next: AtomicU64::new(0) })
    }
}

/// Removes directories left by dead processes, as far as possible.
fn sweep(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let is_one = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX))
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

impl Folder {
    /// Creates a directory.
    pub(crate) fn new() -> io::Result<Self> {
        let within = WorkDir::current()?;
        let path = within.directory.path().join(within.next.fetch_add(1, Relaxed).to_string());
        fs::create_dir(&path).map_err(|error| told(&path, "it cannot be created", &error))?;
        Ok(Self { path, _within: within })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "cannot remove a directory of files");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{MARK, PREFIX, WorkDir, sweep};

    #[test]
    fn sweep_removes_only_directories_of_dead_processes() {
        let place = tempfile::tempdir().expect("a directory");
        let lives = WorkDir::within(place.path()).expect("it can be made");
        let at = |name: &str| place.path().join(format!("{PREFIX}{name}"));
        for name in ["gone", "other", "empty"] {
            fs::create_dir(at(name)).expect("it is new");
        }
        fs::write(at("gone").join(MARK), "").expect("it can be written");
        fs::create_dir_all(at("gone").join("0/deep")).expect("it is new");
        fs::write(at("other").join("data"), "of another program").expect("it can be written");
        fs::write(at("file"), "").expect("it can be written");
        sweep(place.path());
        assert!(!at("gone").exists());
        assert!(at("other").join("data").exists() && at("empty").exists() && at("file").exists());
        assert!(lives.directory.path().join(MARK).exists());
        let its = lives.directory.path().to_owned();
        drop(lives);
        assert!(!its.exists());
    }
}
