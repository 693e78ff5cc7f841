//! The encoding of files for transfer to other nodes: the name, the executable flag, and the content in chunks. A file that
//! every node has is encoded as its path, without content.
//!
//! A file is read and written chunk by chunk, so that its content is in memory only in encoded form. Any part of the
//! encoding can be computed without the rest: parts are sent straight from the disk.

use std::{
    fmt, fs,
    io::{self, BufWriter, ErrorKind, Read as _, Write as _},
    os::unix::fs::FileExt as _,
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeSeed, Error as _, SeqAccess, Visitor},
    ser::{Error as _, SerializeSeq as _, SerializeTuple as _},
};

use super::{File, Stamp, is_executable};
use crate::{encoding::encode, failure::Failed};

/// The size of a chunk, in bytes; the last one of a file is smaller.
const CHUNK_BYTES: usize = 128 << 10;

/// The fields before the content.
#[derive(Serialize, Deserialize)]
struct Header<S> {
    name: S,
    is_executable: bool,
    /// The size of the content, in bytes.
    bytes: u64,
    /// The path and the stamp of a file that every node has.
    everywhere: Option<(S, Stamp)>,
}

impl File {
    /// Opens the file for encoding. A file that every node has is not accessed, and has no content.
    fn opened(&self) -> io::Result<(Option<fs::File>, Header<&str>)> {
        if let (true, Some(path), Some(stamp)) = (self.is_everywhere(), self.path.to_str(), self.stamp()) {
            let everywhere = Some((path, stamp));
            return Ok((None, Header { name: self.name(), is_executable: false, bytes: 0, everywhere }));
        }
        let file = fs::File::open(&self.path).map_err(|error| self.cannot("read", &error))?;
        let metadata = file.metadata().map_err(|error| self.cannot("read", &error))?;
        self.refuse_changes(&metadata)?;
        let (is_executable, bytes) = (is_executable(&metadata), metadata.len());
        Ok((Some(file), Header { name: self.name(), is_executable, bytes, everywhere: None }))
    }

    /// Checks that it can be read and, as a version, has not changed.
    pub(super) fn check_content(&self) -> io::Result<()> {
        self.opened().map(drop)
    }

    /// Returns the encoded size, in bytes.
    pub(crate) fn encoded_bytes(&self) -> Result<u64, Failed> {
        let (_, header) = self.opened().map_err(Failed::of_content)?;
        Ok(Layout::of(&header)?.total())
    }

    /// Returns the encoded size, and up to `bytes_max` bytes of the encoding from this position.
    pub(crate) fn part(&self, from: u64, bytes_max: usize) -> Result<(u64, Vec<u8>), Failed> {
        let (file, header) = self.opened().map_err(Failed::of_content)?;
        let layout = Layout::of(&header)?;
        let total = layout.total();
        let mut part = Part { skip: from, bytes_max, bytes: Vec::new() };
        part.take(&layout.head);
        // Skipped chunks are not read.
        let skipped = part.skip / layout.chunk();
        part.skip -= skipped * layout.chunk();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut position = skipped.saturating_mul(CHUNK_BYTES as u64);
        while let Some(file) = &file
            && position < layout.bytes
            && !part.is_full()
        {
            let length = length(layout.bytes - position);
            let chunk = &mut chunk[..length];
            file.read_exact_at(chunk, position)
                .map_err(|error| Failed::of_content(self.cannot("read", &error)))?;
            part.take(&encode(&(length as u64))?);
            part.take(chunk);
            position += length as u64;
        }
        Ok((total, part.bytes))
    }
}

/// Returns the length of the next chunk when this many bytes are left.
fn length(left: u64) -> usize {
    usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES))
}

/// The layout of an encoded file. A sequence starts with its length, and so does a chunk.
struct Layout {
    /// The bytes before the chunks.
    head: Vec<u8>,
    /// The size of the encoded length of a full chunk.
    prefix: u64,
    /// The size of the last chunk with its encoded length, if it is not a full one.
    last: u64,
    /// The size of the content.
    bytes: u64,
}

impl Layout {
    fn of(header: &Header<&str>) -> Result<Self, Failed> {
        let bytes = header.bytes;
        let left = bytes % CHUNK_BYTES as u64;
        let last = if left > 0 { encode(&left)?.len() as u64 + left } else { 0 };
        let head = encode(&(header, bytes.div_ceil(CHUNK_BYTES as u64)))?;
        Ok(Self { head, prefix: encode(&(CHUNK_BYTES as u64))?.len() as u64, last, bytes })
    }

    /// Returns the size of a full chunk with its encoded length.
    fn chunk(&self) -> u64 {
        self.prefix + CHUNK_BYTES as u64
    }

    fn total(&self) -> u64 {
        self.head.len() as u64 + self.bytes / CHUNK_BYTES as u64 * self.chunk() + self.last
    }
}

/// Selects a part of a stream of bytes.
struct Part {
    /// The number of bytes to skip.
    skip: u64,
    bytes_max: usize,
    bytes: Vec<u8>,
}

impl Part {
    fn take(&mut self, bytes: &[u8]) {
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
        self.skip -= skipped as u64;
        let bytes = &bytes[skipped..];
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(self.bytes_max - self.bytes.len())]);
    }

    fn is_full(&self) -> bool {
        self.bytes.len() == self.bytes_max
    }
}

impl Serialize for File {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (content, header) = self.opened().map_err(S::Error::custom)?;
        let bytes = header.bytes;
        let mut pair = serializer.serialize_tuple(2)?;
        pair.serialize_element(&header)?;
        pair.serialize_element(&Chunks { file: self, content, bytes })?;
        pair.end()
    }
}

/// The content of a file.
struct Chunks<'a> {
    file: &'a File,
    content: Option<fs::File>,
    bytes: u64,
}

impl Serialize for Chunks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let chunks = usize::try_from(self.bytes.div_ceil(CHUNK_BYTES as u64)).map_err(S::Error::custom)?;
        let mut all = serializer.serialize_seq(Some(chunks))?;
        let mut chunk = vec![0; CHUNK_BYTES.min(length(self.bytes))];
        let mut left = self.bytes;
        while let Some(mut content) = self.content.as_ref()
            && left > 0
        {
            let chunk = &mut chunk[..length(left)];
            // The file ends too early if it is truncated while it is read.
            let read = content.read_exact(chunk);
            read.map_err(|error| S::Error::custom(self.file.cannot("read", &error)))?;
            all.serialize_element(&Bytes(chunk))?;
            left -= chunk.len() as u64;
        }
        all.end()
    }
}

/// Bytes, encoded as one element.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de> Deserialize<'de> for File {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_tuple(2, FileVisitor)
    }
}

struct FileVisitor;

impl<'de> Visitor<'de> for FileVisitor {
    type Value = File;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name and the content of a file")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<File, A::Error> {
        let header: Header<String> =
            pair.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        if let Some((path, stamp)) = header.everywhere {
            pair.next_element::<Vec<()>>()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
            let file = File::reference(&path, Some(stamp)).map_err(A::Error::custom)?;
            file.check().map_err(|failed| A::Error::custom(failed.reason))?;
            return Ok(file);
        }
        // The name comes from another node, so it is checked before anything is created.
        let file = File::nothing(&header.name).map_err(A::Error::custom)?;
        let content = fs::File::create_new(&file.path)
            .map_err(|error| A::Error::custom(file.cannot("created", &error)))?;
        let mut writing = Writing { file: &file, to: BufWriter::new(content), bytes: 0 };
        pair.next_element_seed(&mut writing)?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
        let is_whole = writing.bytes == header.bytes;
        let flushed = writing.to.flush();
        flushed.map_err(|error| A::Error::custom(file.cannot("written", &error)))?;
        if !is_whole {
            let error = io::Error::new(ErrorKind::InvalidData, "the size of its content is wrong");
            return Err(A::Error::custom(file.cannot("written", &error)));
        }
        file.set_executable(header.is_executable).map_err(A::Error::custom)?;
        Ok(file)
    }
}

/// A file to which chunks are written.
struct Writing<'a> {
    file: &'a File,
    to: BufWriter<fs::File>,
    /// The number of bytes written.
    bytes: u64,
}

impl<'de> DeserializeSeed<'de> for &mut Writing<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut Writing<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the chunks of a file")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut chunks: A) -> Result<(), A::Error> {
        while chunks.next_element_seed(Chunk(&mut *self))?.is_some() {}
        Ok(())
    }
}

/// The next chunk of a file.
struct Chunk<'a, 'b>(&'a mut Writing<'b>);

impl<'de> DeserializeSeed<'de> for Chunk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Chunk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes of a file")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<(), E> {
        let Writing { file, to, bytes: all } = self.0;
        *all += bytes.len() as u64;
        to.write_all(bytes).map_err(|error| E::custom(file.cannot("written", &error)))
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, File, Header};
    use crate::{
        encoding::{decode, encode},
        value::Value,
    };

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|place| u8::try_from(place * 7 % 251).unwrap_or_default()).collect()
    }

    #[test]
    fn decoded_file_equals_original() {
        for bytes in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES] {
            let file = File::new("a name", content(bytes)).expect("it can be made");
            file.set_executable(bytes == 1).expect("it can be");
            let encoded = encode(&file).expect("it can be");
            let other: File = decode(&encoded).expect("it was encoded");
            assert_ne!(other.path(), file.path());
            assert_eq!(other.name(), "a name");
            assert_eq!(other.read_bytes().expect("it is there"), content(bytes));
            assert_eq!(other.opened().expect("it is there").1.is_executable, bytes == 1);
            assert_eq!(file.encoded_bytes().expect("it is there"), encoded.len() as u64, "{bytes} bytes");
        }
    }

    #[test]
    fn part_equals_the_same_range_of_the_whole_encoding() {
        for bytes in [0, 5, CHUNK_BYTES, 2 * CHUNK_BYTES + 300] {
            let file = File::new("parts", content(bytes)).expect("it can be made");
            let whole = encode(&file).expect("it can be");
            let places = (0..20).chain(CHUNK_BYTES - 20..CHUNK_BYTES + 40);
            for from in places.chain(2 * CHUNK_BYTES - 9..2 * CHUNK_BYTES + 40).chain([usize::MAX / 2]) {
                for most in [1, 9, CHUNK_BYTES, 5 * CHUNK_BYTES] {
                    let (total, part) = file.part(from as u64, most).expect("it is there");
                    assert_eq!(total, whole.len() as u64);
                    let expected = &whole[from.min(whole.len())..from.saturating_add(most).min(whole.len())];
                    assert!(part == expected, "{most} from {from} of {bytes}");
                }
            }
        }
    }

    #[test]
    fn received_file_keeps_its_object_name_when_it_is_read() {
        let encoded = encode(&File::new("data", "content").expect("it can be made")).expect("it can be");
        let spilled = Value::from_encoded(encoded.clone()).spill().expect("there is room");
        let name = spilled.name();
        for value in [Value::from_object(encoded, name), Value::from_spilled(spilled)] {
            let file = value.clone().read::<File>().expect("it is one");
            assert!(!value.is_encoded());
            assert_eq!(value.known_name(), Some(name));
            // It is that of the encoding from now on.
            let again = Value::new(file.copy().expect("it can be"));
            assert_eq!(again.find_name(false).expect("it is there"), name);
        }
    }

    #[test]
    fn name_outside_of_directory_is_refused() {
        let long = "n".repeat(256);
        for name in ["", ".", "..", "../escaped", "/tmp/escaped", "a/b", "a/", "zero\0", &long] {
            let header = Header { name, is_executable: false, bytes: 0, everywhere: None };
            let encoded = encode(&(header, Vec::<u8>::new())).expect("it can be");
            let error = decode::<File>(&encoded).expect_err("it is no name");
            assert!(error.reason.contains("cannot be the name of a file"), "{}", error.reason);
        }
    }

    #[test]
    fn truncated_content_is_refused() {
        let header = Header { name: "short", is_executable: false, bytes: 3, everywhere: None };
        let encoded = encode(&(header, vec![vec![1_u8, 2]])).expect("it can be");
        let error = decode::<File>(&encoded).expect_err("it has two bytes");
        assert!(error.reason.contains("size of its content is wrong"), "{}", error.reason);
        let encoded = encode(&File::new("cut", "content").expect("it can be made")).expect("it can be");
        for bytes in 0..encoded.len() {
            decode::<File>(&encoded[..bytes]).expect_err("it is cut off");
        }
    }
}
