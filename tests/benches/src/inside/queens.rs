//! N-Queens: a state takes two nanoseconds, so any overhead of the runtime is visible.

use anyhow::{Context as _, Result, ensure};
use bnb_framework::Enumerator;
use bnb_problems::nqueens::Board;

use crate::{
    measure::{Contender, in_turn},
    reference::queens as reference,
    row::{Row, Target},
};

const SIZE: u32 = 14;
/// The number of solutions, from OEIS A000170.
const WAYS: u64 = 365_596;

/// Runs the benchmark.
///
/// # Errors
/// If a count is not the published one.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let board = Board::new(SIZE).context("the size is allowed")?;
    let right = |ways| {
        ensure!(ways == WAYS, "{WAYS} ways were expected, {ways} counted");
        Ok(())
    };
    let on = |workers| anyhow::Ok(Enumerator::new(board).workers(workers).run()?.output);
    let times = in_turn(
        rounds,
        vec![
            Contender::new("recursion", || right(reference::sequential(SIZE))),
            Contender::new("1 worker", || right(on(1)?)),
            Contender::new("2 workers", || right(on(2)?)),
        ],
    )?;
    let row = |what, of| Row::new(what, "", Target::Told, times.speedup(of, "recursion"));
    Ok(vec![
        row("14 queens, 1 worker ÷ recursion", "1 worker"),
        row("14 queens, 2 workers ÷ recursion", "2 workers"),
    ])
}
