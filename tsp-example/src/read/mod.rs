//! Reading instances and tours: TSPLIB 95, and plain CSV.

mod coordinates;
mod csv;
mod error;
mod keywords;
mod matrix;
mod text;
mod tour;
mod tsplib;

use std::path::Path;

use self::text::Text;
pub use self::{
    error::ReadError,
    tour::{parse_tour, read_tour, write_tour},
};
use crate::instance::Instance;

/// The maximum size of an instance file, in bytes.
pub const INSTANCE_BYTES_MAX: u64 = 256 << 20;
/// The maximum size of a tour file, in bytes.
pub const TOUR_BYTES_MAX: u64 = 4 << 20;

/// Reads an instance. The file is CSV if its first non-empty line has a comma and no colon, otherwise TSPLIB.
///
/// # Errors
/// Fails if the file cannot be read or is invalid; the error has the line, what was found and what was
/// expected.
pub fn read_instance(file: &Path) -> Result<Instance, ReadError> {
    parse(&Text::of(file, INSTANCE_BYTES_MAX)?)
}

/// Reads an instance from the content of a file; `file` is its name in messages.
///
/// # Errors
/// As for [`read_instance`].
pub fn parse_instance(file: &str, bytes: &[u8]) -> Result<Instance, ReadError> {
    parse(&Text::new(file, bytes)?)
}

fn parse(text: &Text) -> Result<Instance, ReadError> {
    let first = text.lines().next();
    let (_, first) = first.ok_or_else(|| text.error(1, "an empty file", "a TSPLIB or CSV file"))?;
    if first.contains(',') && !first.contains(':') { csv::parse(text) } else { tsplib::parse(text) }
}
