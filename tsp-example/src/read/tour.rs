//! Tours: TSPLIB's TYPE TOUR, read and written.

use std::{fmt::Write as _, path::Path};

use super::{
    ReadError,
    keywords::{Header, Section},
    text::{Text, quote},
    tsplib::Specification,
};
use crate::instance::{City, Instance};

/// Reads a tour through all cities of an instance, checking that each is visited exactly once.
///
/// # Errors
/// Fails if the file cannot be read or is not a tour of this many cities.
pub fn read_tour(file: &Path, cities: usize) -> Result<Vec<City>, ReadError> {
    parse(&Text::of(file, super::TOUR_BYTES_MAX)?, cities)
}

/// Reads a tour from the content of a file; `file` is its name in messages.
///
/// # Errors
/// As for [`read_tour`].
pub fn parse_tour(file: &str, bytes: &[u8], cities: usize) -> Result<Vec<City>, ReadError> {
    parse(&Text::new(file, bytes)?, cities)
}

fn parse(text: &Text, cities: usize) -> Result<Vec<City>, ReadError> {
    let specification = Specification::parse(text, &["TOUR"])?;
    if let Some((line, _)) = specification.get(Header::Dimension) {
        let dimension = specification.dimension(text)?;
        if dimension != cities {
            return Err(text.error(
                line,
                format!("DIMENSION: {dimension}"),
                format!("{cities}, as in the instance"),
            ));
        }
    }
    let words = specification.section(Section::Tour);
    let words = words.ok_or_else(|| text.error(text.last_line(), "no TOUR_SECTION", "TOUR_SECTION"))?;
    let (mut tour, mut seen_on) = (Vec::new(), vec![None; cities]);
    for &word in words.iter().take_while(|word| word.word != "-1") {
        let expected = format!("the number of a city, 1 to {cities}, or -1");
        let number = text.whole(word, &expected)?;
        let city = usize::try_from(number).ok().and_then(|n| n.checked_sub(1)).filter(|&n| n < cities);
        let city = city.ok_or_else(|| text.error(word.line, format!("city {number}"), &expected))?;
        if let Some(line) = seen_on[city].replace(word.line) {
            let expected = format!("each city once; it stands on line {line} already");
            return Err(text.error(word.line, format!("city {number} again"), expected));
        }
        tour.push(city);
    }
    // If several tours are possible, a section ends with a second -1.
    if let Some(word) = words.iter().skip(tour.len() + 1).find(|word| word.word != "-1") {
        return Err(text.error(word.line, quote(word.word), "nothing after the -1 that ends the tour"));
    }
    match seen_on.iter().position(Option::is_none) {
        None => Ok(tour),
        Some(missing) => {
            let line = words.last().map_or_else(|| text.last_line(), |word| word.line);
            let found = format!("{} cities, without city {}", tour.len(), missing + 1);
            Err(text.error(line, found, format!("all {cities} cities")))
        }
    }
}

/// Formats a tour as a TSPLIB file.
pub fn write_tour(instance: &Instance, tour: &[City]) -> String {
    let mut file = String::new();
    let length = instance.tour_length(tour);
    // Writing into a string cannot fail.
    let _ = writeln!(file, "NAME : {}.tour\nCOMMENT : length {length}\nTYPE : TOUR", instance.name);
    let _ = writeln!(file, "DIMENSION : {}\nTOUR_SECTION", tour.len());
    for city in tour {
        let _ = writeln!(file, "{}", city + 1);
    }
    file.push_str("-1\nEOF\n");
    file
}
