//! Searches and enumerations that are suspended repeatedly have the same results, proofs and visited states as
//! uninterrupted ones.

use std::time::Duration;

use taskwork::{Release, State};
use tempfile::TempDir;

use crate::{
    enumerate::Enumerator,
    options::{Collect, Replicable, Strategy},
    solver::{End, Solved, Solver},
    testing::{Paths, Steps},
};

type Setting = fn(Solver<Paths>) -> Solver<Paths>;

/// The costs of the best solution and of the collected solutions.
fn costs(solved: &Solved<Paths>) -> Vec<u64> {
    assert!(solved.proven && solved.end == End::Proven);
    solved.best.iter().chain(&solved.collected).map(|one| one.cost).collect()
}

#[test]
fn every_kind_of_search_continues_after_suspension() {
    // Each kind, and whether its visited states are independent of the workers.
    let kinds: [(Setting, bool); 5] = [
        (|solver| solver.pruning(false), true),
        (|solver| solver.replicable(Replicable { first_states: 100, parts: 30, batch: 4 }), true),
        (|solver| solver, false),
        (|solver| solver.collect(Collect { at_most: 5, within: None }), false),
        (|solver| solver.strategy(Strategy::BestFirst { open_max: 1000 }), false),
    ];
    let mut suspended = 0;
    for (number, (kind, same_states)) in kinds.iter().enumerate() {
        let solver = || kind(Solver::new(Paths { depth: 8, breadth: 6 }));
        let at_once = solver().workers(2).run().unwrap();
        let dir = TempDir::new().unwrap();
        // Each time it may take twice as long, so that it ends.
        for evening in 0.. {
            let release = Release::new("paths", "1").unwrap();
            let state = State::new(dir.path(), release).time_limit(Duration::from_millis(4 << evening));
            let solved = solver().nodes(1 + evening % 3).workers(1).state(state).run().unwrap();
            if solved.end == End::Suspended {
                assert!(!solved.proven && !solved.is_complete() && solved.bound.is_none());
                suspended += 1;
                continue;
            }
            let after = format!("kind {number}, after {evening} evenings");
            assert_eq!(costs(&solved), costs(&at_once), "{after}");
            if *same_states {
                let of = |solved: &Solved<Paths>| (solved.states, solved.pruned);
                assert_eq!(of(&solved), of(&at_once), "{after}");
            }
            break;
        }
    }
    assert!(suspended > 0);
}

#[test]
fn suspended_enumeration_visits_each_state_once() {
    let dir = TempDir::new().unwrap();
    let mut evening = 0;
    let report = loop {
        let release = Release::new("steps", "1").unwrap();
        let state = State::new(dir.path(), release).time_limit(Duration::from_millis(4 << evening));
        let enumerator = Enumerator::new(Steps(Paths { depth: 10, breadth: 4 })).state(state);
        let report = enumerator.nodes(1 + evening % 2).workers(1).run().unwrap();
        if report.finished {
            break report;
        }
        assert!(report.suspended);
        evening += 1;
    };
    assert_eq!(report.output, (4_u64.pow(11) - 1) / 3);
}

#[test]
fn stopped_enumeration_is_unfinished() {
    let enumerator = Enumerator::new(Steps(Paths { depth: 60, breadth: 4 }));
    enumerator.stopper().stop();
    assert!(!enumerator.run().unwrap().finished);
}
