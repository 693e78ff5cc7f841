//! Random instances: the same parameters and seed produce the same instance on every machine.

use std::{convert::Infallible, fmt::Write as _};

use clap::ValueEnum;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};

use crate::{distance::Metric, instance::Instance, map::Map};

/// The kind of distances that are generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Kind {
    /// Random cities in a square, with Euclidean distances.
    Euclidean,
    /// Random distances from 1 to 1000.
    Random,
}

/// The length of the square's sides.
const SIDE: u32 = 1000;
/// The maximum random distance.
const DISTANCE_MAX: u32 = 1000;

/// Generates a random instance.
pub fn generate(cities: usize, seed: u64, kind: Kind) -> Instance {
    let name = name(cities, seed, kind);
    let mut random = random(seed);
    let mut map = None;
    let instance = match kind {
        Kind::Euclidean => {
            let points = points(cities, &mut random);
            let places: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (x.into(), y.into())).collect();
            map = Map::of_points(&places);
            let place = |city: usize| [f64::from(points[city].0), f64::from(points[city].1), 0.0];
            Instance::new(name, cities, |i, j| {
                let distance = Metric::Euclidean.distance(place(i), place(j));
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a whole number of at most the square's diagonal"
                )]
                Ok::<_, Infallible>(distance as u32)
            })
        }
        Kind::Random => Instance::new(name, cities, |_, _| Ok(random.random_range(1..=DISTANCE_MAX))),
    };
    match instance {
        Ok(mut instance) => {
            instance.map = map;
            instance
        }
        Err(never) => match never {},
    }
}

/// Generates a random instance as a TSPLIB file.
pub fn generate_file(cities: usize, seed: u64, kind: Kind) -> String {
    let mut file =
        format!("NAME : {}\nTYPE : TSP\nCOMMENT : generated, seed {seed}\n", name(cities, seed, kind));
    // Writing into a string cannot fail.
    let _ = writeln!(file, "DIMENSION : {cities}");
    match kind {
        Kind::Euclidean => {
            file.push_str("EDGE_WEIGHT_TYPE : EUC_2D\nNODE_COORD_SECTION\n");
            for (city, (x, y)) in points(cities, &mut random(seed)).into_iter().enumerate() {
                let _ = writeln!(file, "{} {x} {y}", city + 1);
            }
        }
        Kind::Random => {
            file.push_str(
                "EDGE_WEIGHT_TYPE : EXPLICIT\nEDGE_WEIGHT_FORMAT : UPPER_ROW\nEDGE_WEIGHT_SECTION\n",
            );
            let instance = generate(cities, seed, kind);
            for city in 0..cities.saturating_sub(1) {
                let row = instance.row(city)[city + 1..].iter().map(u32::to_string);
                let _ = writeln!(file, "{}", row.collect::<Vec<_>>().join(" "));
            }
        }
    }
    file.push_str("EOF\n");
    file
}

fn name(cities: usize, seed: u64, kind: Kind) -> String {
    let kind = match kind {
        Kind::Euclidean => "euclidean",
        Kind::Random => "random",
    };
    format!("{kind}{cities}-{seed}")
}

fn random(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

fn points(cities: usize, random: &mut StdRng) -> Vec<(u32, u32)> {
    (0..cities).map(|_| (random.random_range(0..=SIDE), random.random_range(0..=SIDE))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::parse_instance;

    #[test]
    fn generated_file_reads_back_as_the_instance() {
        for kind in [Kind::Euclidean, Kind::Random] {
            for cities in [2, 3, 20] {
                let read = parse_instance("generated", generate_file(cities, 5, kind).as_bytes()).unwrap();
                assert_eq!(read, generate(cities, 5, kind));
            }
        }
    }
}
