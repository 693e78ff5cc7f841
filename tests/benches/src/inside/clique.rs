//! The largest clique, compared with a plain recursion over the same operations.

use std::cell::RefCell;

use anyhow::{Result, ensure};
use bnb_framework::Solver;
use bnb_problems::maxclique::{Graph, MaxClique};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    measure::{Contender, Sample, in_turn},
    reference::recursion::in_place,
    row::{Row, Target},
};

const VERTICES: usize = 200;
const DENSITY: f64 = 0.9;
const SEED: u64 = 1;

/// Runs the benchmark.
///
/// # Errors
/// If two searches find cliques of different sizes.
pub fn run(rounds: usize) -> Result<Vec<Row>> {
    let graph = graph();
    let problem = MaxClique::<4, false>::new(graph).map_err(anyhow::Error::msg)?;
    let first = in_place(&problem);
    let right = |size| {
        ensure!(size == first.best, "{:?} vertices were expected, {size:?} found", first.best);
        Ok(())
    };
    // Two workers visit other states than one: which of them finds the best clique, and when, is random.
    let rates = RefCell::new(Vec::new());
    let on = |workers| {
        // The recursion has no heuristics.
        let solved = Solver::new(problem.clone()).heuristics(0.0).workers(workers).run()?;
        if workers == 2 {
            rates.borrow_mut().push(solved.states as f64 / solved.elapsed.as_secs_f64());
        }
        right(solved.best.map(|best| best.cost))
    };
    let times = in_turn(
        rounds,
        vec![
            Contender::new("recursion", || right(in_place(&problem).best)),
            Contender::new("1 worker", || on(1)),
            Contender::new("2 workers", || on(2)),
        ],
    )?;
    let what = format!("clique, {VERTICES} vertices, density {DENSITY}");
    let seconds = |how: &str, of| Row::new(format!("{what}, {how}"), "s", Target::Told, times.seconds(of));
    let states = first.states as f64;
    // The first run does not count.
    let by_rate = rates.borrow()[1..]
        .iter()
        .zip(times.of("recursion"))
        .map(|(rate, alone)| rate * alone / states)
        .collect::<Vec<_>>();
    Ok(vec![
        Row::new(
            format!("{what}, recursion"),
            "M states/s",
            Target::Told,
            times.rate("recursion", states / 1e6),
        ),
        seconds("recursion", "recursion"),
        seconds("2 workers", "2 workers"),
        Row::new(
            format!("{what}, 1 worker ÷ recursion"),
            "",
            Target::Told,
            times.speedup("1 worker", "recursion"),
        ),
        Row::new(
            format!("{what}, 2 workers ÷ recursion, states/s"),
            "",
            Target::AtLeast(1.92),
            Sample::of(by_rate),
        ),
        Row::new(
            format!("{what}, 2 workers ÷ recursion, time"),
            "",
            Target::Told,
            times.speedup("2 workers", "recursion"),
        ),
    ])
}

fn graph() -> Graph {
    let mut random = StdRng::seed_from_u64(SEED);
    let mut graph = Graph::new(VERTICES);
    for a in 0..VERTICES {
        for b in 0..a {
            if random.random_bool(DENSITY) {
                graph.connect(a, b);
            }
        }
    }
    graph
}
