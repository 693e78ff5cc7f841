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
use ring::digest::{Context, SHA256};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    encoding::decode_read,
    failure::Failed,
    file::{Folder, told},
};

/// The SHA-256 hash of a content.
pub(crate) type Digest = [u8; 32];

/// The size of the buffers for reading and writing, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// The name of the file, in a directory of its own.
const NAME: &str = "version";

/// Encoded data in a file, which is removed with the last clone of this.
#[derive(Clone)]
pub(crate) struct Spilled(Arc<Content>);

struct Content {
    folder: Folder,
    bytes: u64,
    digest: Digest,
}

impl Content {
    fn path(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }
}

impl Spilled {
    /// Returns its size, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Returns the expected hash.
    pub(crate) fn digest(&self) -> Digest {
        self.0.digest
    }

    /// Returns up to `bytes_max` bytes from a position. They are not verified: the receiver of the whole data does
    /// that.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn part(&self, from: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        let left = usize::try_from(self.0.bytes.saturating_sub(from)).unwrap_or(usize::MAX);
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
        let decoded = decode_read(&mut reader, self.0.bytes);
        // The remaining bytes are hashed, too.
        let rest = io::copy(&mut reader, &mut io::sink());
        let Hashed { hash, bytes, .. } = reader.into_inner();
        let is_same = bytes == self.0.bytes && done(hash) == self.0.digest;
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
        f.debug_struct("Spilled").field("path", &self.0.path()).field("bytes", &self.0.bytes).finish()
    }
}

fn hash() -> Context {
    Context::new(&SHA256)
}

fn done(hash: Context) -> Digest {
    hash.finish().as_ref().try_into().expect("a SHA-256 has 32 bytes")
}

/// Returns the hash of a content.
pub(crate) fn digest(parts: impl IntoIterator<Item = Result<Vec<u8>, Failed>>) -> Result<Digest, Failed> {
    let mut hash = hash();
    for part in parts {
        hash.update(&part?);
    }
    Ok(done(hash))
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
        let Hashed { hash, bytes, .. } = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Spilled(Arc::new(Content { folder: self.folder, bytes, digest: done(hash) })))
    }
}

/// Creates a file in a directory of its own.
fn made() -> io::Result<(Folder, fs::File)> {
    let folder = Folder::new()?;
    let path = folder.path().join(NAME);
    let file = fs::File::create_new(&path).map_err(|error| told(&path, "it cannot be created", &error))?;
    Ok((folder, file))
}

/// Encoded data that arrives in pieces, in any order.
pub(crate) struct Arriving {
    folder: Folder,
    file: fs::File,
}

impl Arriving {
    /// Creates a file.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn new() -> io::Result<Self> {
        made().map(|(folder, file)| Self { folder, file })
    }

    /// Writes bytes at their position.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(crate) fn put(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let path = || self.folder.path().join(NAME);
        self.file.write_all_at(bytes, position).map_err(|error| told(&path(), "it cannot be written", &error))
    }

    /// Completes the file. Its size and hash are verified when it is read.
    pub(crate) fn end(self, bytes: u64, digest: Digest) -> Spilled {
        Spilled(Arc::new(Content { folder: self.folder, bytes, digest }))
    }
}

impl fmt::Debug for Arriving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arriving").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// A file with the hash of the bytes that were read from it or written to it. It is below the buffer, because hashing
/// single bytes would be too slow.
struct Hashed {
    file: fs::File,
    hash: Context,
    bytes: u64,
}

impl Hashed {
    fn of(file: fs::File) -> Self {
        Self { file, hash: hash(), bytes: 0 }
    }

    fn passed(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.passed(&buffer[..read]);
        Ok(read)
    }
}

impl Write for Hashed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.file.write(buffer)?;
        self.passed(&buffer[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::FileExt as _};

    use super::{Arriving, Spilled, Spilling, digest};
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
        assert_eq!(spilled.digest(), digest([Ok(encoded.clone())]).expect("it can be read"));
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

    #[test]
    fn pieces_arriving_in_any_order_are_assembled() {
        let encoded = encode(&numbers()).expect("it can be");
        let arriving = Arriving::new().expect("a file can be made");
        for (number, piece) in encoded.chunks(10_000).enumerate().collect::<Vec<_>>().into_iter().rev() {
            arriving.put(piece, number as u64 * 10_000).expect("there is room");
        }
        let whole = arriving.end(encoded.len() as u64, digest([Ok(encoded)]).expect("it can be read"));
        assert_eq!(whole.decode::<Vec<u64>>().expect("it is there"), numbers());
    }
}
