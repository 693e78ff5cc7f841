//! `uts`: counts the nodes of a published unbalanced tree.
//!
//! ```text
//! cargo run --release -p bnb-framework --example uts -- solve T1
//! ```

use std::process::ExitCode;

use bnb_framework::{
    EnumerationTask,
    cli::{CountArguments, prepare_count},
};
use serde_json::json;
use taskwork_cli::{Failure, Kinds, NoMore, Place, Prepared, Program};

use crate::tree::Uts;

mod tree;

/// What `uts` is asked.
#[derive(Debug, clap::Args)]
struct Arguments {
    /// The name of a published tree: T1 to T5, T1L, T2L, T3L, T1XL, T1XXL or T3XXL.
    tree: String,
    /// Another depth for a geometric tree.
    #[arg(long)]
    depth: Option<u32>,
    /// How many more hashes are taken at each node, for nothing but the time they take.
    #[arg(long, default_value_t = 0)]
    spin: u32,
    /// How long each node is waited for, in microseconds: work that needs no processor.
    #[arg(long, default_value_t = 0)]
    wait_us: u64,
    #[command(flatten)]
    count: CountArguments,
}

#[derive(Debug)]
struct Command;

impl Program for Command {
    const NAME: &'static str = "uts";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Counts the nodes of a published unbalanced tree";
    type Arguments = Arguments;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<EnumerationTask<Uts>>("uts");
    }

    fn prepare(
        Arguments { tree, depth, spin, wait_us, count }: Arguments,
        _: Place,
    ) -> Result<Prepared, Failure> {
        let unknown =
            || Failure::usage(format!("there is no tree {tree:?}: T1 to T5, T1L, T2L, T3L, T1XL, …"));
        let mut uts = Uts { spin, wait_us, ..Uts::named(&tree).ok_or_else(unknown)? };
        if let Some(depth) = depth {
            let other =
                || Failure::usage(format!("{tree} is no geometric tree: it has no depth to be given"));
            uts = uts.to_depth(depth).ok_or_else(other)?;
        }
        Ok(prepare_count("uts", uts, &count, |counts| {
            let text = format!("{} nodes, {} leaves, depth {}", counts.nodes, counts.leaves, counts.depth);
            (text, json!({ "nodes": counts.nodes, "leaves": counts.leaves, "depth": counts.depth }))
        }))
    }
}

fn main() -> ExitCode {
    taskwork_cli::main::<Command>()
}
