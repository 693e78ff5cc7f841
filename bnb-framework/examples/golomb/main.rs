//! `golomb`: finds a shortest Golomb ruler.
//!
//! ```text
//! cargo run --release -p bnb-framework --example golomb -- solve 10
//! ```

use std::process::ExitCode;

use bnb_framework::{SearchTask, Solved, Solver};
use taskwork::cli::{Failure, Kinds, NoMore, Place, Prepared, Program, Shown};

use crate::ruler::{Golomb, MARKS_MAX};

mod ruler;

/// What `golomb` is asked.
#[derive(Debug, clap::Args)]
struct Arguments {
    /// How many marks the ruler has, 2 to 32.
    marks: usize,
}

#[derive(Debug)]
struct Command;

impl Program for Command {
    const NAME: &'static str = "golomb";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Finds a shortest Golomb ruler";
    type Arguments = Arguments;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<SearchTask<Golomb>>("golomb");
    }

    fn prepare(Arguments { marks }: Arguments, _: Place) -> Result<Prepared, Failure> {
        let wrong = || Failure::usage(format!("a ruler of {marks} marks: 2 to {MARKS_MAX} were expected"));
        let golomb = Golomb::new(marks).ok_or_else(wrong)?;
        Ok(Prepared::new("golomb", Solver::new(golomb).job(), |report| {
            let solved = Solved::of(&report);
            let (length, ruler) = solved.best.map(|best| (best.cost, best.solution)).unzip();
            let sure = if solved.proven { "a shortest ruler" } else { "the shortest ruler so far" };
            let text = match (&length, &ruler) {
                (Some(length), Some(ruler)) => format!("{sure} has length {length}: {ruler:?}"),
                _ => "no ruler was found".to_owned(),
            };
            let json = serde_json::json!({
                "length": length,
                "ruler": ruler,
                "proven": solved.proven,
                "states": solved.states,
                "seconds": solved.elapsed.as_secs_f64(),
                "figures": solved.figures,
            });
            Ok(Shown { text, json, complete: solved.proven })
        }))
    }
}

fn main() -> ExitCode {
    taskwork::cli::main::<Command>()
}
