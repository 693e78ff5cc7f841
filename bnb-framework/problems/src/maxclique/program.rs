//! The program `maxclique`: chooses how many words a set of vertices has.

use std::{path::PathBuf, process::ExitCode};

use bnb_framework::{
    Solver, check,
    cli::{self, Checking, Failure, SearchArguments},
    lowlevel::SearchTask,
    parse::text_of,
};
use taskwork_cli::{Kinds, Prepared, Program, note};

use super::{FILE_BYTES_MAX, Graph, MaxClique, parse};

/// The arguments of `maxclique` that define the problem.
#[derive(Debug, clap::Args)]
struct GraphArguments {
    /// The graph, in DIMACS format. Loops are skipped, and lines may be repeated.
    file: PathBuf,
    /// Search for the heaviest clique, by the weights of the vertices (lines n), instead of the one with the
    /// most vertices, for which weights are ignored.
    #[arg(long)]
    weighted: bool,
}

/// The arguments of `maxclique`.
#[derive(Debug, clap::Args)]
struct Arguments {
    #[command(flatten)]
    graph: GraphArguments,
    #[command(flatten)]
    search: SearchArguments,
}

/// The program. The type of its problem depends on the size of the graph.
struct Cliques;

impl Program for Cliques {
    const NAME: &'static str = "maxclique";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Finds a largest clique of a graph";
    type Arguments = Arguments;
    type More = Checking<GraphArguments>;

    fn kinds(kinds: &mut Kinds) {
        kinds
            .add::<SearchTask<MaxClique<4, false>>>("maxclique-256")
            .add::<SearchTask<MaxClique<8, false>>>("maxclique-512")
            .add::<SearchTask<MaxClique<16, false>>>("maxclique-1024")
            .add::<SearchTask<MaxClique<64, false>>>("maxclique-4096")
            .add::<SearchTask<MaxClique<4, true>>>("weighted-256")
            .add::<SearchTask<MaxClique<16, true>>>("weighted-1024")
            .add::<SearchTask<MaxClique<64, true>>>("weighted-4096");
    }

    fn prepare(Arguments { graph: arguments, search }: Arguments) -> Result<Prepared, Failure> {
        let graph = arguments.read()?;
        let GraphArguments { file, weighted } = arguments;
        if !weighted && (0..graph.vertices()).any(|vertex| graph.weight(vertex) != 1) {
            note(&format!(
                "{}: the weights of the vertices (lines n) are ignored; --weighted searches for the heaviest clique",
                file.display()
            ));
        }
        match (graph.vertices(), weighted) {
            (0..=256, false) => prepare::<4, false>("maxclique-256", graph, &search),
            (257..=512, false) => prepare::<8, false>("maxclique-512", graph, &search),
            (513..=1024, false) => prepare::<16, false>("maxclique-1024", graph, &search),
            (_, false) => prepare::<64, false>("maxclique-4096", graph, &search),
            (0..=256, true) => prepare::<4, true>("weighted-256", graph, &search),
            (257..=1024, true) => prepare::<16, true>("weighted-1024", graph, &search),
            (_, true) => prepare::<64, true>("weighted-4096", graph, &search),
        }
    }

    fn more(Checking::Check(arguments): Self::More) -> Result<ExitCode, Failure> {
        let graph = arguments.read()?;
        // The largest type takes all graphs.
        cli::checked(if arguments.weighted {
            check(&MaxClique::<64, true>::new(graph).map_err(Failure::usage)?)
        } else {
            check(&MaxClique::<64, false>::new(graph).map_err(Failure::usage)?)
        })
    }
}

impl GraphArguments {
    fn read(&self) -> Result<Graph, Failure> {
        let text = text_of(&self.file, FILE_BYTES_MAX).map_err(Failure::usage)?;
        parse(&self.file.display().to_string(), &text).map_err(Failure::usage)
    }
}

/// Prepares the search of a graph of at most `64 * W` vertices.
fn prepare<const W: usize, const WEIGHTED: bool>(
    kind: &'static str,
    graph: Graph,
    search: &SearchArguments,
) -> Result<Prepared, Failure> {
    let problem = MaxClique::<W, WEIGHTED>::new(graph).map_err(Failure::usage)?;
    let start = search.has_heuristics().then(|| problem.start()).flatten();
    let solver = Solver::new(problem);
    let solver = match start {
        Some((cost, clique)) => solver.start(cost, clique),
        None => solver,
    };
    cli::prepare(kind, solver, search)
}

/// Runs the program `maxclique`. Its search is compiled here, in the crate of its problem, so that it needs no
/// link-time optimisation.
pub fn main() -> ExitCode {
    taskwork_cli::main::<Cliques>()
}
