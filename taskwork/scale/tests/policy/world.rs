//! A run: a tree, a cloud and a controller that decides every five seconds.

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use taskwork_scale::policy::{Decision, JobSeen, Observation, Policy};

use crate::{
    chance::normal,
    cloud::{Cloud, Kind},
    trees::Tree,
};

/// The start of a run, in milliseconds since 1970.
pub(crate) const BEGAN_MS: u64 = 1_700_000_000_000;
const STEP_MS: u64 = 1_000;
const ROUND_MS: u64 = 5_000;
/// The time limit of a run: four days.
const END_MS: u64 = 4 * 86_400_000;

/// A policy that decides how many machines there are.
pub(crate) trait Controller {
    fn decide(&mut self, seen: &Observation) -> Decision;

    /// Whether its decisions depend on the jobs.
    fn sees_jobs(&self) -> bool {
        true
    }
}

impl Controller for Policy {
    fn decide(&mut self, seen: &Observation) -> Decision {
        Self::decide(self, seen)
    }
}

/// The results of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// The time until the tree was searched; `None` if it was not.
    pub(crate) took_s: Option<f64>,
    pub(crate) spent: f64,
    /// The maximum by which the budget was exceeded beyond one quantum of each machine.
    pub(crate) over_budget: f64,
    /// Worker seconds, and the useful part of them.
    pub(crate) worker_s: f64,
    pub(crate) useful_s: f64,
    /// The wanted number of nodes over time.
    pub(crate) wanted: Vec<(f64, u32)>,
    /// The predicted bands of the end, after each twentieth of the work from the second on.
    pub(crate) bands: Vec<(u64, u64)>,
    /// When the tree fed fewer than 2 workers for the rest of the run, if it did.
    pub(crate) thin_s: Option<f64>,
    pub(crate) suspended: bool,
    pub(crate) joined: u32,
}

impl Outcome {
    /// The sum of money and the price of the delay.
    pub(crate) fn total(&self, delay_price: f64) -> f64 {
        self.spent + delay_price * self.took_s.unwrap_or(f64::INFINITY) / 3600.0
    }

    /// The number of turns from more to fewer wanted machines, or back, after a time.
    pub(crate) fn turns(&self, from_s: f64) -> u32 {
        let (mut turns, mut direction) = (0, 0);
        let from = self.wanted.partition_point(|(at_s, _)| *at_s < from_s);
        for pair in self.wanted[from..].windows(2) {
            let change = i64::from(pair[1].1) - i64::from(pair[0].1);
            if change != 0 {
                turns += u32::from(direction != 0 && change.signum() != direction);
                direction = change.signum();
            }
        }
        turns
    }
}

/// The parameters of a run.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) tree: Tree,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) seed: u64,
    pub(crate) budget: Option<f64>,
}

/// The state of a run.
#[derive(Debug)]
struct Run<'a> {
    world: &'a World,
    cloud: Cloud,
    chance: SmallRng,
    outcome: Outcome,
    now_ms: u64,
    /// The completed work, in seconds of a single worker, and the job's report of it.
    done: f64,
    job: JobSeen,
    busy_s: f64,
    idle_s: f64,
    granted: f64,
    refused: f64,
    /// The error of the speed, as a logarithm.
    speed_off: f64,
    next_part: f64,
}

impl World {
    /// Runs a controller until the tree is searched.
    pub(crate) fn run(&self, controller: &mut dyn Controller) -> Outcome {
        let job = JobSeen { id: "job".to_owned(), program: "tree".to_owned(), ..JobSeen::default() };
        let mut run = Run {
            world: self,
            cloud: Cloud::new(self.kinds.clone(), self.seed),
            chance: SmallRng::seed_from_u64(self.seed ^ 0xa11),
            outcome: Outcome::default(),
            now_ms: 0,
            done: 0.0,
            job,
            busy_s: 0.0,
            idle_s: 0.0,
            granted: 0.0,
            refused: 0.0,
            speed_off: 0.0,
            next_part: 0.1,
        };
        while run.done < self.tree.work && run.now_ms < END_MS {
            run.cloud.advance(BEGAN_MS + run.now_ms);
            if run.now_ms.is_multiple_of(ROUND_MS) {
                run.round(controller);
            }
            if run.outcome.suspended && run.cloud.workers + run.cloud.leaving_workers == 0 {
                break;
            }
            run.step();
        }
        let mut outcome = run.outcome;
        outcome.took_s = (run.done >= self.tree.work).then_some(run.now_ms as f64 / 1000.0);
        outcome.spent = run.cloud.spent(BEGAN_MS + run.now_ms);
        outcome.joined = run.cloud.joined;
        outcome
    }
}

impl Run<'_> {
    fn part(&self) -> f64 {
        self.done / self.world.tree.work
    }

    /// Lets the controller observe and decide, and applies its decision.
    fn round(&mut self, controller: &mut dyn Controller) {
        let (at_ms, now_s, tree) = (BEGAN_MS + self.now_ms, self.now_ms as f64 / 1000.0, &self.world.tree);
        let (machines, offers) = self.cloud.seen(at_ms);
        let share = tree.share(self.part());
        self.job.share = (self.busy_s > 0.0).then_some(share);
        (self.job.busy_ns, self.job.idle_ns) = ((self.busy_s * 1e9) as u64, (self.idle_s * 1e9) as u64);
        let seen = Observation {
            at_ms,
            workers: self.cloud.workers,
            steals_granted: Some(self.granted as u64),
            steals_refused: Some(self.refused as u64),
            jobs: vec![self.job.clone()],
            machines,
            offers,
            ..Observation::default()
        };
        let decision = controller.decide(&seen);
        self.cloud.obey(&decision, at_ms);
        self.outcome.wanted.push((now_s, decision.nodes()));
        self.outcome.suspended |= decision.suspend;
        let now = decision.table.iter().find(|candidate| candidate.now);
        if self.part() >= self.next_part {
            self.outcome.bands.extend(now.and_then(|candidate| candidate.finish_ms));
            self.next_part += 0.05;
        }
        if tree.feeds(self.part()) < 2.0 && self.part() > 0.01 {
            self.outcome.thin_s.get_or_insert(now_s);
        }
        if let Some(budget) = self.world.budget {
            let over = self.cloud.spent(at_ms) - budget - self.cloud.quanta();
            self.outcome.over_budget = self.outcome.over_budget.max(over);
        }
    }

    /// Simulates a second.
    fn step(&mut self) {
        // On average, leaving nodes work half of the time.
        let workers = f64::from(self.cloud.workers) + 0.5 * f64::from(self.cloud.leaving_workers);
        let (useful, busy) = self.world.tree.useful(workers, self.part());
        // The speed fluctuates by 3 % within about a minute.
        self.speed_off = 0.98 * self.speed_off + 0.006 * normal(&mut self.chance);
        let asked = (workers - busy) * 2.0;
        let is_thin = self.world.tree.feeds(self.part()) < workers;
        let in_vain = if is_thin { 0.95 } else { self.chance.random_range(0.2..0.4) };
        self.granted += asked * (1.0 - in_vain);
        self.refused += asked * in_vain;
        let speed = useful * self.speed_off.exp();
        self.done += speed;
        self.job.work += speed * 1000.0;
        self.busy_s += busy;
        self.idle_s += workers - busy;
        self.outcome.worker_s += workers;
        self.outcome.useful_s += useful;
        self.now_ms += STEP_MS;
    }
}
