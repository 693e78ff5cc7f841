//! `cargo xtask bench`: what is measured, each by one command.

use anyhow::Result;
use clap::Subcommand;

use crate::step::{self, Step};

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// How the runtime scales, in the simulator: 10 to 1,000 nodes. Writes its figures and a plot to docs/figures
    Scale {
        /// Numbers of nodes
        #[arg(long, value_delimiter = ',')]
        nodes: Vec<usize>,
    },
}

/// Measures, and prints a table.
///
/// # Errors
/// A step failed.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    step::run_chain(&[bench.step()])
}

impl Bench {
    fn step(&self) -> Step {
        match self {
            Self::Scale { nodes } => {
                let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
                let chosen =
                    if nodes.is_empty() { String::new() } else { format!("--nodes {}", nodes.join(",")) };
                let run = "run --release --quiet -p taskwork-simulation --bin scale -- --out docs/figures";
                Step::cargo("scale", &format!("{run} {chosen}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_nodes_are_handed_on() {
        let line = Bench::Scale { nodes: vec![10, 20] }.step().line();
        assert!(line.ends_with("--out docs/figures --nodes 10,20"), "{line}");
    }
}
