//! The directory in which a process keeps its files, and the removal of those of processes that are gone.
//!
//! A process holds a lock on its directory as long as it lives, whichever way it ends. So a directory that can be
//! locked has no owner any more, and the next process that needs one removes it.

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

/// The environment variable that says where files are kept.
pub(crate) const VARIABLE: &str = "DATAFLOW_WORK_DIR";

/// How the names of the directories begin.
const PREFIX: &str = "dataflow-work-";

/// A file in each directory that is locked, or was. What has only such a name, but not this, is somebody else's.
const MARK: &str = ".directory-of-a-process";

static STATE: Mutex<State> = Mutex::new(State { place: None, current: Weak::new(), is_swept: false });

struct State {
    /// Where it is, if that was set.
    place: Option<PathBuf>,
    current: Weak<WorkDir>,
    /// Whether the directories of processes that are gone were removed there.
    is_swept: bool,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the directory in which this process keeps its [`File`](crate::File)s, each in a directory of its own that is
/// removed with it. Files that are there already stay where they are.
///
/// Otherwise it is what the environment variable `DATAFLOW_WORK_DIR` names, or the system's directory for temporary
/// files. It is made if it is not there. A process that is killed, or that ends while its tasks run, leaves what it
/// has; the next one that keeps files in the same directory removes it. To make a file takes some ten microseconds in
/// memory (`tmpfs`), and up to a millisecond on a disk.
pub fn set_work_dir(directory: impl Into<PathBuf>) {
    let mut state = state();
    state.place = Some(directory.into());
    state.current = Weak::new();
    state.is_swept = false;
}

/// Removes the directory of this process, which ends now: its threads may still have files, and will not drop them.
#[cfg(feature = "cli")]
pub(crate) fn remove_work_dir() {
    let Some(current) = state().current.upgrade() else { return };
    let directory = current.directory.path();
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(?directory, %error, "cannot be removed");
        }
        _ => {}
    }
}

/// The directory in which this process keeps its files, until the last of them is gone.
///
/// It is not kept in a static, since these are never dropped: the directory would stay when the process ends.
#[derive(Debug)]
pub(super) struct WorkDir {
    /// Is removed before it is unlocked.
    directory: TempDir,
    _lock: fs::File,
    /// The number of the next directory in it.
    next: AtomicU64,
}

/// A directory in it, which is removed with all that is in it when this is dropped.
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
            // Only now it can be told from those of others, so nobody has removed it meanwhile.
            fs::write(directory.path().join(MARK), "")?;
        }
        Ok(Self { directory, _lock: lock, next: AtomicU64::new(0) })
    }
}

/// Removes the directories of processes that are gone. What cannot be removed stays.
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
                Ok(()) => tracing::debug!(?directory, "removed the files of a process that is gone"),
                Err(error) => tracing::warn!(?directory, %error, "cannot be removed"),
            }
        }
    }
}

impl Folder {
    /// Makes a new one.
    pub(crate) fn new() -> io::Result<Self> {
        let within = WorkDir::current()?;
        let path = within.directory.path().join(within.next.fetch_add(1, Relaxed).to_string());
        fs::create_dir(&path).map_err(|error| told(&path, "it cannot be made", &error))?;
        Ok(Self { path, _within: within })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{MARK, PREFIX, WorkDir, sweep};

    #[test]
    fn the_directories_of_processes_that_are_gone_are_removed_and_no_others() {
        let place = tempfile::tempdir().expect("a directory");
        let lives = WorkDir::within(place.path()).expect("it can be made");
        let at = |name: &str| place.path().join(format!("{PREFIX}{name}"));
        for name in ["gone", "other", "empty"] {
            fs::create_dir(at(name)).expect("it is new");
        }
        fs::write(at("gone").join(MARK), "").expect("it can be written");
        fs::create_dir_all(at("gone").join("0/deep")).expect("it is new");
        fs::write(at("other").join("data"), "of somebody else").expect("it can be written");
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
