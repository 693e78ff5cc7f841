//! `numerical-semigroups`: counts the numerical semigroups of a genus.
//!
//! ```text
//! cargo run --release -p bnb-framework --example numerical-semigroups -- solve 25
//! ```

use std::process::ExitCode;

use bnb_framework::EnumerationTask;
use taskwork::cli::{Failure, Kinds, NoMore, Place, Prepared, Program, Shown};

use crate::semigroups::Semigroups;

mod semigroups;

/// What `numerical-semigroups` is asked.
#[derive(Debug, clap::Args)]
struct Arguments {
    /// The genus, up to 80.
    genus: u8,
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

    fn prepare(Arguments { genus }: Arguments, _: Place) -> Result<Prepared, Failure> {
        let too_large = || Failure::usage(format!("a genus of {genus} is too large: at most 80"));
        let semigroups = Semigroups::new(genus).ok_or_else(too_large)?;
        Ok(Prepared::new("numerical-semigroups", EnumerationTask::job(semigroups), |report| {
            let text = format!("{} numerical semigroups", report.output);
            let json = serde_json::json!({
                "semigroups": report.output,
                "finished": report.finished,
                "seconds": report.elapsed.as_secs_f64(),
                "figures": report.figures,
            });
            Ok(Shown { text, json, complete: report.finished })
        }))
    }
}

fn main() -> ExitCode {
    taskwork::cli::main::<Command>()
}
