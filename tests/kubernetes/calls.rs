//! Effects of the connector's calls on the objects of a Kubernetes under faults. The pods run nothing.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng, seq::IndexedRandom as _};
use taskwork_scale::connector::{Connector, Machine, MachineId, MachineState, Refusal, Why};
use taskwork_tests::data::is_long;

use crate::{
    done, key,
    small::{DEPLOYMENT, OFFER, Small},
    world::Faults,
};

fn list(connector: &dyn Connector) -> Vec<Machine> {
    done(connector.list()).unwrap()
}

/// Repeats a call under faults. There are at most three faults per step.
fn until_done<T>(mut call: impl FnMut() -> Result<T, Refusal>) -> T {
    for _ in 0..3 {
        if let Ok(done) = call() {
            return done;
        }
    }
    call().unwrap()
}

fn ids(names: &[String]) -> Vec<MachineId> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

#[test]
fn repeated_request_takes_effect_once() {
    let kubernetes = Small::start(1, None);
    let connector = kubernetes.connector();
    kubernetes.world().faults.conflicts = 1;
    let first = done(connector.create(OFFER, 2, &key("k-1"))).unwrap();
    assert_eq!((first.len(), kubernetes.replicas()), (2, 3));
    assert_eq!(done(connector.create(OFFER, 2, &key("k-1"))).unwrap(), first);

    kubernetes.world().faults.lost = 1;
    let lost = done(connector.create(OFFER, 1, &key("k-2"))).unwrap_err();
    assert_eq!(lost.why, Why::Unknown, "{lost}");
    // Another controller continues.
    let second = done(kubernetes.connector().create(OFFER, 1, &key("k-2"))).unwrap();
    assert_eq!((second.len(), kubernetes.replicas()), (1, 4));
    kubernetes.wait_for(4);
    let mut keys = BTreeMap::<_, BTreeSet<MachineId>>::new();
    for machine in list(&*connector) {
        assert_eq!(machine.state, MachineState::Running);
        keys.entry(machine.key.map(|key| key.to_string())).or_default().insert(machine.id);
    }
    assert_eq!(keys[&None].len(), 1, "one existed before");
    assert_eq!(keys[&Some("k-1".to_owned())], first.into_iter().collect());
    assert_eq!(keys[&Some("k-2".to_owned())], second.into_iter().collect());
}

#[test]
fn chosen_pods_are_ended_once() {
    let kubernetes = Small::start(0, None);
    let connector = kubernetes.connector();
    done(connector.create(OFFER, 5, &key("k"))).unwrap();
    kubernetes.wait_for(5);
    let mut all = kubernetes.ready();
    let stay = all.split_off(2);
    kubernetes.world().faults.lost = 1;
    assert_eq!(done(connector.terminate(&ids(&all))).unwrap_err().why, Why::Unknown);
    done(connector.terminate(&ids(&all))).unwrap();
    kubernetes.wait_for(3);
    assert_eq!(kubernetes.ready(), stay, "those that were not chosen stay");
    // They are gone, and ending them again ends no others.
    done(connector.terminate(&ids(&all))).unwrap();
    kubernetes.wait_for(3);
    assert_eq!((kubernetes.ready(), kubernetes.replicas()), (stay, 3));
    // Repeating the first request creates no new ones.
    assert_eq!(done(connector.create(OFFER, 5, &key("k"))).unwrap().len(), 3);
    assert_eq!(kubernetes.replicas(), 3);
}

#[test]
fn chosen_pod_is_ended_although_another_one_waits() {
    let kubernetes = Small::start(0, None);
    kubernetes.world().capacity = Some(2);
    let connector = kubernetes.connector();
    done(connector.create(OFFER, 3, &key("k"))).unwrap();
    kubernetes.wait_until("two pods run", |this| this.ready().len() == 2);
    let states: Vec<MachineState> = list(&*connector).into_iter().map(|machine| machine.state).collect();
    assert_eq!(states.iter().filter(|state| **state == MachineState::Requested).count(), 1, "{states:?}");
    let ready = kubernetes.ready();
    done(connector.terminate(&ids(&ready[..1]))).unwrap();
    kubernetes.wait_for(2);
    let now = kubernetes.ready();
    assert!(!now.contains(&ready[0]) && now.contains(&ready[1]), "{now:?} after {ready:?}");
    assert_eq!(kubernetes.replicas(), 2);
}

#[test]
fn pods_refused_by_quota_are_reported_and_not_created_later() {
    let kubernetes = Small::start(0, None);
    kubernetes.world().quota = Some(2);
    let connector = kubernetes.connector();
    let some = done(connector.create(OFFER, 4, &key("k-1"))).unwrap();
    assert_eq!((some.len(), kubernetes.replicas()), (2, 2), "there are two, and no more are requested");
    let none = done(connector.create(OFFER, 1, &key("k-2"))).unwrap_err();
    assert!(none.why == Why::Exhausted && none.message.contains("exceeded quota"), "{none:?}");
    assert_eq!(kubernetes.replicas(), 2);
    kubernetes.world().quota = None;
    assert_eq!(done(connector.create(OFFER, 1, &key("k-2"))).unwrap().len(), 1, "nothing was done before");
    kubernetes.wait_for(3);
}

#[test]
fn pods_are_listed_in_pages() {
    let kubernetes = Small::start(0, None);
    let connector = kubernetes.connector();
    done(connector.create(OFFER, 600, &key("k"))).unwrap();
    kubernetes.wait_for(600);
    let machines = list(&*connector);
    assert_eq!(machines.iter().map(|machine| &machine.id).collect::<BTreeSet<_>>().len(), 600);
    assert!(machines.iter().all(|machine| machine.key == Some(key("k"))));
}

#[test]
fn missing_deployment_is_named() {
    let kubernetes = Small::start(0, None);
    let connector = kubernetes.connector();
    kubernetes.world().deployments.clear();
    let refusal = done(connector.list()).unwrap_err();
    assert!(refusal.why == Why::Wrong && refusal.message.contains(DEPLOYMENT), "{refusal:?}");
}

/// Requests, ends, evictions, a user who scales, and faults, in any order: the number of pods is correct at
/// the end, no pod is ended that was not chosen, and no request gets more pods than it asked for.
#[test]
fn faults_keep_pod_number_and_end_only_chosen_pods() {
    for seed in 0..if is_long() { 200 } else { 12 } {
        let mut random = SmallRng::seed_from_u64(seed);
        let kubernetes = Small::start(random.random_range(0..3), None);
        let connector = kubernetes.connector();
        let (mut expected, mut asked) = (kubernetes.replicas(), BTreeMap::new());
        let mut chosen = BTreeSet::new();
        for step in 0..12 {
            kubernetes.wait_for(expected);
            {
                let mut world = kubernetes.world();
                world.faults.conflicts = u32::from(random.random_bool(0.3));
                world.faults.lost = u32::from(random.random_bool(0.3));
                world.faults.errors = u32::from(random.random_bool(0.2));
            }
            let ready = kubernetes.ready();
            match random.random_range(0..4) {
                0 | 1 => {
                    let (name, count) = (format!("k-{step}"), random.random_range(1..4));
                    until_done(|| done(connector.create(OFFER, count, &key(&name))));
                    expected += count as usize;
                    asked.insert(name, count as usize);
                }
                2 => {
                    let count = random.random_range(0..=ready.len().min(3));
                    let victims: Vec<String> = ready.choose_multiple(&mut random, count).cloned().collect();
                    until_done(|| done(connector.terminate(&ids(&victims))));
                    expected -= victims.len();
                    chosen.extend(victims);
                }
                _ => {
                    let victims: Vec<String> = ready.choose_multiple(&mut random, 2).cloned().collect();
                    let mut world = kubernetes.world();
                    for victim in &victims {
                        let _ = world.delete_pod(victim, None);
                    }
                    // A user wants one more.
                    world.scale(DEPLOYMENT, |replicas| replicas + 1);
                    expected += 1;
                    chosen.extend(victims);
                }
            }
        }
        kubernetes.wait_for(expected);
        kubernetes.world().faults = Faults::default();
        assert_eq!(kubernetes.replicas(), expected, "seed {seed}");
        assert_eq!(kubernetes.world().ended, chosen, "seed {seed}");
        let mut counts = BTreeMap::<String, usize>::new();
        for machine in list(&*connector) {
            *counts.entry(machine.key.map(|key| key.to_string()).unwrap_or_default()).or_default() += 1;
        }
        for (name, count) in counts.iter().filter(|(name, _)| !name.is_empty()) {
            assert!(*count <= asked[name], "seed {seed}: {name} has {count} of {asked:?}");
        }
    }
}
