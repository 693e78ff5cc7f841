//! The content of data, whatever its type.

use std::{
    any::{Any, type_name},
    fmt,
    sync::Arc,
};

use serde::{Serialize, de::DeserializeOwned};

use crate::failure::Failed;

/// What tasks can read and write: every type that serde can encode and decode, and threads can share.
///
/// A version of data is read by any number of tasks at once, so its type must not change behind `&T`: no `Cell`, no
/// `Mutex`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be data of a task",
    label = "a task reads or writes this",
    note = "derive `serde::Serialize` and `serde::Deserialize` for it; it must own all it refers to, and be `Send` and \
            `Sync`"
)]
pub trait Datum: Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Datum for T {}

/// The content of a version. Clones share it.
#[derive(Clone)]
pub(crate) struct Value {
    content: Arc<dyn Any + Send + Sync>,
    type_name: &'static str,
}

impl Value {
    pub(crate) fn new<T: Datum>(content: T) -> Self {
        Self { content: Arc::new(content), type_name: type_name::<T>() }
    }

    /// Returns it as what it is.
    pub(crate) fn read<T: Datum>(self) -> Result<Arc<T>, Failed> {
        let Self { content, type_name: is } = self;
        content.downcast().map_err(|_| Failed::of(format!("it is a {is}, not a {}", type_name::<T>())))
    }

    /// Returns it to be changed: itself if nobody else has it, otherwise a copy.
    pub(crate) fn own<T: Datum>(self) -> Result<T, Failed> {
        match Arc::try_unwrap(self.read()?) {
            Ok(content) => Ok(content),
            Err(shared) => decode(&encode(&*shared)?),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Value").field(&self.type_name).finish()
    }
}

/// Encodes a value.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Failed> {
    let encoded = bincode::serde::encode_to_vec(value, bincode::config::standard());
    encoded.map_err(|error| Failed::of(format!("a {} cannot be encoded: {error}", type_name::<T>())))
}

/// Decodes a value.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failed> {
    let decoded = bincode::serde::decode_from_slice(bytes, bincode::config::standard());
    match decoded {
        Ok((value, read)) if read == bytes.len() => Ok(value),
        Ok((_, read)) => {
            let rest = bytes.len() - read;
            Err(Failed::of(format!("{rest} bytes are left after a {}", type_name::<T>())))
        }
        Err(error) => Err(Failed::of(format!("a {} cannot be decoded: {error}", type_name::<T>()))),
    }
}
