//! The keywords of TSPLIB 95.

/// A keyword at the beginning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    /// A keyword with a value after a colon.
    Header(Header),
    /// A keyword that starts a section.
    Section(Section),
    /// The end of the file.
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

/// Returns the keyword that a line starts with, as a value and as written, and what follows it.
pub(super) fn split(line: &str) -> Option<(Keyword, &str, &str)> {
    let end = line.find(|c: char| c == ':' || c.is_whitespace()).unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    let keyword = keyword(&word.to_ascii_uppercase())?;
    let rest = rest.trim_start();
    Some((keyword, word, rest.strip_prefix(':').unwrap_or(rest).trim()))
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
        "DEPOT_SECTION" | "DEMAND_SECTION" | "EDGE_DATA_SECTION" => Keyword::Section(Section::Foreign),
        "EOF" => Keyword::Eof,
        _ => return None,
    })
}
