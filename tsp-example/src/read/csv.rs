//! Plain CSV: `name,x,y`, or `name,lat,lon` with a header that says so.

use super::{
    ReadError,
    coordinates::{self, Place},
    text::{Text, Word, quote},
    tsplib::check_size,
};
use crate::{distance::Metric, instance::Instance};

/// Reads a CSV file. Distances are Euclidean and rounded; with a header `name,lat,lon` they are kilometres on
/// a great circle.
pub(super) fn parse(text: &Text) -> Result<Instance, ReadError> {
    let lines: Vec<(usize, Vec<String>)> = text
        .lines()
        .filter(|(_, line)| !line.starts_with('#'))
        .map(|(number, line)| fields(text, number, line).map(|fields| (number, fields)))
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

/// Splits a line into its fields. A quoted field may contain commas, and quotes written twice.
fn fields(text: &Text, number: usize, line: &str) -> Result<Vec<String>, ReadError> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field).trim().to_owned()),
            _ => field.push(c),
        }
    }
    if quoted {
        return Err(text.error(number, "a quote that is not closed", "a closing quote on the same line"));
    }
    fields.push(field.trim().to_owned());
    Ok(fields)
}
