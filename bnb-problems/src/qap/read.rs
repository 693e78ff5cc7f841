//! Files in the format of QAPLIB.

use bnb_framework::words::{ReadError, Words};

use super::Qap;

/// The maximum number of facilities; larger problems would not finish.
const FACILITIES_MAX: usize = 128;
/// The maximum entry of a matrix; sums of all products stay within 64 bits.
const ENTRY_MAX: i64 = 1 << 23;

/// The maximum size of a file, in bytes; the largest matrices take some hundred thousand.
pub(super) const FILE_BYTES_MAX: u64 = 4 << 20;

/// Reads the number of facilities and the two matrices, row by row, regardless of line breaks.
///
/// # Errors
/// Fails with the file, the line, what was found and what was expected.
pub(super) fn parse(file: &str, text: &str) -> Result<Qap, ReadError> {
    let mut words = Words::new(file, text);
    let size = words.number_in("a number of facilities", 1..=FACILITIES_MAX)?;
    let mut matrix = |what: &str| -> Result<Vec<i64>, ReadError> {
        (0..size * size).map(|_| words.number_in(what, -ENTRY_MAX..=ENTRY_MAX)).collect()
    };
    let flows = matrix("an entry of the first matrix, a whole number")?;
    let distances = matrix("an entry of the second matrix, a whole number")?;
    words.end()?;
    Ok(Qap::new(size, flows, distances))
}
