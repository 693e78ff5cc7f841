//! A cluster in virtual time, whose members perform the actions of the graph: it shows the placement of calls,
//! the transfers, and the duration of a program. The same program takes the same time on every machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    Action, Assignment, Capacity, Graph, Input, Member, NewCall, Outcome, Source,
    graph_tests::new_call,
    virtual_program::{Load, Program, Step, updated},
};
use crate::ids::{CallId, VersionId};

/// The maximum number of unfinished calls of a program.
const CALLS_AHEAD_MAX: usize = 100_000;

/// The memory of each member, in bytes.
pub(super) const MEMORY: u64 = 16 << 30;

#[derive(Debug, Clone, Copy)]
pub(super) struct Cluster {
    pub(super) members: u32,
    /// The number of workers of each member.
    pub(super) workers: u32,
    /// The time of a message from one member to another.
    pub(super) latency_ns: u64,
    /// The bytes that a member receives per microsecond.
    pub(super) bytes_by_us: u64,
    /// The time for which the coordinator is busy with a call.
    pub(super) head_ns: u64,
}

/// The cost of a run of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ran {
    pub(super) ns: u64,
    /// The number of transfers between members, and their total size.
    pub(super) transfers: u64,
    pub(super) bytes: u64,
}

impl Cluster {
    /// Returns the share of the time during which its workers worked.
    pub(super) fn efficiency(&self, work_ns: u64, ran: Ran) -> f64 {
        work_ns as f64 / (ran.ns as f64 * f64::from(self.members * self.workers))
    }

    pub(super) fn run(self, program: Program) -> Ran {
        let mut graph = Graph::new(self.members > 1);
        let labels = || "blast=2.9".parse().expect("they are labels");
        for member in 0..self.members {
            let capacity =
                Capacity { memory: MEMORY, labels: labels(), ..Capacity::of_workers(self.workers) };
            graph.joined(Member(member), capacity);
        }
        let executor = |_| Executor {
            free: self.workers,
            receives_until: 0,
            has: BTreeSet::new(),
            ..Executor::default()
        };
        let executors = (0..self.members).map(executor).collect();
        let ran = Ran { ns: 0, transfers: 0, bytes: 0 };
        let run = Run {
            cluster: self,
            graph,
            program,
            executors,
            sizes: BTreeMap::new(),
            events: BTreeMap::new(),
            events_until_now: 0,
            head_until: 0,
            ran,
        };
        run.end()
    }
}

/// A member.
#[derive(Debug, Default)]
struct Executor {
    free: u32,
    /// The time until which its connection is busy.
    receives_until: u64,
    has: BTreeSet<VersionId>,
    /// The versions on their way to it, and the calls that wait for them.
    awaited: BTreeMap<VersionId, Vec<CallId>>,
    /// The waiting calls, with the number of missing versions.
    missing: BTreeMap<CallId, (Assignment, usize)>,
    queue: VecDeque<Assignment>,
}

#[derive(Debug)]
enum Event {
    /// An assignment arrives at a member.
    Assigned(Assignment),
    Arrived(VersionId),
    Ended(Assignment),
    /// The coordinator receives the outcome of a call.
    HeardOf(CallId),
    /// The coordinator receives the report of a copy.
    HeardOfCopy(VersionId),
}

struct Run {
    cluster: Cluster,
    graph: Graph,
    program: Program,
    executors: Vec<Executor>,
    sizes: BTreeMap<VersionId, u64>,
    events: BTreeMap<(u64, u64), (Member, Event)>,
    /// The number of events so far, which orders events at the same time.
    events_until_now: u64,
    head_until: u64,
    ran: Ran,
}

impl Run {
    fn at(&mut self, ns: u64, member: Member, event: Event) {
        self.events_until_now += 1;
        self.events.insert((ns, self.events_until_now), (member, event));
    }

    fn executor(&mut self, member: Member) -> &mut Executor {
        &mut self.executors[member.0 as usize]
    }

    fn latency(&self, member: Member) -> u64 {
        if member == Member::HERE { 0 } else { self.cluster.latency_ns }
    }

    fn end(mut self) -> Ran {
        self.resume();
        while let Some(((now, _), (member, event))) = self.events.pop_first() {
            self.ran.ns = now;
            self.on_event(member, event);
            self.resume();
        }
        assert!(self.program.steps.is_empty(), "the program waits for ever");
        assert_eq!(self.graph.unfinished(), 0, "calls wait for ever");
        self.ran
    }

    fn on_event(&mut self, member: Member, event: Event) {
        let now = self.ran.ns;
        match event {
            Event::Assigned(assignment) => self.assigned(member, assignment),
            Event::Arrived(version) => {
                let executor = self.executor(member);
                executor.has.insert(version);
                for call in executor.awaited.remove(&version).unwrap_or_default() {
                    let executor = self.executor(member);
                    let Some((_, missing)) = executor.missing.get_mut(&call) else { continue };
                    *missing -= 1;
                    if *missing == 0 {
                        let (assignment, _) = executor.missing.remove(&call).expect("it is there");
                        executor.queue.push_back(assignment);
                    }
                }
                let latency = self.latency(member);
                self.at(now + latency, member, Event::HeardOfCopy(version));
                self.start(member);
            }
            Event::Ended(assignment) => {
                let call = assignment.call;
                let written = (0..).zip(&self.program.loads[&call].bytes);
                let written: Vec<_> =
                    written.map(|(slot, bytes)| (VersionId { call, slot }, *bytes)).collect();
                self.sizes.extend(written.iter().copied());
                let executor = self.executor(member);
                executor.free += 1;
                executor.has.extend(written.into_iter().map(|(version, _)| version));
                let latency = self.latency(member);
                self.at(now + latency, member, Event::HeardOf(call));
                self.start(member);
            }
            Event::HeardOf(call) => {
                let Load { ns, bytes, .. } = self.program.loads[&call].clone();
                self.graph.ended(call, member, Outcome::Written { bytes, ns: Some(ns) });
            }
            Event::HeardOfCopy(version) => self.graph.copied(version, member),
        }
    }

    fn assigned(&mut self, member: Member, assignment: Assignment) {
        let mut waits_for = 0;
        for source in assignment.elsewhere.clone() {
            if self.executor(member).has.contains(&source.version) {
                continue;
            }
            waits_for += 1;
            self.transfer(member, &source);
            self.executor(member).awaited.entry(source.version).or_default().push(assignment.call);
        }
        let executor = self.executor(member);
        match waits_for {
            0 => executor.queue.push_back(assignment),
            _ => drop(executor.missing.insert(assignment.call, (assignment, waits_for))),
        }
        self.start(member);
    }

    /// Transfers a version to a member, unless it is on its way.
    fn transfer(&mut self, to: Member, source: &Source) {
        let id = source.version;
        if self.executor(to).has.contains(&id) || self.executor(to).awaited.contains_key(&id) {
            return;
        }
        let bytes = self.sizes.get(&id).copied().unwrap_or(0);
        let Cluster { latency_ns, bytes_by_us, .. } = self.cluster;
        let executor = &mut self.executors[to.0 as usize];
        executor.awaited.insert(id, Vec::new());
        executor.receives_until = executor.receives_until.max(self.ran.ns) + bytes * 1_000 / bytes_by_us;
        // One message for the request, and one for the data.
        let arrives = executor.receives_until + 2 * latency_ns;
        self.ran.transfers += 1;
        self.ran.bytes += bytes;
        self.at(arrives, to, Event::Arrived(id));
    }

    fn start(&mut self, member: Member) {
        while self.executor(member).free > 0
            && let Some(assignment) = self.executor(member).queue.pop_front()
        {
            let updates = assignment.arguments.iter().filter_map(updated);
            let taken: Vec<_> =
                updates.zip(&assignment.in_place).filter(|(_, taken)| **taken).map(|(id, _)| id).collect();
            let executor = self.executor(member);
            executor.free -= 1;
            for version in taken {
                executor.has.remove(&version);
            }
            let ns = self.program.loads[&assignment.call].ns;
            self.at(self.ran.ns + ns, member, Event::Ended(assignment));
        }
    }

    fn resume(&mut self) {
        loop {
            let has_moved = self.step();
            let actions = self.graph.actions();
            if actions.is_empty() && !has_moved {
                return;
            }
            for action in actions {
                self.perform(action);
            }
        }
    }

    /// Performs the steps of the program that are possible now. Returns whether there were any.
    fn step(&mut self) -> bool {
        let before = self.program.steps.len();
        while let Some(step) = self.program.steps.front() {
            match step {
                Step::Get(version) => match self.graph.want(*version) {
                    Input::Here => self.graph.unwant(*version),
                    _ => break,
                },
                Step::Call(..) if self.graph.unfinished() > CALLS_AHEAD_MAX => break,
                Step::Call(id, arguments) => {
                    let Load { task, options, bytes, .. } = &self.program.loads[id];
                    let writes = u32::try_from(bytes.len()).expect("it writes few");
                    let call = new_call(arguments.clone(), writes, *options);
                    self.graph.call(*id, NewCall { task, ..call });
                }
                Step::Data(id, bytes) => {
                    self.graph.data(*id, *bytes, 0);
                    let version = VersionId { call: *id, slot: 0 };
                    self.sizes.insert(version, *bytes);
                    self.executors[0].has.insert(version);
                }
                Step::Drop(version) => self.graph.release(*version),
            }
            self.program.steps.pop_front();
            // Like an engine: a call is assigned as soon as it is made.
            for action in self.graph.actions() {
                self.perform(action);
            }
        }
        self.program.steps.len() < before
    }

    fn perform(&mut self, action: Action) {
        let now = self.ran.ns;
        match action {
            Action::Assign(member, assignment) => {
                self.head_until = self.head_until.max(now) + self.cluster.head_ns;
                let at = self.head_until + self.latency(member);
                self.at(at, member, Event::Assigned(assignment));
            }
            Action::Forget(member, version) => drop(self.executor(member).has.remove(&version)),
            Action::Bring(source) => self.transfer(Member::HERE, &source),
            Action::Copy(member, source) => self.transfer(member, &source),
            Action::LetGo(_) | Action::Preserve { .. } => unreachable!("nobody leaves"),
            Action::Record(_) | Action::Restore { .. } => unreachable!("there is no journal"),
            Action::Wake { .. } => unreachable!("no call fails"),
            Action::Cancel(..) => unreachable!("no call is cancelled"),
            Action::Alias(..) | Action::Answer(..) => unreachable!("no task makes calls"),
        }
    }
}
