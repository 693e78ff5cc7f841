//! The policy with workflows: gene detection on a private and a public cloud, and random workflows with deadlines.

use taskwork_scale::policy::{Goals, OfferSeen, Policy};

use crate::{
    calls::{Outcome, Provider, run},
    figures::{Figures, is_long, seeds},
    rivals::Fixed,
    workflows::Workflow,
    world::{BEGAN_MS, Controller},
};

/// A cloud whose machines have four workers, and start one after another in a minute each.
fn cloud(name: &str, price: f64, quantum_ms: u64, max: u32) -> Provider {
    let offer = OfferSeen {
        name: name.to_owned(),
        workers: 4,
        price_per_hour: Some(price),
        quantum_ms,
        max,
        start_ms: 60_000,
        ..OfferSeen::default()
    };
    Provider { offer, is_serial: true }
}

fn private() -> Provider {
    cloud("private", 0.0, 1_000, 8)
}

fn public() -> Provider {
    cloud("public", 0.68, 3_600_000, 4)
}

/// All machines of all providers, requested at the start.
struct AllAtOnce;

impl Controller for AllAtOnce {
    fn decide(&mut self, seen: &taskwork_scale::policy::Observation) -> taskwork_scale::policy::Decision {
        let wanted = seen.offers.iter().map(|offer| (offer.name.clone(), offer.max)).collect();
        taskwork_scale::policy::Decision { wanted, ..Default::default() }
    }
}

fn genes(seed: u64, providers: &[Provider], controller: &mut dyn Controller) -> Outcome {
    run(&Workflow::genes(seed), providers, 1, controller)
}

/// Figures 6.13 of the thesis: 8 private machines, from one on, and up to 4 public ones whose hours are paid in advance.
#[test]
fn bursting_comes_near_the_best_schedule() {
    let (mut against_best, mut saved) = (Figures::default(), Figures::default());
    for seed in seeds(3) {
        let max = |max| Goals { max, delay_price: Some(30.0), ..Goals::default() };
        let alone = genes(seed, &[private()], &mut Policy::new(max(8)));
        let burst = genes(seed, &[private(), public()], &mut Policy::new(max(12)));
        let best = genes(seed, &[private(), public()], &mut AllAtOnce);
        println!(
            "genes {seed}: private only {:.1} min, bursting {:.1} min for {:.2} on {:?}, best {:.1} min",
            alone.took_s / 60.0,
            burst.took_s / 60.0,
            burst.spent,
            burst.machines,
            best.took_s / 60.0
        );
        against_best.add(burst.took_s / best.took_s);
        saved.add(1.0 - burst.took_s / alone.took_s);
        assert!(burst.spent <= 4.0 * 0.68 + 1e-9, "no machine is paid for two hours");
    }
    println!("time against the best list schedule: {}", against_best.summary());
    println!("time saved by bursting: {}", saved.summary());
    assert!(against_best.quantile(1.0) <= 1.05, "{}", against_best.summary());
    assert!(saved.quantile(0.0) >= 0.27, "{}", saved.summary());
}

/// The thesis's critical set is one private machine; the others leave when there is no work for them.
#[test]
fn machines_stay_while_there_is_work_for_them() {
    let goals = Goals { min: 1, max: 8, ..Goals::default() };
    for seed in seeds(3) {
        let outcome = genes(seed, &[private()], &mut Policy::new(goals.clone()));
        assert_eq!(outcome.machines["private"], 8);
        assert!(outcome.left_at_leave.is_none_or(|left| left <= 32), "{outcome:?}");
    }
}

/// Machines of a public cloud, billed by the second.
fn machines() -> Provider {
    let mut provider = cloud("node", 0.4, 1_000, 32);
    (provider.offer.minimum_ms, provider.offer.start_ms, provider.is_serial) = (60_000, 40_000, false);
    provider
}

/// Returns the least cost of a constant number of machines with which a workflow meets a deadline.
fn oracle(workflow: &Workflow, deadline_s: f64) -> Option<f64> {
    let outcomes = (1..=32).map(|nodes| run(workflow, &[machines()], 0, &mut Fixed(nodes)));
    outcomes.filter(|outcome| outcome.took_s <= deadline_s).map(|outcome| outcome.spent).reduce(f64::min)
}

#[test]
fn deadlines_of_random_workflows_are_met_at_little_cost() {
    let (mut possible, mut met, mut cost) = (0, 0, Figures::default());
    for seed in seeds(20) {
        let workflow = Workflow::random(seed);
        let fastest = run(&workflow, &[machines()], 0, &mut Fixed(32)).took_s;
        let slowest = run(&workflow, &[machines()], 0, &mut Fixed(1)).took_s;
        // Between 1.3 times the fastest time and the slowest one.
        let part = (seed % 10) as f64 / 10.0;
        let deadline_s = 1.3 * fastest * (slowest / fastest).max(1.0).powf(part);
        let Some(least) = oracle(&workflow, deadline_s) else { continue };
        possible += 1;
        let goals =
            Goals { max: 32, deadline_ms: Some(BEGAN_MS + (deadline_s * 1000.0) as u64), ..Goals::default() };
        let ours = run(&workflow, &[machines()], 0, &mut Policy::new(goals));
        let is_met = ours.took_s <= deadline_s;
        met += usize::from(is_met);
        if is_met {
            cost.add(ours.spent / least);
        }
        if !is_met || ours.spent > 1.3 * least {
            println!(
                "{seed}: {} calls, fastest {fastest:.0} s, deadline {deadline_s:.0} s, took {:.0} s, {:.2} of the oracle",
                workflow.calls.len(),
                ours.took_s,
                ours.spent / least
            );
        }
    }
    println!("deadlines met: {met} of {possible}; cost against the oracle: {}", cost.summary());
    assert!(met * 10 >= possible * 9, "{met} of {possible}");
    assert!(cost.quantile(0.5) <= 1.15, "{}", cost.summary());
    if is_long() {
        assert!(possible >= 150, "{possible}");
    }
}
