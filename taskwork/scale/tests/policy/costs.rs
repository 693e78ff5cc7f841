//! The cost of the policy with a price of delay, compared with an oracle and with other policies.

use taskwork_scale::policy::{Goals, Policy};

use crate::{
    figures::{DELAY_PRICE, Figures, MAX, goals, hourly, is_long, machines, seeds, world},
    oracle::best_fixed,
    rivals::{Fixed, Threshold},
    trees::Shape,
};

fn with_delay_price() -> Goals {
    Goals { delay_price: Some(DELAY_PRICE), ..goals() }
}

#[test]
fn policy_costs_little_more_than_oracle() {
    let mut all = Figures::default();
    for shape in Shape::LONG {
        let mut figures = Figures::default();
        for seed in seeds(4) {
            let world = world(shape, seed, machines());
            let (nodes, oracle) = best_fixed(&world, MAX, DELAY_PRICE);
            let ours = world.run(&mut Policy::new(with_delay_price()));
            let ratio = ours.total(DELAY_PRICE) / oracle.total(DELAY_PRICE);
            if ratio > 1.25 {
                println!(
                    "{shape:?} {seed}: {ratio:.2}; {nodes} nodes took {:?}, ours {:?}",
                    oracle.took_s, ours.took_s
                );
            }
            figures.add(ratio);
            all.add(ratio);
        }
        println!("cost against the oracle, {shape:?}: {}", figures.summary());
    }
    println!("cost against the oracle: {}", all.summary());
    assert!(all.quantile(0.5) <= 1.10, "{}", all.summary());
    if is_long() {
        assert!(all.quantile(0.95) <= 1.25, "{}", all.summary());
    }
}

#[test]
fn policy_costs_no_more_than_other_policies() {
    let (mut max, mut threshold) = (Figures::default(), Figures::default());
    for shape in Shape::ALL {
        let (mut max_here, mut threshold_here) = (Figures::default(), Figures::default());
        for seed in seeds(4) {
            let world = world(shape, seed, machines());
            let ours = world.run(&mut Policy::new(with_delay_price())).total(DELAY_PRICE);
            let against = ours / world.run(&mut Fixed(MAX)).total(DELAY_PRICE);
            max.add(against);
            max_here.add(against);
            let against = ours / world.run(&mut Threshold::new(MAX)).total(DELAY_PRICE);
            threshold.add(against);
            threshold_here.add(against);
        }
        println!("cost against always the most nodes, {shape:?}: {}", max_here.summary());
        println!("cost against a threshold of processor use, {shape:?}: {}", threshold_here.summary());
    }
    println!("cost against always the most nodes: {}", max.summary());
    println!("cost against a threshold of processor use: {}", threshold.summary());
    assert!(max.quantile(0.5) <= 0.7, "{}", max.summary());
    // Even the oracle saves at most 4 % against this policy in the median.
    assert!(threshold.quantile(0.5) <= 1.05, "{}", threshold.summary());
    if is_long() {
        assert!(max.quantile(1.0) <= 1.05, "{}", max.summary());
        // A tiny tree with a slow first machine: a second one is started.
        assert!(threshold.quantile(1.0) <= 1.25, "{}", threshold.summary());
    }
}

#[test]
fn paid_hours_are_used_up() {
    let mut figures = Figures::default();
    for shape in Shape::LONG {
        let mut of_shape = Figures::default();
        for seed in seeds(2) {
            let world = world(shape, seed, hourly());
            let (_, oracle) = best_fixed(&world, MAX, DELAY_PRICE);
            let ours = world.run(&mut Policy::new(with_delay_price()));
            of_shape.add(ours.total(DELAY_PRICE) / oracle.total(DELAY_PRICE));
            figures.add(ours.total(DELAY_PRICE) / oracle.total(DELAY_PRICE));
        }
        println!("cost against the oracle, billed by the hour, {shape:?}: {}", of_shape.summary());
    }
    println!("cost against the oracle, billed by the hour: {}", figures.summary());
}

#[test]
fn preempted_machines_raise_cost_little() {
    for (notice_ms, name) in [(120_000, "two minutes"), (30_000, "half a minute"), (0, "none")] {
        let mut figures = Figures::default();
        for seed in seeds(3) {
            let mut kind = machines();
            kind.losses_per_hour = 0.5;
            kind.notice_ms = notice_ms;
            kind.offer.spot = true;
            kind.offer.losses_per_hour = Some(0.5);
            kind.offer.notice_ms = (notice_ms > 0).then_some(notice_ms);
            let world = world(Shape::Uniform, seed, kind);
            let (_, oracle) = best_fixed(&world, MAX, DELAY_PRICE);
            let ours = world.run(&mut Policy::new(with_delay_price()));
            figures.add(ours.total(DELAY_PRICE) / oracle.total(DELAY_PRICE));
        }
        println!(
            "cost against the oracle, machines taken every two hours, notice {name}: {}",
            figures.summary()
        );
        assert!(figures.quantile(0.5) <= 1.25, "notice {name}: {}", figures.summary());
    }
}

#[test]
fn quota_makes_policy_use_other_offer() {
    let mut cheap = machines();
    cheap.quota = 10;
    let mut dear = machines();
    dear.offer.name = "dear".to_owned();
    dear.offer.price_per_hour = dear.offer.price_per_hour.map(|price| price * 1.1);
    let mut world = world(Shape::Uniform, 1, cheap);
    world.kinds.push(dear);
    let ours = world.run(&mut Policy::new(with_delay_price()));
    let most = ours.wanted.iter().map(|(_, nodes)| *nodes).max().unwrap();
    assert!(ours.took_s.is_some() && most > 15, "more than the quota, from the other offer: {most}");
    assert!(ours.joined > 15);
}
