//! The keywords of TSPLIB 95.

/// A keyword at the beginning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    /// A keyword with a value after a colon.
    Header(Header),
    /// A keyword that starts a section.
    Section(Section),
    /// A header that TSPLIB does not define, with a value.
    Unknown,
    Eof,
}

/// Keywords of the specification part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Header {
    Name,
    Type,
    Comment,
    Dimension,
    Capacity,
    EdgeWeightType,
    EdgeWeightFormat,
    EdgeDataFormat,
    NodeCoordType,
    DisplayDataType,
}

/// Keywords of the data part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    NodeCoord,
    EdgeWeight,
    DisplayData,
    FixedEdges,
    Tour,
    /// A section of another type of problem.
    Foreign,
}

/// Returns the keyword that a line starts with, as a value and as written, and the rest of the line.
pub(super) fn split(line: &str) -> Option<(Keyword, &str, &str)> {
    let end = line.find(|c: char| c == ':' || c.is_whitespace()).unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let value = rest.strip_prefix(':').map(str::trim);
    let has_value = value.is_some_and(|value| !value.is_empty());
    let unknown = (has_value && is_identifier(word)).then_some(Keyword::Unknown);
    Some((keyword(&word.to_ascii_uppercase()).or(unknown)?, word, value.unwrap_or(rest).trim()))
}

/// Returns whether a word may be the name of a header.
fn is_identifier(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn keyword(word: &str) -> Option<Keyword> {
    Some(match word {
        "NAME" => Keyword::Header(Header::Name),
        "TYPE" => Keyword::Header(Header::Type),
        "COMMENT" => Keyword::Header(Header::Comment),
        "DIMENSION" => Keyword::Header(Header::Dimension),
        "CAPACITY" => Keyword::Header(Header::Capacity),
        "EDGE_WEIGHT_TYPE" => Keyword::Header(Header::EdgeWeightType),
        "EDGE_WEIGHT_FORMAT" => Keyword::Header(Header::EdgeWeightFormat),
        "EDGE_DATA_FORMAT" => Keyword::Header(Header::EdgeDataFormat),
        "NODE_COORD_TYPE" => Keyword::Header(Header::NodeCoordType),
        "DISPLAY_DATA_TYPE" => Keyword::Header(Header::DisplayDataType),
        "NODE_COORD_SECTION" => Keyword::Section(Section::NodeCoord),
        "EDGE_WEIGHT_SECTION" => Keyword::Section(Section::EdgeWeight),
        "DISPLAY_DATA_SECTION" => Keyword::Section(Section::DisplayData),
        "FIXED_EDGES_SECTION" | "FIXED_EDGES" => Keyword::Section(Section::FixedEdges),
        "TOUR_SECTION" => Keyword::Section(Section::Tour),
        "EOF" => Keyword::Eof,
        _ if word.ends_with("_SECTION") => Keyword::Section(Section::Foreign),
        _ => return None,
    })
}
