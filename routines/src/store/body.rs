//! Texts of direct calls: arguments and outcomes.

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use super::{Store, create_new};

/// The maximum size of a text in a message, in bytes.
const INLINE_BYTES_MAX: usize = 512 << 10;

/// The age at which the file of a text is removed: its call has ended long before.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The number of hexadecimal digits of the name of a file.
const NAME_DIGITS: usize = 32;

/// A text in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Body {
    Inline(String),
    /// A file in the store, which the caller removes.
    Stored(String),
}

impl Body {
    /// Returns whether a text needs a file.
    pub(crate) fn is_large(text: &str) -> bool {
        text.len() > INLINE_BYTES_MAX
    }
}

impl Store {
    /// Returns the path of the file of a text. The name may come from another process.
    fn value(&self, name: &str) -> io::Result<PathBuf> {
        if name.len() != NAME_DIGITS || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{name:?} is no name of a value"),
            ));
        }
        Ok(self.folder.join("values").join(name))
    }

    /// Returns a text as it is sent in messages: a large one is written into a file.
    pub(crate) fn body(&self, text: &str) -> io::Result<Body> {
        if !Body::is_large(text) {
            return Ok(Body::Inline(text.to_owned()));
        }
        let name = format!("{:0NAME_DIGITS$x}", rand::random::<u128>());
        create_new(&self.value(&name)?, text.as_bytes())?;
        Ok(Body::Stored(name))
    }

    /// Returns the same for a text that is needed for a time: its file becomes older only afterwards.
    pub(crate) fn body_for(&self, text: &str, time: Duration) -> io::Result<Body> {
        let body = self.body(text)?;
        if let Body::Stored(name) = &body {
            let file = File::open(self.value(name)?)?;
            file.set_modified(SystemTime::now() + time)?;
        }
        Ok(body)
    }

    /// Removes the files of texts that lost callers and writers have left.
    pub(crate) fn remove_old_bodies(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.folder.join("values"))? {
            let entry = entry?;
            // Another gateway may remove it, and a time in the future is not old.
            let age = entry.metadata().and_then(|data| data.modified()).map(|time| time.elapsed());
            if matches!(age, Ok(Ok(age)) if age > AGE_MAX) && fs::remove_file(entry.path()).is_ok() {
                tracing::info!(path = %entry.path().display(), "the file of a value was left over");
            }
        }
        Ok(())
    }

    /// Returns a text from a message.
    pub(crate) fn content(&self, body: &Body) -> io::Result<String> {
        match body {
            Body::Inline(text) => Ok(text.clone()),
            Body::Stored(name) => fs::read_to_string(self.value(name)?),
        }
    }

    /// Removes the file of a text, if it has one.
    pub(crate) fn remove(&self, body: &Body) {
        if let Body::Stored(name) = body
            && let Err(error) = self.value(name).and_then(fs::remove_file)
        {
            tracing::warn!(%error, "the file of a value cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;

    #[test]
    fn name_of_another_file_is_refused() {
        let folder = tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let outside = folder.path().join("outside");
        fs::write(&outside, "1").unwrap();
        for name in ["../outside", outside.to_str().unwrap(), "", "\u{e4}"] {
            let body = Body::Stored(name.to_owned());
            assert_eq!(store.content(&body).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
            store.remove(&body);
        }
        assert!(outside.exists());
    }

    #[test]
    fn only_old_files_of_texts_are_removed() {
        let folder = tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let text = "x".repeat(INLINE_BYTES_MAX + 1);
        let values =
            [store.body(&text).unwrap(), store.body_for(&text, AGE_MAX).unwrap(), store.body(&text).unwrap()];
        let [_, _, Body::Stored(name)] = &values else { panic!("{:?}", values[2]) };
        let file = File::open(folder.path().join("values").join(name)).unwrap();
        file.set_modified(SystemTime::now() - AGE_MAX * 2).unwrap();
        store.remove_old_bodies().unwrap();
        assert_eq!(values.map(|body| store.content(&body).is_ok()), [true, true, false]);
    }
}
