//! The content of data of any type.

mod identity;

use std::{
    any::{Any, TypeId, type_name},
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use serde::{Serialize, de::DeserializeOwned};
use taskwork::companion::{ObjectHasher, ObjectName};

pub(crate) use self::identity::Identity;
use crate::{
    encoding::{decode, encode, fingerprint, size},
    failure::Failed,
    file::File,
    spilled::{Spilled, Spilling},
};

/// The number of bytes that are read at a time from an encoded file.
const PART_BYTES: usize = 1 << 20;

/// The types that tasks can read and write: every type that serde can encode and decode and that threads can share.
///
/// A version may be read by several tasks at once, so its type must not have interior mutability: no `Cell`, no
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
    /// Present if there is no value. A [`File`] has its content on the disk, so it is not kept in encoded form, too.
    encoded: Mutex<Option<Encoded>>,
    /// The name of a [`File`] as an object, once it was requested.
    file_name: OnceLock<ObjectName>,
    /// Its identity, once it was requested: a later encoding of the same value may differ.
    identity: OnceLock<Identity>,
}

impl Content {
    fn encoded(&self) -> MutexGuard<'_, Option<Encoded>> {
        self.encoded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
enum Encoded {
    Here(Arc<InMemory>),
    Spilled(Spilled),
}

/// An encoding in memory.
struct InMemory {
    bytes: Vec<u8>,
    /// Its name as an object, once it was requested. Another encoding of the same value may differ.
    name: OnceLock<ObjectName>,
}

impl Encoded {
    fn here(bytes: Vec<u8>) -> Self {
        Self::Here(Arc::new(InMemory { bytes, name: OnceLock::new() }))
    }

    /// Returns its name as an object, if it is known.
    fn known_name(&self) -> Option<ObjectName> {
        match self {
            Self::Here(here) => here.name.get().copied(),
            Self::Spilled(spilled) => Some(spilled.name()),
        }
    }

    fn name(&self) -> ObjectName {
        match self {
            Self::Here(here) => *here.name.get_or_init(|| {
                let mut hasher = ObjectHasher::new();
                hasher.add(&here.bytes);
                hasher.name()
            }),
            Self::Spilled(spilled) => spilled.name(),
        }
    }

    fn decode<T: Datum>(&self) -> Result<T, Failed> {
        match self {
            // If a file cannot be written here, this may succeed on another node.
            Self::Here(here) if TypeId::of::<T>() == TypeId::of::<File>() => {
                decode(&here.bytes).map_err(Failed::in_trouble)
            }
            Self::Here(here) => decode(&here.bytes),
            Self::Spilled(spilled) => spilled.decode(),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Here(here) => here.bytes.len() as u64,
            Self::Spilled(spilled) => spilled.bytes(),
        }
    }

    fn part(&self, from: u64, bytes_max: usize) -> Result<Vec<u8>, Failed> {
        match self {
            Self::Here(here) => {
                let bytes = &here.bytes;
                let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
                let to = from.saturating_add(bytes_max).min(bytes.len());
                Ok(bytes[from..to].to_vec())
            }
            Self::Spilled(spilled) => spilled.part(from, bytes_max).map_err(Failed::of_content),
        }
    }
}

/// A value and its type.
struct Typed {
    value: Arc<dyn Any + Send + Sync>,
    kind: &'static Kind,
}

/// A type of data.
struct Kind {
    name: fn() -> &'static str,
    encode: fn(&(dyn Any + Send + Sync)) -> Result<Vec<u8>, Failed>,
    /// Encodes a value to a file.
    spill: fn(&(dyn Any + Send + Sync), &mut Spilling) -> Result<(), Failed>,
    /// Returns the encoded size of a value.
    size: fn(&(dyn Any + Send + Sync)) -> u64,
    /// Returns the encoded size and the hash of the encoding.
    fingerprint: fn(&(dyn Any + Send + Sync)) -> (u64, u128),
}

/// Provides the [`Kind`] of a type.
struct KindOf<T>(T);

impl<T: Datum> KindOf<T> {
    const KIND: Kind = Kind {
        name: type_name::<T>,
        encode: |value| encode(value.downcast_ref::<T>().expect("its kind says so")),
        spill: |value, to| to.encode(value.downcast_ref::<T>().expect("its kind says so")),
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

    pub(crate) fn from_encoded(bytes: Vec<u8>) -> Self {
        Self::of(Encoded::here(bytes))
    }

    /// Creates a value from an encoding with this name.
    pub(crate) fn from_object(bytes: Vec<u8>, name: ObjectName) -> Self {
        Self::of(Encoded::Here(Arc::new(InMemory { bytes, name: OnceLock::from(name) })))
    }

    pub(crate) fn from_spilled(spilled: Spilled) -> Self {
        Self::of(Encoded::Spilled(spilled))
    }

    fn of(encoded: Encoded) -> Self {
        Self(Arc::new(Content { encoded: Mutex::new(Some(encoded)), ..Content::default() }))
    }

    /// Returns the value as its type.
    pub(crate) fn read<T: Datum>(self) -> Result<Arc<T>, Failed> {
        let Typed { value, kind } = self.typed::<T>()?;
        let value = Arc::clone(value).downcast();
        value
            .map_err(|_| Failed::of_runtime(format!("it is a {}, not a {}", (kind.name)(), type_name::<T>())))
    }

    fn typed<T: Datum>(&self) -> Result<&Typed, Failed> {
        let Content { value, .. } = &*self.0;
        let encoded = if value.get().is_some() { None } else { self.0.encoded().clone() };
        let Some(encoded) = encoded else {
            return Ok(value.get().expect("what is not encoded is a value"));
        };
        let decoded = Arc::new(encoded.decode::<T>()?);
        // If another thread was faster, both have the same value.
        let typed = value.get_or_init(|| Typed::new(decoded));
        // A file has one encoding, so it keeps the name of the received one.
        if let (Some(_), Some(name)) = (typed.file(), encoded.known_name()) {
            let _ = self.0.file_name.set(name);
        }
        // Keeping both forms would take twice the memory; an encoding in a file takes none.
        if typed.file().is_some() || matches!(encoded, Encoded::Here(_)) {
            *self.0.encoded() = None;
        }
        Ok(typed)
    }

    /// If the value is a file, checks that it exists.
    pub(crate) fn check(&self) -> Result<(), Failed> {
        match self.0.value.get().and_then(Typed::file) {
            Some(file) => file.check(),
            None => Ok(()),
        }
    }

    /// Returns the value for modification: itself if there is no other user, otherwise a copy.
    pub(crate) fn own<T: Datum>(self) -> Result<T, Failed> {
        let value = match Arc::try_unwrap(self.0) {
            Ok(Content { value, encoded, .. }) => {
                let Some(Typed { value, .. }) = value.into_inner() else {
                    let encoded = encoded.into_inner().unwrap_or_else(PoisonError::into_inner);
                    return encoded.expect("what is no value is encoded").decode().and_then(changeable);
                };
                value
                    .downcast()
                    .map_err(|_| Failed::of_runtime(format!("it is not a {}", type_name::<T>())))?
            }
            Err(shared) => Self(shared).read()?,
        };
        match Arc::try_unwrap(value) {
            Ok(value) => changeable(value),
            Err(shared) => copy(&*shared),
        }
    }

    /// Returns the encoded size, in bytes, and up to `bytes_max` bytes of the encoding from this position.
    pub(crate) fn part(&self, from: u64, bytes_max: usize) -> Result<(u64, Vec<u8>), Failed> {
        if let Some(file) = self.0.value.get().and_then(Typed::file) {
            return file.part(from, bytes_max);
        }
        let encoded = self.encoded()?;
        Ok((encoded.bytes(), encoded.part(from, bytes_max)?))
    }

    /// Returns the encoding, or `None` for a file: the receiver would decode it to a file only when it is read.
    pub(crate) fn small(&self) -> Option<Vec<u8>> {
        if self.is_file() { None } else { Some(self.part(0, usize::MAX).ok()?.1) }
    }

    #[cfg(test)]
    pub(crate) fn is_encoded(&self) -> bool {
        self.0.encoded().is_some()
    }

    fn encoded(&self) -> Result<Encoded, Failed> {
        let encoded = self.0.encoded().clone();
        if let Some(encoded) = encoded {
            return Ok(encoded);
        }
        let Typed { value, kind } = self.0.value.get().expect("what is not encoded is a value");
        let encoded = Encoded::here((kind.encode)(&**value)?);
        Ok(self.0.encoded().get_or_insert(encoded).clone())
    }

    /// Writes the encoding to a file, unless it already is in one.
    pub(crate) fn spill(&self) -> Result<Spilled, Failed> {
        let encoded = self.0.encoded().clone();
        if let Some(Encoded::Spilled(spilled)) = encoded {
            return Ok(spilled);
        }
        let mut spilling = Spilling::new().map_err(Failed::of_node)?;
        match (encoded, self.0.value.get()) {
            (Some(Encoded::Here(here)), _) => spilling.add(&here.bytes).map_err(Failed::of_node)?,
            (_, Some(Typed { value, kind })) => (kind.spill)(&**value, &mut spilling)?,
            (_, None) => unreachable!("what is not encoded is a value"),
        }
        let spilled = spilling.end().map_err(Failed::of_node)?;
        // The content of a `File` is already on the disk, and a second file would not be removed with it.
        if !self.is_file() {
            *self.0.encoded() = Some(Encoded::Spilled(spilled.clone()));
        }
        Ok(spilled)
    }

    /// Returns a clone, or an independent value if this one is only in a file: then reading the result does not load
    /// this one into memory.
    pub(crate) fn apart(&self) -> Self {
        match &*self.0.encoded() {
            Some(Encoded::Spilled(spilled)) if self.0.value.get().is_none() => {
                Self::from_spilled(spilled.clone())
            }
            _ => self.clone(),
        }
    }

    /// Returns whether it is only in a file.
    pub(crate) fn is_only_spilled(&self) -> bool {
        self.0.value.get().is_none() && matches!(&*self.0.encoded(), Some(Encoded::Spilled(_)))
    }

    /// Returns whether it is in memory both as a value and encoded.
    pub(crate) fn is_twice(&self) -> bool {
        self.0.value.get().is_some() && matches!(&*self.0.encoded(), Some(Encoded::Here(_)))
    }

    /// Returns whether it is known to be a [`File`]: a value that is only encoded may be one, too.
    pub(crate) fn is_file(&self) -> bool {
        self.0.value.get().is_some_and(|typed| typed.file().is_some())
    }

    /// Drops the encoding in memory, if the value is there, too.
    pub(crate) fn forget_encoded(&self) {
        let mut encoded = self.0.encoded();
        let before =
            encoded.take_if(|encoded| matches!(encoded, Encoded::Here(_)) && self.0.value.get().is_some());
        drop(encoded);
        drop(before);
    }

    /// Returns the name of the encoding as an object, if it is known.
    pub(crate) fn known_name(&self) -> Option<ObjectName> {
        match &*self.0.encoded() {
            Some(encoded) => encoded.known_name(),
            None => self.0.file_name.get().copied(),
        }
    }

    /// Returns the name of the encoding as an object, which is slow if it is not known. If the encoding is `large`, it
    /// is written to a file, unless there is no room.
    pub(crate) fn find_name(&self, is_large: bool) -> Result<ObjectName, Failed> {
        if let Some(name) = self.known_name() {
            return Ok(name);
        }
        if !self.is_file() {
            let spilled = if is_large { self.spill().ok() } else { None };
            return spilled.map_or_else(|| Ok(self.encoded()?.name()), |spilled| Ok(spilled.name()));
        }
        let mut hasher = ObjectHasher::new();
        loop {
            let (_, part) = self.part(hasher.name().bytes(), PART_BYTES)?;
            if part.is_empty() {
                return Ok(*self.0.file_name.get_or_init(|| hasher.name()));
            }
            hasher.add(&part);
        }
    }

    /// Returns the encoded size, in bytes; 0 if the value cannot be encoded.
    pub(crate) fn size(&self) -> u64 {
        if let Some(encoded) = &*self.0.encoded() {
            return encoded.bytes();
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
        let typed = Self { value, kind: &KindOf::<T>::KIND };
        if let Some(file) = typed.file() {
            file.seal();
        }
        typed
    }

    /// Returns the value as a file if it is one.
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

/// Returns a value that its owner may change: versions that are files are read-only.
fn changeable<T: Datum>(mut value: T) -> Result<T, Failed> {
    match (&mut value as &mut dyn Any).downcast_mut::<File>().map(File::make_changeable) {
        Some(Err(error)) => Err(Failed::of_runtime(error)),
        _ => Ok(value),
    }
}

/// Returns a copy of a value.
fn copy<T: Datum>(value: &T) -> Result<T, Failed> {
    if let Some(file) = (value as &dyn Any).downcast_ref::<File>() {
        // A file is copied on the disk, not through the memory.
        let copy: Box<dyn Any> = Box::new(file.copy().map_err(Failed::of_runtime)?);
        return Ok(*copy.downcast().expect("it has the type of the value"));
    }
    decode(&encode(value)?)
}

#[cfg(test)]
mod tests {
    use super::{Value, encode};

    #[test]
    fn decoded_value_equals_original() {
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
    fn size_equals_length_of_encoding() {
        let value = Value::new((vec![300_u64; 100], "text".to_owned()));
        let size = value.size();
        let encoded = value.encoded().expect("it can be");
        assert_eq!(size, encoded.bytes());
        assert_eq!(value.size(), size);
    }

    #[test]
    fn value_spilled_to_file_equals_original() {
        let list = vec![300_u64; 1_000];
        let whole = encode(&list).expect("it can be");
        for value in [Value::new(list.clone()), Value::from_encoded(whole.clone())] {
            let (before, fingerprint) = (value.size(), value.fingerprint());
            let spilled = value.spill().expect("there is room");
            // A second call does not write another file.
            assert_eq!(spilled.name(), value.spill().expect("it is there").name());
            let other = Value::from_spilled(spilled);
            assert_eq!((other.size(), other.fingerprint()), (before, fingerprint));
            let part = other.part(7, 1_000).expect("it is there");
            assert_eq!(part, (before, whole[7..1_007].to_vec()));
            assert_eq!(*other.clone().read::<Vec<u64>>().expect("it is one"), list);
            assert_eq!(other.own::<Vec<u64>>().expect("it is one"), list);
        }
    }

    #[test]
    fn value_in_memory_drops_its_encoding() {
        let value = Value::from_encoded(encode(&7_u64).expect("it can be"));
        value.clone().read::<u64>().expect("it is one");
        assert!(!value.is_encoded());
        value.part(0, 1).expect("it can be encoded");
        assert!(value.is_encoded());
        value.forget_encoded();
        assert!(!value.is_encoded());
        let value = Value::from_encoded(encode(&7_u64).expect("it can be"));
        value.forget_encoded();
        assert_eq!(value.own::<u64>().expect("it is still there"), 7);
    }

    #[test]
    fn own_copies_only_shared_values() {
        let list = vec![1_u8; 10];
        let address = list.as_ptr();
        let value = Value::new(list);
        let copy = value.clone().own::<Vec<u8>>().expect("it is one");
        assert_ne!(copy.as_ptr(), address);
        let owned = value.own::<Vec<u8>>().expect("it is one");
        assert_eq!(owned.as_ptr(), address);
    }
}
