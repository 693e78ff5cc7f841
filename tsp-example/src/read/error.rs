//! Errors in input files.

use bnb_framework::parse;
use thiserror::Error;

/// The error of reading a file. The message is complete: the file, the line, the content found and the content
/// expected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read, is not a regular file, is too large, or is not text.
    #[error(transparent)]
    Text(#[from] parse::ReadError),
    /// The content is not as expected.
    #[error("{file}:{line}: found {found}; expected {expected}")]
    Content {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The content found.
        found: String,
        /// The content expected.
        expected: String,
    },
    /// The instance is too large for memory.
    #[error(
        "{file}:{line}: found {cities} cities, whose distances would take {} of memory; expected at most {} \
         cities ({})",
        bytes(*.needed), .cities_max, bytes(*.limit)
    )]
    TooLarge {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The number of cities.
        cities: u64,
        /// The maximum number of cities.
        cities_max: u64,
        /// The memory that their distances would take, in bytes.
        needed: u64,
        /// The memory that they may take, in bytes.
        limit: u64,
    },
}

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
    fn byte_counts_are_formatted_with_units() {
        assert_eq!(bytes(12), "12 bytes");
        assert_eq!(bytes(512 << 20), "512 MiB");
        assert_eq!(bytes(4_000_000_000_000), "4 TiB");
    }
}
