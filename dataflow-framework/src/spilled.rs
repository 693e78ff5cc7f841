//! Encoded data in files: data beyond the limit of a node's store, and data that is too large to be in memory during
//! a transfer between nodes. Its hash is verified when it is read back.

use std::{
    any::type_name,
    fmt, fs,
    io::{self, BufReader, BufWriter, Read, Write},
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::Arc,
};

use bincode::error::EncodeError;
use serde::{Serialize, de::DeserializeOwned};
use taskwork::companion::{ObjectHasher, ObjectName};

use crate::{
    encoding::decode_read,
    failure::Failed,
    file::{Folder, told},
};

/// The size from which a version is transferred through files, so that it is not in memory twice, in bytes.
pub(crate) const LARGE_BYTES_MIN: u64 = 16 << 20;

/// The size of the buffers for reading and writing, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// The name of the file, in a directory of its own.
const NAME: &str = "version";

/// Encoded data in a file, which is removed with the last clone of this.
#[derive(Clone)]
pub(crate) struct Spilled(Arc<Content>);

struct Content {
    folder: Folder,
    name: ObjectName,
}

impl Content {
    fn path(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }
}

impl Spilled {
    /// Returns its size, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.name.bytes()
    }

    /// Returns its name, by which other nodes fetch it and its content is verified.
    pub(crate) fn name(&self) -> ObjectName {
        self.0.name
    }

    /// Returns up to `bytes_max` bytes from a position. They are not verified: the receiver of the whole data does
    /// that.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn part(&self, from: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        let left = usize::try_from(self.bytes().saturating_sub(from)).unwrap_or(usize::MAX);
        let mut part = vec![0; left.min(bytes_max)];
        let path = self.0.path();
        let read = fs::File::open(&path).and_then(|file| file.read_exact_at(&mut part, from));
        read.map(|()| part).map_err(|error| told(&path, "it cannot be read", &error))
    }

    /// Decodes and verifies the data.
    ///
    /// # Errors
    /// If it cannot be read, or does not match its hash.
    pub(crate) fn decode<T: DeserializeOwned>(&self) -> Result<T, Failed> {
        let path = self.0.path();
        let wrong = |what: &dyn fmt::Display| Failed::of_content(format!("{}: {what}", path.display()));
        let opened = fs::File::open(&path);
        let file = opened.map_err(|error| wrong(&format_args!("it cannot be read: {error}")))?;
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, Hashed::of(file));
        let decoded = decode_read(&mut reader, self.bytes());
        // The remaining bytes are hashed, too.
        let rest = io::copy(&mut reader, &mut io::sink());
        let is_same = reader.into_inner().hasher.name() == self.0.name;
        match (decoded, rest) {
            (Ok(value), Ok(0)) if is_same => Ok(value),
            (_, Ok(_)) if !is_same => Err(wrong(&"its content does not match its hash")),
            (Ok(_), Ok(rest)) => {
                Err(Failed::of_runtime(format!("{rest} bytes are left after a {}", type_name::<T>())))
            }
            // Decoding may fail because a file within the data cannot be written here.
            (Err(error), Ok(_)) => {
                Err(Failed::of_node(format!("a {} cannot be decoded: {error}", type_name::<T>())))
            }
            (_, Err(error)) => Err(wrong(&format_args!("it cannot be read: {error}"))),
        }
    }
}

impl fmt::Debug for Spilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spilled").field("path", &self.0.path()).field("name", &self.0.name).finish()
    }
}

/// Encoded data that is being written to a file sequentially.
pub(crate) struct Spilling {
    folder: Folder,
    file: BufWriter<Hashed>,
}

impl Spilling {
    /// Creates a file.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn new() -> io::Result<Self> {
        let (folder, file) = made()?;
        Ok(Self { folder, file: BufWriter::with_capacity(BUFFER_BYTES, Hashed::of(file)) })
    }

    fn cannot(&self, error: &io::Error) -> io::Error {
        told(&self.folder.path().join(NAME), "it cannot be written", error)
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes).map_err(|error| self.cannot(&error))
    }

    /// Appends an encoded value.
    ///
    /// # Errors
    /// If it cannot be encoded or written.
    pub(crate) fn encode<T: Serialize>(&mut self, value: &T) -> Result<(), Failed> {
        let encoded =
            bincode::serde::encode_into_std_write(value, &mut self.file, bincode::config::standard());
        encoded.map(drop).map_err(|error| match error {
            EncodeError::Io { inner, .. } => Failed::of_node(self.cannot(&inner)),
            error => Failed::of_runtime(format!("a {} cannot be encoded: {error}", type_name::<T>())),
        })
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn end(mut self) -> io::Result<Spilled> {
        self.file.flush().map_err(|error| self.cannot(&error))?;
        let hashed = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Spilled(Arc::new(Content { folder: self.folder, name: hashed.hasher.name() })))
    }
}

/// Creates a file in a directory of its own.
fn made() -> io::Result<(Folder, fs::File)> {
    let folder = Folder::new()?;
    let path = folder.path().join(NAME);
    let file = fs::File::create_new(&path).map_err(|error| told(&path, "it cannot be created", &error))?;
    Ok((folder, file))
}

/// The file of encoded data that arrives from another node.
#[derive(Debug)]
pub(crate) struct Arriving(Folder);

impl Arriving {
    /// Creates a file.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn new() -> io::Result<(Self, fs::File)> {
        made().map(|(folder, file)| (Self(folder), file))
    }

    /// Adds the path of the file to an error.
    pub(crate) fn cannot(&self, error: &io::Error) -> io::Error {
        told(&self.0.path().join(NAME), "it cannot be written", error)
    }

    /// Completes the file. Its content has this name.
    pub(crate) fn end(self, name: ObjectName) -> Spilled {
        Spilled(Arc::new(Content { folder: self.0, name }))
    }
}

/// A file with the hash of the bytes that were read from it or written to it. It is below the buffer, because hashing
/// single bytes would be too slow.
struct Hashed {
    file: fs::File,
    hasher: ObjectHasher,
}

impl Hashed {
    fn of(file: fs::File) -> Self {
        Self { file, hasher: ObjectHasher::new() }
    }
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.hasher.add(&buffer[..read]);
        Ok(read)
    }
}

impl Write for Hashed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.file.write(buffer)?;
        self.hasher.add(&buffer[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::FileExt as _};

    use taskwork::companion::ObjectHasher;

    use super::{Spilled, Spilling};
    use crate::{encoding::encode, failure::Trouble};

    fn spilled(bytes: &[u8]) -> Spilled {
        let mut spilling = Spilling::new().expect("a file can be made");
        // The parts have an odd size, which does not divide the size of the buffers.
        bytes.chunks(1_001).for_each(|part| spilling.add(part).expect("there is room"));
        spilling.end().expect("there is room")
    }

    fn numbers() -> Vec<u64> {
        (0..100_000).map(|number| number * number).collect()
    }

    #[test]
    fn decoded_data_equals_written_data() {
        let encoded = encode(&numbers()).expect("it can be");
        let spilled = spilled(&encoded);
        assert_eq!(spilled.bytes(), encoded.len() as u64);
        assert_eq!(spilled.decode::<Vec<u64>>().expect("it is there"), numbers());
        let mut hasher = ObjectHasher::new();
        hasher.add(&encoded);
        assert_eq!(spilled.name(), hasher.name());
        for from in [0, 1, 250_000, encoded.len(), usize::MAX] {
            let expected = &encoded[from.min(encoded.len())..from.saturating_add(7).min(encoded.len())];
            assert_eq!(spilled.part(from as u64, 7).expect("it is there"), expected);
        }
        let path = spilled.0.path();
        drop(spilled);
        assert!(!path.exists());
    }

    #[test]
    fn modified_or_missing_file_is_detected() {
        let encoded = encode(&numbers()).expect("it can be");
        let changed = spilled(&encoded);
        let file = fs::OpenOptions::new().write(true).open(changed.0.path()).expect("it is there");
        file.write_all_at(&[encoded[77] ^ 1], 77).expect("there is room");
        let failed = changed.decode::<Vec<u64>>().expect_err("it was changed");
        assert!(failed.reason.contains("its content does not match its hash"), "{}", failed.reason);
        assert_eq!(failed.trouble, Trouble::Content);
        file.set_len(1_000).expect("it can be cut");
        changed.decode::<Vec<u64>>().expect_err("it is cut off");
        fs::remove_file(changed.0.path()).expect("it is there");
        let failed = changed.decode::<Vec<u64>>().expect_err("it is gone");
        assert!(failed.reason.contains("version: it cannot be read: No such file"), "{}", failed.reason);
    }
}
