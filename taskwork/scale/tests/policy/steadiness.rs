//! Tests of stability, adaptation to the tree, forecasts, and restarts of the controller.

use taskwork_scale::policy::{Decision, Goals, Observation, Policy};

use crate::{
    figures::{DELAY_PRICE, Figures, goals, is_long, machines, seeds, world},
    trees::{Shape, Tree},
    world::Controller,
};

/// The end of the start phase, in seconds.
const STEADY_S: f64 = 300.0;

fn goals_of(number: u64) -> Goals {
    match number % 3 {
        0 => Goals { delay_price: Some(DELAY_PRICE), ..goals() },
        1 => Goals { efficiency: Some(0.8), ..goals() },
        _ => goals(),
    }
}

#[test]
fn policy_turns_at_most_three_times_an_hour() {
    let mut figures = Figures::default();
    for shape in [Shape::Uniform, Shape::Comb, Shape::LateIncumbent, Shape::Chain] {
        for seed in seeds(3) {
            let world = world(shape, seed, machines());
            let ours = world.run(&mut Policy::new(goals_of(seed)));
            let hours = ((ours.took_s.unwrap() - STEADY_S) / 3600.0).max(1.0);
            let turns = f64::from(ours.turns(STEADY_S)) / hours;
            if turns > 3.0 {
                println!("{shape:?} {seed}: {turns:.1} turns an hour");
            }
            figures.add(turns);
        }
    }
    println!("turns in an hour: {}", figures.summary());
    assert!(figures.quantile(1.0) <= 3.0, "{}", figures.summary());
}

#[test]
fn one_long_last_task_releases_machines() {
    let mut figures = Figures::default();
    for seed in seeds(6) {
        let mut world = world(Shape::Chain, seed, machines());
        if seed % 2 == 0 {
            world.tree = Tree::with_a_long_last_task(seed);
        }
        let ours = world.run(&mut Policy::new(goals_of(seed / 2)));
        let thin_s = ours.thin_s.unwrap();
        let few = ours.wanted.iter().rev().take_while(|(_, nodes)| *nodes <= 2).last();
        figures.add(few.map_or(f64::INFINITY, |few| (few.0 - thin_s).max(0.0)));
    }
    println!("seconds until at most two nodes are left of a chain: {}", figures.summary());
    assert!(figures.quantile(1.0) <= 60.0, "{}", figures.summary());
}

#[test]
fn tiny_tree_starts_few_machines() {
    let mut figures = Figures::default();
    for seed in seeds(6) {
        let world = world(Shape::Tiny, seed, machines());
        let ours = world.run(&mut Policy::new(goals()));
        figures.add(ours.wanted.iter().map(|(_, nodes)| f64::from(*nodes)).fold(0.0, f64::max));
    }
    println!("nodes for a tree of seconds: {}", figures.summary());
}

#[test]
fn predicted_band_contains_end() {
    let mut all = Figures::default();
    for shape in Shape::LONG {
        let mut figures = Figures::default();
        for seed in seeds(6) {
            let world = world(shape, seed, machines());
            let ours = world.run(&mut Policy::new(goals_of(seed)));
            let end_ms = crate::world::BEGAN_MS + (ours.took_s.unwrap() * 1000.0) as u64;
            for (from_ms, to_ms) in &ours.bands {
                let is_within = (*from_ms..=*to_ms).contains(&end_ms);
                figures.add(f64::from(is_within));
                all.add(f64::from(is_within));
            }
        }
        println!("finish within the band, {shape:?}: {:.2} of {}", figures.share_from(1.0), figures.count());
    }
    let share = all.share_from(1.0);
    println!("finish within the band: {share:.3} of {}", all.count());
    if is_long() {
        assert!((0.7..=0.9).contains(&share), "{share}");
    }
    assert!(share >= 0.6, "{share}");
}

/// A controller that is killed after every round, with a successor that reads its state.
struct Dying {
    written: String,
    steady: Policy,
}

impl Controller for Dying {
    fn decide(&mut self, seen: &Observation) -> Decision {
        let mut read: Policy = serde_json::from_str(&self.written).expect("it was written by a policy");
        let decision = read.decide(seen);
        assert_eq!(decision, self.steady.decide(seen), "at {}", seen.at_ms);
        self.written = serde_json::to_string(&read).expect("plain data");
        assert!(self.written.len() < 100_000, "bounded: {} bytes", self.written.len());
        decision
    }
}

#[test]
fn policy_survives_restarts_of_controller() {
    for shape in [Shape::Recorded, Shape::Chain, Shape::Tiny] {
        let steady = Policy::new(goals_of(0));
        let written = serde_json::to_string(&steady).unwrap();
        let ours = world(shape, 3, machines()).run(&mut Dying { written, steady });
        assert!(ours.took_s.is_some(), "{shape:?}");
    }
}
