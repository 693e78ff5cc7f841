use std::collections::BTreeMap;

use super::*;

/// Workers in virtual time, and the time that each job has had.
struct Bench {
    shares: Shares,
    now: Duration,
    /// The number of tasks of each pool that could run.
    tasks: BTreeMap<PoolNumber, usize>,
    had_ms: BTreeMap<PoolNumber, u64>,
    at: Vec<Option<PoolNumber>>,
}

impl Bench {
    fn new(workers: usize, jobs: &[(u32, i32)]) -> Self {
        let mut shares = Shares::new(workers);
        for (pool, &(weight, priority)) in (0..).zip(jobs) {
            shares.add(pool, Claim { weight, priority });
        }
        let all = 0..jobs.len() as u64;
        Self {
            shares,
            now: Duration::ZERO,
            tasks: all.clone().map(|pool| (pool, usize::MAX)).collect(),
            had_ms: all.map(|pool| (pool, 0)).collect(),
            at: vec![None; workers],
        }
    }

    fn waiting(&self) -> impl Fn(PoolNumber) -> usize + use<> {
        let (tasks, at) = (self.tasks.clone(), self.at.clone());
        move |pool| {
            tasks[&pool].saturating_sub(at.iter().flatten().filter(|&&other| other == pool).count()).min(9)
        }
    }

    /// Advances the time by one millisecond.
    fn tick(&mut self) {
        for worker in 0..self.at.len() {
            if let Some(pool) = self.at[worker]
                && self.at.iter().flatten().filter(|&&other| other == pool).count() > self.tasks[&pool]
            {
                self.leave(worker);
            }
        }
        while let Some(Recall { worker, from, .. }) = self.shares.recall(self.now, self.waiting()) {
            assert_eq!(self.at[worker], Some(from));
            self.leave(worker);
        }
        for worker in 0..self.at.len() {
            if self.at[worker].is_none()
                && let Some(pool) = self.shares.choose(self.now, self.waiting())
            {
                self.shares.begin(worker, pool, self.now);
                self.at[worker] = Some(pool);
            }
        }
        for pool in self.at.iter().flatten() {
            *self.had_ms.get_mut(pool).unwrap() += 1;
        }
        self.now += Duration::from_millis(1);
    }

    fn leave(&mut self, worker: usize) {
        self.shares.end(worker, self.now);
        self.at[worker] = None;
    }

    fn run(&mut self, ms: u64) -> Vec<u64> {
        self.had_ms.values_mut().for_each(|had| *had = 0);
        (0..ms).for_each(|_| self.tick());
        self.had_ms.values().copied().collect()
    }
}

fn assert_shares(had: &[u64], weights: &[u64]) {
    let (all, sum): (u64, u64) = (had.iter().sum(), weights.iter().sum());
    for (had, weight) in had.iter().zip(weights) {
        let fair = all * weight / sum;
        assert!(had.abs_diff(fair) <= all / 50, "{had} of {all} instead of {fair}");
    }
}

#[test]
fn workers_are_shared_in_proportion_to_weights() {
    for workers in 1..=8 {
        let had = Bench::new(workers, &[(1, 0), (2, 0), (5, 0)]).run(8_000);
        assert_eq!(had.iter().sum::<u64>(), 8_000 * workers as u64, "none is idle");
        assert_shares(&had, &[1, 2, 5]);
    }
}

#[test]
fn changed_weight_counts_from_the_change_on() {
    let mut bench = Bench::new(2, &[(1, 0), (1, 0)]);
    bench.run(60_000);
    let claim = Claim { weight: 9, priority: 0 };
    assert!(bench.shares.set_claim(0, claim, bench.now) && !bench.shares.set_claim(0, claim, bench.now));
    // Otherwise the clock of the first job would fall behind, and it would get all workers for a long time.
    assert_shares(&bench.run(8_000), &[9, 1]);
    bench.shares.set_claim(0, Claim::default(), bench.now);
    assert_shares(&bench.run(8_000), &[1, 1]);
}

#[test]
fn raised_priority_takes_the_workers_at_once() {
    let mut bench = Bench::new(2, &[(1, 0), (1, 0)]);
    bench.run(1_000);
    bench.shares.set_claim(1, Claim { weight: 1, priority: 1 }, bench.now);
    assert_eq!(bench.run(1_000), [0, 2_000]);
}

#[test]
fn equal_priority_after_a_preemption_gives_equal_shares() {
    for workers in [1, 2] {
        let mut bench = Bench::new(workers, &[(1, 0), (1, 1)]);
        assert_eq!(bench.run(60_000)[0], 0);
        // The clock of the preempted job has stood still for a minute.
        bench.shares.set_claim(0, Claim { weight: 1, priority: 1 }, bench.now);
        assert_shares(&bench.run(2_000), &[1, 1]);
    }
}

#[test]
fn job_that_starts_while_another_is_preempted_gets_only_its_share() {
    let mut bench = Bench::new(1, &[(1, 0), (1, 1), (1, 1)]);
    bench.tasks.insert(2, 0);
    bench.run(60_000);
    bench.tasks.insert(2, usize::MAX);
    assert_shares(&bench.run(2_000), &[0, 1, 1]);
}

#[test]
fn unused_share_of_a_job_goes_to_the_others() {
    let mut bench = Bench::new(4, &[(5, 0), (1, 0), (1, 0)]);
    bench.tasks.insert(0, 1);
    let had = bench.run(4_000);
    assert_eq!(had.iter().sum::<u64>(), 16_000);
    assert_eq!(had[0], 4_000, "its only task always runs");
    assert!(had[1].abs_diff(had[2]) < 200, "{had:?}");
}

#[test]
fn job_that_has_waited_gets_a_worker_immediately_and_only_its_share() {
    let mut bench = Bench::new(1, &[(1, 0), (1, 0)]);
    bench.tasks.insert(1, 0);
    assert_eq!(bench.run(60_000), [60_000, 0]);
    bench.tasks.insert(1, usize::MAX);
    assert_eq!(bench.run(1), [0, 1], "immediately");
    assert_shares(&bench.run(1_000), &[1, 1]);
}

#[test]
fn idle_job_gets_no_compensation_later() {
    let mut bench = Bench::new(1, &[(1, 0), (1, 0)]);
    bench.tasks.insert(1, 0);
    bench.run(60_000);
    // Briefly neither job has a task; then first the one that has had no worker time.
    bench.tasks.insert(0, 0);
    bench.run(1);
    bench.tasks.insert(1, usize::MAX);
    bench.run(1);
    bench.tasks.insert(0, usize::MAX);
    assert_shares(&bench.run(2_000), &[1, 1]);
}

#[test]
fn workers_shared_fairly_are_not_recalled() {
    let mut bench = Bench::new(4, &[(1, 0), (1, 0)]);
    bench.run(100);
    let mut changes = 0;
    for _ in 0..1_000 {
        let before = bench.at.clone();
        bench.tick();
        changes += usize::from(before != bench.at);
    }
    assert!(changes < 10, "{changes}");
}

#[test]
fn job_of_higher_priority_comes_first_and_lower_gets_the_rest() {
    let mut bench = Bench::new(2, &[(1, 0), (1000, 0), (1, 1)]);
    bench.tasks.insert(2, 0);
    bench.run(100);
    bench.tasks.insert(2, 1);
    let had = bench.run(1_000);
    assert_eq!((had[2], had.iter().sum::<u64>()), (1_000, 2_000));
    bench.tasks.insert(2, 2);
    assert_eq!(bench.run(1_000), [0, 0, 2_000]);
}

#[test]
fn worker_stays_for_a_quantum() {
    let mut bench = Bench::new(1, &[(1, 0), (1, 0)]);
    let mut changes = 0;
    for _ in 0..1_000 {
        let before = bench.at[0];
        bench.tick();
        changes += usize::from(before != bench.at[0]);
    }
    assert!((20..=110).contains(&changes), "{changes}");
}

#[test]
fn pool_slots_are_its_fair_share_plus_vacant_workers() {
    let mut shares = Shares::new(4);
    shares.add(1, Claim { weight: 1, priority: 0 });
    shares.add(2, Claim { weight: 3, priority: 0 });
    let none = |_| 0;
    assert_eq!((shares.slots(1, none), shares.slots(2, none)), (4, 4), "nothing runs");
    (0..4).for_each(|worker| shares.begin(worker, 2, Duration::ZERO));
    assert_eq!((shares.slots(1, none), shares.slots(2, none)), (1, 4));
    shares.end(0, Duration::ZERO);
    shares.begin(0, 1, Duration::ZERO);
    assert_eq!((shares.slots(1, none), shares.slots(2, none)), (1, 3));
    shares.add(3, Claim { weight: 1, priority: 1 });
    assert_eq!((shares.slots(1, none), shares.slots(3, none)), (1, 4), "the higher one has no tasks");
    let waits = |pool| usize::from(pool == 3);
    assert_eq!((shares.slots(1, waits), shares.slots(2, waits)), (1, 3), "what they have");
    assert_eq!(Shares::new(2).slots(7, none), 0);
}
