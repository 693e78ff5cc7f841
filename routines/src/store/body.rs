//! Texts of direct calls: arguments and outcomes.

use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::{Store, create_new};

/// The maximum size of a text in a message, in bytes.
const INLINE_BYTES_MAX: usize = 512 << 10;

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
    /// Returns a text as it is sent in messages: a large one is written into a file.
    pub(crate) fn body(&self, text: &str) -> io::Result<Body> {
        if !Body::is_large(text) {
            return Ok(Body::Inline(text.to_owned()));
        }
        let name = format!("{:032x}", rand::random::<u128>());
        create_new(&self.folder.join("values").join(&name), text.as_bytes())?;
        Ok(Body::Stored(name))
    }

    /// Returns a text from a message.
    pub(crate) fn content(&self, body: &Body) -> io::Result<String> {
        match body {
            Body::Inline(text) => Ok(text.clone()),
            Body::Stored(name) => fs::read_to_string(self.folder.join("values").join(name)),
        }
    }

    /// Removes the file of a text, if it has one.
    pub(crate) fn remove(&self, body: &Body) {
        if let Body::Stored(name) = body
            && let Err(error) = fs::remove_file(self.folder.join("values").join(name))
        {
            tracing::warn!(%error, "the file of a value cannot be removed");
        }
    }
}
