//! Invariants of a fleet: no machine is started twice, and none is forgotten.
//!
//! A controller works with simulated machines. Its calls are refused, lost, delayed or done in part; new machines are
//! listed late; machines fail to boot, are taken away, and have nodes that never leave; and the controller is killed
//! between any two steps, and continues from the state it has written.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod controller;
mod world;

use std::collections::BTreeMap;

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

use crate::{
    controller::Controller,
    world::{Faults, World},
};

/// The time between two rounds, in milliseconds.
const ROUND_MS: u64 = 5_000;

fn seeds() -> u64 {
    if std::env::var_os("TASKWORK_LONG").is_some() { 10_000 } else { 150 }
}

/// A world with a controller, and the maximum wanted number of each offer so far.
struct Run {
    seed: u64,
    world: World,
    controller: Controller,
    wanted: BTreeMap<String, u32>,
    most: BTreeMap<String, u32>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let rng = SmallRng::seed_from_u64(seed);
        Self {
            seed,
            world: World::new(rng),
            controller: Controller::new(),
            wanted: BTreeMap::new(),
            most: BTreeMap::new(),
        }
    }

    fn want(&mut self, offer: &str, count: u32) {
        self.wanted.insert(offer.to_owned(), count);
        let most = self.most.entry(offer.to_owned()).or_default();
        *most = count.max(*most);
    }

    /// Lets time pass, and checks after each round that there are not too many machines.
    fn rounds(&mut self, count: u64) {
        for _ in 0..count {
            self.world.pass(ROUND_MS);
            self.controller.round(&mut self.world, &self.wanted);
            let there = self.controller.staying(&self.world);
            for (offer, count) in there {
                let most = self.most.get(&offer).copied().unwrap_or(0);
                assert!(
                    count <= most,
                    "seed {}: {count} machines of {offer}, never more than {most} wanted",
                    self.seed
                );
            }
        }
    }

    /// A time of faults and changing wishes.
    fn bad_weather(&mut self) {
        self.world.faults = Faults::ALL;
        for _ in 0..self.world.rng.random_range(5..25) {
            for offer in ["small", "large"] {
                let count = self.world.rng.random_range(0..9);
                self.want(offer, count);
            }
            let rounds = self.world.rng.random_range(1..25);
            self.rounds(rounds);
        }
        self.world.faults = Faults::NONE;
    }
}

#[test]
fn no_machine_is_started_twice_and_none_is_forgotten() {
    let (mut killed, mut made) = (0, 0);
    for seed in 0..seeds() {
        let mut run = Run::new(seed);
        run.bad_weather();
        // The wanted machines start, whatever happened before.
        run.want("small", 5);
        run.want("large", 2);
        run.rounds(700);
        let joined = run.world.joined();
        assert_eq!(
            joined.get("small").copied().unwrap_or(0),
            5,
            "seed {seed}: {joined:?}\n{:?}",
            run.controller
        );
        assert_eq!(
            joined.get("large").copied().unwrap_or(0),
            2,
            "seed {seed}: {joined:?}\n{:?}",
            run.controller
        );
        // And they end.
        run.want("small", 0);
        run.want("large", 0);
        run.rounds(200);
        assert_eq!(run.world.alive(), 0, "seed {seed}\n{:?}", run.controller);
        assert!(run.controller.has_forgotten_all(), "seed {seed}\n{:?}", run.controller);
        (killed, made) = (killed + run.controller.killed, made + run.world.made());
    }
    println!("{} seeds: controllers killed {killed} times, {made} machines", seeds());
    assert!(killed > 0 && made > 0);
}
