//! Plain CSV: `name,x,y`, or `name,lat,lon` with a header that names these columns. Fields are separated by commas, by
//! semicolons or by tabs; lines that begin with `#` are comments.

use super::{
    ReadError,
    coordinates::{self, Place},
    keywords,
    text::{Text, Word, quote},
    tsplib::check_size,
};
use crate::{distance::Metric, instance::Instance};

/// Reads a CSV file. Distances are Euclidean and rounded; with a header `name,lat,lon` they are kilometres on
/// a great circle.
pub(super) fn parse(text: &Text) -> Result<Instance, ReadError> {
    let separator = rows(text).next().map_or(',', |(_, line)| separator(line));
    let lines: Vec<(usize, Vec<String>)> = rows(text)
        .map(|(number, line)| {
            let unclosed =
                || text.error(number, "a quote that is not closed", "a closing quote on the same line");
            fields(line, separator).map(|fields| (number, fields)).ok_or_else(unclosed)
        })
        .collect::<Result<_, _>>()?;
    let metric = lines.first().and_then(|(_, fields)| header(fields));
    let rows = &lines[usize::from(metric.is_some())..];
    let metric = metric.unwrap_or(Metric::Euclidean);
    let last = lines.last().map_or(1, |(number, _)| *number);
    check_size(text, last, rows.len() as u64)?;

    let (mut names, mut places) = (Vec::new(), Vec::new());
    for (line, fields) in rows {
        let [name, first, second] = fields.as_slice() else {
            return Err(text.error(
                *line,
                format!("{} fields", fields.len()),
                "three: a name and two coordinates",
            ));
        };
        names.push(name.clone());
        places.push(Place { point: point(text, *line, [first, second], metric)?, line: *line });
    }
    let name = text.file.rsplit(['/', '\\']).next().unwrap_or(&text.file);
    let name = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let mut instance = coordinates::instance(text, name, &places, metric)?;
    instance.names = Some(names);
    Ok(instance)
}

fn point(text: &Text, line: usize, fields: [&String; 2], metric: Metric) -> Result<[f64; 3], ReadError> {
    let mut point = [0.0; 3];
    for (axis, field) in fields.into_iter().enumerate() {
        let number = text.finite(Word { line, word: field }, "a coordinate: a finite number")?;
        let limit = if axis == 0 { 90.0 } else { 180.0 };
        if metric == Metric::GreatCircle && number.abs() > limit {
            let expected =
                if axis == 0 { "a latitude from -90 to 90" } else { "a longitude from -180 to 180" };
            return Err(text.error(line, quote(field), expected));
        }
        point[axis] = number;
    }
    Ok(point)
}

/// Returns the distances that a header implies, or `None` if the line is not a header.
fn header(fields: &[String]) -> Option<Metric> {
    let names: Vec<String> = fields.iter().map(|field| field.trim().to_ascii_lowercase()).collect();
    match names.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "lat" | "latitude", "lon" | "lng" | "long" | "longitude"] => Some(Metric::GreatCircle),
        [_, "x", "y"] => Some(Metric::Euclidean),
        _ => None,
    }
}

/// Returns the lines that are not comments.
fn rows(text: &Text) -> impl Iterator<Item = (usize, &str)> {
    text.lines().filter(|(_, line)| !line.starts_with('#'))
}

/// Returns whether the text is CSV rather than TSPLIB.
pub(super) fn is_likely(text: &Text) -> bool {
    for (_, line) in rows(text) {
        match (is_row(line, separator(line)), keywords::split(line).is_some()) {
            (true, false) => return true,
            (false, true) => return false,
            (false, false) => return line.contains([',', ';', '\t', '"']),
            // A city called NAME, or a header of TSPLIB with two commas.
            (true, true) => {}
        }
    }
    true
}

/// Returns the separator of the fields of a line: the one that makes it a row, or splits it into three fields.
fn separator(line: &str) -> char {
    let all = [',', ';', '\t'];
    let makes_three = |separator: &char| fields(line, *separator).is_some_and(|fields| fields.len() == 3);
    let makes_row = all.into_iter().find(|&separator| is_row(line, separator));
    // Numbers with decimal commas are refused, but as fields between semicolons.
    makes_row.or_else(|| all.into_iter().rev().find(makes_three)).unwrap_or(',')
}

/// Returns whether a line is a city or a header.
fn is_row(line: &str, separator: char) -> bool {
    let Some(fields) = fields(line, separator) else { return false };
    let is_number = |field: &String| field.replace(['d', 'D'], "e").parse::<f64>().is_ok();
    header(&fields).is_some() || fields.len() == 3 && fields[1..].iter().all(is_number)
}

/// Splits a line into its fields. A quoted field may contain separators, and quotes written twice. Returns
/// `None` if a quote is not closed.
fn fields(line: &str, separator: char) -> Option<Vec<String>> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => quoted = !quoted,
            _ if c == separator && !quoted => fields.push(std::mem::take(&mut field).trim().to_owned()),
            _ => field.push(c),
        }
    }
    fields.push(field.trim().to_owned());
    (!quoted).then_some(fields)
}
