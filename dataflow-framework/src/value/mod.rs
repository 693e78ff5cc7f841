//! The content of data, whatever its type.

use std::{
    any::{Any, TypeId, type_name},
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    encoding::{Hashing, decode, encode, fingerprint, size},
    failure::Failed,
    file::File,
    spilled::{self, Digest, Spilled, Spilling},
};

/// How much is read at a time of what is encoded in a file, in bytes.
const PART_BYTES: usize = 1 << 20;

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
    encoded: Mutex<Option<Encoded>>,
    /// The hash of what it is encoded to, if somebody has asked for it.
    digest: OnceLock<Digest>,
}

impl Content {
    fn encoded(&self) -> MutexGuard<'_, Option<Encoded>> {
        self.encoded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a value is encoded to.
#[derive(Clone)]
enum Encoded {
    Here(Arc<[u8]>),
    Spilled(Spilled),
}

impl Encoded {
    fn decode<T: Datum>(&self) -> Result<T, Failed> {
        match self {
            // What cannot be decoded to a file may be on another node.
            Self::Here(bytes) if TypeId::of::<T>() == TypeId::of::<File>() => {
                decode(bytes).map_err(Failed::in_trouble)
            }
            Self::Here(bytes) => decode(bytes),
            Self::Spilled(spilled) => spilled.decode(),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Here(bytes) => bytes.len() as u64,
            Self::Spilled(spilled) => spilled.bytes(),
        }
    }

    fn part(&self, from: u64, bytes_max: usize) -> Result<Vec<u8>, Failed> {
        match self {
            Self::Here(bytes) => {
                let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
                let to = from.saturating_add(bytes_max).min(bytes.len());
                Ok(bytes[from..to].to_vec())
            }
            Self::Spilled(spilled) => spilled.part(from, bytes_max).map_err(Failed::of_content),
        }
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
    /// Encodes it to a file.
    spill: fn(&(dyn Any + Send + Sync), &mut Spilling) -> Result<(), Failed>,
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

    /// Creates it from what was encoded elsewhere.
    pub(crate) fn from_encoded(bytes: Vec<u8>) -> Self {
        Self::of(Encoded::Here(bytes.into()))
    }

    /// Creates it from what was encoded to a file.
    pub(crate) fn from_spilled(spilled: Spilled) -> Self {
        Self::of(Encoded::Spilled(spilled))
    }

    fn of(encoded: Encoded) -> Self {
        Self(Arc::new(Content { encoded: Mutex::new(Some(encoded)), ..Content::default() }))
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
        let Some(encoded) = encoded else {
            return Ok(value.get().expect("what is not encoded is a value"));
        };
        let decoded = Arc::new(encoded.decode::<T>()?);
        // If another thread was faster, both have the same.
        let typed = value.get_or_init(|| Typed::new(decoded));
        // Both would take twice the memory; what is in a file does not.
        if typed.file().is_some() || matches!(encoded, Encoded::Here(_)) {
            *self.0.encoded() = None;
        }
        Ok(typed)
    }

    /// Checks that a file is there.
    pub(crate) fn check(&self) -> Result<(), Failed> {
        match self.0.value.get().and_then(Typed::file) {
            Some(file) => file.check().map_err(Failed::of_content),
            None => Ok(()),
        }
    }

    /// Returns it to be changed: itself if nobody else has it, otherwise a copy.
    pub(crate) fn own<T: Datum>(self) -> Result<T, Failed> {
        let value = match Arc::try_unwrap(self.0) {
            Ok(Content { value, encoded, .. }) => {
                let Some(Typed { value, .. }) = value.into_inner() else {
                    let encoded = encoded.into_inner().unwrap_or_else(PoisonError::into_inner);
                    return encoded.expect("what is no value is encoded").decode();
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
        Ok((encoded.bytes(), encoded.part(from, bytes_max)?))
    }

    /// Returns it encoded, unless it is a file: that would not be one where it is decoded before somebody reads it.
    pub(crate) fn small(&self) -> Option<Vec<u8>> {
        if self.is_file() { None } else { Some(self.part(0, usize::MAX).ok()?.1) }
    }

    #[cfg(test)]
    pub(crate) fn is_encoded(&self) -> bool {
        self.0.encoded().is_some()
    }

    /// Returns it encoded.
    fn encoded(&self) -> Result<Encoded, Failed> {
        let encoded = self.0.encoded().clone();
        if let Some(encoded) = encoded {
            return Ok(encoded);
        }
        let Typed { value, kind } = self.0.value.get().expect("what is not encoded is a value");
        let encoded = Encoded::Here((kind.encode)(&**value)?.into());
        Ok(self.0.encoded().get_or_insert(encoded).clone())
    }

    /// Returns it encoded in a file, where it is then, or was before.
    pub(crate) fn spill(&self) -> Result<Spilled, Failed> {
        let encoded = self.0.encoded().clone();
        if let Some(Encoded::Spilled(spilled)) = encoded {
            return Ok(spilled);
        }
        let mut spilling = Spilling::new().map_err(Failed::of_node)?;
        match (encoded, self.0.value.get()) {
            (Some(Encoded::Here(bytes)), _) => spilling.add(&bytes).map_err(Failed::of_node)?,
            (_, Some(Typed { value, kind })) => (kind.spill)(&**value, &mut spilling)?,
            (_, None) => unreachable!("what is not encoded is a value"),
        }
        let spilled = spilling.end().map_err(Failed::of_node)?;
        // A file is one already, and another one would not be removed with it.
        if !self.is_file() {
            *self.0.encoded() = Some(Encoded::Spilled(spilled.clone()));
        }
        Ok(spilled)
    }

    /// Returns it as it is kept, or another one for what is only in a file, so that it is not in memory here when the
    /// other one is read.
    pub(crate) fn apart(&self) -> Self {
        match &*self.0.encoded() {
            Some(Encoded::Spilled(spilled)) if self.0.value.get().is_none() => {
                Self::from_spilled(spilled.clone())
            }
            _ => self.clone(),
        }
    }

    /// Returns whether it is in a file, and nowhere else.
    pub(crate) fn is_only_spilled(&self) -> bool {
        self.0.value.get().is_none() && matches!(&*self.0.encoded(), Some(Encoded::Spilled(_)))
    }

    /// Returns whether it is in memory both as a value and encoded.
    pub(crate) fn is_twice(&self) -> bool {
        self.0.value.get().is_some() && matches!(&*self.0.encoded(), Some(Encoded::Here(_)))
    }

    /// Returns whether it is a [`File`], as far as that is known: what came encoded may be one.
    pub(crate) fn is_file(&self) -> bool {
        self.0.value.get().is_some_and(|typed| typed.file().is_some())
    }

    /// Forgets what it was encoded to if that is in memory, and it is there as a value, too.
    pub(crate) fn forget_encoded(&self) {
        let mut encoded = self.0.encoded();
        let before =
            encoded.take_if(|encoded| matches!(encoded, Encoded::Here(_)) && self.0.value.get().is_some());
        drop(encoded);
        drop(before);
    }

    /// Returns the hash of what it is encoded to, if it is known.
    pub(crate) fn known_digest(&self) -> Option<Digest> {
        match &*self.0.encoded() {
            Some(Encoded::Spilled(spilled)) => Some(spilled.digest()),
            _ => self.0.digest.get().copied(),
        }
    }

    /// Finds out the hash of what it is encoded to, which takes a while: what is large goes to a file for that.
    pub(crate) fn find_digest(&self) -> Result<(), Failed> {
        let digest = if self.is_file() {
            spilled::digest(parts_of(|from| self.part(from, PART_BYTES)))?
        } else {
            match self.spill() {
                Ok(spilled) => spilled.digest(),
                // There is no room for it: then it is encoded in memory.
                Err(_) => spilled::digest(parts_of(|from| self.part(from, PART_BYTES)))?,
            }
        };
        let _ = self.0.digest.set(digest);
        Ok(())
    }

    /// Returns its size when it is encoded, in bytes, and the hash of that.
    pub(crate) fn fingerprint(&self) -> (u64, u64) {
        let encoded = self.0.encoded().clone();
        if let Some(encoded) = encoded {
            let mut counter = Hashing::default();
            while let Ok(part) = encoded.part(counter.bytes, PART_BYTES)
                && !part.is_empty()
            {
                counter.take(&part);
            }
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
            return encoded.bytes();
        }
        let typed = self.0.value.get().expect("what is not encoded is a value");
        match typed.file() {
            Some(file) => file.encoded_bytes().unwrap_or(0),
            None => (typed.kind.size)(&*typed.value),
        }
    }
}

/// Returns the parts of something, one after another.
fn parts_of(
    part: impl Fn(u64) -> Result<(u64, Vec<u8>), Failed>,
) -> impl Iterator<Item = Result<Vec<u8>, Failed>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let part = part(from).map(|(_, part)| part);
        from += PART_BYTES as u64;
        part.map(|part| Some(part).filter(|part| !part.is_empty())).transpose()
    })
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
        assert_eq!(size, encoded.bytes());
        assert_eq!(value.size(), size);
    }

    #[test]
    fn a_value_that_is_in_a_file_is_the_same() {
        let list = vec![300_u64; 1_000];
        let whole = encode(&list).expect("it can be");
        for value in [Value::new(list.clone()), Value::from_encoded(whole.clone())] {
            let (before, fingerprint) = (value.size(), value.fingerprint());
            let spilled = value.spill().expect("there is room");
            // It is there once.
            assert_eq!(spilled.digest(), value.spill().expect("it is there").digest());
            let other = Value::from_spilled(spilled);
            assert_eq!((other.size(), other.fingerprint()), (before, fingerprint));
            let part = other.part(7, 1_000).expect("it is there");
            assert_eq!(part, (before, whole[7..1_007].to_vec()));
            assert_eq!(*other.clone().read::<Vec<u64>>().expect("it is one"), list);
            assert_eq!(other.own::<Vec<u64>>().expect("it is one"), list);
        }
    }

    #[test]
    fn what_was_decoded_or_can_be_encoded_is_there_once() {
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
