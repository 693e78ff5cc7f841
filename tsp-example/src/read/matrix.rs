//! Explicit distances, in all matrix formats.

use super::{
    ReadError,
    text::{Text, Word, quote},
};
use crate::instance::{City, DISTANCE_MAX, Instance};

/// The order in which the entries of a matrix are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Full,
    Triangle {
        upper: bool,
        diagonal: bool,
        /// Row by row, not column by column.
        rows: bool,
    },
}

impl Format {
    pub(super) const KNOWN: &'static str = "EDGE_WEIGHT_FORMAT: FULL_MATRIX, or UPPER_ or LOWER_, then ROW, \
        COL, DIAG_ROW or DIAG_COL";

    pub(super) fn named(name: &str) -> Option<Self> {
        if name == "FULL_MATRIX" {
            return Some(Self::Full);
        }
        let (upper, rest) = match (name.strip_prefix("UPPER_"), name.strip_prefix("LOWER_")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return None,
        };
        let (diagonal, rows) = match rest {
            "ROW" => (false, true),
            "COL" => (false, false),
            "DIAG_ROW" => (true, true),
            "DIAG_COL" => (true, false),
            _ => return None,
        };
        Some(Self::Triangle { upper, diagonal, rows })
    }

    /// Returns the positions of the entries, in the order in which they are given. A triangle by columns is
    /// the opposite triangle by rows.
    fn entries(self, cities: usize) -> Box<dyn Iterator<Item = (City, City)>> {
        match self {
            Self::Full => Box::new((0..cities).flat_map(move |i| (0..cities).map(move |j| (i, j)))),
            Self::Triangle { upper, diagonal, rows } => {
                let (first, last) = (usize::from(!diagonal), usize::from(diagonal));
                if upper == rows {
                    Box::new((0..cities).flat_map(move |i| (i + first..cities).map(move |j| (i, j))))
                } else {
                    Box::new((0..cities).flat_map(move |i| (0..i + last).map(move |j| (i, j))))
                }
            }
        }
    }
}

pub(super) fn parse(
    text: &Text,
    name: &str,
    cities: usize,
    format: Format,
    words: &[Word<'_>],
) -> Result<Instance, ReadError> {
    check_count(text, cities, format, words)?;
    let mut given = vec![None; cities * cities];
    for ((i, j), &word) in format.entries(cities).zip(words) {
        let distance = weight(text, word, i == j)?;
        // A full matrix gives each distance twice; both must be equal.
        if let Some(before) = given[j * cities + i].filter(|&before| i != j && before != distance) {
            let (found, other) = (format!("{distance} from city {} to city {}", i + 1, j + 1), before);
            let wanted =
                format!("{other} as in the other direction (a matrix that is not symmetric is of TYPE ATSP)");
            return Err(text.error(word.line, found, wanted));
        }
        given[i * cities + j] = Some(distance);
    }
    let entry = |i: City, j: City| given[i * cities + j].or(given[j * cities + i]);
    Instance::new(name, cities, |i, j| Ok(entry(i, j).expect("every format gives every pair at least once")))
}

/// Reads the entries of a full matrix of distances that depend on the direction.
pub(super) fn parse_directed(
    text: &Text,
    name: &str,
    cities: usize,
    format: Format,
    words: &[Word<'_>],
) -> Result<Instance, ReadError> {
    if format != Format::Full {
        let found = "half a matrix of distances that depend on the direction";
        return Err(text.error(
            words.first().map_or(1, |word| word.line),
            found,
            "EDGE_WEIGHT_FORMAT: FULL_MATRIX",
        ));
    }
    check_count(text, cities, format, words)?;
    let entries = format.entries(cities).zip(words);
    let distances: Result<Vec<u32>, ReadError> =
        entries.map(|((i, j), &word)| weight(text, word, i == j)).collect();
    Ok(Instance::directed(name, cities, distances?))
}

fn check_count(text: &Text, cities: usize, format: Format, words: &[Word<'_>]) -> Result<(), ReadError> {
    let expected = format.entries(cities).count();
    if words.len() == expected {
        return Ok(());
    }
    let line = words.get(expected).or(words.last()).map_or_else(|| text.last_line(), |word| word.line);
    let wanted = format!("{expected} for {cities} cities in this format");
    Err(text.error(line, format!("{} distances", words.len()), wanted))
}

/// Parses a distance. An entry on the diagonal is not a distance, and only has to be a number.
fn weight(text: &Text, word: Word<'_>, on_diagonal: bool) -> Result<u32, ReadError> {
    const EXPECTED: &str = "a distance: a whole number from 0 to 2147483647";
    let number = text.finite(word, EXPECTED)?;
    if on_diagonal {
        return Ok(0);
    }
    if number.fract() != 0.0 || number < 0.0 || number > f64::from(DISTANCE_MAX) {
        return Err(text.error(word.line, quote(word.word), EXPECTED));
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked: whole and within 0..2^31"
    )]
    Ok(number as u32)
}
