//! `tsp check`.

use std::path::PathBuf;

use super::{CommandError, Ending, print};
use crate::read::{read_instance, read_tour};

/// What `tsp check` is asked.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The instance: TSPLIB or CSV.
    file: PathBuf,
    /// The tour: TSPLIB's TYPE TOUR.
    tour: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<Ending, CommandError> {
    let instance = read_instance(&arguments.file)?;
    let tour = read_tour(&arguments.tour, instance.len())?;
    let length = instance.tour_length(&tour);
    print(&format!("a tour of all {} cities of {}, of length {length}\n", instance.len(), instance.name));
    Ok(Ending::Done)
}
