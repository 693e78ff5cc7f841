//! `tsp generate`.

use taskwork_cli::print;

use crate::generate::{Kind, generate_file};

/// The arguments of `tsp generate`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The number of cities, 1 to 10,000.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    cities: u16,
    /// The seed; the same seed produces the same instance.
    #[arg(long)]
    seed: u64,
    /// Random cities in a square, or random distances.
    #[arg(long, value_enum, default_value = "euclidean")]
    kind: Kind,
}

pub(super) fn run(arguments: &Arguments) {
    print(&generate_file(usize::from(arguments.cities), arguments.seed, arguments.kind));
}
