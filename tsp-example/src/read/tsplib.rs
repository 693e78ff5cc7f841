//! The specification part of a TSPLIB file, and the choice of the section that contains the distances.

use std::{collections::HashMap, iter::Peekable};

use super::{
    ReadError, coordinates,
    keywords::{self, Header, Keyword, Section},
    matrix::{self, Format},
    text::{Text, Word, quote},
};
use crate::{
    distance::{Metric, XRAY1, XRAY2},
    instance::{Instance, MATRIX_BYTES_MAX, matrix_bytes},
    map::Map,
};

/// The specification part of a file, with line numbers.
pub(super) struct Specification<'a> {
    headers: HashMap<Header, (usize, &'a str)>,
    /// The sections with their lines and words.
    pub(super) sections: Vec<(Section, usize, Vec<Word<'a>>)>,
}

impl<'a> Specification<'a> {
    /// Divides a file into headers and sections. Another TYPE than `types` is refused before anything that
    /// follows it, which may be part of another format.
    pub(super) fn parse(text: &'a Text, types: &[&str]) -> Result<Self, ReadError> {
        let mut specification = Self { headers: HashMap::new(), sections: Vec::new() };
        let mut lines = text.lines().peekable();
        while let Some((number, line)) = lines.next() {
            match keywords::split(line) {
                Some((Keyword::Eof, ..)) => {
                    if let Some((after, line)) = lines.next() {
                        let expected = format!("nothing after EOF on line {number}");
                        return Err(text.error(after, quote(line), expected));
                    }
                }
                Some((Keyword::Header(header), word, value)) => {
                    specification.header(text, header, word, number, value)?;
                    if header == Header::Type {
                        check_type(text, number, value, types)?;
                    }
                }
                Some((Keyword::Unknown, ..)) => {}
                Some((Keyword::Section(section), word, rest)) => {
                    let before = specification.sections.iter().find(|(known, ..)| *known == section);
                    let before = before.filter(|_| section != Section::Foreign);
                    if let Some((_, first, _)) = before {
                        let expected = format!("only the one on line {first}");
                        return Err(text.error(number, format!("a second {word}"), expected));
                    }
                    let words = words(number, rest, &mut lines, specification.words_max());
                    specification.check_words(text, word, &words)?;
                    specification.sections.push((section, number, words));
                }
                None => {
                    return Err(text.error(
                        number,
                        quote(line),
                        "a keyword of TSPLIB, such as TYPE or DIMENSION, or a city as in CSV: name,x,y",
                    ));
                }
            }
        }
        Ok(specification)
    }

    fn header(
        &mut self,
        text: &Text,
        header: Header,
        word: &str,
        line: usize,
        value: &'a str,
    ) -> Result<(), ReadError> {
        let before = self.headers.insert(header, (line, value));
        match before {
            Some((first, _)) if header != Header::Comment => {
                Err(text.error(line, format!("a second {word}"), format!("only the one on line {first}")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a section with far more words than an instance with the DIMENSION given before can have.
    fn check_words(&self, text: &Text, section: &str, words: &[Word<'_>]) -> Result<(), ReadError> {
        match words.get(self.words_max()) {
            None => Ok(()),
            Some(word) => {
                let found = format!("more than {} words of {section}", self.words_max());
                Err(text.error(word.line, found, "as many as DIMENSION says, which stands before"))
            }
        }
    }

    /// Returns the maximum number of words kept of a section: a matrix of the cities, if their number was
    /// read before, and some more.
    fn words_max(&self) -> usize {
        let cities = self.get(Header::Dimension).and_then(|(_, value)| value.parse::<usize>().ok());
        cities.map_or(0, |cities| cities.saturating_mul(cities)).saturating_add(WORDS_BEYOND_MAX)
    }

    /// Returns the value of a header and its line.
    pub(super) fn get(&self, header: Header) -> Option<(usize, &'a str)> {
        self.headers.get(&header).copied()
    }

    fn value(&self, header: Header) -> Option<(usize, String)> {
        self.get(header).map(|(line, value)| (line, value.to_ascii_uppercase()))
    }

    pub(super) fn section(&self, wanted: Section) -> Option<&[Word<'a>]> {
        let section = self.sections.iter().find(|(section, ..)| *section == wanted);
        section.map(|(_, _, words)| words.as_slice())
    }

    /// Returns the number of cities. Too large a number is refused before memory is allocated for it.
    pub(super) fn dimension(&self, text: &Text) -> Result<usize, ReadError> {
        let (line, value) = self
            .get(Header::Dimension)
            .ok_or_else(|| text.error(text.last_line(), "no DIMENSION", "DIMENSION: the number of cities"))?;
        let cities = text.whole(Word { line, word: value }, "the number of cities")?;
        check_size(text, line, cities)
    }
}

/// Checks that this many cities fit into memory.
pub(super) fn check_size(text: &Text, line: usize, cities: u64) -> Result<usize, ReadError> {
    if cities == 0 {
        return Err(text.error(line, "no cities", "at least one city"));
    }
    let needed = matrix_bytes(cities);
    if needed > MATRIX_BYTES_MAX {
        let (file, cities_max) = (text.file.clone(), (MATRIX_BYTES_MAX / 4).isqrt());
        return Err(ReadError::TooLarge { file, line, cities, cities_max, needed, limit: MATRIX_BYTES_MAX });
    }
    Ok(usize::try_from(cities).expect("a number whose square fits into memory"))
}

/// The number of words that a section may have beyond those of a matrix, so that the error message can
/// describe them.
const WORDS_BEYOND_MAX: usize = 1 << 20;

/// Returns the words of a section, up to the next keyword or until there is one more than the maximum.
fn words<'a>(
    number: usize,
    rest: &'a str,
    lines: &mut Peekable<impl Iterator<Item = (usize, &'a str)>>,
    words_max: usize,
) -> Vec<Word<'a>> {
    let on = |line: usize, text: &'a str| text.split_whitespace().map(move |word| Word { line, word });
    let mut words: Vec<Word<'a>> = on(number, rest).take(words_max + 1).collect();
    while words.len() <= words_max
        && let Some((number, line)) = lines.next_if(|(_, line)| keywords::split(line).is_none())
    {
        let left = words_max + 1 - words.len();
        words.extend(on(number, line).take(left));
    }
    words
}

/// The source of the distances.
enum Weights {
    Explicit,
    Computed(Metric, usize),
}

/// Reads an instance of TYPE TSP or ATSP.
pub(super) fn parse(text: &Text) -> Result<Instance, ReadError> {
    let specification = Specification::parse(text, &["TSP", "ATSP"])?;
    let directed = is_directed(text, &specification)?;
    let cities = specification.dimension(text)?;
    for (section, line, _) in &specification.sections {
        let problem = match section {
            Section::FixedEdges => {
                "FIXED_EDGES_SECTION, edges that every tour must use: they are not supported"
            }
            Section::Tour => "TOUR_SECTION, a tour",
            Section::Foreign => "a section of another type of problem",
            Section::NodeCoord | Section::EdgeWeight | Section::DisplayData => continue,
        };
        return Err(text.error(*line, problem, "NODE_COORD_SECTION or EDGE_WEIGHT_SECTION"));
    }
    let name = specification.get(Header::Name).map_or("unnamed", |(_, name)| name);
    match weights(text, &specification)? {
        Weights::Computed(..) if directed => {
            let line = specification.get(Header::EdgeWeightType).map_or(1, |(line, _)| line);
            Err(text.error(
                line,
                "distances from coordinates, which are the same in both directions",
                "EDGE_WEIGHT_TYPE: EXPLICIT",
            ))
        }
        Weights::Explicit => {
            let format = format(text, &specification)?;
            let words = specification.section(Section::EdgeWeight);
            let words = words.ok_or_else(|| missing(text, "EDGE_WEIGHT_SECTION"))?;
            let parse = if directed { matrix::parse_directed } else { matrix::parse };
            let mut instance = parse(text, name, cities, format, words)?;
            instance.map = displayed(text, &specification, cities);
            Ok(instance)
        }
        Weights::Computed(metric, axes) => {
            let matrix = specification.sections.iter().find(|(section, ..)| *section == Section::EdgeWeight);
            if let Some((_, line, _)) = matrix {
                let found = "EDGE_WEIGHT_SECTION where distances are computed from coordinates";
                return Err(text.error(*line, found, "EDGE_WEIGHT_TYPE: EXPLICIT, or no such section"));
            }
            let words = specification.section(Section::NodeCoord);
            let words = words.ok_or_else(|| missing(text, "NODE_COORD_SECTION"))?;
            let points = coordinates::parse(text, cities, axes, words)?;
            coordinates::instance(text, name, &points, metric)
        }
    }
}

/// Returns the display positions of cities with explicit distances. Nothing else depends on them, so unreadable
/// ones are ignored.
fn displayed(text: &Text, specification: &Specification<'_>, cities: usize) -> Option<Map> {
    let words = specification.section(Section::DisplayData);
    let words = words.or_else(|| specification.section(Section::NodeCoord))?;
    let places = coordinates::parse(text, cities, 2, words).ok()?;
    coordinates::map(&places, None)
}

fn missing(text: &Text, section: &str) -> ReadError {
    text.error(text.last_line(), "the end of the file", section)
}

/// Returns whether the distances depend on the direction: TYPE ATSP.
fn is_directed(text: &Text, specification: &Specification<'_>) -> Result<bool, ReadError> {
    match specification.get(Header::Type) {
        Some((_, value)) => Ok(is_type(value, "ATSP")),
        None => Err(text.error(text.last_line(), "no TYPE", "TYPE: TSP, or ATSP")),
    }
}

/// Returns whether the value of TYPE is this one. Some files add a name in parentheses; only the first word
/// matters.
fn is_type(value: &str, name: &str) -> bool {
    value.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case(name))
}

fn check_type(text: &Text, line: usize, value: &str, types: &[&str]) -> Result<(), ReadError> {
    if types.iter().any(|name| is_type(value, name)) {
        return Ok(());
    }
    let value = value.to_ascii_uppercase();
    Err(text.error(line, format!("TYPE: {}", quote(&value)), format!("TYPE: {}", types.join(", or "))))
}

fn weights(text: &Text, specification: &Specification<'_>) -> Result<Weights, ReadError> {
    let Some((line, value)) = specification.value(Header::EdgeWeightType) else {
        return Err(text.error(text.last_line(), "no EDGE_WEIGHT_TYPE", "EDGE_WEIGHT_TYPE, such as EUC_2D"));
    };
    let (metric, axes) = match value.as_str() {
        "EXPLICIT" => return Ok(Weights::Explicit),
        "EUC_2D" => (Metric::Euclidean, 2),
        "EUC_3D" => (Metric::Euclidean, 3),
        "MAX_2D" => (Metric::Maximum, 2),
        "MAX_3D" => (Metric::Maximum, 3),
        "MAN_2D" => (Metric::Manhattan, 2),
        "MAN_3D" => (Metric::Manhattan, 3),
        "CEIL_2D" => (Metric::EuclideanUp, 2),
        "GEO" => (Metric::Geographical, 2),
        "ATT" => (Metric::PseudoEuclidean, 2),
        "XRAY1" => (Metric::XRay(XRAY1), 3),
        "XRAY2" => (Metric::XRay(XRAY2), 3),
        _ => {
            let known =
                "EXPLICIT, EUC_2D, EUC_3D, MAX_2D, MAX_3D, MAN_2D, MAN_3D, CEIL_2D, GEO, ATT, XRAY1 or XRAY2";
            return Err(text.error(line, format!("EDGE_WEIGHT_TYPE: {}", quote(&value)), known));
        }
    };
    match specification.value(Header::NodeCoordType) {
        Some((line, kind)) => match (kind.as_str(), axes) {
            ("TWOD_COORDS", 2) | ("THREED_COORDS", _) => {
                let given = if kind == "TWOD_COORDS" { 2 } else { 3 };
                Ok(Weights::Computed(metric, given))
            }
            _ => Err(text.error(
                line,
                format!("NODE_COORD_TYPE: {}", quote(&kind)),
                format!("{axes} coordinates"),
            )),
        },
        None => Ok(Weights::Computed(metric, axes)),
    }
}

fn format(text: &Text, specification: &Specification<'_>) -> Result<Format, ReadError> {
    let Some((line, value)) = specification.value(Header::EdgeWeightFormat) else {
        return Err(text.error(text.last_line(), "no EDGE_WEIGHT_FORMAT", Format::KNOWN));
    };
    let unknown = || text.error(line, format!("EDGE_WEIGHT_FORMAT: {}", quote(&value)), Format::KNOWN);
    Format::named(&value).ok_or_else(unknown)
}
