//! Files in stores of objects: URIs as inputs and outputs of commands.

use std::{collections::HashMap, io, thread};

use dataflow_framework::{Data, File};

/// The maximum number of simultaneous look-ups.
const LOOK_UPS_MAX: usize = 16;

pub(crate) fn is_uri(path: &str) -> bool {
    path.contains("://")
}

/// Returns the path of a file, also of one at a URI, in the folder of its command: `s3/bucket/name` for `s3://bucket/name`.
pub(crate) fn in_folder(path: &str) -> String {
    path.split_once("://").map_or_else(
        || path.to_owned(),
        |(scheme, rest)| format!("{scheme}/{}", rest.trim_start_matches('/')),
    )
}

/// Checks a URI.
pub(crate) fn check(uri: &str, is_output: bool) -> Result<(), String> {
    if is_output && uri.starts_with("http") {
        return Err("a web server is only for inputs: use a bucket or a path".to_owned());
    }
    check_path(&in_folder(uri))?;
    known::check(uri)
}

fn check_path(path: &str) -> Result<(), &'static str> {
    crate::plan::check_path(path)
        .map_err(|_| "a URI has at most 4,095 bytes, and contains no `.`, `..` or empty part")
}

/// Returns the versions of the objects at these URIs; `None` for a missing one.
pub(crate) fn versions<'a>(uris: &[&'a str]) -> Result<HashMap<&'a str, Option<String>>, String> {
    thread::scope(|scope| {
        let look_up = |some: &[&'a str]| -> io::Result<Vec<_>> {
            some.iter().map(|uri| Ok((*uri, known::version(uri)?))).collect()
        };
        let chunks = uris.chunks(uris.len().div_ceil(LOOK_UPS_MAX).max(1));
        let all: Vec<_> = chunks.map(|some| scope.spawn(move || look_up(some))).collect();
        let mut versions = HashMap::new();
        for some in all {
            let some = some.join().map_err(|_| "a look-up has panicked".to_owned())?;
            versions.extend(some.map_err(|error| error.to_string())?);
        }
        Ok(versions)
    })
}

/// Returns the content of an object as data.
pub(crate) fn read(uri: &str) -> Result<Data<File>, String> {
    known::read(uri)
}

/// Writes a file to an object, and returns its size as data.
pub(crate) fn publish(file: &Data<File>, uri: &str) -> Result<Data<u64>, String> {
    known::publish(file, uri)
}

#[cfg(feature = "stores")]
mod known {
    use serde_json::Value;
    use taskwork_store::Object;

    use super::{Data, File, io};

    pub(super) fn check(uri: &str) -> Result<(), String> {
        Object::new(uri).map(|_| ()).map_err(|error| error.to_string())
    }

    pub(super) fn version(uri: &str) -> io::Result<Option<String>> {
        match Object::new(uri)?.tag() {
            Ok(tag) if uri.starts_with("http") && has_size_only(&serde_json::to_value(&tag)?) => {
                Err(io::Error::other(format!(
                    "{uri}: the server sends neither ETag nor Last-Modified, so a change of the object would not be \
                     noticed: copy the object into the folder of the job file, or to a server that sends one of them"
                )))
            }
            Ok(tag) => Ok(Some(serde_json::to_string(&tag)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether a tag differs only between objects of different sizes.
    fn has_size_only(tag: &Value) -> bool {
        tag["version"].is_null() && tag["modified_ms"] == 0
    }

    #[allow(clippy::unnecessary_wraps, reason = "without the feature, it fails")]
    pub(super) fn read(uri: &str) -> Result<Data<File>, String> {
        Ok(File::at(uri))
    }

    #[allow(clippy::unnecessary_wraps, reason = "without the feature, it fails")]
    pub(super) fn publish(file: &Data<File>, uri: &str) -> Result<Data<u64>, String> {
        Ok(file.publish_to(uri))
    }
}

#[cfg(not(feature = "stores"))]
mod known {
    use super::{Data, File, io};

    pub(super) fn check(uri: &str) -> Result<(), String> {
        let scheme = uri.split_once("://").map_or(uri, |(scheme, _)| scheme);
        Err(format!(
            "this program is built without {scheme}://: build it with the feature `stores`, or use a path"
        ))
    }

    pub(super) fn version(uri: &str) -> io::Result<Option<String>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, check(uri).err().unwrap_or_default()))
    }

    pub(super) fn read(uri: &str) -> Result<Data<File>, String> {
        check(uri)?;
        Err(String::new())
    }

    pub(super) fn publish(_file: &Data<File>, uri: &str) -> Result<Data<u64>, String> {
        check(uri)?;
        Err(String::new())
    }
}
