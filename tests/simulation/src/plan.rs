//! The plan of a run: its jobs, and its faults with their times, all determined by the seed.

mod faults;

use std::{collections::BTreeSet, fmt, num::NonZeroU32, time::Duration};

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use taskwork::Limits;
use zk::job::Share;

pub(crate) use self::faults::Fault;
use crate::{
    shares::WEIGHTS,
    workload::{self, Shape, tour, workflow::Recipe},
};

/// The possible deadlines of a node that must leave earlier than its limits allow, in milliseconds: those
/// that clouds announce, and shorter ones. Most limits here are below 1,000 ms.
const LEAVES_MS: [u64; 6] = [120_000, 30_000, 15_000, 1_000, 100, 0];
/// An odd number without a pattern, which separates these choices from those of other seeds.
const LEAVES_SALT: u64 = 0x9e37_79b9_7f4a_7c15;

/// Everything that determines a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) kind: Kind,
    pub(crate) nodes: usize,
    pub(crate) workers: usize,
    pub(crate) shape: Shape,
    pub(crate) limits: Limits,
    /// The duration of a slice of work, in milliseconds, and the number of states in it.
    pub(crate) slice_ms: u64,
    pub(crate) slice_states: usize,
    pub(crate) rates: Rates,
    pub(crate) faults: Vec<(u64, Fault)>,
    /// The time after which there are no more faults, in milliseconds.
    pub(crate) calm_ms: u64,
    /// The number of nodes that join after the faults.
    pub(crate) newcomers: usize,
    pub(crate) attempts_max: u32,
    /// The jobs after the first one.
    pub(crate) later: Vec<LaterJob>,
    /// The number of nodes that run another program, and of nodes with a label.
    pub(crate) others: usize,
    pub(crate) labelled: usize,
    /// The number of times that an operator retries the set-aside tasks of a job.
    pub(crate) retries: usize,
    /// When root tasks are added to the first job, in milliseconds, before adding is finished.
    pub(crate) added: Vec<u64>,
}

/// A job that is submitted in addition to the first one.
#[derive(Debug, Clone)]
pub(crate) struct LaterJob {
    pub(crate) at_ms: u64,
    pub(crate) shape: Shape,
    pub(crate) share: Share,
    pub(crate) program: Program,
}

/// The program that a node runs, or that a job is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    This,
    Other,
    /// The first job's program, by nodes with a label; for jobs that require it.
    Labelled,
}

impl Program {
    pub(crate) const ALL: [Self; 3] = [Self::This, Self::Other, Self::Labelled];
}

/// The kind of a plan, by its test goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Quiet,
    /// Outages of the servers, and no other faults.
    ServersOnly,
    /// Tasks that are parked, claimed and parked again.
    Parking,
    /// A job that ends while a value is still on its way.
    Late,
    /// All kinds of faults.
    Everything,
    /// Connections that break and are re-established while the job is running; then nodes join and leave.
    Reconnects,
    /// Servers that take seconds to commit anything.
    Stalls,
    /// As `Stalls`, with thousands of tiny tasks.
    LargeBatches,
    /// Outages of the servers that last longer than sessions.
    Outages,
    /// Several jobs of two programs: one after the other, waiting, cancelled, suspended, forgotten.
    Queue,
    /// Tasks that do not check whether they should stop, for seconds or permanently; the first job is
    /// cancelled, and another one waits.
    Stuck,
    /// Jobs with few attempts.
    FewAttempts,
    /// Tasks of megabytes, over slow connections.
    Heavy,
    /// A state in which every visitor panics or dies; other jobs run at the same time.
    Deadly,
    /// Three jobs that differ in their weights, each with tasks for all nodes, without faults.
    Weights,
    /// As `Weights`, with all kinds of faults.
    WeightsAndFaults,
    /// A workflow, with all kinds of faults.
    Workflow,
    /// A workflow whose nodes join and leave: nothing is done twice.
    Leaves,
}

impl Kind {
    /// Returns a kind; some have a fixed share, so that they are tested often enough.
    fn of(number: u32, seldom: bool) -> Self {
        match number {
            0 => Self::Quiet,
            1 => Self::ServersOnly,
            2 => Self::Parking,
            3 => Self::Late,
            4 => Self::Weights,
            5 => Self::WeightsAndFaults,
            WORKFLOW => Self::Workflow,
            LEAVES => Self::Leaves,
            16..20 => Self::Reconnects,
            20 | 21 => Self::Stalls,
            22 if seldom => Self::LargeBatches,
            22..25 => Self::Outages,
            25..28 => Self::Queue,
            28 => Self::Stuck,
            29 => Self::FewAttempts,
            30 if seldom => Self::Heavy,
            31 => Self::Deadly,
            _ => Self::Everything,
        }
    }

    /// Returns the duration of a job without faults, in milliseconds: minimum and maximum.
    fn job_ms(self) -> std::ops::Range<u64> {
        match self {
            Self::Late => SHORT_JOB_MS,
            Self::Reconnects => LONGEST_JOB_MS,
            Self::Stalls | Self::Outages | Self::Heavy | Self::Weights | Self::WeightsAndFaults => {
                LONG_JOB_MS
            }
            _ => JOB_MS,
        }
    }
}

/// The rates of random faults, per thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rates {
    /// Messages between nodes that are lost.
    pub(crate) lost: u32,
    /// Messages that arrive twice.
    pub(crate) repeated: u32,
    /// Messages, requests and answers that are slow, and the maximum delay.
    pub(crate) slow: u32,
    pub(crate) slow_ms: u64,
    /// Requests on which the connection is lost, before or after they are executed.
    pub(crate) request_lost: u32,
    pub(crate) answer_lost: u32,
    /// Requests about a variable on which the connection is lost before they are executed, in addition.
    pub(crate) variable_lost: u32,
    /// Operations that a replica receives late, and the maximum delay: reads are stale for that time.
    pub(crate) lagging: u32,
    pub(crate) lag_ms: u64,
    /// The number of bytes that a connection between two nodes carries per millisecond; unlimited if 0.
    pub(crate) bytes_per_ms: u64,
}

/// The parts of a plan to leave out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Without {
    /// The indices of the faults to leave out.
    pub(crate) faults: BTreeSet<usize>,
    /// Whether to leave out random faults.
    pub(crate) rates: bool,
}

/// The duration of a job without faults, in milliseconds: minimum and maximum.
const JOB_MS: std::ops::Range<u64> = 300..4_000;
/// The same for jobs that should end while a value is still in transit.
const SHORT_JOB_MS: std::ops::Range<u64> = 5..100;
/// The same for jobs with slow faults.
const LONG_JOB_MS: std::ops::Range<u64> = 4_000..12_000;
/// The same for jobs that continue for long after the last fault.
const LONGEST_JOB_MS: std::ops::Range<u64> = 12_000..20_000;
/// The limit where attempts do not matter, and the test is that the job ends.
const ATTEMPTS_MAX: u32 = 1_000;
/// The number of values that [`Kind::of`] distinguishes.
const KINDS: u32 = 32;
/// The values for workflows.
const WORKFLOW: u32 = 8;
const LEAVES: u32 = 7;
/// The time that nodes have to leave if nothing may be lost, in milliseconds.
const LEAVE_MS: u64 = 150_000;
/// The time for which faults may continue after the job would have ended, in milliseconds.
const AFTER_MS: u64 = 1_500;

impl Plan {
    /// Creates the plan of a seed, for this many nodes, or as many as the seed determines.
    pub(crate) fn new(seed: u64, nodes: Option<usize>) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let drawn = random.random_range(3..=12);
        let drawn_workers = random.random_range(1..=3);
        let kind = Kind::of(random.random_range(0..KINDS), random.random_range(0..4) == 0);
        // Many tasks of a single state result if no other worker of the node takes them.
        let tiny = kind == Kind::LargeBatches;
        let (drawn, workers) = if tiny { (drawn.max(8), 1) } else { (drawn, drawn_workers) };
        let nodes = nodes.unwrap_or(drawn);
        let shape = match kind {
            Kind::Late => Shape::Tour(tour::Tour::found_late(random.random(), random.random_range(4..=5))),
            Kind::LargeBatches => Shape::Star { leaves: random.random_range(22_000..26_000) },
            Kind::Heavy => Shape::Heavy {
                seed: random.random(),
                mean: 3,
                depth: 4,
                bytes: random.random_range(1 << 16..2 << 20),
            },
            Kind::Reconnects | Kind::Weights | Kind::WeightsAndFaults => large(&mut random),
            Kind::Workflow | Kind::Leaves => Shape::Workflow(Recipe::draw(&mut random)),
            Kind::Deadly => {
                let (tree, place) = (random.random(), random.random());
                Shape::deadly(tree, 3, 7, place, random.random())
            }
            _ => shape(&mut random, nodes * workers),
        };
        // The duration of a state follows from the duration of the job.
        let job_ms = random.random_range(kind.job_ms());
        let slice_states = if tiny { 1 } else { random.random_range(1..=4) };
        let slices = workload::states(&shape).div_ceil(slice_states as u64);
        let slice_ms = if tiny { 1 } else { (job_ms * (nodes * workers) as u64 / slices).clamp(1, 200) };
        let rates = rates(&mut random, kind);
        // If later joins and leaves matter, the faults end in the middle of the job.
        let calm_ms = if kind == Kind::Reconnects { job_ms / 6 } else { job_ms + AFTER_MS };
        let newcomers = if kind == Kind::Reconnects { 2 } else { 0 };
        let mut faults = faults::draw(&mut random, kind, nodes, calm_ms);
        faults.extend(faults::cordons(seed, kind, calm_ms));
        faults.sort_by_key(|&(at, _)| at);
        let mut limits = limits(&mut random, seed);
        limits.crashes_max = [0, 0, 2, 3][random.random_range(0..4)];
        fit(&mut limits, kind);
        let attempts_max = match kind {
            Kind::FewAttempts => random.random_range(1..=3),
            _ => ATTEMPTS_MAX,
        };
        let (later, [others, labelled]) = later(&mut random, kind, nodes * workers, calm_ms);
        let retries = random.random_range(0..=2);
        let added = added(&mut random, kind, &shape, calm_ms);
        Self {
            seed,
            kind,
            nodes,
            workers,
            shape,
            limits,
            slice_ms,
            slice_states,
            rates,
            faults,
            calm_ms,
            newcomers,
            attempts_max,
            later,
            others,
            labelled,
            retries,
            added,
        }
    }

    /// Returns the deadline of a node that is asked to leave, or `None` if its limits apply. It depends on
    /// the machine and the time of the request. It is drawn separately, so that all other random choices stay
    /// the same.
    pub(crate) fn leaves_within(&self, machine: u32, now_ms: u64) -> Option<Duration> {
        if self.kind == Kind::Leaves {
            return None;
        }
        let salt = now_ms.wrapping_mul(LEAVES_SALT).wrapping_add(u64::from(machine));
        let mut random = SmallRng::seed_from_u64(self.seed ^ salt.wrapping_mul(LEAVES_SALT));
        if random.random() {
            return None;
        }
        Some(Duration::from_millis(LEAVES_MS[random.random_range(0..LEAVES_MS.len())]))
    }

    /// Returns whether there is a job for a program.
    pub(crate) fn has(&self, program: Program) -> bool {
        program == Program::This || self.later.iter().any(|job| job.program == program)
    }

    /// Returns whether outages of the servers are the only faults.
    pub(crate) fn only_servers(&self) -> bool {
        let harmless = Rates { slow: 0, slow_ms: 0, lagging: 0, lag_ms: 0, ..self.rates } == Rates::default();
        harmless && self.faults.iter().all(|(_, fault)| matches!(fault, Fault::ServersAway { .. }))
    }

    /// Returns whether nodes are cordoned.
    pub(crate) fn has_cordons(&self) -> bool {
        let is_cordon = |fault: &Fault| matches!(fault, Fault::Cordon { .. } | Fault::CordonAll { .. });
        self.faults.iter().any(|(_, fault)| is_cordon(fault))
    }

    /// Returns whether no machine is ever frozen or cut off.
    pub(crate) fn machines_run(&self) -> bool {
        self.faults.iter().all(|(_, fault)| fault.spares_machines())
    }

    /// Returns the plan without some of its parts.
    pub(crate) fn without(mut self, without: &Without) -> Self {
        if without.rates {
            self.rates = Rates::default();
        }
        let mut place = 0..;
        self.faults.retain(|_| !place.next().is_some_and(|place| without.faults.contains(&place)));
        self
    }
}

/// Draws the later jobs, and the numbers of nodes of another program and with a label.
fn later(random: &mut SmallRng, kind: Kind, workers: usize, calm_ms: u64) -> (Vec<LaterJob>, [usize; 2]) {
    let (count, others) = match kind {
        Kind::Queue => (random.random_range(1..=5), [(); 2].map(|()| random.random_range(0..=3))),
        Kind::Stuck => (1, [0, random.random_range(0..=1)]),
        // Jobs that the deadly task must not affect.
        Kind::Deadly => (random.random_range(0..=2), [0, 0]),
        Kind::Weights | Kind::WeightsAndFaults => return (rivals(random), [0, 0]),
        _ => (0, [0, 0]),
    };
    let [other, labelled] = others;
    let jobs = (0..count).map(|_| LaterJob {
        at_ms: random.random_range(0..calm_ms),
        shape: shape(random, workers),
        share: share(random),
        program: match random.random_range(0..6) {
            0 | 1 if other > 0 => Program::Other,
            2 | 3 if labelled > 0 => Program::Labelled,
            _ => Program::This,
        },
    });
    (jobs.collect(), others)
}

/// Draws the jobs that compete with the first one where weights matter.
fn rivals(random: &mut SmallRng) -> Vec<LaterJob> {
    let weights = WEIGHTS.into_iter().skip(1).filter_map(NonZeroU32::new);
    let rival = |weight| LaterJob {
        at_ms: 0,
        shape: large(random),
        share: Share { weight, ..Share::default() },
        program: Program::This,
    };
    weights.map(rival).collect()
}

/// Draws a tree with work for many nodes.
fn large(random: &mut SmallRng) -> Shape {
    Shape::Random { seed: random.random(), mean: 3, depth: 7 }
}

/// Draws a job's share of the nodes.
fn share(random: &mut SmallRng) -> Share {
    let weight = NonZeroU32::new(random.random_range(1..=9)).unwrap_or(NonZeroU32::MIN);
    let priority = [0, 0, 0, 0, -1, 1][random.random_range(0..6)];
    Share { weight, priority, exclusive: random.random_range(0..6) == 0 }
}

/// Draws the times at which root tasks are added to the first job; usually none.
fn added(random: &mut SmallRng, kind: Kind, shape: &Shape, calm_ms: u64) -> Vec<u64> {
    let alone = !matches!(kind, Kind::Weights | Kind::WeightsAndFaults);
    let is_small = !matches!(kind, Kind::LargeBatches | Kind::Heavy | Kind::Late | Kind::Deadly);
    let is_tree = !matches!(shape, Shape::Tour(_) | Shape::Workflow(_));
    if !(is_small && alone && is_tree) || random.random_range(0..6) > 0 {
        return Vec::new();
    }
    let mut times: Vec<u64> =
        (0..random.random_range(1..=4)).map(|_| random.random_range(0..calm_ms)).collect();
    times.sort_unstable();
    times
}

fn shape(random: &mut SmallRng, workers: usize) -> Shape {
    let (seed, scale) = (random.random(), u32::try_from(workers).unwrap_or(u32::MAX));
    match random.random_range(0..10) {
        0..4 => Shape::Random { seed, mean: 3, depth: 7 }.or_forking(),
        4 | 5 => Shape::Uts { seed: random.random_range(0..1000), mean: 4.0, depth: 5 },
        6 => Shape::Star { leaves: 100 + 40 * scale },
        7 => match random.random_range(0..3) {
            0 => Shape::Chain { length: 300 },
            1 => Shape::Lopsided { leaves: 20 * scale, length: 200 },
            _ => Shape::Refusing { seed, mean: 3, depth: 6 },
        },
        8 => Shape::Tour(tour::Tour::random(seed, random.random_range(6..=8))),
        _ => Shape::Tour(tour::Tour::found_late(seed, random.random_range(4..=6))),
    }
}

fn rates(random: &mut SmallRng, kind: Kind) -> Rates {
    match kind {
        Kind::Quiet | Kind::Weights | Kind::ServersOnly | Kind::LargeBatches => {
            Rates { slow: 20, slow_ms: 20, lagging: 200, lag_ms: 50, ..Rates::default() }
        }
        Kind::Leaves => Rates {
            lost: random.random_range(0..50),
            repeated: random.random_range(0..150),
            slow: random.random_range(0..200),
            slow_ms: random.random_range(2..200),
            ..Rates::default()
        },
        _ => Rates {
            lost: random.random_range(0..150),
            repeated: random.random_range(0..150),
            slow: random.random_range(0..200),
            slow_ms: random.random_range(2..400),
            request_lost: random.random_range(0..25),
            variable_lost: if kind == Kind::Late { 500 } else { random.random_range(0..25) },
            answer_lost: random.random_range(0..25),
            lagging: if kind == Kind::Parking { 700 } else { random.random_range(0..500) },
            lag_ms: random.random_range(1..400),
            bytes_per_ms: if kind == Kind::Heavy { random.random_range(1..10) << 10 } else { 0 },
        },
    }
}

fn limits(random: &mut SmallRng, seed: u64) -> Limits {
    let mut limits = Limits::default();
    limits.drain_deadline_ms = random.random_range(200..3_000);
    limits.batch_ids_commit = random.random_range(2..200);
    limits.task_children_max = random.random_range(2..64);
    limits.open_grants_max = random.random_range(1..64);
    limits.waiting_thieves_max = random.random_range(1..16);
    limits.grant_tasks_max = random.random_range(1..16);
    limits.grant_bytes_max = random.random_range(1..4_000);
    limits.open_grant_bytes_max = random.random_range(1..16_000);
    limits.batch_ids_max = random.random_range(2..1_000);
    limits.park_tasks_max = random.random_range(1..8);
    // In most plans, there are members whose records are read when they are needed.
    limits.records_read_max = [64, 0, 1, 3][usize::try_from(seed % 4).unwrap_or(0)];
    if seed.is_multiple_of(2) {
        limits.spawned_tasks_max = 20;
    }
    limits.ledger_interval_ms = random.random_range(20..2_000);
    limits.ledger_soon_ms = random.random_range(0..400);
    limits.ledger_pause_ms = random.random_range(0..20);
    limits.ledger_awaited_ms = random.random_range(1..50);
    limits.rescue_ms = random.random_range(50..800);
    if random.random_range(0..20) == 0 {
        limits.ledger_bytes_max = random.random_range(0..4_000);
    }
    limits
}

/// Fits limits to a kind of plan.
fn fit(limits: &mut Limits, kind: Kind) {
    if kind == Kind::Deadly {
        limits.crashes_max = limits.crashes_max.max(2);
    }
    if matches!(kind, Kind::Deadly | Kind::Workflow | Kind::Leaves) {
        // An unwritten task starts again and crashes again, without a count of its earlier starts.
        limits.ledger_bytes_max = Limits::default().ledger_bytes_max;
    }
    if kind == Kind::Leaves {
        // A node that has to leave before its data is elsewhere loses it.
        (limits.rescue_ms, limits.drain_deadline_ms) = (LEAVE_MS, 2 * LEAVE_MS);
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, kind, nodes, workers, shape, rates, .. } = self;
        writeln!(f, "seed {seed} ({kind:?}): {nodes} nodes of {workers} workers on {shape}")?;
        if *rates != Rates::default() {
            writeln!(f, "  by itself, in a thousand: {rates:?}")?;
        }
        for (at, fault) in &self.faults {
            writeln!(f, "  {at:>5} ms  {fault:?}")?;
        }
        Ok(())
    }
}
