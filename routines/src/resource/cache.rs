//! The resources on the disk of a node. Each is fetched once, while concurrent calls wait for it, and is not removed while a
//! call uses it.

use std::{
    collections::HashMap,
    fs::{self, File, Permissions},
    io::{self, ErrorKind, Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::value::RawValue;
use taskwork_child::{WorkDir, sweep};

use super::{
    RESOURCE_BYTES_MAX, Resource, ResourceError,
    peers::{Answer, Peers},
    references, replaced,
};
use crate::{store::Store, tenant::Tenant};

/// The prefix of the names of folders with resources.
const PREFIX: &str = "routines-resources-";

/// The size of all files from which those that were not used for the longest time are removed, in bytes. Files in use, and
/// the last one, remain.
const CACHE_BYTES_MAX: u64 = 16 << 30;

/// The number of bytes that are read and hashed at a time.
const PART_BYTES: usize = 1 << 20;

/// The pause after a failed access to the store.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The resources on the disk of a node.
#[derive(Debug)]
pub(crate) struct Resources {
    folder: WorkDir,
    bytes_max: u64,
    /// A random number.
    pub(super) id: u64,
    state: Mutex<State>,
    changed: Condvar,
    /// The other nodes of running jobs.
    peers: Mutex<Vec<Weak<Peers>>>,
}

#[derive(Debug, Default)]
struct State {
    /// The copies, by their paths.
    entries: HashMap<String, Entry>,
    /// The number of accesses.
    accesses: u64,
}

#[derive(Debug)]
enum Entry {
    Coming(Arc<Progress>),
    Here {
        file: Arc<LocalFile>,
        /// The number of the last access.
        used: u64,
    },
    /// The store was not available at this time.
    Unavailable(Instant),
    /// A content of this name in the store cannot be used, for this reason. Others may have the same digest.
    Failed {
        content: String,
        reason: String,
    },
}

/// The progress of a fetch: it changes while the content arrives here, or at the node that is asked for it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    file: OnceLock<File>,
    /// That of the node that is asked.
    pub(super) asked: AtomicU64,
}

impl Progress {
    /// Returns a number of bytes, which may become smaller when the fetch starts again.
    fn bytes(&self) -> u64 {
        let here = self.file.get().and_then(|file| file.metadata().ok()).map_or(0, |file| file.len());
        here.wrapping_add(self.asked.load(Relaxed))
    }
}

/// A file, which is not removed while there is a second reference to it.
#[derive(Debug)]
pub(super) struct LocalFile {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// The local files of the arguments of calls, until this is dropped.
#[derive(Debug)]
pub(crate) struct Files<'a> {
    resources: &'a Arc<Resources>,
    store: &'a Store,
    tenant: Tenant,
    held: Held,
    /// Whether an argument was localised: later ones can have only the same files, so that calls do not need the whole
    /// disk at a time.
    has_first: bool,
}

/// Local files by their digests. They are not removed until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Held(HashMap<String, Arc<LocalFile>>);

/// An argument on a node.
#[derive(Debug)]
pub(crate) enum Local {
    Ready(Box<RawValue>),
    /// A file is being fetched, or does not belong to the files of earlier arguments.
    Later,
    /// A file cannot be fetched, for this reason.
    Failed(String),
}

impl<'a> Files<'a> {
    /// Returns those of calls of a tenant, which have no access to resources of others.
    pub(crate) fn new(resources: &'a Arc<Resources>, store: &'a Store, tenant: Tenant) -> Self {
        Self { resources, store, tenant, held: Held::default(), has_first: false }
    }

    /// Replaces references in an argument by the paths of local files. Missing files start to be fetched.
    pub(crate) fn localise(&mut self, argument: Box<RawValue>) -> Local {
        let found = references(argument.get());
        let mut with = Vec::new();
        for (place, reference) in found {
            let resource = Resource::parse(reference).filter(|resource| resource.tenant == self.tenant);
            let Some(resource) = resource else {
                return Local::Failed(format!("{reference:.200?} is no reference to a resource"));
            };
            let file = match self.held.0.get(&resource.digest) {
                Some(file) => Arc::clone(file),
                None if self.has_first => return Local::Later,
                None => match self.resources.get(self.store, &resource) {
                    Ok(Some(file)) => file,
                    Ok(None) => return Local::Later,
                    Err(reason) => return Local::Failed(reason),
                },
            };
            let path = serde_json::Value::from(file.path.to_string_lossy());
            with.push((place, format!("{{\"$file\":{path}}}")));
            self.held.0.insert(resource.digest, file);
        }
        self.has_first = true;
        if with.is_empty() {
            return Local::Ready(argument);
        }
        match RawValue::from_string(replaced(argument.get(), &with)) {
            Ok(argument) => Local::Ready(argument),
            Err(error) => Local::Failed(error.to_string()),
        }
    }

    pub(crate) fn into_held(self) -> Held {
        self.held
    }
}

impl Resources {
    /// Creates a place for files below a folder.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub(crate) fn within(folder: &Path) -> io::Result<Arc<Self>> {
        Self::bounded(folder, CACHE_BYTES_MAX)
    }

    pub(super) fn bounded(folder: &Path, bytes_max: u64) -> io::Result<Arc<Self>> {
        sweep(folder, PREFIX);
        let folder = WorkDir::within(folder, PREFIX)?;
        Ok(Arc::new(Self {
            folder,
            bytes_max,
            id: rand::random(),
            state: Mutex::default(),
            changed: Condvar::new(),
            peers: Mutex::default(),
        }))
    }

    /// Returns the folder of the files of a tenant. It is created, since only a folder that exists can be granted.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn folder_of(&self, tenant: &Tenant) -> io::Result<PathBuf> {
        let folder = self.folder.path().join(tenant.folder());
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Removes the files when the process exits: statics are not dropped.
    pub(crate) fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(self.folder.path()) {
            tracing::debug!(%error, "cannot remove the folder of resources");
        }
    }

    /// Waits at most so long for a file that is being fetched.
    pub(crate) fn wait(&self, most: Duration) {
        drop(self.changed.wait_timeout(self.state(), most));
    }

    /// Returns a file, or `None` while it is being fetched.
    ///
    /// # Errors
    /// The reason if it will not arrive.
    fn get(self: &Arc<Self>, store: &Store, resource: &Resource) -> Result<Option<Arc<LocalFile>>, String> {
        let mut state = self.state();
        state.accesses += 1;
        let now = state.accesses;
        match state.entries.get_mut(&resource.copy()) {
            Some(Entry::Here { file, used }) => {
                *used = now;
                return Ok(Some(Arc::clone(file)));
            }
            Some(Entry::Coming(_)) => return Ok(None),
            Some(Entry::Unavailable(since)) if since.elapsed() < RETRY_PAUSE => return Ok(None),
            Some(Entry::Failed { content, reason }) if *content == resource.content() => {
                let reason = std::mem::take(reason);
                // A later call asks again.
                state.entries.remove(&resource.copy());
                return Err(reason);
            }
            Some(Entry::Failed { .. } | Entry::Unavailable(_)) | None => {}
        }
        let progress = Arc::<Progress>::default();
        state.entries.insert(resource.copy(), Entry::Coming(Arc::clone(&progress)));
        drop(state);
        let (its, store, wanted) = (Arc::clone(self), store.clone(), resource.clone());
        let started = thread::Builder::new().name("resource".to_owned());
        started.spawn(move || its.add(&store, &wanted, &progress)).map(|_| None).map_err(|error| {
            self.state().entries.remove(&resource.copy());
            format!("resource {} cannot be fetched: {error}", resource.name)
        })
    }

    /// Adds the nodes of a job, from which files are fetched.
    pub(super) fn add_peers(&self, peers: &Arc<Peers>) {
        let mut all = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(peers));
    }

    /// Returns a file for another node. If there is none and it `starts`, fetches it, unless that has just failed.
    pub(super) fn share(
        self: &Arc<Self>,
        store: &Store,
        resource: &Resource,
        starts: bool,
    ) -> Result<Arc<LocalFile>, Answer> {
        match self.state().entries.get(&resource.copy()) {
            Some(Entry::Here { .. }) => {}
            _ if !starts => return Err(Answer::Lacks),
            Some(Entry::Unavailable(since)) if since.elapsed() < RETRY_PAUSE => return Err(Answer::Lacks),
            // The reason is for a call.
            Some(Entry::Failed { content, .. }) if *content == resource.content() => {
                return Err(Answer::Lacks);
            }
            _ => {}
        }
        let file = self.get(store, resource).map_err(|_| Answer::Lacks)?;
        file.ok_or_else(|| match self.state().entries.get(&resource.copy()) {
            Some(Entry::Coming(progress)) => Answer::Coming(progress.bytes()),
            _ => Answer::Coming(0),
        })
    }

    /// Fetches a file, and adds it.
    fn add(&self, store: &Store, resource: &Resource, progress: &Progress) {
        let fetched = self.fetch(store, resource, progress);
        let mut state = self.state();
        state.accesses += 1;
        let entry = match fetched {
            Ok(Ok(file)) => Entry::Here { file: Arc::new(file), used: state.accesses },
            Ok(Err(reason)) => Entry::Failed { content: resource.content(), reason },
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                let reason = format!("resource {}: the disk of the node is full", resource.name);
                Entry::Failed { content: resource.content(), reason }
            }
            Err(error) => {
                let name = &resource.name;
                tracing::warn!(name, %error, "a resource cannot be fetched; this is tried again");
                Entry::Unavailable(Instant::now())
            }
        };
        state.entries.insert(resource.copy(), entry);
        state.make_room(self.bytes_max);
        drop(state);
        self.peers().iter().for_each(|peers| peers.on_files_removed());
        self.changed.notify_all();
    }

    fn peers(&self) -> Vec<Arc<Peers>> {
        let all = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Fetches a file, or returns the reason why there is none.
    fn fetch(
        &self,
        store: &Store,
        resource: &Resource,
        progress: &Progress,
    ) -> io::Result<Result<LocalFile, String>> {
        let mut draft = tempfile::Builder::new();
        let mut draft = draft.permissions(Permissions::from_mode(0o444)).tempfile_in(self.folder.path())?;
        let file = draft.as_file().try_clone()?;
        progress.file.get_or_init(|| file);
        let path = self.folder_of(&resource.tenant)?.join(&resource.digest);
        for peers in self.peers() {
            if let Some(bytes) = peers.fetch(resource, draft.as_file(), progress)? {
                draft.persist(&path)?;
                return Ok(Ok(LocalFile { path, bytes }));
            }
        }
        let name = &resource.name;
        let (mut content, bytes) = match store.resource_content(resource) {
            Ok(content) => content,
            Err(ResourceError::Io(error)) => return Err(error),
            Err(error) => return Ok(Err(error.to_string())),
        };
        if bytes > RESOURCE_BYTES_MAX {
            return Ok(Err(format!("resource {name} has {bytes} bytes, more than {RESOURCE_BYTES_MAX}")));
        }
        let mut hasher = blake3::Hasher::new();
        let mut part = vec![0; PART_BYTES];
        loop {
            let read = content.read(&mut part)?;
            if read == 0 {
                break;
            }
            hasher.update(&part[..read]);
            draft.write_all(&part[..read])?;
        }
        let digest = hasher.finalize().to_hex().to_string();
        if digest != resource.digest {
            return Ok(Err(format!("resource {name} is damaged in the store: its digest is {digest}")));
        }
        draft.persist(&path)?;
        Ok(Ok(LocalFile { path, bytes }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Removes files that are not used, the least recently used ones first.
    fn make_room(&mut self, bytes_max: u64) {
        let here = |entry: &Entry| match entry {
            Entry::Here { file, used } => Some((*used, file.bytes, Arc::strong_count(file) == 1)),
            _ => None,
        };
        let mut bytes: u64 = self.entries.values().filter_map(here).map(|(_, bytes, _)| bytes).sum();
        let mut idle: Vec<_> =
            self.entries.iter().filter_map(|(digest, it)| Some((here(it)?, digest.clone()))).collect();
        idle.sort_unstable();
        // The last one was just fetched: calls wait for it.
        idle.pop();
        for ((_, size, is_idle), digest) in idle {
            if bytes > bytes_max && is_idle {
                self.entries.remove(&digest);
                bytes -= size;
            }
        }
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "cannot remove a resource");
        }
    }
}

#[cfg(test)]
mod tests;
