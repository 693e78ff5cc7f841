//! The packages that a node has checked.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{
    package::{Package, PackageError},
    store::Store,
};

/// The assumed duration of the first call of a routine: the first frame then has one call.
const FIRST: Duration = Duration::from_secs(1);

/// A package that was checked against its digest, with the measured duration of its calls.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) package: Package,
    /// The mean duration of a call, in nanoseconds.
    pace: AtomicU64,
}

/// The packages that this process has checked.
#[derive(Debug, Default)]
pub(crate) struct Packages(Mutex<HashMap<String, Arc<Installed>>>);

impl Packages {
    /// Returns a package of a store, which is checked once.
    pub(crate) fn get(&self, store: &Store, digest: &str) -> Result<Arc<Installed>, PackageError> {
        let mut packages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(installed) = packages.get(digest) {
            return Ok(Arc::clone(installed));
        }
        let package = store.package(digest)?;
        let pace = AtomicU64::new(nanoseconds(FIRST));
        let installed = Arc::new(Installed { package, pace });
        packages.insert(digest.to_owned(), Arc::clone(&installed));
        Ok(installed)
    }
}

impl Installed {
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
