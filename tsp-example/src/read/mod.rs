//! Reading instances and tours: TSPLIB 95, and plain CSV.
//!
//! Files that do not keep to the specification of TSPLIB are handled as follows:
//!
//! | content | handling |
//! |---|---|
//! | no `TYPE` in an instance | refused: it may be another problem. A tour does not need it |
//! | `TYPE : TSP (name)`, `TYPE : TOUR (name)` | only the first word matters |
//! | a header that TSPLIB does not define: `BEST_KNOWN : 42` | skipped, if it has a colon and a value |
//! | a section of another problem: `DEMAND_SECTION` | refused; of `TYPE` first, if that is wrong as well |
//! | a keyword without a colon: `DIMENSION 5` | accepted |
//! | text after `EOF` | refused: two files may have been joined |
//! | line ends, byte order marks, DOS end marks | see [`bnb_framework::parse`] |

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

/// Reads an instance: TSPLIB or CSV, whichever its first lines look like. A line with a name and two numbers
/// belongs to CSV, unless it begins with a keyword of TSPLIB; then the next line decides.
///
/// # Errors
/// Fails if the file cannot be read or is invalid; the error names the line, the content found and the content
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
    if text.lines().next().is_none() {
        return Err(text.error(1, "an empty file", "a TSPLIB or CSV file"));
    }
    if csv::is_likely(text) { csv::parse(text) } else { tsplib::parse(text) }
}
