//! The travelling salesman: all tours, and those that a spanning tree does not rule out, compared with
//! handwritten loops; and the whole program.

use std::{process::Command, time::Instant};

use anyhow::{Context as _, Result, ensure};
use bnb_framework::Solver;
use taskwork_tests::cluster::program;
use tsp_example::{
    generate::{Kind, generate, generate_file},
    path::{PathProblem, states_without_pruning},
};

use crate::{
    measure::{Contender, Sample, in_turn},
    reference::tsp as reference,
    row::{Row, Target},
};

const CITIES: usize = 12;

/// Measures a search of all tours of twelve cities.
///
/// # Errors
/// If a search finds another length or visits another number of states.
pub fn paths(rounds: usize) -> Result<Vec<Row>> {
    let instance = generate(CITIES, 1, Kind::Euclidean);
    let table = reference::Table::new(&instance);
    let expected = reference::recursion(&table);
    ensure!(expected.states == states_without_pruning(CITIES as u64), "{expected:?}");
    let right = |found: reference::Found| {
        ensure!(found == expected, "{found:?} where {expected:?} was expected");
        Ok(())
    };
    let on = |workers| {
        let solver = Solver::new(PathProblem::<16, 1>::new(instance.clone()));
        let solved = solver.pruning(false).workers(workers).run()?;
        let length = solved.best.context("there is a tour")?.cost;
        anyhow::Ok(reference::Found { length, states: solved.states })
    };
    let times = in_turn(
        rounds,
        vec![
            Contender::new("stack", || right(reference::stack(&table))),
            Contender::new("recursion", || right(reference::recursion(&table))),
            Contender::new("nearest first", || right(reference::recursion_nearest_first(&instance))),
            Contender::new("1 worker", || right(on(1)?)),
            Contender::new("2 workers", || right(on(2)?)),
        ],
    )?;
    let row = |what: &str, target, of, over| {
        Row::new(format!("TSP without pruning, {what}"), "", target, times.speedup(of, over))
    };
    let millions = times.rate("1 worker", expected.states as f64 / 1e6);
    let nearest = "1 worker ÷ recursion with undo, nearest city first as here";
    Ok(vec![
        Row::new("TSP without pruning, 1 worker", "M states/s", Target::Told, millions),
        row("1 worker ÷ explicit stack", Target::AtLeast(0.97), "1 worker", "stack"),
        row("1 worker ÷ recursion with undo", Target::AtLeast(0.85), "1 worker", "recursion"),
        row(nearest, Target::Told, "1 worker", "nearest first"),
        row("2 workers ÷ 1 worker", Target::Told, "2 workers", "1 worker"),
    ])
}

/// Measures a search with the spanning tree of the unvisited cities as its bound, without an initial tour.
///
/// # Errors
/// If a search finds another length.
pub fn mst(rounds: usize) -> Result<Vec<Row>> {
    let instance = generate(25, 5, Kind::Euclidean);
    let mut expected = None;
    let mut right = |found: reference::Found| {
        ensure!(*expected.get_or_insert(found) == found, "{found:?} where {expected:?} was expected");
        Ok(())
    };
    let on = |workers| {
        // The recursion has no heuristics.
        let solver = Solver::new(PathProblem::<32, 1>::new(instance.clone())).heuristics(0.0);
        let solved = solver.workers(workers).run()?;
        let length = solved.best.context("there is a tour")?.cost;
        anyhow::Ok(reference::Found { length, states: solved.states })
    };
    right(reference::spanning_tree(&instance))?;
    let times = in_turn(
        rounds,
        vec![
            Contender::new("recursion", || {
                reference::spanning_tree(&instance);
                Ok(())
            }),
            Contender::new("1 worker", || right(on(1)?)),
        ],
    )?;
    let states = expected.map_or(0, |found| found.states) as f64 / 1e6;
    let what = "TSP --bound mst --start none, 25 cities";
    Ok(vec![
        Row::new(format!("{what}, 1 worker"), "M states/s", Target::Told, times.rate("1 worker", states)),
        Row::new(
            format!("{what}, 1 worker ÷ recursion with the same bound"),
            "",
            Target::AtLeast(0.97),
            times.speedup("1 worker", "recursion"),
        ),
    ])
}

/// Measures the process `tsp solve` on sixty cities, with five seeds.
///
/// # Errors
/// If the program fails.
pub fn solve(rounds: usize) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let tsp = program("tsp")?;
    let mut rows = Vec::new();
    for seed in 1..=5 {
        let file = folder.path().join(format!("{seed}.tsp"));
        std::fs::write(&file, generate_file(60, seed, Kind::Euclidean))?;
        let once = || {
            let started = Instant::now();
            let said = Command::new(&tsp).arg("solve").arg(&file).args(["--quiet", "--json"]).output()?;
            ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
            Ok(started.elapsed().as_secs_f64())
        };
        let seconds = (0..rounds).map(|_| once()).collect::<Result<Vec<f64>>>()?;
        let what = format!("tsp solve, 60 cities, seed {seed}, the whole process");
        rows.push(Row::new(what, "s", Target::AtMost(2.0), Sample::of(seconds)));
    }
    Ok(rows)
}
