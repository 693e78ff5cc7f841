//! The directory in which a process keeps its files.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use taskwork_child::sweep;

use super::told;

/// The environment variable with the parent directory.
pub(crate) const VARIABLE: &str = "DATAFLOW_WORK_DIR";

/// The prefix of the names of the directories.
const PREFIX: &str = "dataflow-work-";

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

/// See [`Settings::work_dir`](crate::Settings::work_dir).
pub(crate) fn set_work_dir(directory: PathBuf) {
    let mut state = state();
    state.place = Some(directory);
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
    directory: taskwork_child::WorkDir,
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
            sweep(&place, PREFIX);
            state.is_swept = true;
        }
        let directory = taskwork_child::WorkDir::within(&place, PREFIX);
        let directory = directory.map_err(|error| told(&place, &advice, &error))?;
        let current = Arc::new(Self { directory, next: AtomicU64::new(0) });
        state.current = Arc::downgrade(&current);
        Ok(current)
    }
}

impl Folder {
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
