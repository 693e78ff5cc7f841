//! `tsp check`: checks a tour, or the program.

use std::{path::PathBuf, process::ExitCode};

use bnb_framework::{check, cli::checked};
use taskwork_cli::{Failure, print};

use super::{
    note_coarse,
    solve::{CITIES_OF_CHOICE, DOUBLED_CITIES_MAX},
};
use crate::{
    directed::DirectedProblem,
    one_tree::OneTreeProblem,
    path::PathProblem,
    read::{read_instance, read_tour},
};

/// The maximum number of cities of the checked search by paths.
const PATH_CITIES_MAX: usize = 64;

/// The arguments of `tsp check`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The instance: TSPLIB or CSV.
    file: PathBuf,
    /// The tour, TSPLIB's TYPE TOUR. Without one, the command looks for mistakes in the program at this instance, by
    /// random walks through its trees.
    tour: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let instance = read_instance(&arguments.file).map_err(Failure::usage)?;
    note_coarse(&arguments.file, &instance);
    let Some(tour) = &arguments.tour else {
        let mut found = check(&DirectedProblem::new(instance.clone()));
        let has_one_trees = !instance.is_directed() || instance.len() <= DOUBLED_CITIES_MAX;
        if has_one_trees && instance.len() >= CITIES_OF_CHOICE {
            found = found.and_then(|()| check(&OneTreeProblem::new(instance.clone())));
        }
        if !instance.is_directed() && instance.len() <= PATH_CITIES_MAX {
            found = found.and_then(|()| check(&PathProblem::<PATH_CITIES_MAX, 1>::new(instance)));
        }
        return checked(found);
    };
    let tour = read_tour(tour, instance.len()).map_err(Failure::usage)?;
    let length = instance.tour_length(&tour);
    print(&format!("a tour of all {} cities of {}, of length {length}\n", instance.len(), instance.name));
    Ok(ExitCode::SUCCESS)
}
