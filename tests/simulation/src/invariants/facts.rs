//! Facts about the cluster and its jobs for the invariants: writes, participants, and open states.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use dataflow_framework::simulation::Seen as Step;
use taskwork::NodeId;
use zk::{
    ClusterPaths, Op,
    job::{JobRecord, JobState},
    tree::SessionId,
};

use super::{
    Seen,
    durable::{self, Durable, Sizes},
};
use crate::{
    workload::{self, Done, Shape, Slice, Truth, Walk},
    world::Servers,
};

/// Facts that several invariants need.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) cluster: ClusterPaths,
    /// The jobs by name, as in the tree.
    jobs: BTreeMap<String, JobFacts>,
    /// The first record of each job, by its name.
    records: BTreeMap<String, JobRecord>,
    /// The shared data of jobs, as far as written.
    shared: BTreeMap<String, Vec<u8>>,
    /// The last attempt at each job in which each node is enrolled.
    attempt_of: BTreeMap<(NodeId, String), u32>,
    /// The nodes that have left attempts cleanly, and these attempts.
    left: BTreeSet<(NodeId, String, u32)>,
    /// The members, with the sessions that created them.
    members: BTreeMap<NodeId, SessionId>,
    pub(crate) workers: usize,
    /// The number of states that a worker visits per second.
    pub(crate) states_per_s: u64,
    /// Whether outages of the servers are the only faults.
    pub(crate) only_servers: bool,
    /// Whether no machine is ever frozen or cut off.
    pub(crate) machines_run: bool,
    /// The maximum size of a message, in bytes.
    pub(crate) message_bytes_max: usize,
    /// Whether nodes only join and leave.
    pub(crate) only_leaves: bool,
    /// The number of members that were lost without having left the attempt.
    pub(crate) losses: u32,
    /// The node on which the program of a workflow was started last.
    pub(crate) coordinator: Option<NodeId>,
}

#[derive(Debug)]
pub(crate) struct JobFacts {
    pub(crate) shape: Shape,
    pub(crate) truth: Truth,
    /// The states of each attempt that were created and not visited yet.
    open: BTreeMap<u32, HashSet<u64>>,
    /// The states of each attempt that were visited.
    visited: BTreeMap<u32, HashSet<u64>>,
    /// The attempts in which a member was lost: its unwritten work is repeated.
    with_losses: BTreeSet<u32>,
    /// The number of members that were lost while they took part.
    pub(crate) losses: u32,
    pub(crate) durable: Durable,
    sizes: Sizes,
    pub(crate) latest: u32,
    /// The state according to its record.
    pub(crate) state: JobState,
    /// The most recent attempt that continues the previous one with its set-aside tasks.
    pub(crate) retried: Option<u32>,
    /// Whether root tasks may be added.
    pub(crate) is_open: bool,
    /// The added root tasks, by their ids.
    added: BTreeMap<String, Added>,
}

#[derive(Debug)]
struct Added {
    /// The number of its only state.
    number: u64,
    /// All states of its tree.
    states: Done,
    /// The last attempt in which it has started.
    begun: u32,
}

impl JobFacts {
    /// Returns the number of states that nodes can work on.
    fn at_hand(&self) -> usize {
        if self.state.is_running() { self.open(self.latest) } else { 0 }
    }

    /// Returns the number of states that are certainly unfinished if the list of an attempt is empty. (After
    /// a loss, a better incumbent may prune earlier states.)
    pub(crate) fn unfinished(&self, attempt: u32) -> usize {
        let tasks = self.durable.tasks(attempt).unwrap_or(0);
        let changes = self.durable.set_aside(attempt).0 > 0
            || matches!(self.shape, Shape::Tour(_)) && self.with_losses.contains(&attempt);
        tasks + if changes { 0 } else { self.open(attempt) }
    }

    /// Returns the states of the added root tasks that have not started in an attempt.
    pub(crate) fn not_begun(&self, attempt: u32) -> Done {
        let mut states = Done::default();
        for added in self.added.values().filter(|added| added.begun < attempt) {
            taskwork::Output::merge(&mut states, added.states);
        }
        states
    }

    /// Returns whether no task is in the tree for the latest attempt, as far as nodes have written their
    /// holdings.
    fn has_no_tasks(&self) -> bool {
        self.open(self.latest) == 0 && self.durable.tasks(self.latest) == Some(0)
    }

    /// Returns the number of states that were visited in the latest attempt.
    pub(crate) fn visited(&self) -> usize {
        self.visited.get(&self.latest).map_or(0, HashSet::len)
    }

    /// Returns the number of states of an attempt that are not visited yet.
    pub(crate) fn open(&self, attempt: u32) -> usize {
        self.open.get(&attempt).map_or(0, HashSet::len)
    }
}

/// The parts of a path within a job.
pub(crate) struct Place<'a> {
    pub(crate) job: &'a str,
    /// The attempt, if the path is in one.
    pub(crate) attempt: Option<u32>,
    /// The components after the job's name, or after the attempt's number.
    pub(crate) rest: Vec<&'a str>,
}

/// Splits a path within a job; returns `None` for other paths.
pub(crate) fn place<'a>(cluster: &ClusterPaths, path: &'a str) -> Option<Place<'a>> {
    let mut parts = path.strip_prefix(&cluster.jobs())?.strip_prefix('/')?.split('/').peekable();
    let (job, mut attempt) = (parts.next()?, None);
    if parts.peek() == Some(&"attempts") {
        parts.next();
        attempt = parts.next().and_then(|number| number.parse().ok());
    }
    Some(Place { job, attempt, rest: parts.collect() })
}

/// Returns the job and its new record if an operation writes one.
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
            records: BTreeMap::new(),
            shared: BTreeMap::new(),
            attempt_of: BTreeMap::new(),
            left: BTreeSet::new(),
            members: BTreeMap::new(),
            workers: 0,
            states_per_s: 0,
            only_servers: false,
            machines_run: false,
            message_bytes_max: 1 << 20,
            only_leaves: false,
            losses: 0,
            coordinator: None,
        }
    }

    pub(crate) fn is_member(&self, node: NodeId) -> bool {
        self.members.contains_key(&node)
    }

    pub(crate) fn job(&self, job: &str) -> Option<&JobFacts> {
        self.jobs.get(job)
    }

    /// Returns the job with this number, with its first record.
    pub(crate) fn numbered(&self, job: u64) -> Option<(&JobFacts, &JobRecord)> {
        let name = format!("j-{job:010}");
        self.jobs.get(&name).zip(self.records.get(&name))
    }

    /// Returns the job that was submitted first, which is the only one in most runs.
    pub(crate) fn first(&self) -> Option<&JobFacts> {
        self.jobs.first_key_value().map(|(_, job)| job)
    }

    /// Returns the number of states of the first job that nodes can work on.
    pub(crate) fn open(&self) -> usize {
        self.first().map_or(0, JobFacts::at_hand)
    }

    /// Returns the record of the first job, unless its nodes may work on a later job: a node stays with a job
    /// that it has started, even if the first one has work.
    pub(crate) fn only_job(&self) -> Option<&JobRecord> {
        let record = self.records.get(self.jobs.first_key_value()?.0)?;
        let later =
            |(name, job): (&String, &JobFacts)| self.is_of(name, &record.program) && job.at_hand() > 0;
        (!self.jobs.iter().skip(1).any(later)).then_some(record)
    }

    /// Returns each job with its record, and whether it is running without any work left. A job may wait
    /// while its nodes work on another job of the program.
    pub(crate) fn idle(&self) -> impl Iterator<Item = (&str, &JobRecord, bool)> {
        let is_at_hand = move |program: &str| {
            let of_it = self.jobs.iter().filter(move |(name, _)| self.is_of(name, program));
            of_it.map(|(_, job)| job.at_hand()).sum::<usize>() > 0
        };
        self.jobs.iter().filter_map(move |(name, job)| {
            let record = self.records.get(name)?;
            let may_end = job.state.is_running() && !job.is_open && job.latest > 0;
            let has_none = may_end && job.has_no_tasks();
            Some((name.as_str(), record, has_none && !is_at_hand(&record.program)))
        })
    }

    fn is_of(&self, job: &str, program: &str) -> bool {
        self.records.get(job).is_some_and(|record| record.program == program)
    }

    /// Records a write. Returns an error for unreadable data.
    pub(super) fn note(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        if let Seen::Workflow { node, step: Step::Leads { .. } } = seen {
            self.coordinator = Some(*node);
        }
        let Seen::Wrote { session, ops, servers } = seen else { return Ok(()) };
        if ops.is_empty() {
            self.lose(*session);
        }
        let mut noted = Ok(());
        for op in *ops {
            if let Some((job, record)) = record(&self.cluster, op) {
                if let Some(facts) = self.jobs.get_mut(job) {
                    if facts.state == JobState::Incomplete && record.state.is_running() {
                        facts.retried = Some(record.attempt);
                    }
                    facts.state = record.state;
                }
                self.records.entry(job.to_owned()).or_insert(record);
            }
            self.note_member(*session, op);
            if let Op::Create { path, data, .. } = op
                && let Some(Place { job, attempt, rest }) = place(&self.cluster, path)
            {
                match (attempt, &rest[..]) {
                    (None, ["shared", _]) => self.shared.entry(job.to_owned()).or_default().extend(data),
                    (Some(attempt), []) => self.begin(job, attempt),
                    (None, ["open"]) => self.set_open(job, true),
                    (None, ["roots", task]) => noted = noted.and(self.add(job, task, data, servers)),
                    (Some(attempt), ["begun", task]) => {
                        let added = self.jobs.get_mut(job).and_then(|job| job.added.get_mut(*task));
                        if let Some(added) = added {
                            added.begun = attempt;
                        }
                    }
                    (Some(attempt), ["outputs", node]) => {
                        if let Ok(node) = node.parse() {
                            self.attempt_of.insert((node, job.to_owned()), attempt);
                        }
                    }
                    (Some(attempt), ["left", node]) => {
                        if let Ok(node) = node.parse() {
                            self.left.insert((node, job.to_owned(), attempt));
                        }
                    }
                    _ => {}
                }
            }
            if let Op::Delete { path, .. } = op
                && let Some(Place { job, attempt: None, rest }) = place(&self.cluster, path)
                && rest == ["open"]
            {
                self.set_open(job, false);
            }
            let job = place(&self.cluster, op.path()).map(|at| at.job);
            if let Some(job) = job.and_then(|job| self.jobs.get_mut(job))
                && !job.state.is_over()
            {
                noted = noted.and(job.durable.note(&self.cluster, &job.sizes, op, servers));
            }
        }
        noted
    }

    fn set_open(&mut self, job: &str, is_open: bool) {
        if let Some(job) = self.jobs.get_mut(job) {
            job.is_open = is_open;
        }
    }

    /// Records a root task that is added to a job.
    fn add(&mut self, job: &str, task: &str, data: &[u8], servers: &Servers) -> Result<(), String> {
        let Some(job) = self.jobs.get_mut(job) else { return Ok(()) };
        let envelope = durable::blob(data, servers);
        let stored = envelope.and_then(|envelope| taskwork::simulation::parked::<Walk>(&envelope));
        let root = stored.and_then(|stored| stored.tasks.first()?.0.open().first().cloned());
        let root = root.ok_or_else(|| format!("the added task {task} cannot be read back"))?;
        job.sizes.extend(&job.shape, root.clone());
        let (number, states) = (root.number, workload::whole(&job.shape, root));
        if let Truth::Done(whole) = &mut job.truth {
            taskwork::Output::merge(whole, states);
        }
        job.open.entry(job.latest).or_default().insert(number);
        job.added.insert(task.to_owned(), Added { number, states, begun: 0 });
        Ok(())
    }

    fn note_member(&mut self, session: SessionId, op: &Op) {
        let folder = self.cluster.members();
        let name = op.path().strip_prefix(&folder).and_then(|name| name.strip_prefix('/'));
        let Some(node) = name.and_then(|name| name.parse::<NodeId>().ok()) else { return };
        match op {
            Op::Create { .. } => {
                self.members.insert(node, session);
            }
            Op::Delete { .. } => {
                // It has resigned, which counts as a loss.
                self.members.remove(&node);
                self.note_loss(node);
            }
            _ => {}
        }
    }

    /// Records the end of a session: its members are lost to the attempts that they have not left.
    fn lose(&mut self, session: SessionId) {
        let lost: Vec<NodeId> =
            self.members.iter().filter(|(_, its)| **its == session).map(|(&node, _)| node).collect();
        for node in lost {
            self.members.remove(&node);
            self.note_loss(node);
        }
    }

    fn note_loss(&mut self, node: NodeId) {
        let attempts: Vec<(String, u32)> =
            self.attempts_of(node).map(|(job, attempt)| (job.to_owned(), attempt)).collect();
        self.losses += u32::from(!attempts.is_empty());
        for (job, attempt) in attempts {
            if let Some(job) = self.jobs.get_mut(&job) {
                job.with_losses.insert(attempt);
                job.losses += 1;
            }
        }
    }

    /// Returns the attempts in which a node is enrolled, and that it has not left.
    fn attempts_of(&self, node: NodeId) -> impl Iterator<Item = (&str, u32)> {
        let all =
            self.attempt_of.range((node, String::new())..).take_while(move |((its, _), _)| *its == node);
        all.map(|((_, job), attempt)| (job.as_str(), *attempt))
            .filter(move |&(job, attempt)| !self.left.contains(&(node, job.to_owned(), attempt)))
    }

    /// Returns whether a node takes part in an attempt at a job that is not over.
    pub(crate) fn takes_part(&self, node: NodeId) -> bool {
        self.attempts_of(node).any(|(job, attempt)| {
            self.jobs.get(job).is_some_and(|job| !job.state.is_over() && job.latest == attempt)
        })
    }

    fn begin(&mut self, job: &str, attempt: u32) {
        // Needed for the first attempt only, since the shared data of a job does not change.
        let shape = self.shared.remove(job).and_then(|bytes| {
            let of_workflow = || dataflow_framework::simulation::arguments(&bytes);
            taskwork::simulation::decode::<Shape>(&bytes).or_else(of_workflow)
        });
        if let Some(shape) = shape {
            let truth = workload::truth(&shape);
            let sizes = Sizes::of(&shape);
            let facts = JobFacts {
                shape,
                truth,
                open: BTreeMap::new(),
                visited: BTreeMap::new(),
                with_losses: BTreeSet::new(),
                losses: 0,
                durable: Durable::default(),
                sizes,
                latest: 0,
                state: JobState::Running,
                retried: None,
                is_open: false,
                added: BTreeMap::new(),
            };
            self.jobs.entry(job.to_owned()).or_insert(facts);
        }
        if let Some(it) = self.jobs.get_mut(job) {
            it.latest = it.latest.max(attempt);
            let mut open = HashSet::from([it.shape.root().number]);
            if let Shape::Workflow(_) = it.shape {
                // A workflow has no states.
                open.clear();
            }
            open.extend(it.added.values().map(|added| added.number));
            if it.retried == Some(attempt) {
                open = it.open.get(&(attempt - 1)).cloned().unwrap_or_default();
                let visited = it.visited.get(&(attempt - 1)).cloned().unwrap_or_default();
                it.visited.insert(attempt, visited);
                // The unwritten work of a task is repeated.
                it.with_losses.insert(attempt);
                // Added tasks do not start again: their output is carried over, or they were set aside.
                it.added.values_mut().for_each(|added| added.begun = attempt);
            }
            it.open.insert(attempt, open);
        }
    }

    /// Returns a state that is not visited although a task that waits for it has continued. After a loss,
    /// visited states may have to be visited again; set-aside states are not waited for.
    pub(super) fn joined_too_early(&self, node: NodeId, job: u64, done: &Slice) -> Option<u64> {
        let name = format!("j-{job:010}");
        let (job, attempt) = (self.jobs.get(&name)?, *self.attempt_of.get(&(node, name))?);
        let visited = job.visited.get(&attempt)?;
        if job.durable.set_aside(attempt).0 > 0 || job.retried == Some(attempt) {
            return None;
        }
        let mut open = done.joined.clone();
        while let Some(state) = open.pop() {
            if !visited.contains(&state.number) {
                return Some(state.number);
            }
            open.extend(job.shape.children(&state));
        }
        None
    }

    /// Records the visited and created states. Returns states that were visited without being open, unless
    /// they may be visited again because of a loss.
    pub(super) fn work(&mut self, node: NodeId, job: u64, done: &Slice) -> Vec<u64> {
        let name = format!("j-{job:010}");
        let Some(job) = self.jobs.get_mut(&name) else { return done.consumed.clone() };
        let Some(attempt) = self.attempt_of.get(&(node, name)) else { return done.consumed.clone() };
        let open = job.open.entry(*attempt).or_default();
        let visited = job.visited.entry(*attempt).or_default();
        // A slice may create and visit the same state, so all created ones are added first.
        open.extend(done.opened.iter().filter(|state| !visited.contains(state)));
        let again = job.with_losses.contains(attempt);
        let mut unknown = Vec::new();
        for &state in &done.consumed {
            let known = open.remove(&state) || (again && visited.contains(&state));
            if !known {
                unknown.push(state);
            }
            visited.insert(state);
        }
        unknown
    }
}
