//! Byte objects: their names, and their contents outside of memory.

use std::{fmt, fs, io, os::unix::fs::FileExt as _, str::FromStr};

use blake3::Hasher;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The number of bytes of a content that are read and hashed at a time.
const BLOCK_BYTES: usize = 512 << 10;

/// The name of a byte object: it is derived from the content, so it is the same on every node, and a fetcher can
/// verify the content. The length is part of it, so a fetcher knows the required memory before it
/// asks. As text it is the length, a hyphen, and the hash in hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectName {
    /// The BLAKE3 hash of the content.
    pub(crate) hash: [u8; 32],
    /// The length of the content, in bytes.
    pub(crate) bytes: u64,
}

/// A text that is not the name of an object.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not the name of an object: its length, a hyphen, and 64 hexadecimal digits")]
pub struct ObjectNameError(String);

/// A content outside of memory, such as a file.
pub trait ObjectContent: Send + Sync + 'static {
    /// Returns the bytes from an offset, at most `bytes_max`, and none at the end. It is called on threads that may
    /// block. The same offset always has the same bytes; otherwise fetchers reject the content.
    ///
    /// # Errors
    /// If they cannot be read. The fetcher continues at its next owner.
    fn part(&self, offset: u64, bytes_max: usize) -> io::Result<Vec<u8>>;
}

impl ObjectContent for fs::File {
    fn part(&self, offset: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; bytes_max];
        let mut filled = 0;
        while filled < bytes_max {
            match self.read_at(&mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

/// Computes the name of a content from its parts.
#[derive(Clone, Debug, Default)]
pub struct ObjectHasher {
    hasher: Hasher,
    bytes: u64,
}

impl ObjectName {
    /// Creates the name of a content with this BLAKE3 hash and length in bytes.
    pub fn new(hash: [u8; 32], bytes: u64) -> Self {
        Self { hash, bytes }
    }

    /// Returns the BLAKE3 hash of the content.
    pub fn hash(&self) -> [u8; 32] {
        self.hash
    }

    /// Returns the length of the content, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", self.bytes)?;
        self.hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for ObjectName {
    type Err = ObjectNameError;

    fn from_str(text: &str) -> Result<Self, ObjectNameError> {
        let refused = || ObjectNameError(text.chars().take(100).collect());
        let (bytes, digits) = text.split_once('-').ok_or_else(refused)?;
        let all_digits = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !all_digits || !bytes.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(refused());
        }
        let bytes = bytes.parse().map_err(|_| refused())?;
        let mut hash = [0; 32];
        for (byte, place) in hash.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&digits[place..place + 2], 16).map_err(|_| refused())?;
        }
        Ok(Self { hash, bytes })
    }
}

impl ObjectHasher {
    /// Creates a hasher of an empty content.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a content once, and returns its name.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn name_of(content: &dyn ObjectContent) -> io::Result<ObjectName> {
        let mut hasher = Self::new();
        loop {
            let block = content.part(hasher.bytes, BLOCK_BYTES)?;
            if block.is_empty() {
                return Ok(hasher.name());
            }
            hasher.add(&block);
        }
    }

    /// Appends a part of the content.
    pub fn add(&mut self, part: &[u8]) {
        self.hasher.update(part);
        self.bytes += part.len() as u64;
    }

    /// Returns the name of the content so far.
    pub fn name(&self) -> ObjectName {
        ObjectName { hash: *self.hasher.finalize().as_bytes(), bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_name_round_trips_and_garbage_is_rejected() {
        let name = ObjectName { hash: std::array::from_fn(|k| u8::try_from(k).unwrap() * 7), bytes: 1 << 40 };
        assert_eq!(name.to_string().parse(), Ok(name));
        let digits = "0".repeat(64);
        for text in
            ["", "-", &digits, &format!("-{digits}"), &format!("+1-{digits}"), &format!("1-+{digits}")]
        {
            assert!(text.parse::<ObjectName>().is_err(), "{text:?}");
        }
        assert!(format!("1-{}", "é".repeat(32)).parse::<ObjectName>().is_err());
    }
}
