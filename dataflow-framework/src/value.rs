//! The content of data, whatever its type.

use std::{
    any::{Any, type_name},
    fmt,
    hash::{DefaultHasher, Hasher},
    sync::{Arc, OnceLock},
};

use bincode::enc::write::Writer;
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

/// The content of a version: as a value, encoded, or both. Clones share it.
#[derive(Clone)]
pub(crate) struct Value(Arc<Content>);

#[derive(Default)]
struct Content {
    value: OnceLock<Typed>,
    encoded: OnceLock<Arc<[u8]>>,
}

/// A value with what is known of its type.
struct Typed {
    value: Arc<dyn Any + Send + Sync>,
    kind: &'static Kind,
}

/// A type of data.
struct Kind {
    name: fn() -> &'static str,
    encode: fn(&(dyn Any + Send + Sync)) -> Result<Vec<u8>, Failed>,
    /// Returns the size of a value when it is encoded.
    size: fn(&(dyn Any + Send + Sync)) -> u64,
    /// Returns that and the hash of the encoded value.
    fingerprint: fn(&(dyn Any + Send + Sync)) -> (u64, u64),
}

/// The kind of a type.
struct KindOf<T>(T);

impl<T: Datum> KindOf<T> {
    const KIND: Kind = Kind {
        name: type_name::<T>,
        encode: |value| encode(value.downcast_ref::<T>().expect("its kind says so")),
        size: |value| size(value.downcast_ref::<T>().expect("its kind says so")),
        fingerprint: |value| fingerprint(value.downcast_ref::<T>().expect("its kind says so")),
    };
}

impl Value {
    pub(crate) fn new<T: Datum>(value: T) -> Self {
        let content = Content::default();
        let _ = content.value.set(Typed::new(Arc::new(value)));
        Self(Arc::new(content))
    }

    /// Creates it from what was encoded elsewhere.
    pub(crate) fn from_encoded(bytes: Vec<u8>) -> Self {
        let content = Content::default();
        let _ = content.encoded.set(bytes.into());
        Self(Arc::new(content))
    }

    /// Returns it as what it is.
    pub(crate) fn read<T: Datum>(self) -> Result<Arc<T>, Failed> {
        let typed = if let Some(typed) = self.0.value.get() {
            typed
        } else {
            let bytes = self.0.encoded.get().expect("it is a value or encoded");
            let value = Arc::new(decode::<T>(bytes)?);
            // If another thread was faster, both have the same.
            self.0.value.get_or_init(|| Typed::new(value))
        };
        let Typed { value, kind } = typed;
        let value = Arc::clone(value).downcast();
        value.map_err(|_| Failed::of(format!("it is a {}, not a {}", (kind.name)(), type_name::<T>())))
    }

    /// Returns it to be changed: itself if nobody else has it, otherwise a copy.
    pub(crate) fn own<T: Datum>(self) -> Result<T, Failed> {
        let value = match Arc::try_unwrap(self.0) {
            Ok(content) => match content.value.into_inner() {
                Some(Typed { value, .. }) => {
                    value.downcast().map_err(|_| Failed::of(format!("it is not a {}", type_name::<T>())))?
                }
                None => return decode(content.encoded.get().expect("it is a value or encoded")),
            },
            Err(shared) => Self(shared).read()?,
        };
        match Arc::try_unwrap(value) {
            Ok(value) => Ok(value),
            Err(shared) => decode(&encode(&*shared)?),
        }
    }

    /// Returns it encoded.
    pub(crate) fn encoded(&self) -> Result<Arc<[u8]>, Failed> {
        if let Some(encoded) = self.0.encoded.get() {
            return Ok(Arc::clone(encoded));
        }
        let Typed { value, kind } = self.0.value.get().expect("it is a value or encoded");
        let encoded = (kind.encode)(&**value)?.into();
        Ok(Arc::clone(self.0.encoded.get_or_init(|| encoded)))
    }

    /// Returns its size when it is encoded, in bytes, and the hash of that.
    pub(crate) fn fingerprint(&self) -> (u64, u64) {
        match (self.0.encoded.get(), self.0.value.get()) {
            (Some(encoded), _) => {
                let mut counter = Hashing::default();
                counter.take(encoded);
                counter.done()
            }
            (None, Some(Typed { value, kind })) => (kind.fingerprint)(&**value),
            (None, None) => unreachable!("it is a value or encoded"),
        }
    }

    /// Returns its size when it is encoded, in bytes.
    pub(crate) fn size(&self) -> u64 {
        match (self.0.encoded.get(), self.0.value.get()) {
            (Some(encoded), _) => encoded.len() as u64,
            (None, Some(Typed { value, kind })) => (kind.size)(&**value),
            (None, None) => unreachable!("it is a value or encoded"),
        }
    }
}

impl Typed {
    fn new<T: Datum>(value: Arc<T>) -> Self {
        Self { value, kind: &KindOf::<T>::KIND }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.0.value.get().map(|typed| (typed.kind.name)());
        f.debug_tuple("Value").field(&kind).finish()
    }
}

/// Encodes a value.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Failed> {
    let encoded = bincode::serde::encode_to_vec(value, bincode::config::standard());
    encoded.map_err(|error| Failed::of(format!("a {} cannot be encoded: {error}", type_name::<T>())))
}

/// Returns the size of a value when it is encoded; what cannot be encoded counts as nothing.
fn size<T: Serialize>(value: &T) -> u64 {
    let mut counter = Counter(0);
    let counted = bincode::serde::encode_into_writer(value, &mut counter, bincode::config::standard());
    counted.map_or(0, |()| counter.0)
}

/// Counts what is written.
struct Counter(u64);

impl Writer for &mut Counter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.0 += bytes.len() as u64;
        Ok(())
    }
}

/// Returns the size of a value when it is encoded, and the hash of that; what cannot be encoded counts as nothing.
fn fingerprint<T: Serialize>(value: &T) -> (u64, u64) {
    let mut counter = Hashing::default();
    let counted = bincode::serde::encode_into_writer(value, &mut counter, bincode::config::standard());
    counted.map_or((0, 0), |()| counter.done())
}

/// Counts and hashes what is written.
#[derive(Default)]
struct Hashing {
    bytes: u64,
    hasher: DefaultHasher,
}

impl Hashing {
    fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hasher.write(bytes);
    }

    fn done(self) -> (u64, u64) {
        (self.bytes, self.hasher.finish())
    }
}

impl Writer for &mut Hashing {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.take(bytes);
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::{Value, encode};

    #[test]
    fn a_value_that_came_encoded_is_the_same() {
        let list = vec![1_u64, 2, 3];
        let value = Value::from_encoded(encode(&list).expect("it can be"));
        assert_eq!(*value.clone().read::<Vec<u64>>().expect("it is one"), list);
        assert_eq!(value.clone().own::<Vec<u64>>().expect("it is one"), list);
        assert!(
            value
                .clone()
                .read::<String>()
                .expect_err("it is none")
                .reason
                .contains("not a alloc::string::String")
        );
        let other = Value::from_encoded(vec![9]);
        assert!(other.read::<Vec<u64>>().expect_err("it is cut off").reason.contains("cannot be decoded"));
    }

    #[test]
    fn the_size_is_that_of_the_encoding() {
        let value = Value::new((vec![300_u64; 100], "text".to_owned()));
        let size = value.size();
        let encoded = value.encoded().expect("it can be");
        assert_eq!(size, encoded.len() as u64);
        assert_eq!(value.size(), size);
    }

    #[test]
    fn what_nobody_else_has_is_not_copied() {
        let list = vec![1_u8; 10];
        let address = list.as_ptr();
        let value = Value::new(list);
        let copy = value.clone().own::<Vec<u8>>().expect("it is one");
        assert_ne!(copy.as_ptr(), address);
        let owned = value.own::<Vec<u8>>().expect("it is one");
        assert_eq!(owned.as_ptr(), address);
    }
}
