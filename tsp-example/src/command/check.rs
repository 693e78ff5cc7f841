//! `tsp check`.

use std::path::PathBuf;

use taskwork_cli::{Failure, print};

use super::note_coarse;
use crate::read::{read_instance, read_tour};

/// The arguments of `tsp check`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The instance: TSPLIB or CSV.
    file: PathBuf,
    /// The tour: TSPLIB's TYPE TOUR.
    tour: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let instance = read_instance(&arguments.file).map_err(Failure::usage)?;
    note_coarse(&arguments.file, &instance);
    let tour = read_tour(&arguments.tour, instance.len()).map_err(Failure::usage)?;
    let length = instance.tour_length(&tour);
    print(&format!("a tour of all {} cities of {}, of length {length}\n", instance.len(), instance.name));
    Ok(())
}
