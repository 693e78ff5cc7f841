//! What must hold at every step of every history: the invariants of the architecture, one file each, by their
//! numbers there.
//!
//! They look from outside: at the states that tasks open and do, at every operation that is committed, at
//! every message. None of them asks the code under test what it believes.

mod candidates;
mod i1_once;
mod i2_end;
mod i3_answer;
mod i4_fence;
mod i5_autonomy;
mod i6_bounds;
mod i7_strangers;
mod i8_calm;
pub(crate) mod i9_history;
mod membership;

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use taskwork::NodeId;
use zk::{
    ClusterPaths, Op,
    job::{JobRecord, JobState},
    tree::SessionId,
};

pub(crate) use self::i7_strangers::STRANGER;
use crate::{
    workload::{self, Shape, Slice, Truth},
    world::Servers,
};

/// What can be seen of a world from outside.
#[derive(Debug)]
pub(crate) enum Seen<'a> {
    /// A worker of a node has done a slice.
    Worked { node: NodeId, done: &'a Slice },
    /// A session's operations are committed; without any, the session has ended. The servers are seen as they
    /// are after.
    Wrote { session: SessionId, ops: &'a [Op], servers: &'a Servers },
    /// A node has sent a message.
    Sent { from: NodeId, to: NodeId, payload: &'a [u8] },
    /// A message waits for its way, so many times.
    Waits { from: NodeId, to: NodeId, copies: usize, bytes: usize },
    /// The servers are away from now on, or back.
    ServersAway { away: bool },
    /// The servers commit nothing from now on, or commit again.
    Stalled { stalled: bool },
    /// Nothing goes wrong any more from now on, but for what has gone wrong and is not over.
    Calm,
    /// A node was told to leave.
    ToldToLeave { node: NodeId },
    /// A task of a node does not ask whether it is to stop, until then.
    Stuck { node: NodeId, until: u64 },
    /// A node has found an invariant of its own state broken.
    NodeBroken { what: &'a str },
    /// Code has panicked.
    Panicked { what: &'a str },
}

/// Something that must hold.
pub(crate) trait Invariant: Send {
    /// What it says, shortly.
    fn name(&self) -> &'static str;
    /// Looks at what has happened.
    ///
    /// # Errors
    /// What is wrong, in words.
    fn see(&mut self, facts: &Facts, now: u64, seen: &Seen<'_>) -> Result<(), String>;
}

/// What several invariants must know.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) cluster: ClusterPaths,
    /// By their names, as they stand in the tree.
    jobs: BTreeMap<String, JobFacts>,
    /// The program of each job, by its name.
    programs: BTreeMap<String, String>,
    /// The shared data of jobs, as far as it is written.
    shared: BTreeMap<String, Vec<u8>>,
    /// The job and the attempt that a node has last enrolled in.
    attempt_of: BTreeMap<NodeId, (String, u32)>,
    /// Workers of all nodes together.
    pub(crate) workers: usize,
    /// How many states a worker does in a second.
    pub(crate) states_per_s: u64,
    /// Nothing goes wrong but that the servers are away.
    pub(crate) only_servers: bool,
    /// No machine stands still or is cut off from anything.
    pub(crate) machines_run: bool,
    /// The largest message that there may be, in bytes.
    pub(crate) message_bytes_max: usize,
}

/// What is known of one job.
#[derive(Debug)]
pub(crate) struct JobFacts {
    pub(crate) shape: Shape,
    pub(crate) truth: Truth,
    /// The states of an attempt that came into being and are not done.
    open: BTreeMap<u32, HashSet<u64>>,
    /// The attempt that was begun last.
    pub(crate) latest: u32,
    /// Where its record says it stands.
    pub(crate) state: JobState,
}

impl JobFacts {
    /// The states that nodes can work on.
    fn at_hand(&self) -> usize {
        if self.state.is_running() { self.open(self.latest) } else { 0 }
    }

    /// The states of an attempt that are not done.
    pub(crate) fn open(&self, attempt: u32) -> usize {
        self.open.get(&attempt).map_or(0, HashSet::len)
    }
}

/// An invariant that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) at_ms: u64,
    pub(crate) invariant: &'static str,
    pub(crate) what: String,
}

/// All invariants, and the first few times that one was broken.
pub(crate) struct Invariants {
    pub(crate) facts: Facts,
    all: Vec<Box<dyn Invariant>>,
    pub(crate) violations: Vec<Violation>,
}

/// More are not kept: the first one says what went wrong.
const VIOLATIONS_MAX: usize = 8;

/// A path within a job, taken apart.
pub(crate) struct Place<'a> {
    pub(crate) job: &'a str,
    /// The attempt, if the path is in one.
    pub(crate) attempt: Option<u32>,
    /// The parts after the job's name, or after the attempt's number.
    pub(crate) rest: Vec<&'a str>,
}

/// Where in a job a path is; `None` if it is not in a job.
pub(crate) fn place<'a>(cluster: &ClusterPaths, path: &'a str) -> Option<Place<'a>> {
    let mut parts = path.strip_prefix(&cluster.jobs())?.strip_prefix('/')?.split('/').peekable();
    let (job, mut attempt) = (parts.next()?, None);
    if parts.peek() == Some(&"attempts") {
        parts.next();
        attempt = parts.next().and_then(|number| number.parse().ok());
    }
    Some(Place { job, attempt, rest: parts.collect() })
}

/// The record that an operation writes for a job, if it writes one.
pub(crate) fn record<'a>(cluster: &ClusterPaths, op: &'a Op) -> Option<(&'a str, JobRecord)> {
    let Op::Set { path, data, .. } = op else { return None };
    let at = place(cluster, path)?;
    let is_record = at.attempt.is_none() && at.rest.is_empty();
    is_record.then(|| serde_json::from_slice(data).ok()).flatten().map(|record| (at.job, record))
}

impl Facts {
    pub(crate) fn new(cluster: ClusterPaths) -> Self {
        Self {
            cluster,
            jobs: BTreeMap::new(),
            programs: BTreeMap::new(),
            shared: BTreeMap::new(),
            attempt_of: BTreeMap::new(),
            workers: 0,
            states_per_s: 0,
            only_servers: false,
            machines_run: false,
            message_bytes_max: 1 << 20,
        }
    }

    pub(crate) fn job(&self, job: &str) -> Option<&JobFacts> {
        self.jobs.get(job)
    }

    /// The job that was submitted first: in runs of one job, the job.
    pub(crate) fn first(&self) -> Option<&JobFacts> {
        self.jobs.first_key_value().map(|(_, job)| job)
    }

    /// How many states of the first job nodes can work on.
    pub(crate) fn open(&self) -> usize {
        self.first().map_or(0, JobFacts::at_hand)
    }

    /// The program of the first job, if nodes of it can work on that job alone: a node stays with a later job
    /// that it has begun, whatever the first one has to give.
    pub(crate) fn only_program(&self) -> Option<&str> {
        let program = self.programs.get(self.jobs.first_key_value()?.0)?;
        let of_it = |name: &String| self.programs.get(name) == Some(program);
        let later = self.jobs.iter().skip(1).any(|(name, job)| of_it(name) && job.at_hand() > 0);
        (!later).then_some(program)
    }

    /// Each job with its program, and whether it is at work and has nothing left to do. While nodes have
    /// another job of the program to do they are there, and it waits.
    pub(crate) fn idle(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        let is_at_hand = move |program: &String| {
            let of_it = self.jobs.iter().filter(move |(name, _)| self.programs.get(*name) == Some(program));
            of_it.map(|(_, job)| job.at_hand()).sum::<usize>() > 0
        };
        self.jobs.iter().filter_map(move |(name, job)| {
            let program = self.programs.get(name)?;
            let is_idle = job.state.is_running() && job.latest > 0 && !is_at_hand(program);
            Some((name.as_str(), program.as_str(), is_idle))
        })
    }

    fn note(&mut self, seen: &Seen<'_>) {
        let Seen::Wrote { ops, .. } = seen else { return };
        for op in *ops {
            if let Some((job, record)) = record(&self.cluster, op) {
                if let Some(facts) = self.jobs.get_mut(job) {
                    facts.state = record.state;
                }
                self.programs.entry(job.to_owned()).or_insert(record.program);
            }
            let Op::Create { path, data, .. } = op else { continue };
            let Some(Place { job, attempt, rest }) = place(&self.cluster, path) else { continue };
            match (attempt, &rest[..]) {
                (None, ["shared", _]) => self.shared.entry(job.to_owned()).or_default().extend(data),
                (Some(attempt), []) => self.begin(job, attempt),
                (Some(attempt), ["outputs", node]) => {
                    if let Ok(node) = node.parse() {
                        self.attempt_of.insert(node, (job.to_owned(), attempt));
                    }
                }
                _ => {}
            }
        }
    }

    fn begin(&mut self, job: &str, attempt: u32) {
        // Only the first attempt needs it: what the job is made of does not change.
        let shape = self.shared.remove(job).and_then(|bytes| taskwork::simulation::decode::<Shape>(&bytes));
        if let Some(shape) = shape {
            let truth = workload::truth(&shape);
            let facts = JobFacts { shape, truth, open: BTreeMap::new(), latest: 0, state: JobState::Running };
            self.jobs.entry(job.to_owned()).or_insert(facts);
        }
        if let Some(it) = self.jobs.get_mut(job) {
            it.latest = it.latest.max(attempt);
            it.open.insert(attempt, HashSet::from([it.shape.root().number]));
        }
    }

    /// Notes the states that were done and opened. Gives those that were done without being open.
    fn work(&mut self, node: NodeId, done: &Slice) -> Vec<u64> {
        let Some((job, attempt)) = self.attempt_of.get(&node) else { return done.consumed.clone() };
        let Some(job) = self.jobs.get_mut(job) else { return done.consumed.clone() };
        let open = job.open.entry(*attempt).or_default();
        // Of a slice everything that is opened is there before what was opened in it is done.
        open.extend(&done.opened);
        done.consumed.iter().copied().filter(|state| !open.remove(state)).collect()
    }
}

impl Invariants {
    pub(crate) fn new(facts: Facts) -> Self {
        let all: Vec<Box<dyn Invariant>> = vec![
            Box::new(i2_end::NeverTooEarly),
            Box::new(i3_answer::TheRightAnswer::default()),
            Box::new(i4_fence::OnlyMembersAndLeadersWrite::default()),
            Box::new(i5_autonomy::WorkGoesOn::default()),
            Box::new(i6_bounds::EverythingIsBounded),
            Box::new(i7_strangers::StrangersGetNothing),
            Box::new(i8_calm::NothingPanics),
            Box::new(candidates::WhoStandsCanLead::default()),
            Box::new(membership::EverybodyIsKnown::default()),
        ];
        Self { facts, all, violations: Vec::new() }
    }

    pub(crate) fn see(&mut self, now: u64, seen: &Seen<'_>) {
        self.facts.note(seen);
        if let Seen::Worked { node, done } = seen {
            let unknown = self.facts.work(*node, done);
            if let Some(broken) = i1_once::check(*node, &unknown) {
                self.add(now, i1_once::NAME, broken);
            }
        }
        for place in 0..self.all.len() {
            if let Err(what) = self.all[place].see(&self.facts, now, seen) {
                let name = self.all[place].name();
                self.add(now, name, what);
            }
        }
    }

    pub(crate) fn add(&mut self, at_ms: u64, invariant: &'static str, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { at_ms, invariant, what });
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ms: {}", self.invariant, self.at_ms, self.what)
    }
}
