//! The part of a node that runs routines: its store, its packages, its runtimes, its writers.

use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
};

use crate::{
    batch::Partials,
    isolation::Limits,
    package::Package,
    resource::Resources,
    runtime::{Installed, Packages, Pool, Program, Runtime, StartError, Starter},
    store::{ResultsError, Store, Writer},
    tenant::Tenant,
};

/// The host of this process. Tasks find it here, because their shared data is the same on all nodes.
static HOST: OnceLock<Host> = OnceLock::new();

/// The number of idle runtimes in addition to one for each worker.
const IDLE_MORE: usize = 2;

/// A value that its users share, locked while it is being opened.
type Shared<T> = Arc<Mutex<Weak<T>>>;

/// The part of a node that runs routines.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) store: Store,
    pub(crate) packages: Packages,
    pub(crate) resources: Arc<Resources>,
    pub(crate) starter: Starter,
    pub(crate) pool: Pool,
    writers: Mutex<HashMap<String, Weak<Writer>>>,
    /// By job and round.
    partials: Mutex<HashMap<(String, u32), Shared<Partials>>>,
    /// The first part of the names of writers.
    name: String,
}

impl Host {
    /// Creates the host of a node with this number of workers and these limits of its runtimes.
    ///
    /// # Errors
    /// If the work folder cannot be written.
    pub(crate) fn new(
        store: Store,
        work: &Path,
        program: Program,
        limits: Option<Limits>,
        workers: usize,
    ) -> io::Result<Self> {
        // It creates the folder.
        let packages = Packages::within(work)?;
        let resources = Resources::within(work)?;
        Ok(Self {
            store,
            packages,
            starter: Starter::new(work, program, limits, Arc::clone(&resources))?,
            resources,
            pool: Pool::new(workers + IDLE_MORE),
            writers: Mutex::default(),
            partials: Mutex::default(),
            name: format!("{:032x}", rand::random::<u128>()),
        })
    }

    /// Makes this the host of the process.
    ///
    /// # Errors
    /// If there is one already.
    pub(crate) fn install(self) -> Result<(), Box<Self>> {
        HOST.set(self).map_err(Box::new)
    }

    pub(crate) fn current() -> Option<&'static Self> {
        HOST.get()
    }

    /// Removes the files of this host when the process exits: statics are not dropped.
    pub(crate) fn remove(&self) {
        self.starter.remove();
        self.packages.remove();
        self.resources.remove();
    }

    /// Returns an idle runtime of a package, or starts one. It has never made a call of another tenant.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn runtime(&self, package: &Package, tenant: &Tenant) -> Result<Runtime, StartError> {
        if let Some(runtime) = self.pool.take(&tenant.key(&package.digest)) {
            return Ok(runtime);
        }
        let description = &package.description;
        let (folder, entry, kind) = (&package.folder, &description.entry, description.kind);
        let started = self.starter.start_for(tenant, folder, entry, kind, description.runtime)?;
        Ok(started.with_memory(description.memory()))
    }

    /// Keeps a runtime without calls for others, unless it must not get more.
    pub(crate) fn keep(&self, installed: &Installed, runtime: Runtime) {
        if !installed.has_used_up(&runtime) {
            self.pool.put(&runtime.tenant().key(&installed.package.digest), runtime);
        }
    }

    /// Returns the writer of a job's results.
    ///
    /// # Errors
    /// If its thread cannot be started.
    pub(crate) fn writer(&self, key: &str) -> io::Result<Arc<Writer>> {
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = writers.get(key).and_then(Weak::upgrade) {
            return Ok(writer);
        }
        writers.retain(|_, writer| writer.strong_count() > 0);
        // A new writer may not reuse the names of an earlier one.
        let name = format!("{}/{}-{:016x}", Store::job(key), self.name, rand::random::<u64>());
        let writer = Arc::new(Writer::start(self.store.objects.clone(), name)?);
        writers.insert(key.to_owned(), Arc::downgrade(&writer));
        Ok(writer)
    }

    /// Returns the results that a round of a job combines, which its tasks share.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn partials(&self, job: &str, round: u32, inputs: u64) -> Result<Arc<Partials>, ResultsError> {
        let place = {
            let mut all = self.partials.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, place| {
                let is_used = || place.lock().unwrap_or_else(PoisonError::into_inner).strong_count() > 0;
                // The first: it is being opened.
                Arc::strong_count(place) > 1 || is_used()
            });
            Arc::clone(all.entry((job.to_owned(), round)).or_default())
        };
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(partials) = place.upgrade() {
            return Ok(partials);
        }
        let partials = Arc::new(Partials::open(&self.store, job, round, inputs)?);
        *place = Arc::downgrade(&partials);
        Ok(partials)
    }
}
