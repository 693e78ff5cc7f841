//! UTS: one worker compared with a loop, two with two threads of rayon and of crossbeam.

use anyhow::{Context as _, Result, ensure};
use bnb_framework::Enumerator;
use bnb_problems::uts::Uts;

use crate::{
    measure::{Contender, in_turn},
    reference::uts as reference,
    row::{Row, Target},
};

/// The large trees, with their published sizes.
const TREES: [(&str, u64); 2] = [("T1L", 102_181_082), ("T3L", 111_345_631)];

/// Runs the benchmark.
///
/// # Errors
/// If a count is not the published one.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let threads = reference::threads(2);
    for (name, size) in TREES {
        let tree = Uts::named(name).context("the tree is known")?;
        let right = |nodes| {
            ensure!(nodes == size, "{name} has {size} nodes, but {nodes} were counted");
            Ok(())
        };
        let times = in_turn(
            rounds,
            vec![
                Contender::new("loop", || right(reference::sequential(&tree))),
                Contender::new("1 worker", || right(on(&tree, 1)?)),
                Contender::new("2 workers", || right(on(&tree, 2)?)),
                Contender::new("deques", || right(reference::by_deques(&tree, 2))),
                Contender::new("join", || right(reference::by_join(&tree, &threads))),
            ],
        )?;
        let millions = |of| times.rate(of, size as f64 / 1e6);
        let ratio = |what: &str, target, of, over| {
            Row::new(format!("UTS {name}, {what}"), "", Target::AtLeast(target), times.speedup(of, over))
        };
        rows.extend([
            Row::new(format!("UTS {name}, sequential loop"), "M states/s", Target::Told, millions("loop")),
            ratio("1 worker ÷ sequential loop", 0.97, "1 worker", "loop"),
            ratio("2 workers ÷ sequential loop", 1.92, "2 workers", "loop"),
            ratio("2 workers ÷ crossbeam deques", 1.0, "2 workers", "deques"),
            ratio("2 workers ÷ rayon join", 1.15, "2 workers", "join"),
        ]);
    }
    Ok(rows)
}

fn on(tree: &Uts, workers: usize) -> Result<u64> {
    Ok(Enumerator::new(*tree).workers(workers).run()?.output.nodes)
}
