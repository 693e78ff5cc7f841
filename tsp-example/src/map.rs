//! Positions of cities on a map, for pictures only.

use bnb_framework::picture::{Ink, Picture};
use serde::{Deserialize, Serialize};

use crate::instance::City;

/// The larger side of a map, in units of its own.
const SIDE: f64 = 10_000.0;

/// The larger side of the picture, and its margin and the room for the title, in pixels.
const PICTURE_SIDE: f64 = 640.0;
const MARGIN: f64 = 24.0;
const HEADER: f64 = 36.0;

/// The maximum number of cities whose labels are drawn.
const LABELS_MAX: usize = 60;

/// The places of all cities, with the north or the y axis up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// From the lower left, at most [`SIDE`] each way.
    places: Vec<(u16, u16)>,
}

impl Map {
    /// Makes a map of points: the first axis to the right, the second one up. `None` if there are no points, or some
    /// are no numbers.
    pub fn of_points(points: &[(f64, f64)]) -> Option<Self> {
        let bounds = |axis: fn(&(f64, f64)) -> f64| {
            let least = points.iter().map(axis).fold(f64::INFINITY, f64::min);
            let most = points.iter().map(axis).fold(f64::NEG_INFINITY, f64::max);
            (least, most - least)
        };
        let ((left, width), (lower, height)) = (bounds(|at| at.0), bounds(|at| at.1));
        let side = width.max(height);
        if !side.is_finite() || points.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
            return None;
        }
        let scale = if side > 0.0 { SIDE / side } else { 0.0 };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to SIDE")]
        let place = |part: f64| (part * scale).clamp(0.0, SIDE).round() as u16;
        let places = points.iter().map(|(x, y)| (place(x - left), place(y - lower)));
        Some(Self { places: places.collect() })
    }

    /// Makes a map of latitudes and longitudes in degrees, as seen from above its middle latitude.
    pub fn of_degrees(points: &[(f64, f64)]) -> Option<Self> {
        let latitudes = points.iter().map(|(latitude, _)| latitude).sum::<f64>();
        let shrink = (latitudes / points.len() as f64).to_radians().cos().abs();
        let points: Vec<_> =
            points.iter().map(|(latitude, longitude)| (longitude * shrink, *latitude)).collect();
        Self::of_points(&points)
    }

    /// Draws a tour. `label` names a city.
    pub fn picture(&self, title: &str, tour: &[City], label: impl Fn(City) -> String) -> Picture {
        let most = |axis: fn(&(u16, u16)) -> u16| f64::from(self.places.iter().map(axis).max().unwrap_or(0));
        let scale = (PICTURE_SIDE - 2.0 * MARGIN) / SIDE;
        let (width, height) = (most(|at| at.0) * scale, most(|at| at.1) * scale);
        let at = |city: City| {
            let (x, y) = self.places.get(city).copied().unwrap_or_default();
            (MARGIN + f64::from(x) * scale, HEADER + MARGIN + height - f64::from(y) * scale)
        };
        let description = described(tour, &label);
        // The title has room next to a narrow map.
        let width = (width + 2.0 * MARGIN).max(PICTURE_SIDE / 2.0);
        let mut picture = Picture::new(width, height + 2.0 * MARGIN + HEADER, title, &description);
        picture.text(Ink::Main, (MARGIN, 24.0), title);
        let points: Vec<(f64, f64)> = tour.iter().map(|&city| at(city)).collect();
        picture.line(Ink::Main, &points, true);
        picture.dots(Ink::Mark, &points);
        if tour.len() <= LABELS_MAX {
            for &city in tour {
                let (x, y) = at(city);
                let text = label(city);
                // Those at the right edge would be cut off.
                if x > width * 0.75 {
                    picture.text_before(Ink::Faint, (x - 5.0, y - 5.0), &text);
                } else {
                    picture.text(Ink::Faint, (x + 5.0, y - 5.0), &text);
                }
            }
        }
        picture
    }
}

/// Tells of a tour in words: all cities if they are few, otherwise the first ones.
fn described(tour: &[City], label: impl Fn(City) -> String) -> String {
    let labels: Vec<String> = tour.iter().take(LABELS_MAX).map(|&city| label(city)).collect();
    let more = if tour.len() > LABELS_MAX { ", …" } else { "" };
    format!("A closed tour of {} cities: {}{more}.", tour.len(), labels.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_has_y_axis_and_north_up_and_keeps_the_shape() {
        let map = Map::of_points(&[(0.0, 0.0), (4.0, 0.0), (4.0, 2.0)]).unwrap();
        assert_eq!(map.places, [(0, 0), (10_000, 0), (10_000, 5_000)]);
        // At 60 degrees a degree of longitude is half as long as one of latitude.
        let map = Map::of_degrees(&[(59.0, 10.0), (61.0, 10.0), (60.0, 18.0)]).unwrap();
        assert_eq!(map.places, [(0, 0), (0, 5_000), (10_000, 2_500)]);
        let svg = map.picture("three", &[0, 1, 2], |city| format!("c{city}")).svg();
        assert!(svg.contains("A closed tour of 3 cities: c0, c1, c2."), "{svg}");
        assert!(svg.contains("d=\"M24 356L24 60L616 208Z\""), "north is up: {svg}");
    }

    #[test]
    fn degenerate_points_have_a_valid_map_or_none() {
        assert_eq!(Map::of_points(&[]), None);
        assert_eq!(Map::of_degrees(&[]), None);
        assert_eq!(Map::of_points(&[(0.0, f64::NAN)]), None);
        assert_eq!(Map::of_points(&[(f64::MAX, 0.0), (-f64::MAX, 0.0)]), None, "too far apart");
        let same = Map::of_points(&[(3.0, 3.0), (3.0, 3.0)]).unwrap();
        assert!(!same.picture("same", &[0, 1], |_| String::new()).svg().contains("NaN"));
    }

    #[test]
    fn labels_of_many_cities_are_left_out() {
        let points: Vec<(f64, f64)> =
            (0..100).map(|place| (f64::from(place), f64::from(place % 7))).collect();
        let tour: Vec<City> = (0..100).collect();
        let svg = Map::of_points(&points).unwrap().picture("many", &tour, |city| format!("c{city}")).svg();
        assert_eq!(svg.matches("<text").count(), 1, "the title");
        assert!(svg.contains("c59, …."), "{svg}");
    }
}
