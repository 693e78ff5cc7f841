//! The packages that a process has unpacked and checked.

use std::{
    collections::HashMap,
    fs, io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::value::RawValue;
use taskwork_child::{WorkDir, sweep};

use super::Runtime;
use crate::{
    library::Latest,
    package::Package,
    store::{Outcome, Store, StoreError},
    wire::{CallError, ErrorKind},
};

/// The prefix of the names of folders with packages.
const PREFIX: &str = "routines-packages-";

/// The assumed duration of the first call of a routine: the first frame then has one call.
const FIRST: Duration = Duration::from_secs(1);

/// The number of frames after which a runtime restarts, unless its package limits its calls, and its minimum age then:
/// frames of direct calls are short.
const RUNTIME_FRAMES_MAX: u32 = 1_000;
const RUNTIME_AGE_MIN: Duration = Duration::from_secs(20);

/// A package that was checked against its digest, with the measured duration of its calls.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) package: Package,
    /// The mean duration of a call, in nanoseconds.
    pace: AtomicU64,
}

/// The packages that this process has unpacked and checked.
#[derive(Debug)]
pub(crate) struct Packages {
    folder: WorkDir,
    known: Mutex<Known>,
    latest: Latest,
}

#[derive(Debug, Default)]
struct Known {
    packages: HashMap<String, Arc<Installed>>,
    /// The digests of names, which are permanent.
    names: HashMap<String, String>,
}

impl Packages {
    /// Creates a place for packages below a folder.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub(crate) fn within(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        sweep(folder, PREFIX);
        Ok(Self {
            folder: WorkDir::within(folder, PREFIX)?,
            known: Mutex::default(),
            latest: Latest::default(),
        })
    }

    /// Removes the unpacked packages when the process exits: statics are not dropped.
    pub(crate) fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(self.folder.path()) {
            tracing::debug!(%error, "cannot remove the folder of packages");
        }
    }

    /// Returns a package of a store, which is unpacked and checked once.
    pub(crate) fn get(&self, store: &Store, digest: &str) -> Result<Arc<Installed>, StoreError> {
        if let Some(installed) = self.all().packages.get(digest) {
            return Ok(Arc::clone(installed));
        }
        // Without the lock: this reads all files.
        let package = store.package(digest, self.folder.path())?;
        Ok(self.all().add(package))
    }

    /// Returns the package of `NAME@VERSION`, of the latest version of `NAME` at most this time ago, or of a digest.
    pub(crate) fn named(
        &self,
        store: &Store,
        routine: &str,
        age_max: Duration,
    ) -> Result<Arc<Installed>, StoreError> {
        let routine = &*self.latest.of(store, routine, age_max)?;
        if let Some(installed) = self.all().find(routine) {
            return Ok(installed);
        }
        let installed = self.get(store, &store.resolve(routine)?)?;
        // Not by the name within the package, which may have been refused for a name that was taken.
        self.all().names.insert(routine.to_owned(), installed.package.digest.clone());
        Ok(installed)
    }

    /// Returns a package that is here under its full name or digest, without access to the store.
    pub(crate) fn known(&self, routine: &str) -> Option<Arc<Installed>> {
        self.all().find(routine)
    }

    /// Adds a package under its name, also one that is in no store.
    pub(crate) fn add(&self, package: Package) -> Arc<Installed> {
        let mut known = self.all();
        known.names.insert(package.name(), package.digest.clone());
        known.add(package)
    }

    fn all(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn find(&self, routine: &str) -> Option<Arc<Installed>> {
        let digest = self.names.get(routine).map_or(routine, String::as_str);
        self.packages.get(digest).map(Arc::clone)
    }

    fn add(&mut self, package: Package) -> Arc<Installed> {
        let digest = package.digest.clone();
        Arc::clone(self.packages.entry(digest).or_insert_with(|| Arc::new(Installed::new(package))))
    }
}

impl Installed {
    pub(crate) fn new(package: Package) -> Self {
        Self { package, pace: AtomicU64::new(nanoseconds(FIRST)) }
    }

    /// Returns the outcome of a call that a runtime has answered: a result must match its schema.
    pub(crate) fn outcome(&self, answer: Result<Box<RawValue>, CallError>) -> Outcome {
        let checked = answer.and_then(|value| {
            let schema = self.package.description.result.as_ref();
            let is_valid = schema.map_or(Ok(()), |schema| schema.check_result(value.get()));
            let wrong =
                |reason| CallError::new(ErrorKind::Invalid, format!("the result is invalid, {reason}"));
            is_valid.map(|()| value).map_err(wrong)
        });
        checked.map_or_else(Outcome::Error, Outcome::Value)
    }

    /// Returns whether a runtime of the package must not get more calls.
    pub(crate) fn has_used_up(&self, runtime: &Runtime) -> bool {
        let (frames, calls) = runtime.used();
        match self.package.description.reuse {
            Some(reuse) => calls >= reuse,
            None => frames >= RUNTIME_FRAMES_MAX && runtime.age() >= RUNTIME_AGE_MIN,
        }
    }

    /// Returns the number of calls that take about this long.
    pub(crate) fn calls_within(&self, target: Duration) -> u64 {
        (nanoseconds(target) / self.pace.load(Relaxed).max(1)).max(1)
    }

    /// Records the duration of calls. Later calls count for a half.
    pub(crate) fn record(&self, took: Duration, calls: u64) {
        let latest = nanoseconds(took) / calls.max(1);
        let before = self.pace.load(Relaxed);
        let is_first = before == nanoseconds(FIRST);
        self.pace.store(if is_first { latest } else { u64::midpoint(before, latest) }, Relaxed);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
