//! Named objects in a folder or a bucket, for threads that block.
//!
//! An object appears complete under its name, and is durable when a write returns: in a folder, the file is synced before
//! its rename, and its folder afterwards. Accesses run on a runtime of their own and may wait on any thread; on a thread of
//! an asynchronous runtime they block others.

use std::{
    fs, io,
    ops::Range,
    path::{Path as FilePath, PathBuf, absolute},
    sync::{Arc, OnceLock, mpsc},
    time::Duration,
};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::{
    Error, ObjectStore, ObjectStoreExt as _, ObjectStoreScheme, PutMode, PutPayload,
    buffered::{BufReader, BufWriter},
    local::LocalFileSystem,
    path::Path,
    prefix::PrefixStore,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::io::SyncIoBridge;
use url::Url;

use crate::connection::{SILENCE_MAX, connect};

/// The time for which a failed request is repeated.
const RETRY: Duration = Duration::from_secs(20);

/// The size of the parts in which large objects are written and read, in bytes. S3 requires 5 MiB.
pub const PART_BYTES: usize = 8 << 20;

/// A store of objects. Clones share it.
#[derive(Debug, Clone)]
pub struct Objects {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// Has time limits for writes.
    pub(crate) writes: Arc<dyn ObjectStore>,
    pub(crate) runtime: Handle,
    local_path: Option<PathBuf>,
}

/// A large object that is being written. It appears when it is shut down.
pub type Upload = SyncIoBridge<BufWriter>;

/// A large object that is being read.
pub type Download = SyncIoBridge<BufReader>;

impl Objects {
    /// Opens a folder, which is created if it is missing, or the store at a URL.
    ///
    /// # Errors
    /// If the folder cannot be created, or the URL is invalid.
    pub fn open(place: &FilePath) -> io::Result<Self> {
        let url = place.to_str().filter(|text| text.contains("://"));
        let Some(url) = url else { return Self::folder(place) };
        let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidInput, reason);
        let url = Url::parse(url).map_err(|error| invalid(error.to_string()))?;
        match url.scheme() {
            "file" => {
                let folder = url.to_file_path();
                Self::folder(
                    &folder.map_err(|()| invalid("file:// is followed by an absolute path".to_owned()))?,
                )
            }
            "s3" => Self::bucket(&url),
            scheme => Err(invalid(format!("{scheme}:// is neither file:// nor s3://"))),
        }
    }

    fn folder(folder: &FilePath) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let store = Self::new(Arc::new(LocalFileSystem::new_with_prefix(folder)?.with_fsync(true)))?;
        Ok(Self { local_path: Some(absolute(folder)?), ..store })
    }

    /// Returns its path, if it is a folder.
    #[must_use]
    pub fn local_path(&self) -> Option<&FilePath> {
        self.local_path.as_deref()
    }

    /// Opens the folder of a bucket.
    fn bucket(url: &Url) -> io::Result<Self> {
        let (_, prefix) = ObjectStoreScheme::parse(url).map_err(io::Error::other)?;
        Self::connected(url, &prefix, RETRY, SILENCE_MAX)
    }

    /// Opens the objects below a path of a bucket or a web server. Failed requests are repeated for the time `retry`, and a
    /// read fails if nothing arrives for the time `silence_max`.
    pub(crate) fn connected(
        url: &Url,
        below: &Path,
        retry: Duration,
        silence_max: Duration,
    ) -> io::Result<Self> {
        let connect = |silence_max| -> io::Result<Arc<dyn ObjectStore>> {
            Ok(Arc::new(PrefixStore::new(connect(url, retry, silence_max)?, below.clone())))
        };
        Ok(Self { writes: connect(None)?, ..Self::new(connect(Some(silence_max))?)? })
    }

    /// Wraps a store.
    ///
    /// # Errors
    /// If the thread of all accesses cannot be started.
    pub fn new(store: Arc<dyn ObjectStore>) -> io::Result<Self> {
        static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();
        let start =
            || Builder::new_multi_thread().worker_threads(1).thread_name("store").enable_all().build();
        match RUNTIME.get_or_init(start) {
            Ok(runtime) => Ok(Self {
                writes: Arc::clone(&store),
                store,
                runtime: runtime.handle().clone(),
                local_path: None,
            }),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    /// Waits for a read, or a removal.
    pub(crate) fn run<T: Send + 'static, F: Future<Output = object_store::Result<T>> + Send + 'static>(
        &self,
        access: impl FnOnce(Arc<dyn ObjectStore>) -> F,
    ) -> object_store::Result<T> {
        self.wait_for(access(Arc::clone(&self.store)))
    }

    /// Waits for an access.
    fn wait_for<T: Send + 'static>(
        &self,
        access: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> object_store::Result<T> {
        let (done, result) = mpsc::sync_channel(1);
        self.runtime.spawn(async move { done.send(access.await) });
        let ended = |error| Error::Generic { store: "store", source: Box::new(error) };
        result.recv().unwrap_or_else(|error| Err(ended(error)))
    }

    /// Writes an object. An existing one is replaced.
    ///
    /// # Errors
    /// If the store cannot be reached, or refuses it.
    pub fn put(&self, name: &str, content: impl Into<PutPayload>) -> io::Result<()> {
        let (name, content) = (Path::from(name), content.into());
        let writes = Arc::clone(&self.writes);
        self.wait_for(async move { writes.put(&name, content).await }).map_err(error)?;
        Ok(())
    }

    /// Writes an object, unless it exists. Returns whether it was written; after a lost answer it may exist as well.
    ///
    /// # Errors
    /// If the store cannot be reached, or refuses it.
    pub fn create(&self, name: &str, content: impl Into<PutPayload>) -> io::Result<bool> {
        let (name, content) = (Path::from(name), content.into());
        let writes = Arc::clone(&self.writes);
        match self.wait_for(async move { writes.put_opts(&name, content, PutMode::Create.into()).await }) {
            Err(Error::AlreadyExists { .. }) => Ok(false),
            put => put.map(|_| true).map_err(error),
        }
    }

    /// Reads an object. A missing one is an error of the kind `NotFound`.
    ///
    /// # Errors
    /// If the store cannot be reached, or refuses it.
    pub fn get(&self, name: &str) -> io::Result<Bytes> {
        let name = Path::from(name);
        self.run(|store| async move { store.get(&name).await?.bytes().await }).map_err(error)
    }

    /// Reads an object as UTF-8.
    ///
    /// # Errors
    /// As [`get`](Self::get), or if it is another text.
    pub fn get_text(&self, name: &str) -> io::Result<String> {
        String::from_utf8(self.get(name)?.into())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Reads parts of an object.
    ///
    /// # Errors
    /// If the store cannot be reached, or refuses it.
    pub fn get_ranges(&self, name: &str, ranges: Vec<Range<u64>>) -> io::Result<Vec<Bytes>> {
        let name = Path::from(name);
        self.run(|store| async move { store.get_ranges(&name, &ranges).await }).map_err(error)
    }

    /// Returns the names of the objects directly below a folder, without it, sorted.
    ///
    /// # Errors
    /// If the store cannot be reached, or refuses it.
    pub fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let folder = Path::from(folder);
        let listed = self.run(|store| async move { store.list_with_delimiter(Some(&folder)).await });
        let objects = listed.map_err(error)?.objects;
        let mut names: Vec<_> =
            objects.iter().filter_map(|object| object.location.filename().map(str::to_owned)).collect();
        names.sort();
        Ok(names)
    }

    /// Returns the sizes of all objects below a folder, also in folders of it, by their names without it.
    ///
    /// # Errors
    /// If the store cannot be reached, or refuses it.
    pub fn sizes(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        let folder = Path::from(folder);
        let prefix = format!("{folder}/");
        let listed = self.run(|store| async move { store.list(Some(&folder)).try_collect::<Vec<_>>().await });
        let sizes = listed.map_err(error)?.into_iter().filter_map(|object| {
            Some((object.location.as_ref().strip_prefix(&prefix)?.to_owned(), object.size))
        });
        Ok(sizes.collect())
    }

    /// Removes an object, if it exists.
    ///
    /// # Errors
    /// If the store cannot be reached, or refuses it.
    pub fn delete(&self, name: &str) -> io::Result<()> {
        let name = Path::from(name);
        match self.run(|store| async move { store.delete(&name).await }) {
            Err(Error::NotFound { .. }) => Ok(()),
            deleted => deleted.map_err(error),
        }
    }

    /// Removes an object without waiting for it, also on a thread of an asynchronous runtime.
    pub fn delete_later(&self, name: &str) {
        let objects = self.clone();
        let name = name.to_owned();
        self.runtime.spawn_blocking(move || {
            if let Err(error) = objects.delete(&name) {
                tracing::warn!(name, %error, "an object cannot be removed from the store");
            }
        });
    }

    /// Starts to write a large object. An existing one is replaced at the end. Only threads that may block use it.
    pub fn upload(&self, name: &str) -> Upload {
        let writer = BufWriter::with_capacity(Arc::clone(&self.writes), Path::from(name), PART_BYTES);
        SyncIoBridge::new_with_handle(writer, self.runtime.clone())
    }

    /// Starts to read a large object, and returns its size. Only threads that may block use it.
    ///
    /// # Errors
    /// If the store cannot be reached, or refuses it.
    pub fn download(&self, name: &str) -> io::Result<(Download, u64)> {
        let name = Path::from(name);
        let data = self.run(|store| async move { store.head(&name).await }).map_err(error)?;
        let reader = BufReader::with_capacity(Arc::clone(&self.store), &data, PART_BYTES);
        Ok((SyncIoBridge::new_with_handle(reader, self.runtime.clone()), data.size))
    }

    /// Returns whether an object exists.
    ///
    /// # Errors
    /// If the store cannot be reached, or refuses it.
    pub fn exists(&self, name: &str) -> io::Result<bool> {
        let name = Path::from(name);
        match self.run(|store| async move { store.head(&name).await }) {
            Err(Error::NotFound { .. }) => Ok(false),
            data => data.map(|_| true).map_err(error),
        }
    }
}

fn error(error: Error) -> io::Error {
    error.into()
}
