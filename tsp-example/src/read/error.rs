//! What is wrong with a file.

use bnb_framework::words;
use thiserror::Error;

/// Why a file could not be read. The message is complete: the file, the line, what was found, what was
/// expected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read, is no regular file, too large, or no text.
    #[error(transparent)]
    Text(#[from] words::ReadError),
    /// Something else stands there than should.
    #[error("{file}:{line}: found {found}; expected {expected}")]
    Content {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What stands there.
        found: String,
        /// What should.
        expected: String,
    },
    /// The instance is larger than can be held.
    #[error(
        "{file}:{line}: found {cities} cities, whose distances would take {} of memory; expected at most {} cities ({})",
        bytes(*.needed), .cities_max, bytes(*.limit)
    )]
    TooLarge {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// How many cities there are.
        cities: u64,
        /// How many there can be.
        cities_max: u64,
        /// The memory their distances would take, in bytes.
        needed: u64,
        /// The memory they may take, in bytes.
        limit: u64,
    },
}

/// A number of bytes for people.
fn bytes(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = bytes as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.0} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn bytes_are_readable() {
        assert_eq!(bytes(12), "12 bytes");
        assert_eq!(bytes(512 << 20), "512 MiB");
        assert_eq!(bytes(4_000_000_000_000), "4 TiB");
    }
}
