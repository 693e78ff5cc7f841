//! `maxclique`: finds a largest clique of a graph.
//!
//! ```text
//! cargo run --release -p bnb-framework --example maxclique -- solve brock400_4.clq
//! ```

use std::{path::PathBuf, process::ExitCode};

use bnb_framework::{SearchTask, Solved, Solver};
use taskwork::cli::{Failure, Kinds, NoMore, Place, Prepared, Program, Shown};

use crate::{clique::MaxClique, graph::Graph};

mod clique;
mod graph;
mod set;

/// What `maxclique` is asked.
#[derive(Debug, clap::Args)]
struct Arguments {
    /// The graph, in DIMACS format.
    file: PathBuf,
}

#[derive(Debug)]
struct Command;

impl Program for Command {
    const NAME: &'static str = "maxclique";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Finds a largest clique of a graph";
    type Arguments = Arguments;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds
            .add::<SearchTask<MaxClique<4>>>("maxclique-256")
            .add::<SearchTask<MaxClique<8>>>("maxclique-512")
            .add::<SearchTask<MaxClique<16>>>("maxclique-1024")
            .add::<SearchTask<MaxClique<64>>>("maxclique-4096");
    }

    fn prepare(Arguments { file }: Arguments, _: Place) -> Result<Prepared, Failure> {
        let graph = graph::read(&file).map_err(Failure::usage)?;
        match graph.vertices() {
            0..=256 => prepare::<4>("maxclique-256", graph),
            257..=512 => prepare::<8>("maxclique-512", graph),
            513..=1024 => prepare::<16>("maxclique-1024", graph),
            _ => prepare::<64>("maxclique-4096", graph),
        }
    }
}

/// The search on a graph of at most `64 * W` vertices.
fn prepare<const W: usize>(kind: &'static str, graph: Graph) -> Result<Prepared, Failure> {
    let problem = MaxClique::<W>::new(graph.clone()).map_err(Failure::usage)?;
    Ok(Prepared::new(kind, Solver::new(problem).job(), move |report| {
        let solved = Solved::of(&report);
        if let Some(best) = solved.best.as_ref().filter(|best| !graph.is_clique(&best.solution)) {
            return Err(Failure::failed(format!("{:?} were found, but are no clique", best.solution)));
        }
        // People count vertices from 1, as the files do.
        let clique: Vec<usize> =
            solved.best.iter().flat_map(|best| &best.solution).map(|vertex| vertex + 1).collect();
        let sure = if solved.proven { "a largest clique" } else { "the largest clique so far" };
        let text = format!("{sure} has {} vertices: {clique:?}\n{} states", clique.len(), solved.states);
        let json = serde_json::json!({
            "clique": clique,
            "vertices": clique.len(),
            "proven": solved.proven,
            "states": solved.states,
            "seconds": solved.elapsed.as_secs_f64(),
            "figures": solved.figures,
        });
        Ok(Shown { text, json, complete: solved.proven })
    }))
}

fn main() -> ExitCode {
    taskwork::cli::main::<Command>()
}
