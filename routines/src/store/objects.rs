//! Named objects in a folder or a bucket, for threads that block.
//!
//! An object appears complete under its name, and is durable when a write returns: in a folder, the file is synced before
//! its rename, and its folder afterwards. Accesses run on a runtime of their own and may wait on any thread; on a thread of
//! an asynchronous runtime they block others.

use std::{
    fs, io,
    ops::Range,
    path::Path as FilePath,
    sync::{Arc, OnceLock, mpsc},
};

use bytes::Bytes;
use object_store::{
    Error, ObjectStore, ObjectStoreExt as _, PutMode, PutPayload,
    buffered::{BufReader, BufWriter},
    local::LocalFileSystem,
    path::Path,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::io::SyncIoBridge;
use url::Url;

/// The size of the parts in which large objects are written and read, in bytes. S3 requires 5 MiB.
pub(crate) const PART_BYTES: usize = 8 << 20;

/// A store of objects. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
    runtime: Handle,
}

/// A large object that is being written. It appears when it is shut down.
pub(crate) type Upload = SyncIoBridge<BufWriter>;

/// A large object that is being read.
pub(crate) type Download = SyncIoBridge<BufReader>;

impl Objects {
    /// Opens a folder, which is created if it is missing, or the store at a URL.
    pub(crate) fn open(place: &FilePath) -> io::Result<Self> {
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
        Self::new(Arc::new(LocalFileSystem::new_with_prefix(folder)?.with_fsync(true)))
    }

    #[cfg(feature = "s3")]
    fn bucket(url: &Url) -> io::Result<Self> {
        use object_store::{ObjectStoreScheme, RetryConfig, aws::AmazonS3Builder, prefix::PrefixStore};

        /// The time for which a failed request is repeated.
        const RETRY: std::time::Duration = std::time::Duration::from_secs(20);
        // Fails if this process has a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (_, prefix) = ObjectStoreScheme::parse(url).map_err(io::Error::other)?;
        let retry = RetryConfig { retry_timeout: RETRY, ..RetryConfig::default() };
        let bucket = AmazonS3Builder::from_env().with_url(url.as_str()).with_retry(retry).build()?;
        Self::new(Arc::new(PrefixStore::new(bucket, prefix)))
    }

    #[cfg(not(feature = "s3"))]
    fn bucket(_: &Url) -> io::Result<Self> {
        let reason = "this program is built without S3: build it with the feature s3 of routines";
        Err(io::Error::new(io::ErrorKind::Unsupported, reason))
    }

    pub(crate) fn new(store: Arc<dyn ObjectStore>) -> io::Result<Self> {
        static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();
        let start =
            || Builder::new_multi_thread().worker_threads(1).thread_name("store").enable_all().build();
        match RUNTIME.get_or_init(start) {
            Ok(runtime) => Ok(Self { store, runtime: runtime.handle().clone() }),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    /// Waits for an access.
    fn run<T: Send + 'static, F: Future<Output = object_store::Result<T>> + Send + 'static>(
        &self,
        access: impl FnOnce(Arc<dyn ObjectStore>) -> F,
    ) -> object_store::Result<T> {
        let (done, result) = mpsc::sync_channel(1);
        let access = access(Arc::clone(&self.store));
        self.runtime.spawn(async move { done.send(access.await) });
        let ended = |error| Error::Generic { store: "store", source: Box::new(error) };
        result.recv().unwrap_or_else(|error| Err(ended(error)))
    }

    /// Writes an object. An existing one is replaced.
    pub(crate) fn put(&self, name: &str, content: impl Into<PutPayload>) -> io::Result<()> {
        let (name, content) = (Path::from(name), content.into());
        self.run(|store| async move { store.put(&name, content).await }).map_err(error)?;
        Ok(())
    }

    /// Writes an object, unless it exists. Returns whether it was written; after a lost answer it may exist as well.
    pub(crate) fn create(&self, name: &str, content: impl Into<PutPayload>) -> io::Result<bool> {
        let (name, content) = (Path::from(name), content.into());
        let put =
            self.run(|store| async move { store.put_opts(&name, content, PutMode::Create.into()).await });
        match put {
            Err(Error::AlreadyExists { .. }) => Ok(false),
            put => put.map(|_| true).map_err(error),
        }
    }

    /// Reads an object. A missing one is an error of the kind `NotFound`.
    pub(crate) fn get(&self, name: &str) -> io::Result<Bytes> {
        let name = Path::from(name);
        self.run(|store| async move { store.get(&name).await?.bytes().await }).map_err(error)
    }

    pub(crate) fn get_text(&self, name: &str) -> io::Result<String> {
        String::from_utf8(self.get(name)?.into())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Reads parts of an object.
    pub(crate) fn get_ranges(&self, name: &str, ranges: Vec<Range<u64>>) -> io::Result<Vec<Bytes>> {
        let name = Path::from(name);
        self.run(|store| async move { store.get_ranges(&name, &ranges).await }).map_err(error)
    }

    /// Returns the names of the objects directly below a folder, without it, sorted.
    pub(crate) fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let folder = Path::from(folder);
        let listed = self.run(|store| async move { store.list_with_delimiter(Some(&folder)).await });
        let objects = listed.map_err(error)?.objects;
        let mut names: Vec<_> =
            objects.iter().filter_map(|object| object.location.filename().map(str::to_owned)).collect();
        names.sort();
        Ok(names)
    }

    /// Removes an object, if it exists.
    pub(crate) fn delete(&self, name: &str) -> io::Result<()> {
        let name = Path::from(name);
        match self.run(|store| async move { store.delete(&name).await }) {
            Err(Error::NotFound { .. }) => Ok(()),
            deleted => deleted.map_err(error),
        }
    }

    /// Removes an object without waiting for it, also on a thread of an asynchronous runtime.
    pub(crate) fn delete_later(&self, name: &str) {
        let objects = self.clone();
        let name = name.to_owned();
        self.runtime.spawn_blocking(move || {
            if let Err(error) = objects.delete(&name) {
                tracing::warn!(name, %error, "an object cannot be removed from the store");
            }
        });
    }

    /// Starts to write a large object. An existing one is replaced at the end. Only threads that may block use it.
    pub(crate) fn upload(&self, name: &str) -> Upload {
        let writer = BufWriter::with_capacity(Arc::clone(&self.store), Path::from(name), PART_BYTES);
        SyncIoBridge::new_with_handle(writer, self.runtime.clone())
    }

    /// Starts to read a large object, and returns its size. Only threads that may block use it.
    pub(crate) fn download(&self, name: &str) -> io::Result<(Download, u64)> {
        let name = Path::from(name);
        let data = self.run(|store| async move { store.head(&name).await }).map_err(error)?;
        let reader = BufReader::with_capacity(Arc::clone(&self.store), &data, PART_BYTES);
        Ok((SyncIoBridge::new_with_handle(reader, self.runtime.clone()), data.size))
    }

    /// Returns whether an object exists.
    pub(crate) fn exists(&self, name: &str) -> io::Result<bool> {
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
