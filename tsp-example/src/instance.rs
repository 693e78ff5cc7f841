//! An instance: cities and the distances between them.

use bnb_framework::picture::Picture;
use serde::{Deserialize, Serialize};

use crate::map::Map;

/// The number of a city, from 0. In files they are counted from 1.
pub type City = usize;

/// The maximum distance between two cities. With it, no tour of as many cities as fit into memory can
/// overflow.
pub const DISTANCE_MAX: u32 = i32::MAX as u32;

/// The maximum memory for the distances of an instance, in bytes.
pub const MATRIX_BYTES_MAX: u64 = 512 << 20;

/// Cities and the distances between them, which are the same in both directions unless the instance is
/// directed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The name in the file.
    pub name: String,
    /// The names of the cities, if they have any.
    pub names: Option<Vec<String>>,
    /// The positions of the cities, if they are known.
    pub map: Option<Map>,
    /// Whether the distances were computed from coordinates so close to each other that rounding has changed
    /// them by more than 5 % on average. It is known where the instance was read.
    #[serde(skip)]
    pub is_coarse: bool,
    cities: usize,
    /// Row by row.
    distances: Vec<u32>,
    directed: bool,
}

/// Returns the memory that the distances between this many cities take, in bytes.
pub fn matrix_bytes(cities: u64) -> u64 {
    cities.saturating_mul(cities).saturating_mul(4)
}

/// Reads a tour as printed by `tsp solve --json`: cities by their numbers in the file, from 1; either alone,
/// or as the `tour` of an object.
pub(crate) fn read_numbered(mut given: serde_json::Value) -> Option<Vec<City>> {
    if let Some(tour) = given.get_mut("tour") {
        given = tour.take();
    }
    let numbers: Vec<City> = serde_json::from_value(given).ok()?;
    numbers.into_iter().map(|number| number.checked_sub(1)).collect()
}

impl Instance {
    /// Creates an instance whose distances are given by a function of two different cities, the smaller
    /// first.
    ///
    /// # Errors
    /// Returns the first error of the function.
    pub fn new<E>(
        name: impl Into<String>,
        cities: usize,
        mut distance: impl FnMut(City, City) -> Result<u32, E>,
    ) -> Result<Self, E> {
        let mut distances = vec![0; cities * cities];
        for i in 0..cities {
            for j in i + 1..cities {
                let d = distance(i, j)?;
                distances[i * cities + j] = d;
                distances[j * cities + i] = d;
            }
        }
        Ok(Self {
            name: name.into(),
            names: None,
            map: None,
            is_coarse: false,
            cities,
            distances,
            directed: false,
        })
    }

    /// Creates an instance whose distances depend on the direction, given row by row.
    ///
    /// # Panics
    /// Panics if there are not as many distances as pairs of cities.
    pub fn directed(name: impl Into<String>, cities: usize, distances: Vec<u32>) -> Self {
        assert_eq!(distances.len(), cities * cities, "a distance from each of {cities} cities to each");
        Self {
            name: name.into(),
            names: None,
            map: None,
            is_coarse: false,
            cities,
            distances,
            directed: true,
        }
    }

    /// Returns whether distances depend on the direction.
    pub fn is_directed(&self) -> bool {
        self.directed
    }

    /// Returns the length of a tour from elsewhere, or `None` if it does not visit every city once.
    pub fn checked_length(&self, tour: &[City]) -> Option<u64> {
        let mut sorted = tour.to_vec();
        sorted.sort_unstable();
        sorted.into_iter().eq(0..self.cities).then(|| self.tour_length(tour))
    }

    /// Returns the number of cities.
    #[inline]
    pub fn len(&self) -> usize {
        self.cities
    }

    /// Returns whether there are no cities.
    pub fn is_empty(&self) -> bool {
        self.cities == 0
    }

    /// Returns the distance between two cities.
    #[inline]
    pub fn distance(&self, i: City, j: City) -> u32 {
        self.distances[i * self.cities + j]
    }

    /// Returns the distances from a city to all cities.
    #[inline]
    pub fn row(&self, i: City) -> &[u32] {
        &self.distances[i * self.cities..(i + 1) * self.cities]
    }

    /// Returns the length of a tour, including the way back to its first city.
    pub fn tour_length(&self, tour: &[City]) -> u64 {
        let back = tour.last().zip(tour.first()).map(|(&last, &first)| (last, first));
        let steps = tour.windows(2).map(|step| (step[0], step[1]));
        steps.chain(back).map(|(i, j)| u64::from(self.distance(i, j))).sum()
    }

    /// Draws a tour, if it is known where the cities are.
    pub fn picture(&self, tour: &[City]) -> Option<Picture> {
        let title = format!("{}: a tour of length {}", self.name, self.checked_length(tour)?);
        Some(self.map.as_ref()?.picture(&title, tour, |city| self.label(city)))
    }

    /// Returns the label of a city: its name, or its number in the file.
    pub fn label(&self, city: City) -> String {
        match &self.names {
            Some(names) => names[city].clone(),
            None => (city + 1).to_string(),
        }
    }
}
