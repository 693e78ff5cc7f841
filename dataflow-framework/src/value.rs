//! The content of data, whatever its type.

use std::{
    any::{Any, type_name},
    fmt,
    hash::{DefaultHasher, Hasher},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use bincode::enc::write::Writer;
use serde::{Serialize, de::DeserializeOwned};

use crate::{failure::Failed, file::File};

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
    /// There if it is no value. A [`File`] has its content on the disk, so it is not kept encoded, too.
    encoded: Mutex<Option<Arc<[u8]>>>,
}

impl Content {
    fn encoded(&self) -> MutexGuard<'_, Option<Arc<[u8]>>> {
        self.encoded.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let content = Content { encoded: Mutex::new(Some(bytes.into())), ..Content::default() };
        Self(Arc::new(content))
    }

    /// Returns it as what it is.
    pub(crate) fn read<T: Datum>(self) -> Result<Arc<T>, Failed> {
        let Typed { value, kind } = self.typed::<T>()?;
        let value = Arc::clone(value).downcast();
        value.map_err(|_| Failed::of(format!("it is a {}, not a {}", (kind.name)(), type_name::<T>())))
    }

    fn typed<T: Datum>(&self) -> Result<&Typed, Failed> {
        let Content { value, .. } = &*self.0;
        let encoded = if value.get().is_some() { None } else { self.0.encoded().clone() };
        let Some(bytes) = encoded else {
            return Ok(value.get().expect("what is not encoded is a value"));
        };
        let decoded = Arc::new(decode::<T>(&bytes)?);
        // If another thread was faster, both have the same.
        let typed = value.get_or_init(|| Typed::new(decoded));
        if typed.file().is_some() {
            *self.0.encoded() = None;
        }
        Ok(typed)
    }

    /// Returns it to be changed: itself if nobody else has it, otherwise a copy.
    pub(crate) fn own<T: Datum>(self) -> Result<T, Failed> {
        let value = match Arc::try_unwrap(self.0) {
            Ok(Content { value, encoded }) => {
                let Some(Typed { value, .. }) = value.into_inner() else {
                    let encoded = encoded.into_inner().unwrap_or_else(PoisonError::into_inner);
                    return decode(&encoded.expect("what is no value is encoded"));
                };
                value.downcast().map_err(|_| Failed::of(format!("it is not a {}", type_name::<T>())))?
            }
            Err(shared) => Self(shared).read()?,
        };
        match Arc::try_unwrap(value) {
            Ok(value) => Ok(value),
            Err(shared) => copy(&*shared),
        }
    }

    /// Returns its size when it is encoded, in bytes, and at most so many bytes of that from this position.
    pub(crate) fn part(&self, from: u64, bytes_max: usize) -> Result<(u64, Vec<u8>), Failed> {
        if let Some(file) = self.0.value.get().and_then(Typed::file) {
            return file.part(from, bytes_max);
        }
        let encoded = self.encoded()?;
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(encoded.len());
        let to = from.saturating_add(bytes_max).min(encoded.len());
        Ok((encoded.len() as u64, encoded[from..to].to_vec()))
    }

    /// Returns it encoded, unless it is a file: that would not be one where it is decoded before somebody reads it.
    pub(crate) fn small(&self) -> Option<Vec<u8>> {
        let is_file = self.0.value.get().is_some_and(|typed| typed.file().is_some());
        if is_file { None } else { Some(self.encoded().ok()?.to_vec()) }
    }

    #[cfg(test)]
    pub(crate) fn is_encoded(&self) -> bool {
        self.0.encoded().is_some()
    }

    /// Returns it encoded.
    fn encoded(&self) -> Result<Arc<[u8]>, Failed> {
        let encoded = self.0.encoded().clone();
        if let Some(encoded) = encoded {
            return Ok(encoded);
        }
        let Typed { value, kind } = self.0.value.get().expect("what is not encoded is a value");
        let encoded = (kind.encode)(&**value)?.into();
        Ok(Arc::clone(self.0.encoded().get_or_insert(encoded)))
    }

    /// Returns its size when it is encoded, in bytes, and the hash of that.
    pub(crate) fn fingerprint(&self) -> (u64, u64) {
        let encoded = self.0.encoded().clone();
        if let Some(encoded) = encoded {
            let mut counter = Hashing::default();
            counter.take(&encoded);
            return counter.done();
        }
        let Typed { value, kind } = self.0.value.get().expect("what is not encoded is a value");
        (kind.fingerprint)(&**value)
    }

    /// Does the same as [`fingerprint`](Self::fingerprint), but does not rely on how it was encoded before.
    pub(crate) fn fingerprint_now(&self) -> (u64, u64) {
        match self.0.value.get() {
            Some(Typed { value, kind }) => (kind.fingerprint)(&**value),
            None => self.fingerprint(),
        }
    }

    /// Returns its size when it is encoded, in bytes; what cannot be encoded counts as nothing.
    pub(crate) fn size(&self) -> u64 {
        if let Some(encoded) = &*self.0.encoded() {
            return encoded.len() as u64;
        }
        let typed = self.0.value.get().expect("what is not encoded is a value");
        match typed.file() {
            Some(file) => file.encoded_bytes().unwrap_or(0),
            None => (typed.kind.size)(&*typed.value),
        }
    }
}

impl Typed {
    fn new<T: Datum>(value: Arc<T>) -> Self {
        Self { value, kind: &KindOf::<T>::KIND }
    }

    /// Returns it as a file if it is one.
    fn file(&self) -> Option<&File> {
        self.value.downcast_ref()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.0.value.get().map(|typed| (typed.kind.name)());
        f.debug_tuple("Value").field(&kind).finish()
    }
}

/// Returns a copy of a value.
fn copy<T: Datum>(value: &T) -> Result<T, Failed> {
    if let Some(file) = (value as &dyn Any).downcast_ref::<File>() {
        // Not by way of the memory.
        let copy: Box<dyn Any> = Box::new(file.copy().map_err(Failed::of)?);
        return Ok(*copy.downcast().expect("it has the type of the value"));
    }
    decode(&encode(value)?)
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
