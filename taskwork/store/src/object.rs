//! One object at a URI, which must not change while a program uses it.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, ErrorKind, Read as _, Write},
    os::unix::fs::MetadataExt as _,
    path::{Path as FilePath, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt as _, buffered::BufWriter,
    local::LocalFileSystem, path::Path,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{self, Sender};
use tokio_util::io::SyncIoBridge;
use url::{Position, Url};

use crate::{
    connection::SILENCE_MAX,
    objects::{Objects, PART_BYTES},
};

/// The time for which a failed request is repeated.
const RETRY: Duration = Duration::from_secs(180);

/// The time for which a failed look-up is repeated: other nodes may have the credentials or the connection.
const LOOK_UP_RETRY: Duration = Duration::from_secs(20);

/// The pause before a transfer is continued: the first one, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The number of bytes after which the next pause is a first one again.
const PROGRESS_BYTES: u64 = 1 << 20;

/// The place that clients ask for credentials if the environment has none.
const METADATA_SERVICE: &str = "169.254.169.254";

/// The number of received parts that wait for the disk.
const PARTS_AHEAD: usize = 16;

/// The maximum number of parts of an upload; S3 permits 10,000.
const PARTS_MAX: u64 = 9_000;

/// The maximum size of a file for a web server, which takes it in one request from the memory, in bytes.
const WEB_BYTES_MAX: u64 = 256 << 20;

/// The maximum length of an error of a store in a message, in characters.
const SHOWN_CHARS_MAX: usize = 300;

/// An object at a URI.
///
/// | URI | store |
/// |---|---|
/// | `s3://BUCKET/NAME` | S3, or the service at `AWS_ENDPOINT` |
/// | `gs://BUCKET/NAME` | Google Cloud Storage |
/// | `az://CONTAINER/NAME` | Azure Blob Storage of the account `AZURE_STORAGE_ACCOUNT_NAME` |
/// | `http://HOST/PATH`, `https://HOST/PATH` | a web server; writes are `PUT` requests |
/// | `file:///PATH` | the file system |
///
/// Its methods block. [`fetch`](Self::fetch) and [`put`](Self::put) panic on a thread that runs asynchronous tasks; they can be
/// called in `tokio::task::spawn_blocking`.
#[derive(Debug, Clone)]
pub struct Object {
    uri: String,
    scheme: String,
    name: String,
    path: Path,
    local_path: Option<PathBuf>,
    objects: Objects,
    look_ups: Objects,
}

/// The size and the version of an object: they differ if its content has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    bytes: u64,
    /// The version, as the store names it.
    version: Option<String>,
    /// The time of the last change since 1970, in milliseconds, if there is no other version.
    modified_ms: i64,
}

impl Tag {
    fn of(data: &ObjectMeta) -> Self {
        let version = data.e_tag.clone();
        let modified_ms = if version.is_some() { 0 } else { data.last_modified.timestamp_millis() };
        Self { bytes: data.size, version, modified_ms }
    }

    /// The number of an inode is no version: it differs between nodes.
    fn of_file(data: &fs::Metadata) -> Self {
        let modified_ms = data.mtime() * 1_000 + data.mtime_nsec() / 1_000_000;
        Self { bytes: data.len(), version: None, modified_ms }
    }

    /// Returns the size of the object, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Object {
    /// Finds the store of an object. Nothing is transferred.
    ///
    /// # Errors
    /// If the URI is invalid or contains credentials, or the program is built without this kind of store.
    pub fn new(uri: &str) -> io::Result<Self> {
        let (url, path) = parse(uri)?;
        let name = path.filename().unwrap_or_default().to_owned();
        let scheme = url.scheme().to_owned();
        let local_path = if scheme == "file" { url.to_file_path().ok() } else { None };
        let [objects, look_ups] = stores_of(&url)?;
        Ok(Self { uri: uri.to_owned(), scheme, name, path, local_path, objects, look_ups })
    }

    /// Returns the last part of its path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its path, if it is a file. Other machines may not have it.
    #[must_use]
    pub fn local_path(&self) -> Option<&FilePath> {
        self.local_path.as_deref()
    }

    /// Returns its current size and version.
    ///
    /// # Errors
    /// If there is no such object, or the store cannot be reached or refuses the request.
    pub fn tag(&self) -> io::Result<Tag> {
        if let Some(path) = &self.local_path {
            return Ok(Tag::of_file(&self.open(path)?.1));
        }
        let path = self.path.clone();
        let data = self.look_ups.run(|store| async move { store.head(&path).await });
        data.map(|data| Tag::of(&data)).map_err(|error| self.failed(error))
    }

    /// Writes its content.
    ///
    /// # Errors
    /// If it has another tag, as [`ErrorKind::InvalidData`], or as [`ErrorKind::Other`] for a file, which may be the expected one
    /// on other machines; if the store cannot be reached, refuses the request, or
    /// has no such object; or if the content cannot be written. A part may then be written.
    pub fn fetch(&self, tag: &Tag, to: &mut impl Write) -> io::Result<()> {
        if let Some(path) = &self.local_path {
            return self.copy(path, tag, to);
        }
        let (mut done, mut pause) = (0, Duration::ZERO);
        loop {
            let before = done;
            match self.receive(tag, &mut done, to) {
                // A long transfer continues where it stopped, as long as it advances.
                Err(Stopped::Store(error)) if done > before && done < tag.bytes && !is_changed(&error) => {
                    tracing::debug!(uri = self.uri, done, %error, "a transfer is continued");
                    pause = pause_after(pause, done - before);
                    thread::sleep(pause);
                }
                Err(Stopped::Store(error)) => return Err(self.failed(error)),
                Err(Stopped::Written(error)) => {
                    return Err(io::Error::new(
                        error.kind(),
                        format!("{}: it cannot be stored: {error}", self.uri),
                    ));
                }
                Ok(()) if done == tag.bytes => return Ok(()),
                Ok(()) => return Err(self.changed()),
            }
        }
    }

    /// Opens a regular file. To open a FIFO would wait for its writer.
    fn open(&self, path: &FilePath) -> io::Result<(fs::File, fs::Metadata)> {
        let opened = fs::metadata(path).and_then(|metadata| {
            if !metadata.is_file() {
                return Err(io::Error::other("it is not a regular file"));
            }
            let file = fs::File::open(path)?;
            let metadata = file.metadata()?;
            Ok((file, metadata))
        });
        opened.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.uri)))
    }

    /// Writes the content of a file, which must not change before the end.
    fn copy(&self, path: &FilePath, tag: &Tag, to: &mut impl Write) -> io::Result<()> {
        let (from, metadata) = self.open(path)?;
        if Tag::of_file(&metadata) != *tag {
            return Err(self.changed());
        }
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: it cannot be copied: {error}", self.uri))
        };
        let bytes = io::copy(&mut (&from).take(tag.bytes), to).map_err(failed)?;
        let is_same = bytes == tag.bytes && Tag::of_file(&from.metadata().map_err(failed)?) == *tag;
        if is_same { Ok(()) } else { Err(self.changed()) }
    }

    /// Writes the part of the content from a position on, which is advanced.
    fn receive(&self, tag: &Tag, done: &mut u64, to: &mut impl Write) -> Result<(), Stopped> {
        let (send, mut parts) = mpsc::channel(PARTS_AHEAD);
        // A weak tag matches no other one.
        let if_match = tag.version.clone().filter(|tag| !tag.starts_with("W/"));
        let range = (*done > 0).then_some(GetRange::Offset(*done));
        let options = GetOptions { if_match, range, ..GetOptions::default() };
        let (store, path, tag) = (Arc::clone(&self.objects.store), self.path.clone(), tag.clone());
        self.objects.runtime.spawn(async move {
            let sent = send_parts(&*store, &path, options, |data| Tag::of(data) == tag, &send).await;
            if let Err(error) = sent {
                // There is no receiver if the content cannot be written.
                let _ = send.send(Err(error)).await;
            }
        });
        while let Some(part) = parts.blocking_recv() {
            let part = part.map_err(Stopped::Store)?;
            to.write_all(&part).map_err(Stopped::Written)?;
            *done += part.len() as u64;
        }
        Ok(())
    }

    /// Writes it from a file. A previous object is replaced; before the end, readers see the previous one or none.
    ///
    /// # Errors
    /// If the file cannot be read, or the store cannot be reached or refuses it.
    pub fn put(&self, from: &mut fs::File) -> io::Result<()> {
        let failed =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {}", self.uri, self.shown(&error)));
        let bytes = from.metadata().map_err(failed)?.len();
        let is_web = self.scheme.starts_with("http");
        if is_web && bytes > WEB_BYTES_MAX {
            let reason =
                format!("it has {bytes} bytes, and a web server takes {WEB_BYTES_MAX}: use a bucket");
            return Err(failed(io::Error::new(ErrorKind::FileTooLarge, reason)));
        }
        // Up to this size, it is written in one request.
        let capacity = if is_web { bytes + 1 } else { (bytes / PARTS_MAX).max(PART_BYTES as u64) };
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        let writer = BufWriter::with_capacity(Arc::clone(&self.objects.writes), self.path.clone(), capacity);
        let mut upload = SyncIoBridge::new_with_handle(writer, self.objects.runtime.clone());
        match io::copy(from, &mut upload) {
            Ok(_) => upload.shutdown().map_err(failed),
            Err(error) => {
                // Otherwise a bucket keeps the parts.
                let mut writer = upload.into_inner();
                if let Err(error) = self.objects.runtime.block_on(writer.abort()) {
                    tracing::warn!(uri = self.uri, %error, "an incomplete upload cannot be removed");
                }
                Err(failed(error))
            }
        }
    }

    fn failed(&self, error: Error) -> io::Error {
        if is_changed(&error) {
            return self.changed();
        }
        let text = format!("{}: {}", self.uri, self.shown(&error));
        io::Error::new(io::Error::from(error).kind(), text)
    }

    fn changed(&self) -> io::Error {
        let (kind, here) = match self.local_path {
            Some(_) => (ErrorKind::Other, ", or differs on this node"),
            None => (ErrorKind::InvalidData, ""),
        };
        io::Error::new(
            kind,
            format!("{} has changed since the program began{here}: start it again", self.uri),
        )
    }

    /// Returns an error of its store as one line.
    fn shown(&self, error: &dyn std::error::Error) -> String {
        let hint = match &*self.scheme {
            _ if !error.to_string().contains(METADATA_SERVICE) => "",
            "s3" => {
                ": no credentials in the environment (AWS_ACCESS_KEY_ID, or AWS_SKIP_SIGNATURE=true for a public bucket)"
            }
            _ => ": no credentials in the environment",
        };
        shown(error) + hint
    }
}

/// Returns the pause before a transfer is continued that has received this many bytes since the previous pause.
fn pause_after(previous: Duration, bytes: u64) -> Duration {
    if bytes >= PROGRESS_BYTES { PAUSE_MIN } else { (previous * 2).clamp(PAUSE_MIN, PAUSE_MAX) }
}

/// The reason why a transfer has stopped.
enum Stopped {
    Store(Error),
    /// The content cannot be written here.
    Written(io::Error),
}

fn is_changed(error: &Error) -> bool {
    matches!(error, Error::Precondition { .. })
}

/// Sends the content of an object, if its data is the expected.
async fn send_parts(
    store: &dyn ObjectStore,
    path: &Path,
    options: GetOptions,
    is_expected: impl Fn(&ObjectMeta) -> bool + Send,
    to: &Sender<object_store::Result<Bytes>>,
) -> object_store::Result<()> {
    let found = store.get_opts(path, options).await?;
    if !is_expected(&found.meta) {
        return Err(Error::Precondition { path: path.to_string(), source: "its tag differs".into() });
    }
    let mut parts = found.into_stream();
    while let Some(part) = parts.try_next().await? {
        if to.send(Ok(part)).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Returns the store of a URI: for transfers, and for look-ups. Objects of a store share its connections.
fn stores_of(url: &Url) -> io::Result<[Objects; 2]> {
    static KNOWN: Mutex<BTreeMap<String, [Objects; 2]>> = Mutex::new(BTreeMap::new());
    let place = url[..Position::BeforePath].to_owned();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stores) = known.get(&place) {
        return Ok(stores.clone());
    }
    let open = |retry| match url.scheme() {
        "file" => Objects::new(Arc::new(LocalFileSystem::new().with_fsync(true))),
        _ => Objects::connected(url, &Path::default(), retry, SILENCE_MAX),
    };
    let stores = [open(RETRY)?, open(LOOK_UP_RETRY)?];
    known.insert(place, stores.clone());
    Ok(stores)
}

/// Checks a URI, and returns it with the path in its store. A message does not repeat credentials.
fn parse(uri: &str) -> io::Result<(Url, Path)> {
    let refuse = |shown: &str, reason: &str| {
        let shown: String = shown.chars().take(SHOWN_CHARS_MAX).collect();
        io::Error::new(ErrorKind::InvalidInput, format!("{shown:?} cannot be the URI of an object: {reason}"))
    };
    let parsed = Url::parse(uri).map_err(|_| refuse("…", "it is not SCHEME://PLACE/NAME"))?;
    // In `az://CONTAINER@ACCOUNT/NAME`, the container is in the place of a user.
    let has_user = !parsed.username().is_empty() && parsed.scheme() != "az";
    if has_user || parsed.password().is_some() {
        let shown = format!("{}://…@{}", parsed.scheme(), &parsed[Position::BeforeHost..Position::AfterPath]);
        return Err(refuse(&shown, "it contains credentials: each node has its own in its environment"));
    }
    let shown = &parsed[..Position::AfterPath];
    if !matches!(parsed.scheme(), "s3" | "gs" | "az" | "http" | "https" | "file") {
        return Err(refuse(shown, "its scheme is none of s3, gs, az, http, https and file"));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(refuse(
            shown,
            "it has a query or a fragment, which may contain credentials: name the object only",
        ));
    }
    if (parsed.scheme() == "file") == parsed.host_str().is_some_and(|host| !host.is_empty()) {
        let reason =
            "its place is missing, or is not on this machine: file:// is followed by an absolute path";
        return Err(refuse(shown, reason));
    }
    // The parser removes them.
    if uri.to_ascii_lowercase().replace("%2e", ".").split('/').any(|part| matches!(part, "." | "..")) {
        return Err(refuse(shown, "its path contains `.` or `..`"));
    }
    let path = Path::from_url_path(parsed.path());
    let path = path.map_err(|_| refuse(shown, "its path has empty or invalid parts"))?;
    if path.filename().is_none() || parsed.path().ends_with('/') {
        return Err(refuse(shown, "it does not end with a name"));
    }
    Ok((parsed, path))
}

/// Returns an error as one line.
fn shown(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_grows_to_its_limit_until_transfer_advances() {
        let mut pauses = vec![pause_after(Duration::ZERO, 1)];
        while pauses.len() < 8 {
            pauses.push(pause_after(pauses[pauses.len() - 1], PROGRESS_BYTES - 1));
        }
        let ms: Vec<_> = pauses.iter().map(Duration::as_millis).collect();
        assert_eq!(ms, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(pause_after(PAUSE_MAX, PROGRESS_BYTES), PAUSE_MIN);
    }

    #[cfg(feature = "s3")]
    #[test]
    fn error_of_missing_credentials_names_their_variables() {
        let object = Object::new("s3://bucket/genome.fa").expect("it is valid");
        let missing =
            io::Error::other(format!("PUT http://{METADATA_SERVICE}/latest/api/token {}", "x".repeat(900)));
        assert!(object.shown(&missing).contains("AWS_SKIP_SIGNATURE=true for a public bucket"));
        assert!(!object.shown(&io::Error::other("no such key")).contains("AWS_"));
    }
}
