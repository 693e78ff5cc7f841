//! Named objects in a folder or a bucket, for threads that block.
//!
//! An object appears complete under its name, and is durable when a write returns: in a folder, the file is synced before
//! its rename, and its folder afterwards. Accesses run on a runtime of their own and may wait on any thread; on a thread of
//! an asynchronous runtime they block others.

use std::{
    fmt, fs,
    io::{self, Read, Write},
    ops::Range,
    path::Path as FilePath,
    sync::{Arc, OnceLock, mpsc},
};

use bytes::Bytes;
use object_store::{
    Error, MultipartUpload, ObjectStore, ObjectStoreExt as _, PutMode, PutPayload, local::LocalFileSystem,
    path::Path,
};
use tokio::runtime::{Builder, Handle, Runtime};
use url::Url;

/// The size of the parts in which large objects are written and read, in bytes. S3 requires 5 MiB.
pub(crate) const PART_BYTES: usize = 8 << 20;

/// A store of objects. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
    runtime: Handle,
}

/// A large object that is being written. It appears when it is [finished](Self::finish).
pub(crate) struct Upload {
    objects: Objects,
    /// `None` after an error.
    parts: Option<Box<dyn MultipartUpload>>,
    part: Vec<u8>,
}

/// A large object that is being read.
#[derive(Debug)]
pub(crate) struct Download {
    objects: Objects,
    name: String,
    rest: Range<u64>,
    part: Bytes,
}

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

    /// Returns the size of an object, in bytes.
    pub(crate) fn size(&self, name: &str) -> io::Result<u64> {
        let name = Path::from(name);
        Ok(self.run(|store| async move { store.head(&name).await }).map_err(error)?.size)
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

    /// Starts to write a large object. An existing one is replaced at the end.
    pub(crate) fn upload(&self, name: &str) -> io::Result<Upload> {
        let name = Path::from(name);
        let upload = self.run(|store| async move { store.put_multipart(&name).await }).map_err(error)?;
        Ok(Upload { objects: self.clone(), parts: Some(upload), part: Vec::new() })
    }

    /// Starts to read a large object.
    pub(crate) fn download(&self, name: &str) -> io::Result<Download> {
        let rest = 0..self.size(name)?;
        Ok(Download { objects: self.clone(), name: name.to_owned(), rest, part: Bytes::new() })
    }
}

impl Upload {
    fn send(&mut self) -> io::Result<()> {
        let part = std::mem::take(&mut self.part).into();
        let upload =
            self.parts.as_mut().ok_or_else(|| io::Error::other("an earlier part was not written"))?;
        let sent = upload.put_part(part);
        self.objects.run(|_| sent).map_err(error)
    }

    /// Makes the object appear.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.send()?;
        let upload = self.parts.take();
        let mut upload = upload.ok_or_else(|| io::Error::other("an earlier part was not written"))?;
        self.objects.run(|_| async move { upload.complete().await }).map_err(error)?;
        Ok(())
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PART_BYTES - self.part.len());
        self.part.extend_from_slice(&bytes[..taken]);
        if self.part.len() == PART_BYTES {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload {
    /// Removes the parts of an object that was not finished.
    fn drop(&mut self) {
        if let Some(mut upload) = self.parts.take() {
            self.objects.runtime.spawn(async move { upload.abort().await });
        }
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").finish_non_exhaustive()
    }
}

impl Download {
    /// Returns the number of bytes that are not read yet.
    pub(crate) fn left(&self) -> u64 {
        self.rest.end - self.rest.start + self.part.len() as u64
    }

    /// Returns the next part; it is empty at the end.
    pub(crate) fn next_part(&mut self) -> io::Result<Bytes> {
        if self.part.is_empty() && !self.rest.is_empty() {
            let end = self.rest.end.min(self.rest.start + PART_BYTES as u64);
            let range = self.rest.start..end;
            let parts = self.objects.get_ranges(&self.name, vec![range])?;
            self.part = parts.into_iter().next().unwrap_or_default();
            if self.part.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.rest.start += self.part.len() as u64;
        }
        Ok(std::mem::take(&mut self.part))
    }
}

impl Read for Download {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.part = self.next_part()?;
        let taken = buffer.len().min(self.part.len());
        buffer[..taken].copy_from_slice(&self.part.split_to(taken));
        Ok(taken)
    }
}

fn error(error: Error) -> io::Error {
    error.into()
}
