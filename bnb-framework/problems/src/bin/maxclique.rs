//! `maxclique`: finds a largest clique of a graph, or a heaviest.
//!
//! ```text
//! cargo run --release -p bnb-problems --bin maxclique -- solve brock400_4.clq
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    bnb_problems::maxclique::main()
}
