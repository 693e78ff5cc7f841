//! Files in the format of QAPLIB.

use bnb_framework::parse::{ReadError, Words};

use super::Qap;

/// The maximum number of facilities; larger problems would not finish.
const FACILITIES_MAX: usize = 128;
/// The maximum entry of a matrix; sums of all products stay within 64 bits.
const ENTRY_MAX: i64 = 1 << 23;

/// The maximum size of a file, in bytes; the largest matrices take some hundred thousand.
pub(super) const FILE_BYTES_MAX: u64 = 4 << 20;

/// Reads the number of facilities and the two matrices, row by row, regardless of line breaks.
///
/// If the first line has two numbers, the second one is the best known cost, as in Taillard's files. It is
/// skipped. If there is one entry too few, the file was truncated, or the second number is an entry: that is ambiguous
/// and refused.
///
/// # Errors
/// Fails with the file, the line, the found and the expected text.
pub(super) fn parse(file: &str, text: &str) -> Result<Qap, ReadError> {
    let mut words = Words::new(file, text);
    let size = words.number_in("a number of facilities", 1..=FACILITIES_MAX)?;
    skip_best_known(&mut words, size)?;
    let mut matrix = |what: &str| -> Result<Vec<i64>, ReadError> {
        (0..size * size).map(|_| words.number_in(what, -ENTRY_MAX..=ENTRY_MAX)).collect()
    };
    let flows = matrix("an entry of the first matrix, a whole number")?;
    let distances = matrix("an entry of the second matrix, a whole number")?;
    words.end()?;
    Ok(Qap::new(size, flows, distances))
}

/// Skips the best known cost on the line of the number of facilities, if there is one.
fn skip_best_known(words: &mut Words<'_>, size: usize) -> Result<(), ReadError> {
    let mut rest = words.clone();
    let Some(second) = rest.peek_here() else { return Ok(()) };
    rest.word_here("a number")?;
    if rest.peek_here().is_some() {
        return Ok(());
    }
    let (entries, after) = (2 * size * size, rest.count_until(2 * size * size));
    if after + 1 == entries {
        let found = format!("a second number on the first line, and {after} numbers after it");
        let expected = format!(
            "{entries} after a best known cost; or the number of facilities alone on its line, if {second} is an entry"
        );
        return Err(words.at(words.line(), &found, &expected));
    }
    let cost = "the best known cost, a whole number, or nothing after the number of facilities";
    words.number::<i64>(cost)?;
    Ok(())
}
