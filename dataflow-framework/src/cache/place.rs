//! The place of a cache: a folder, or a store of objects.

#[cfg(feature = "stores")]
use std::io::Seek as _;
use std::{
    fmt,
    fs::{self, Permissions},
    io::{self, ErrorKind},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
};

use crate::stream::Broken;

/// The beginning of the names of incomplete entries in a folder. Those of killed processes stay.
const INCOMPLETE: &str = "new-";

#[derive(Debug)]
pub(super) enum Place {
    Folder(PathBuf),
    /// The URI of a store, without a `/` at its end.
    #[cfg(feature = "stores")]
    Store(String),
}

impl Place {
    /// Parses the path of a folder, or the URI of a store.
    pub(super) fn parse(text: &str) -> io::Result<Self> {
        let path = text.strip_prefix("file://").unwrap_or(text);
        if path.is_empty() || (path != text && !path.starts_with('/')) {
            let reason = format!("{text:?} is no folder: file:// is followed by an absolute path");
            return Err(io::Error::new(ErrorKind::InvalidInput, reason));
        }
        if path.contains("://") { Self::store(text) } else { Ok(Self::Folder(PathBuf::from(path))) }
    }

    #[cfg(feature = "stores")]
    fn store(text: &str) -> io::Result<Self> {
        let uri = text.trim_end_matches('/').to_owned();
        // A wrong URI is an error now, and not at the first call.
        taskwork_store::Object::new(&format!("{uri}/entry"))?;
        Ok(Self::Store(uri))
    }

    #[cfg(not(feature = "stores"))]
    fn store(text: &str) -> io::Result<Self> {
        let scheme = text.split("://").next().unwrap_or_default();
        let reason = format!(
            "this program is built without {scheme}://: build it with the feature `stores`, or name a folder"
        );
        Err(io::Error::new(ErrorKind::Unsupported, reason))
    }

    /// Returns whether an access may wait for a server.
    pub(super) fn is_remote(&self) -> bool {
        !matches!(self, Self::Folder(_))
    }

    /// Opens an entry; `None` if it is absent.
    pub(super) fn open(&self, name: &str) -> io::Result<Option<fs::File>> {
        match self {
            Self::Folder(folder) => match fs::File::open(folder.join(name)) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                opened => opened.map(Some),
            },
            #[cfg(feature = "stores")]
            Self::Store(uri) => fetch(uri, name),
        }
    }

    /// Makes the content that the closure writes an entry. It replaces another one.
    pub(super) fn write(
        &self,
        name: &str,
        fill: impl FnOnce(&mut fs::File) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        match self {
            Self::Folder(folder) => {
                let path = folder.join(name);
                path.parent().map_or(Ok(()), fs::create_dir_all)?;
                // Other users may share the cache, as the mask of this process permits.
                let permissions = Permissions::from_mode(0o666);
                let mut builder = tempfile::Builder::new();
                let mut file = builder.prefix(INCOMPLETE).permissions(permissions).tempfile_in(folder)?;
                fill(file.as_file_mut())?;
                file.persist(path).map_err(io::Error::from)?;
            }
            #[cfg(feature = "stores")]
            Self::Store(uri) => {
                let mut file = unnamed()?;
                fill(&mut file)?;
                file.rewind()?;
                object(uri, name)?.put(&mut file)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            #[cfg(feature = "stores")]
            Self::Store(uri) => f.write_str(uri),
        }
    }
}

#[cfg(feature = "stores")]
fn object(uri: &str, name: &str) -> io::Result<taskwork_store::Object> {
    // Its transfers block, which panics on a thread of an asynchronous runtime.
    if tokio::runtime::Handle::try_current().is_ok() {
        return Err(io::Error::other("the program runs its calls on a thread of an asynchronous runtime"));
    }
    taskwork_store::Object::new(&format!("{uri}/{name}"))
}

/// Creates a file without a name in the directory of this process.
#[cfg(feature = "stores")]
fn unnamed() -> io::Result<fs::File> {
    tempfile::tempfile_in(crate::file::Folder::new()?.path())
}

/// Copies an entry to a file without a name.
#[cfg(feature = "stores")]
fn fetch(uri: &str, name: &str) -> io::Result<Option<fs::File>> {
    let object = object(uri, name)?;
    let tag = match object.tag() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        tag => tag?,
    };
    let mut file = unnamed()?;
    match object.fetch(&tag, &mut file) {
        // Another node has replaced or removed it.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::NotFound) => {
            return Ok(None);
        }
        fetched => fetched?,
    }
    file.rewind()?;
    Ok(Some(file))
}
