//! Cities given by their coordinates.

use super::{
    ReadError,
    text::{Text, Word},
};
use crate::{
    distance::{Metric, Point},
    instance::{DISTANCE_MAX, Instance},
    map::Map,
};

/// The position of a city, and its line in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) point: Point,
    pub(super) line: usize,
}

/// Reads lines with a city's number and its coordinates; the cities may be in any order.
pub(super) fn parse(
    text: &Text,
    cities: usize,
    axes: usize,
    words: &[Word<'_>],
) -> Result<Vec<Place>, ReadError> {
    let mut places: Vec<Option<Place>> = vec![None; cities];
    let mut given = 0;
    for entry in words.chunks(axes + 1) {
        let line = entry[0].line;
        if given == cities {
            return Err(text.error(
                line,
                "more coordinates",
                format!("those of {cities} cities, as in DIMENSION"),
            ));
        }
        let number = text.whole(entry[0], &format!("the number of a city, 1 to {cities}"))?;
        let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(1)).filter(|&n| n < cities);
        let Some(index) = index else {
            return Err(text.error(line, format!("city {number}"), format!("a number from 1 to {cities}")));
        };
        if let Some(before) = places[index] {
            let expected = format!("each city once; it stands on line {} already", before.line);
            return Err(text.error(line, format!("city {number} again"), expected));
        }
        if entry.len() < axes + 1 {
            let found = format!("{} coordinates of city {number}", entry.len() - 1);
            return Err(text.error(line, found, format!("{axes}")));
        }
        let mut point = [0.0; 3];
        for (axis, &word) in point.iter_mut().zip(&entry[1..]) {
            *axis = text.finite(word, "a coordinate: a finite number")?;
        }
        places[index] = Some(Place { point, line });
        given += 1;
    }
    let complete: Option<Vec<Place>> = places.into_iter().collect();
    complete.ok_or_else(|| {
        let line = words.last().map_or_else(|| text.last_line(), |word| word.line);
        text.error(
            line,
            format!("coordinates of {given} cities"),
            format!("those of {cities}, as in DIMENSION"),
        )
    })
}

/// The share of the distances that rounding may change before users are warned: the shortest tour of the rounded
/// distances need not be a short tour.
const ROUNDING_SHARE_MAX: f64 = 0.05;

pub(super) fn instance(
    text: &Text,
    name: &str,
    places: &[Place],
    metric: Metric,
) -> Result<Instance, ReadError> {
    let (mut exact_sum, mut error_sum) = (0.0, 0.0);
    let mut instance = Instance::new(name, places.len(), |i, j| {
        let distance = metric.distance(places[i].point, places[j].point);
        let exact = metric.exact(places[i].point, places[j].point);
        exact_sum += exact;
        error_sum += (distance - exact).abs();
        if distance <= f64::from(DISTANCE_MAX) {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked: a whole number within 0..2^31"
            )]
            return Ok(distance as u32);
        }
        let found = format!("a distance of {distance:e} between cities {} and {}", i + 1, j + 1);
        let expected = format!("at most {DISTANCE_MAX}, so that the length of a tour can be summed up");
        Err(text.error(places[j].line, found, expected))
    })?;
    instance.map = map(places, Some(metric));
    instance.is_coarse = error_sum > ROUNDING_SHARE_MAX * exact_sum;
    Ok(instance)
}

/// Returns the map of these positions. Without a metric they are for display only.
pub(super) fn map(places: &[Place], metric: Option<Metric>) -> Option<Map> {
    // TSPLIB's degrees have minutes behind the point.
    let degrees = |x: f64| x.trunc() + 5.0 * x.fract() / 3.0;
    let points = places.iter().map(|place| (place.point[0], place.point[1]));
    match metric {
        Some(Metric::GreatCircle) => Map::of_degrees(&points.collect::<Vec<_>>()),
        Some(Metric::Geographical) => {
            Map::of_degrees(&points.map(|(x, y)| (degrees(x), degrees(y))).collect::<Vec<_>>())
        }
        _ => Map::of_points(&points.collect::<Vec<_>>()),
    }
}
