//! Tests of deadlines, budgets and efficiencies.

use taskwork_scale::policy::{Goals, Policy};

use crate::{
    figures::{Figures, MAX, goals, hourly, is_long, machines, seeds, world},
    rivals::Fixed,
    trees::Shape,
    world::BEGAN_MS,
};

/// Trees that more machines search faster.
const WIDE: [Shape; 4] = [Shape::Uniform, Shape::Recorded, Shape::Comb, Shape::LateIncumbent];

#[test]
fn feasible_deadlines_are_met() {
    let (mut kept, mut cost) = (Figures::default(), Figures::default());
    for shape in WIDE {
        let mut of_shape = Figures::default();
        for seed in seeds(4) {
            let world = world(shape, seed, machines());
            let fixed = world.run(&mut Fixed(8 + (seed as u32 * 13) % (MAX / 2)));
            let deadline_s = fixed.took_s.unwrap() * 1.2;
            let deadline_ms = Some(BEGAN_MS + (deadline_s * 1000.0) as u64);
            let ours = world.run(&mut Policy::new(Goals { deadline_ms, ..goals() }));
            let late = ours.took_s.unwrap_or(f64::INFINITY) / deadline_s;
            if late > 1.0 {
                println!("{shape:?} {seed}: {:.0} s, {late:.3} of the deadline", ours.took_s.unwrap_or(-1.0));
            }
            of_shape.add(f64::from(late <= 1.0));
            kept.add(f64::from(late <= 1.0));
            cost.add(ours.spent / fixed.spent);
        }
        println!("deadline with a slack of 20 %, {shape:?}: kept in {:.3}", of_shape.share_from(1.0));
    }
    let share = kept.share_from(1.0);
    println!("deadline with a slack of 20 %: kept in {share:.3} of {} cases", kept.count());
    println!("what that cost against the fixed number: {}", cost.summary());
    assert!(share >= if is_long() { 0.95 } else { 0.8 }, "{share}");
}

#[test]
fn budget_is_exceeded_by_begun_quanta_at_most() {
    let mut used = Figures::default();
    for shape in Shape::ALL {
        for seed in seeds(4) {
            for kind in [machines(), hourly()] {
                let mut world = world(shape, seed, kind);
                let fixed = world.run(&mut Fixed(4));
                let budget = fixed.spent * (0.3 + 0.2 * (seed % 5) as f64);
                world.budget = Some(budget);
                let goals = Goals { budget: Some(budget), then_suspend: true, ..goals() };
                let ours = world.run(&mut Policy::new(goals));
                assert!(ours.over_budget <= 1e-9, "{shape:?} {seed}: over by {}", ours.over_budget);
                assert!(
                    ours.took_s.is_some() || ours.suspended,
                    "{shape:?} {seed}: neither done nor suspended"
                );
                used.add(ours.spent / budget);
            }
        }
    }
    println!("part of the budget that was spent: {}", used.summary());
}

#[test]
fn efficiency_goal_is_met() {
    let mut figures = Figures::default();
    for shape in WIDE {
        let mut of_shape = Figures::default();
        for seed in seeds(4) {
            let world = world(shape, seed, machines());
            let ours = world.run(&mut Policy::new(Goals { efficiency: Some(0.8), ..goals() }));
            assert!(ours.took_s.is_some(), "{shape:?} {seed}");
            of_shape.add(ours.useful_s / ours.worker_s);
            figures.add(ours.useful_s / ours.worker_s);
        }
        println!("efficiency with a floor of 0.8, {shape:?}: {}", of_shape.summary());
    }
    println!("efficiency with a floor of 0.8: {}", figures.summary());
    let least = if is_long() { 0.0 } else { 0.1 };
    assert!(figures.quantile(least) >= 0.78, "{}", figures.summary());
}
