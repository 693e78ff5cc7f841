//! `numerical-semigroups`: counts the numerical semigroups of a genus.
//!
//! ```text
//! cargo run --release -p bnb-framework --example numerical-semigroups -- solve 25
//! ```

use std::process::ExitCode;

use bnb_framework::{
    EnumerationTask,
    cli::{CountArguments, prepare_count},
};
use serde_json::json;
use taskwork_cli::{Failure, Kinds, NoMore, Place, Prepared, Program};

use crate::semigroups::Semigroups;

mod semigroups;

/// What `numerical-semigroups` is asked.
#[derive(Debug, clap::Args)]
struct Arguments {
    /// The genus, up to 80.
    genus: u8,
    #[command(flatten)]
    count: CountArguments,
}

#[derive(Debug)]
struct Command;

impl Program for Command {
    const NAME: &'static str = "numerical-semigroups";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Counts the numerical semigroups of a genus";
    type Arguments = Arguments;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<EnumerationTask<Semigroups>>("numerical-semigroups");
    }

    fn prepare(Arguments { genus, count }: Arguments, _: Place) -> Result<Prepared, Failure> {
        let too_large = || Failure::usage(format!("a genus of {genus} is too large: at most 80"));
        let semigroups = Semigroups::new(genus).ok_or_else(too_large)?;
        Ok(prepare_count("numerical-semigroups", semigroups, &count, |count| {
            (format!("{count} numerical semigroups"), json!({ "semigroups": count }))
        }))
    }
}

fn main() -> ExitCode {
    taskwork_cli::main::<Command>()
}
