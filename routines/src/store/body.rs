//! Texts of direct calls: arguments and outcomes.

use std::{
    io,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use super::Store;

/// The maximum size of a text in a message, in bytes.
const INLINE_BYTES_MAX: usize = 512 << 10;

/// The age at which the object of a text is removed: its call has ended long before.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The number of hexadecimal digits of the name of an object. The first half is the second at which it is removed.
const NAME_DIGITS: usize = 32;

/// The folder of texts.
const VALUES: &str = "values";

/// A text in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Body {
    Inline(String),
    /// An object in the store, which the caller removes.
    Stored(String),
}

impl Body {
    /// Returns whether a text needs an object.
    pub(crate) fn is_large(text: &str) -> bool {
        text.len() > INLINE_BYTES_MAX
    }
}

impl Store {
    /// Returns a text as it is sent in messages: a large one is written into an object.
    pub(crate) fn body(&self, text: &str) -> io::Result<Body> {
        self.body_for(text, Duration::ZERO)
    }

    /// Returns the same for a text that is needed for a time: the age of its object starts afterwards.
    pub(crate) fn body_for(&self, text: &str, time: Duration) -> io::Result<Body> {
        if !Body::is_large(text) {
            return Ok(Body::Inline(text.to_owned()));
        }
        let until = now_seconds().saturating_add((time + AGE_MAX).as_secs());
        let name = format!("{until:016x}{:016x}", rand::random::<u64>());
        self.objects.put(&object(&name)?, text.to_owned())?;
        Ok(Body::Stored(name))
    }

    /// Removes the objects of texts that lost callers and writers have left.
    pub(crate) fn remove_old_bodies(&self) -> io::Result<()> {
        self.remove_bodies_until(now_seconds())
    }

    fn remove_bodies_until(&self, seconds: u64) -> io::Result<()> {
        for name in self.objects.list(VALUES)? {
            let until = name.get(..NAME_DIGITS / 2).and_then(|until| u64::from_str_radix(until, 16).ok());
            if until.is_some_and(|until| until < seconds) {
                self.objects.delete(&object(&name)?)?;
                tracing::info!(name, "the object of a value was left over");
            }
        }
        Ok(())
    }

    /// Returns a text from a message.
    pub(crate) fn content(&self, body: &Body) -> io::Result<String> {
        match body {
            Body::Inline(text) => Ok(text.clone()),
            Body::Stored(name) => self.objects.get_text(&object(name)?),
        }
    }

    /// Removes the object of a text, if it has one, without waiting for it.
    pub(crate) fn remove(&self, body: &Body) {
        if let Body::Stored(name) = body
            && let Ok(name) = object(name)
        {
            self.objects.delete_later(&name);
        }
    }
}

/// Returns the name of the object of a text. It may come from another process.
fn object(name: &str) -> io::Result<String> {
    if name.len() != NAME_DIGITS || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no name of a value")));
    }
    Ok(format!("{VALUES}/{name}"))
}

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use std::fs;

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
    fn only_old_texts_are_removed() {
        let folder = tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let text = "x".repeat(INLINE_BYTES_MAX + 1);
        let values = [store.body(&text).unwrap(), store.body_for(&text, AGE_MAX).unwrap()];
        let is_there = || values.each_ref().map(|body| store.content(body).is_ok());
        store.remove_old_bodies().unwrap();
        assert_eq!(is_there(), [true, true]);
        store.remove_bodies_until(now_seconds() + AGE_MAX.as_secs() + 60).unwrap();
        assert_eq!(is_there(), [false, true]);
    }
}
