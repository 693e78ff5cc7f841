//! One run: a world, its nodes, its jobs and all faults; then a calm phase, in which the jobs must end.

mod end;
mod faults;
mod released;
mod submission;

use std::{
    any::Any,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    panic,
    sync::{Arc, Once, atomic::AtomicUsize},
    time::Duration,
};

use dataflow_framework::Main;
use taskwork::simulation::{self, Setup};
use tokio::{runtime, sync::mpsc, time::sleep};
use zk::{ClusterPaths, Labels, Release, Store, job::JobRecord};

use crate::{
    invariants::{Facts, Invariants, Seen, Violation},
    plan::{Kind, Plan, Program, Rates},
    workload::{
        self, Shape, Walk, companion,
        workflow::{self, Flow},
    },
    world::{Birth, Counts, MachineId, Process, SESSION_MS, World, on},
};

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) violations: Vec<Violation>,
    pub(crate) counts: Counts,
    /// The time at which the job was over, in milliseconds.
    pub(crate) over_ms: u64,
    pub(crate) attempts: u32,
    /// A fingerprint of the history; equal for equal histories.
    pub(crate) fingerprint: u64,
    pub(crate) trace: Vec<String>,
    /// The times at which each node did its first work, sorted.
    pub(crate) first_work: Vec<u64>,
    pub(crate) census: Census,
    /// The jobs' shares of the workers, where [their weights](crate::shares::WEIGHTS) matter.
    pub(crate) shares: Option<[f64; 3]>,
}

/// The leftovers after the end of all jobs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Census {
    pub(crate) znodes: usize,
    pub(crate) watches: usize,
    pub(crate) members: usize,
    /// The number of events on the agenda.
    pub(crate) under_way: usize,
}

/// The time from the start of the calm phase within which the job must end, in milliseconds, in addition to
/// the duration of the work itself.
const END_MS: u64 = 60_000;
// It must be longer than a session: then all sessions lost in the last fault have ended before the deadline of the
// jobs.
const _: () = assert!(SESSION_MS < END_MS);
/// The additional time for each retry, in milliseconds: a deadly task kills some nodes again.
const RETRY_MS: u64 = 30_000;
/// The pause before restarting a process that has exited with an error.
const RESTART: Duration = Duration::from_millis(200);
/// The time from the end of the last job to the census, in milliseconds.
const SETTLED_MS: u64 = 1_000;
/// Maximum time for nodes to leave when all jobs are over, in milliseconds.
const LEAVE_MS: u64 = 30_000;
/// The maximum size of a message in plans with heavy tasks, in bytes.
const HEAVY_BYTES_MAX: usize = 64 << 20;
/// The interval at which the end of the jobs is checked, in milliseconds.
const LOOK_MS: u64 = 20;

/// Runs a plan to its end.
///
/// # Panics
/// If the operating system has no resources for a runtime.
pub(crate) fn run(plan: &Plan, keep_trace: bool) -> Outcome {
    play(plan, Keeps { trace: keep_trace, invariants: true })
}

/// Runs a plan without checking the invariants, to measure a large cluster.
///
/// # Panics
/// As [`run`].
pub(crate) fn run_unchecked(plan: &Plan) -> Outcome {
    play(plan, Keeps { trace: false, invariants: false })
}

/// The optional parts of a run.
#[derive(Debug, Clone, Copy)]
struct Keeps {
    trace: bool,
    invariants: bool,
}

fn play(plan: &Plan, keeps: Keeps) -> Outcome {
    catch_panics();
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime of one thread can be built");
    let outcome = runtime.block_on(async {
        let mut stage = Stage::new(plan, keeps).await;
        let outcome = stage.play().await;
        stage.world.end();
        companion::observe(None);
        dataflow_framework::simulation::enter(None);
        outcome
    });
    drop(runtime);
    outcome
}

/// A cluster with its environment.
struct Stage<'a> {
    plan: &'a Plan,
    world: World,
    setup: Setup,
    /// The session of the submitter and the operators.
    store: Arc<dyn Store>,
    job: String,
    /// The number of later jobs that were submitted.
    submitted: Arc<AtomicUsize>,
    /// The jobs that an operator has cancelled or forgotten: they may end as cancelled.
    stopped: BTreeSet<String>,
    /// The jobs that are over and were checked.
    over: BTreeSet<String>,
    /// The attempts at each job after which it was retried.
    retried: BTreeMap<String, BTreeSet<u32>>,
    processes: BTreeMap<MachineId, tokio::task::JoinHandle<()>>,
    programs: BTreeMap<MachineId, Program>,
    /// The machines whose process has to be restarted, and when.
    restarting: Vec<(u64, MachineId)>,
}

impl<'a> Stage<'a> {
    async fn new(plan: &'a Plan, keeps: Keeps) -> Self {
        let cluster = ClusterPaths::new("simulated").expect("the name is well formed");
        let mut facts = Facts::new(cluster.clone());
        facts.workers = plan.nodes * plan.workers;
        facts.states_per_s = 1000 * plan.slice_states as u64 / plan.slice_ms;
        facts.only_servers = plan.only_servers();
        facts.machines_run = plan.machines_run();
        if let Shape::Heavy { .. } = plan.shape {
            facts.message_bytes_max = HEAVY_BYTES_MAX;
        }
        facts.only_leaves = plan.kind == Kind::Leaves;
        let birth = Birth {
            seed: plan.seed,
            rates: plan.rates,
            slice_ms: plan.slice_ms,
            slice_states: plan.slice_states,
            keep_trace: keeps.trace,
        };
        let invariants = if keeps.invariants { Invariants::new(facts) } else { Invariants::unchecked(facts) };
        let world = World::new(&birth, invariants);
        let its = world.clone();
        companion::observe(Some(Box::new(move |node, job, step| {
            its.with(|state| state.see(&Seen::Companion { node, job, step }));
        })));
        dataflow_framework::simulation::enter(Some(Arc::new(world.clone())));
        workflow::forget_tries();
        tokio::spawn(world.clone().turn());
        let release = Release { program: "simulated".to_owned(), version: "1".to_owned() };
        let (workers, limits) = (plan.workers, plan.limits.clone());
        let setup = Setup { cluster, release, workers, labels: Labels::default(), near: None, limits };
        let store = world.office().await;
        Self {
            plan,
            world,
            setup,
            store,
            job: String::new(),
            submitted: Arc::default(),
            stopped: BTreeSet::new(),
            over: BTreeSet::new(),
            retried: BTreeMap::new(),
            processes: BTreeMap::new(),
            programs: BTreeMap::new(),
            restarting: Vec::new(),
        }
    }

    /// Runs the whole scenario, from the first node to the last.
    async fn play(&mut self) -> Outcome {
        for _ in 0..self.plan.nodes {
            self.join(Program::This);
        }
        for _ in 0..self.plan.others {
            self.join(Program::Other);
        }
        for _ in 0..self.plan.labelled {
            self.join(Program::Labelled);
        }
        self.submit().await;
        self.add_later();
        for later in &self.plan.later {
            self.submit_later(later);
        }
        let mut faults = self.plan.faults.iter();
        let mut next = faults.next();
        let retries = self.plan.retries as u64 * (1 + self.plan.later.len() as u64);
        let last = self.plan.calm_ms + END_MS + self.work_ms() + retries * RETRY_MS;
        let mut calm = false;
        while !self.all_over() {
            let now = self.world.now();
            while let Some(&(at, fault)) = next.filter(|(at, _)| *at <= now) {
                next = faults.next();
                let _ = at;
                self.inject(fault);
            }
            self.start_again();
            if now >= self.plan.calm_ms {
                if !std::mem::replace(&mut calm, true) {
                    self.world.with(|state| {
                        state.rates = Rates { bytes_per_ms: state.rates.bytes_per_ms, ..Rates::default() };
                        state.see(&Seen::Calm);
                    });
                    if self.plan.has_cordons() {
                        self.uncordon_all();
                    }
                    (0..self.plan.newcomers).for_each(|_| self.join(Program::This));
                }
                // Some nodes must be there to do the remaining work.
                let staying = self.world.with(|state| state.machines.staying());
                for program in Program::ALL {
                    let runs = |machine| self.programs.get(machine) == Some(&program);
                    if self.plan.has(program) && !staying.iter().any(runs) {
                        self.join(program);
                    }
                }
            }
            if now > last || self.failed() {
                break;
            }
            sleep(Duration::from_millis(LOOK_MS)).await;
        }
        let over_ms = self.world.now();
        self.check_end(over_ms);
        // Gives every node time to finish its part in the last job.
        sleep(Duration::from_millis(SETTLED_MS)).await;
        let census = self.world.with(|state| state.census(&self.setup.cluster));
        if !self.failed() {
            self.check_released().await;
        }
        if !self.failed() {
            self.leave().await;
        }
        self.conclude(over_ms, census)
    }

    /// Returns an upper estimate of the work of all jobs, in milliseconds of one worker: four times that of a
    /// sequential search, since several workers without a good incumbent visit more states.
    fn work_ms(&self) -> u64 {
        let added = self.plan.added.iter().map(|_| &self.plan.shape);
        let shapes = self.plan.later.iter().map(|job| &job.shape).chain([&self.plan.shape]).chain(added);
        let states: u64 = shapes.map(workload::states).sum();
        4 * states * self.plan.slice_ms / self.plan.slice_states as u64
    }

    fn failed(&self) -> bool {
        self.collect();
        self.world.with(|state| !state.invariants.violations.is_empty())
    }

    /// Reports panics to the invariants.
    fn collect(&self) {
        let panics = PANICS.take();
        if panics.is_empty() {
            return;
        }
        self.world.with(|state| {
            for what in &panics {
                state.see(&Seen::Panicked { what });
            }
        });
    }

    fn record_of(&self, job: &str) -> Option<JobRecord> {
        let path = self.setup.cluster.job(job).record();
        let content = self.world.with(|state| state.servers.read(&path))?;
        serde_json::from_slice(&content).ok()
    }

    fn jobs(&self) -> Vec<String> {
        self.world.with(|state| state.servers.names(&self.setup.cluster.jobs()))
    }

    fn violate(&self, what: String) {
        self.world.with(|state| state.invariants.add(state.now, "the end", what));
    }

    fn weights_matter(&self) -> bool {
        matches!(self.plan.kind, Kind::Weights | Kind::WeightsAndFaults)
    }

    fn conclude(&self, over_ms: u64, census: Census) -> Outcome {
        self.collect();
        let attempts = self.record_of(&self.job).map_or(0, |record| record.attempt);
        self.world.with(|state| Outcome {
            violations: state.invariants.violations.clone(),
            counts: state.counts,
            over_ms,
            attempts,
            fingerprint: state.trace.fingerprint(),
            trace: state.trace.lines.take().unwrap_or_default(),
            first_work: {
                let mut times: Vec<u64> = state.first_work.values().copied().collect();
                times.sort_unstable();
                times
            },
            census,
            shares: state.invariants.shares.shares().filter(|_| self.weights_matter()),
        })
    }

    /// Starts a node process on a separate machine. If it exits with an error it is restarted, like a
    /// service.
    fn join(&mut self, program: Program) {
        let machine = self.world.with(|state| state.machines.add());
        self.start(machine, program);
    }

    fn start(&mut self, machine: MachineId, program: Program) {
        self.world.with(|state| state.note(format_args!("{machine} starts")));
        self.programs.insert(machine, program);
        let (world, setup) = (self.world.clone(), self.setup_of(program));
        let runs_workflows = matches!(self.plan.shape, Shape::Workflow(_));
        let process = async move {
            loop {
                let (sender, leave) = mpsc::channel(8);
                if !world.with(|state| state.machines.start(machine, sender)) {
                    return;
                }
                let (platform, pace, setup) =
                    (Arc::new(world.clone()), Arc::new(world.clone()), setup.clone());
                let ended = if runs_workflows {
                    on(machine, simulation::run_node::<Main<Flow>>(platform, pace, setup, leave)).await
                } else {
                    on(machine, simulation::run_node::<Walk>(platform, pace, setup, leave)).await
                };
                world.with(|state| {
                    state.note(format_args!("{machine} ends: {ended:?}"));
                    if ended.is_ok() {
                        state.machines.get(machine).process = Process::Ended;
                    }
                    if let Err(error) = &ended
                        && error.contains("broken down")
                    {
                        state.invariants.add(state.now, "the nodes", format!("{machine}: {error}"));
                    }
                });
                if ended.is_ok() {
                    return;
                }
                sleep(RESTART).await;
            }
        };
        self.processes.insert(machine, tokio::spawn(process));
    }

    /// Returns the settings of a node of a program.
    fn setup_of(&self, program: Program) -> Setup {
        let mut setup = self.setup.clone();
        match program {
            Program::This => {}
            Program::Other => "other".clone_into(&mut setup.release.program),
            Program::Labelled => (setup.labels, setup.near) = (label(), Some("zone".to_owned())),
        }
        setup
    }

    fn leaves_within(&self, machine: MachineId) -> Option<Duration> {
        self.plan.leaves_within(machine.0, self.world.now())
    }

    fn request_leave(&self, machine: MachineId) {
        let within = self.leaves_within(machine);
        self.world.with(|state| {
            let it = state.machines.get(machine);
            // In these plans nothing may be recomputed. A second request could shorten the deadline, and then
            // data would be lost, so it is not sent.
            if it.process == Process::Leaves && self.plan.kind == Kind::Leaves {
                return;
            }
            it.process = Process::Leaves;
            if let Some(leave) = &it.leave {
                let _ = leave.try_send(within);
            }
            if let Some(node) = it.node {
                state.see(&Seen::ToldToLeave { node });
            }
        });
    }
}

/// Returns the label of the labelled nodes.
fn label() -> Labels {
    "zone=b".parse().expect("it is a label")
}

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static CAUGHT: RefCell<bool> = const { RefCell::new(false) };
}

/// Records panics on this thread instead of printing them: the runtime catches panics of its tasks, so they
/// would go unnoticed.
fn catch_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let expected = is_expected(info.payload());
            if CAUGHT.with_borrow(|caught| *caught) {
                if expected {
                    return;
                }
                PANICS.with_borrow_mut(|panics| panics.push(info.to_string()));
            } else {
                before(info);
            }
        }));
    });
    CAUGHT.set(true);
    PANICS.take();
}

/// Returns whether a panic comes from a task with a deadly state.
fn is_expected(panic: &dyn Any) -> bool {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    said.or_else(|| panic.downcast_ref::<&str>().copied()) == Some(workload::DEADLY)
}
