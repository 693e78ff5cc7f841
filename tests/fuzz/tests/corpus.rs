//! Runs every target on its corpus, and on random modifications of it, without a fuzzer, so that it runs
//! everywhere.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{fs, path::Path};

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

/// The number of random inputs for each target.
const TRIES: usize = 4_000;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Changes, removes or repeats some bytes, or inserts a part of another input.
fn spoil(random: &mut SmallRng, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..random.random_range(1..=4) {
        let place = random.random_range(0..=input.len());
        let end = (place + random.random_range(0..16)).min(input.len());
        match random.random_range(0..5) {
            0 if place < input.len() => input[place] = random.random(),
            1 => drop(input.drain(place..end)),
            2 => input.insert(place, random.random()),
            3 => {
                let repeated = input[place..end].to_vec();
                input.splice(place..place, repeated);
            }
            _ => {
                let from = random.random_range(0..=other.len());
                let to = (from + random.random_range(0..32)).min(other.len());
                input.splice(place..place, other[from..to].iter().copied());
            }
        }
    }
}

fn run(name: &str, target: fn(&[u8])) {
    let inputs = corpus(name);
    for input in &inputs {
        target(input);
    }
    let mut random = SmallRng::seed_from_u64(1);
    for _ in 0..TRIES {
        let pick = |random: &mut SmallRng| inputs[random.random_range(0..inputs.len())].clone();
        let (mut input, other) = (pick(&mut random), pick(&mut random));
        spoil(&mut random, &mut input, &other);
        target(&input);
    }
}

#[test]
fn messages_of_peers() {
    run("wire", taskwork_fuzz::wire);
}

#[test]
fn contents_and_names_of_znodes() {
    run("znodes", taskwork_fuzz::znodes);
}

#[test]
fn histories_of_a_cluster() {
    run("view", taskwork_fuzz::view);
}

#[test]
fn messages_of_companions() {
    run("workflows", taskwork_fuzz::workflows);
}

#[test]
fn files_of_instances_and_tours() {
    run("tsplib", taskwork_fuzz::tsplib);
}

#[test]
fn files_of_coordinates() {
    run("csv", taskwork_fuzz::csv);
}

#[test]
fn files_of_problems() {
    run("instances", taskwork_fuzz::instances);
}

#[test]
fn names_that_users_give() {
    run("names", taskwork_fuzz::names);
}

#[test]
fn message_corpus_matches_its_names() {
    for name in ["steal", "deny", "ack", "settled", "grant", "note"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/wire").join(name);
        let said = taskwork::fuzzing::describe(&fs::read(file).unwrap());
        assert!(said.starts_with(name), "{name} says {said}");
    }
}

/// With `UPDATE_CORPUS` in the environment it is written instead.
#[test]
fn companion_corpus_consists_of_companion_messages() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/workflows");
    for (name, example) in dataflow_framework::fuzzing::examples() {
        if std::env::var_os("UPDATE_CORPUS").is_some() {
            fs::write(folder.join(name), &example).unwrap();
        }
        assert!(dataflow_framework::fuzzing::check_wire(&example), "{name}");
        let file = fs::read(folder.join(name)).ok();
        assert_eq!(file, Some(example), "{name} has changed: run this test with UPDATE_CORPUS=1");
    }
}
