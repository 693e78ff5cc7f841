//! The cache of the outputs of calls, which later programs use instead of running the calls again.
//!
//! The key of a call is the hash of the code of its task and of the content of its arguments ([`key`]). It is computed on the
//! node that runs the call, where the arguments are, so the core knows nothing of the cache: a call with an entry ends
//! without a run. An entry is an object of its own, complete or absent, and is checked by hashes when it is read ([`entry`]).
//! So entries may be written by several nodes at once, and removed at any time.
//!
//! The cache is an aid: if it cannot be reached or written, the calls run.

mod entry;
mod key;
mod place;
#[cfg(test)]
mod tests;

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use taskwork::Release;
use tokio::time::Instant;

pub(crate) use self::key::Key;
use self::place::Place;
use crate::{core::Assignment, stream::Broken, value::Value};

/// The environment variable with the place of the cache.
const VARIABLE: &str = "DATAFLOW_CACHE";

/// The time without accesses after a failed one, since each may wait for a server or fill a disk.
const PAUSE: Duration = Duration::from_secs(300);

/// The cache that was set for the nodes of this process.
static SET: Mutex<Option<Arc<Cache>>> = Mutex::new(None);

/// See [`Settings::cache`](crate::Settings::cache).
pub(crate) fn set_cache(cache: Arc<Cache>) {
    *SET.lock().unwrap_or_else(PoisonError::into_inner) = Some(cache);
}

/// A cache in a folder or a bucket.
#[derive(Debug)]
pub(crate) struct Cache {
    place: Place,
    /// The build of the entries, unless those of all builds are used.
    build: Option<String>,
    reads: Access,
    writes: Access,
}

/// The result of a look-up.
#[derive(Debug)]
pub(crate) enum Found {
    Outputs(Vec<Value>),
    /// There is no valid entry.
    Missing(Key),
    /// The call is not looked up, or the cache cannot be read.
    Unknown,
}

/// The state of reads or writes.
#[derive(Debug, Default)]
struct Access {
    paused_until: Mutex<Option<Instant>>,
    has_warned: AtomicBool,
}

impl Access {
    fn is_paused(&self) -> bool {
        let until = *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn pause(&self) {
        *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + PAUSE);
    }

    /// Reports a failure, the first one to the user.
    fn on_failed(&self, place: &Place, done: &str, error: &io::Error) {
        if self.has_warned.swap(true, Relaxed) {
            tracing::debug!(%place, %error, "the cache cannot be {done}");
        } else {
            tracing::warn!(%place, %error, "the cache cannot be {done}: calls run instead, and this is not reported again");
        }
    }
}

impl Cache {
    /// Opens a cache. It is accessed, and a folder created, only when a call needs it.
    ///
    /// # Errors
    /// If the place is invalid, or not supported by this program.
    pub(crate) fn open(place: &str, is_strict: bool) -> io::Result<Arc<Self>> {
        let build = if is_strict {
            let build = Release::this_build("cache", "build").map_err(io::Error::other)?;
            Some(build.version().to_owned())
        } else {
            None
        };
        let (reads, writes) = Default::default();
        Ok(Arc::new(Self { place: Place::parse(place)?, build, reads, writes }))
    }

    /// Returns the cache of the nodes of this process, if there is one.
    pub(crate) fn of_process() -> Option<Arc<Self>> {
        let set = SET.lock().unwrap_or_else(PoisonError::into_inner).clone();
        set.or_else(|| {
            let cache = Self::open(&std::env::var(VARIABLE).ok()?, false);
            cache.inspect_err(|error| tracing::warn!("{VARIABLE} is ignored: {error}")).ok()
        })
    }

    /// Looks up the outputs of a call.
    pub(crate) fn find(&self, assignment: &Assignment, inputs: &[Value]) -> Found {
        if !assignment.manner.is_cached || self.reads.is_paused() {
            return Found::Unknown;
        }
        let Some(key) = key::of(assignment, inputs, self.build.as_deref()) else { return Found::Unknown };
        let mut file = match self.place.open(&key.name()) {
            Ok(Some(file)) => file,
            Ok(None) => return Found::Missing(key),
            Err(error) => {
                if self.place.is_remote() {
                    self.reads.pause();
                }
                self.reads.on_failed(&self.place, "read", &error);
                return Found::Unknown;
            }
        };
        match entry::read(&mut file, key) {
            Ok(outputs) => Found::Outputs(outputs),
            Err(broken) => {
                tracing::info!(place = %self.place, entry = key.name(), ?broken, "an entry of the cache is damaged");
                Found::Missing(key)
            }
        }
    }

    /// Keeps the outputs of a call.
    pub(crate) fn keep(&self, key: Key, outputs: &[&Value]) {
        // A file that every node has would not be in the entry, and may change.
        let cannot_be_kept = |output: &&Value| output.is_outside() || output.identity().is_none();
        if self.writes.is_paused() || outputs.iter().any(cannot_be_kept) {
            return;
        }
        let written = self.place.write(&key.name(), |file| entry::write(file, key, outputs));
        if let Err(broken) = written {
            let error = match broken {
                Broken::Pipe(error) => error,
                Broken::Here(failed) => io::Error::other(failed.reason),
            };
            self.writes.pause();
            self.writes.on_failed(&self.place, "written", &error);
        }
    }
}
