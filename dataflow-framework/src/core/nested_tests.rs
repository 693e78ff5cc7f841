//! Tasks that call tasks, made by chance: on members that join and are lost, of a program that begins anew in the
//! middle, against their sequential run.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use proptest::{collection::vec, prelude::*, sample::Index};

use super::{
    Action, Answer, Argument, Assignment, CallId, Capacity, Demand, Execution, Graph, Held, History, Input,
    Mark, Member, NewCall, Outcome, Source, Step, TaskCall, Unfit, VersionId,
    call::CallState,
    graph_tests::{new_call, version},
    lineage::DEATHS_MAX,
    number_within,
};
use crate::{failure::Failure, options::Options};

/// The number of kinds of tasks. A task calls those of lower numbers.
const KINDS: usize = 6;

/// The memory of a member.
const MEMORY: u64 = 8;

/// Returns what the calls of a task demand: some take all workers of a member, or all its memory.
fn options(kind: usize) -> Options {
    match kind {
        1 => Options { cores: 2, ..Options::DEFAULT },
        2 => Options { spread: true, ..Options::DEFAULT },
        3 => Options { memory: MEMORY, ..Options::DEFAULT },
        4 => Options { everywhere: true, ..Options::DEFAULT },
        _ => Options::DEFAULT,
    }
}

/// What a task does, one after another.
#[derive(Debug, Clone)]
struct Script {
    acts: Vec<Act>,
    /// Which of its handles it hands on, if it has any, instead of a result of its own.
    hands_on: Option<Index>,
    fails: bool,
}

#[derive(Debug, Clone)]
enum Act {
    Bring(u64),
    Call { kind: Index, reads: Vec<Index> },
    Get(Index),
    Drop(Index),
    Wait,
    CancelNone,
}

/// What happens.
#[derive(Debug, Clone)]
enum Event {
    /// The program calls a task, which reads what others have written.
    Call {
        kind: Index,
        reads: Vec<Index>,
    },
    /// The program waits for what a call has written.
    Get(Index),
    /// Something that is under way goes on.
    Run(Index),
    Join,
    /// A member cannot run a call.
    Trouble(Index),
    Lose(Index),
    Remember,
    /// The member of the program is lost, and the program begins anew on another one.
    Restart(Index),
}

fn scripts() -> impl Strategy<Value = Vec<Script>> {
    let index = any::<Index>;
    let act = prop_oneof![
        1 => any::<u64>().prop_map(Act::Bring),
        4 => (index(), vec(index(), 0..3)).prop_map(|(kind, reads)| Act::Call { kind, reads }),
        2 => index().prop_map(Act::Get),
        1 => index().prop_map(Act::Drop),
        1 => Just(Act::Wait),
        1 => Just(Act::CancelNone),
    ];
    let script = (vec(act, 0..6), prop::option::of(index()), 0..40)
        .prop_map(|(acts, hands_on, fails)| Script { acts, hands_on, fails: fails == 0 });
    vec(script, KINDS)
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let index = any::<Index>;
    let event = prop_oneof![
        3 => (index(), vec(index(), 0..3)).prop_map(|(kind, reads)| Event::Call { kind, reads }),
        1 => index().prop_map(Event::Get),
        24 => index().prop_map(Event::Run),
        1 => Just(Event::Join),
        1 => index().prop_map(Event::Trouble),
        1 => index().prop_map(Event::Lose),
        1 => Just(Event::Remember),
        1 => index().prop_map(Event::Restart),
    ];
    vec(event, 0..150)
}

fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// Returns what a task writes; `None` if it fails.
fn sequential(scripts: &[Script], kind: usize, inputs: &[u64]) -> Option<u64> {
    let script = &scripts[kind];
    let (mut handles, mut got) = (Vec::new(), Vec::new());
    for act in &script.acts {
        match act {
            Act::Bring(value) => handles.push(*value),
            Act::Call { kind: of, reads } if kind > 0 => {
                let reads: Vec<u64> = reads.iter().filter_map(|read| pick(&handles, *read)).collect();
                handles.push(sequential(scripts, of.index(kind), &reads)?);
            }
            Act::Get(which) => got.extend(pick(&handles, *which)),
            Act::Drop(which) if !handles.is_empty() => {
                handles.swap_remove(which.index(handles.len()));
            }
            Act::Call { .. } | Act::Drop(_) | Act::Wait | Act::CancelNone => {}
        }
    }
    if script.fails {
        return None;
    }
    let own = hash((kind, inputs, got));
    Some(script.hands_on.and_then(|which| pick(&handles, which)).unwrap_or(own))
}

fn pick<T: Copy>(from: &[T], which: Index) -> Option<T> {
    (!from.is_empty()).then(|| from[which.index(from.len())])
}

/// A task that runs.
struct Running {
    member: Member,
    assignment: Assignment,
    kind: usize,
    inputs: Vec<u64>,
    execution: Execution,
    /// The number of acts that were done.
    done: usize,
    /// The position of what it does next among its calls and data.
    position: u64,
    mark: Mark,
    handles: Vec<VersionId>,
    got: Vec<u64>,
    /// Whether it has done anything that the graph was told of.
    has_begun: bool,
    now: Now,
    is_earlier: bool,
}

/// Whether a task goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Now {
    GoesOn,
    Waits,
    /// It was told of a failure.
    Fails,
}

struct Run {
    scripts: Vec<Script>,
    graph: Graph,
    next: CallId,
    values: Vec<Option<u64>>,
    handles: Vec<VersionId>,
    stores: BTreeMap<Member, BTreeMap<VersionId, (u64, Mark)>>,
    running: Vec<Running>,
    log: Vec<Event>,
    memory: History,
    members: u32,
    executions: u64,
    /// The calls that have run to their end, by their numbers, in the present run of the program.
    ended: BTreeSet<CallId>,
    /// The calls that could not run on a member.
    troubled: BTreeSet<CallId>,
}

impl Run {
    fn new(scripts: Vec<Script>, has_losses: bool) -> Self {
        let mut run = Self {
            scripts,
            graph: Graph::new(has_losses),
            next: 0,
            values: Vec::new(),
            handles: Vec::new(),
            stores: BTreeMap::new(),
            running: Vec::new(),
            log: Vec::new(),
            memory: History::default(),
            members: 0,
            executions: 0,
            ended: BTreeSet::new(),
            troubled: BTreeSet::new(),
        };
        run.join();
        run
    }

    fn join(&mut self) {
        let member = Member(self.members);
        self.members += 1;
        self.stores.insert(member, BTreeMap::new());
        self.graph.joined(member, Capacity { memory: MEMORY, ..Capacity::of_workers(2) });
    }

    fn happens(&mut self, event: &Event, has_losses: bool) {
        match event {
            Event::Call { kind, reads } => {
                self.log.push(event.clone());
                self.program_calls(*kind, reads);
            }
            Event::Get(which) => {
                self.log.push(event.clone());
                if !self.handles.is_empty() {
                    self.get(which.index(self.handles.len()));
                }
            }
            Event::Run(which) => {
                let can: Vec<_> =
                    (0..self.running.len()).filter(|at| self.running[*at].now != Now::Waits).collect();
                if let Some(at) = pick(&can, *which) {
                    self.goes_on(at);
                }
            }
            Event::Join => self.join(),
            Event::Trouble(which) => self.is_in_trouble(*which),
            Event::Lose(which) if has_losses => {
                let others: Vec<_> = self.stores.keys().copied().filter(|on| *on != Member::HERE).collect();
                if let Some(member) = pick(&others, *which).filter(|member| self.may_be_lost(*member)) {
                    self.stores.remove(&member);
                    self.running.retain(|running| running.member != member);
                    self.graph.lost(member);
                }
            }
            Event::Remember => self.memory.add(self.graph.take_news()),
            Event::Restart(here) if has_losses => self.restart(*here),
            Event::Lose(_) | Event::Restart(_) => {}
        }
        self.perform();
        self.check();
    }

    /// Returns whether no call is with a member that would be the last one with which it may be lost.
    fn may_be_lost(&self, member: Member) -> bool {
        let mut calls = self.graph.calls.iter();
        calls.all(|(_, call)| call.state != CallState::Runs(member) || call.deaths < DEATHS_MAX)
    }

    /// Has a call not run to its end on its member, if it may run on another one; once for each.
    fn is_in_trouble(&mut self, which: Index) {
        let may = |task: &Running| {
            let has_demands = Demand::of(&options(task.kind)) != Demand::NONE;
            let is_new = !self.troubled.contains(&task.assignment.call);
            is_new && !has_demands && !task.is_earlier && self.stores.len() > 1
        };
        let all: Vec<_> = (0..self.running.len()).filter(|at| may(&self.running[*at])).collect();
        if let Some(at) = pick(&all, which) {
            let task = self.running.swap_remove(at);
            let call = task.assignment.call;
            self.troubled.insert(call);
            let unfit = Unfit { reason: "its disk is full".to_owned(), unchanged: Vec::new(), damaged: None };
            self.graph.ended(call, task.member, Outcome::Unfit(unfit));
        }
    }

    fn program_calls(&mut self, kind: Index, reads: &[Index]) {
        let kind = kind.index(KINDS);
        let reads: Vec<usize> = reads
            .iter()
            .filter(|_| !self.handles.is_empty())
            .map(|read| read.index(self.handles.len()))
            .collect();
        let inputs: Option<Vec<u64>> = reads.iter().map(|read| self.values[*read]).collect();
        self.values.push(inputs.and_then(|inputs| sequential(&self.scripts, kind, &inputs)));
        let id = self.next;
        self.next += 1;
        let reads = reads.into_iter().map(|read| self.handles[read]).collect();
        let arguments =
            vec![Argument::Copied(vec![u8::try_from(kind).expect("they are few")]), Argument::ReadAll(reads)];
        self.graph.call(id, new_call(arguments, 1, options(kind)));
        self.handles.push(version(id, 0));
    }

    fn get(&mut self, which: usize) {
        let handle = self.handles[which];
        let input = loop {
            let input = self.graph.want(handle);
            self.perform();
            if !matches!(input, Input::Awaited) {
                break input;
            }
            if matches!(self.graph.want(handle), Input::Awaited) {
                self.goes_on_anywhere();
            }
        };
        self.graph.unwant(handle);
        match (input, self.values[which]) {
            (Input::Here, Some(value)) => assert_eq!(self.stores[&Member::HERE][&handle].0, value),
            (Input::Failed(_), None) => {}
            (input, value) => panic!("{handle:?} is {input:?}, and should be {value:?}"),
        }
    }

    fn goes_on_anywhere(&mut self) {
        let at = self
            .running
            .iter()
            .position(|running| running.now != Now::Waits)
            .expect("nothing goes on any more");
        self.goes_on(at);
        self.perform();
        self.check();
    }

    /// Begins the program anew on one of the members that are left, or on a new one.
    fn restart(&mut self, here: Index) {
        self.stores.remove(&Member::HERE);
        // Tasks that have made calls end; what has not begun is dropped, in this case every third call.
        let running = std::mem::take(&mut self.running).into_iter().enumerate();
        let (running, dropped): (Vec<_>, Vec<_>) =
            running.partition(|(at, task)| task.member != Member::HERE && !task.has_begun && at % 3 > 0);
        drop(dropped);
        let mut before = std::mem::take(&mut self.stores);
        let mut survivors: Vec<_> = before.keys().copied().collect();
        if !survivors.is_empty() {
            let count = survivors.len();
            survivors.rotate_left(here.index(count));
        }
        self.graph = Graph::new(true);
        self.graph.remembers(self.memory.clone());
        (self.members, self.next) = (0, 0);
        self.handles.clear();
        self.values.clear();
        self.ended.clear();
        if survivors.is_empty() {
            self.join();
        }
        let mut running: Vec<_> = running.into_iter().map(|(_, running)| running).collect();
        for survivor in survivors {
            let member = Member(self.members);
            self.join();
            let store = before.remove(&survivor).expect("it is there");
            for (version, (_, mark)) in &store {
                self.graph.holds(member, Held { version: *version, mark: *mark, bytes: 8 });
            }
            self.stores.insert(member, store);
            for task in running.extract_if(.., |task| task.member == survivor) {
                self.graph.runs(member, task.assignment.call, task.assignment.mark);
                self.running.push(Running { member, is_earlier: true, ..task });
            }
        }
        for event in std::mem::take(&mut self.log) {
            self.happens(&event, true);
        }
        assert_eq!(self.graph.divergence(), None);
    }

    /// Lets a task do what it does next.
    fn goes_on(&mut self, at: usize) {
        let script = self.scripts[self.running[at].kind].clone();
        let task = &mut self.running[at];
        let act = script.acts.get(task.done).filter(|_| task.now != Now::Fails);
        task.done += 1;
        match act {
            Some(act) => self.acts(at, act.clone()),
            None => self.ends(at, &script),
        }
    }

    fn acts(&mut self, at: usize, act: Act) {
        let task = &mut self.running[at];
        let which = |which: Index| pick(&task.handles, which);
        match act {
            Act::Bring(value) => {
                let (id, position) = task.number();
                task.mark = task.mark.then_data(id, value);
                task.handles.push(version(id, 0));
                let (member, mark) = (task.member, task.mark);
                if task.is_earlier {
                    // It is not told of any more, so it is not kept.
                    return self.step(at, Step::Begin);
                }
                self.stores.get_mut(&member).expect("it runs there").insert(version(id, 0), (value, mark));
                self.step(at, Step::Bring { position, bytes: 8, content: value });
            }
            Act::Call { kind, reads } if task.kind > 0 => {
                let reads: Vec<_> = reads.into_iter().filter_map(which).collect();
                let kind = kind.index(task.kind);
                let options = options(kind);
                let kind = u8::try_from(kind).expect("they are few");
                let arguments = vec![Argument::Copied(vec![kind]), Argument::ReadAll(reads)];
                let (id, position) = task.number();
                task.mark = task.mark.then_call(id, 0, &arguments, 1);
                task.handles.push(version(id, 0));
                let NewCall { task, .. } = new_call(Vec::new(), 0, options);
                let task = Some(task);
                let call =
                    TaskCall { position, number: 0, task, options, arguments, writes: 1, refused: None };
                self.step(at, Step::Call(call, Vec::new()));
            }
            Act::Get(index) => {
                if let Some(version) = which(index) {
                    task.now = Now::Waits;
                    self.step(at, Step::Get(version));
                }
            }
            Act::Drop(index) if !task.handles.is_empty() => {
                let version = task.handles.swap_remove(index.index(task.handles.len()));
                self.step(at, Step::Release(version));
            }
            Act::Wait => {
                task.now = Now::Waits;
                let position = task.position;
                self.step(at, Step::Wait(0..position, true));
            }
            Act::CancelNone => self.step(at, Step::Cancel(0..0)),
            Act::Call { .. } | Act::Drop(_) => {}
        }
    }

    fn step(&mut self, at: usize, step: Step) {
        let task = &mut self.running[at];
        if task.is_earlier {
            // It makes calls in a run of which nobody knows them: it is run again.
            let task = self.running.swap_remove(at);
            return self.graph.returned(task.assignment.call, task.member, &[]);
        }
        let (member, execution) = (task.member, task.execution);
        if !std::mem::replace(&mut task.has_begun, true) {
            self.graph.step(member, execution, Step::Begin, None);
        }
        self.graph.step(member, execution, step, None);
    }

    fn ends(&mut self, at: usize, script: &Script) {
        let task = &self.running[at];
        let (member, has_begun) = (task.member, task.has_begun);
        let Assignment { call, mark, .. } = task.assignment;
        let mut handed_on = script.hands_on.and_then(|which| pick(&task.handles, which));
        let succeeds = !script.fails && task.now != Now::Fails;
        if has_begun && succeeds && handed_on.is_none() {
            // Nobody may see it before the calls of the task have ended.
            let own = hash((task.kind, &task.inputs[..], &task.got));
            self.acts(at, Act::Bring(own));
            handed_on = self.running[at].handles.last().copied();
        }
        if has_begun
            && succeeds
            && let Some(version) = handed_on
        {
            self.step(at, Step::HandOn(vec![(0, version)]));
        }
        let task = self.running.swap_remove(at);
        if script.fails || task.now == Now::Fails {
            let failure = Failure::new("task", call, "as it was told");
            return self.graph.ended(call, member, Outcome::Failed(failure));
        }
        if handed_on.is_none() {
            let value = hash((task.kind, &task.inputs[..], &task.got));
            self.stores.get_mut(&member).expect("it runs there").insert(version(call, 0), (value, mark));
            if task.is_earlier {
                self.graph.holds(member, Held { version: version(call, 0), mark, bytes: 8 });
            }
        }
        assert!(handed_on.is_none() || has_begun);
        self.ended.insert(call);
        self.graph.ended(call, member, Outcome::Written { bytes: vec![8], ns: 1_000_000 });
    }

    /// Does what is to be done, and checks that it can be.
    fn perform(&mut self) {
        loop {
            let actions = self.graph.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Forget(member, version) => {
                if let Some(store) = self.stores.get_mut(&member) {
                    store.remove(&version);
                }
            }
            Action::Bring(source) | Action::Copy(Member::HERE, source) => self.copy(Member::HERE, &source),
            Action::Copy(member, source) => self.copy(member, &source),
            Action::LetGo(_) | Action::Preserve { .. } => unreachable!("none leaves"),
            Action::Record(_) | Action::Restore { .. } => unreachable!("there is no journal"),
            Action::Assign(member, assignment) => self.begin(member, assignment),
            Action::Alias(member, from, to, mark) => {
                if let Some(store) = self.stores.get_mut(&member) {
                    let (value, _) = store[&from];
                    store.insert(to, (value, mark));
                }
                if member != Member::HERE && self.stores.contains_key(&member) {
                    self.graph.copied(to, member);
                }
            }
            Action::Answer(_, execution, answer) => {
                let Some(at) = self.running.iter().position(|task| task.execution == execution) else {
                    return;
                };
                let task = &mut self.running[at];
                task.now = Now::GoesOn;
                match answer {
                    Answer::Failed(_) | Answer::Ended(Some(_)) => task.now = Now::Fails,
                    Answer::Ended(None) => {}
                    Answer::Over => drop(self.running.swap_remove(at)),
                }
            }
        }
    }

    fn copy(&mut self, member: Member, source: &Source) {
        match self.fetch(source) {
            Some(value) if self.stores.contains_key(&member) => {
                self.stores.get_mut(&member).expect("it is there").insert(source.version, value);
                self.graph.copied(source.version, member);
            }
            _ if member == Member::HERE => self.graph.not_brought(source.version),
            _ => self.graph.not_copied(source.version, member),
        }
    }

    fn fetch(&self, source: &Source) -> Option<(u64, Mark)> {
        let mut stores = source.members.iter().filter_map(|member| self.stores.get(member));
        let found = stores.find_map(|store| store.get(&source.version)).copied();
        assert!(found.is_none_or(|(_, mark)| mark == source.mark), "{source:?}");
        found
    }

    fn begin(&mut self, member: Member, assignment: Assignment) {
        if !self.stores.contains_key(&member) {
            return;
        }
        for source in &assignment.elsewhere {
            let Some(value) = self.fetch(source) else {
                return self.graph.unable(assignment.call, member, source.version);
            };
            self.stores.get_mut(&member).expect("it is there").insert(source.version, value);
            self.graph.copied(source.version, member);
        }
        let store = &self.stores[&member];
        let reads = assignment.arguments.iter().flat_map(Argument::versions);
        let inputs: Vec<u64> = reads
            .map(|read| store.get(read).unwrap_or_else(|| panic!("{read:?} is not with {member:?}")).0)
            .collect();
        if let Some(execution) = assignment.reader {
            let task = self.running.iter_mut().find(|task| task.execution == execution);
            if let Some(task) = task {
                task.now = Now::GoesOn;
                task.got.push(inputs[0]);
                self.graph.step(member, execution, Step::Got, None);
            }
            return;
        }
        let Argument::Copied(kind) = &assignment.arguments[0] else { panic!("the first one is its kind") };
        let kind = usize::from(kind[0]);
        assert!(self.graph.is_unfinished(assignment.call));
        self.executions += 1;
        let execution = Execution { call: assignment.call, number: self.executions };
        self.running.push(Running {
            member,
            kind,
            inputs,
            execution,
            done: 0,
            position: 0,
            mark: assignment.mark.of_calls_within(assignment.call),
            handles: Vec::new(),
            got: Vec::new(),
            has_begun: false,
            now: Now::GoesOn,
            is_earlier: false,
            assignment,
        });
    }

    /// Checks that everything is where the graph says it is.
    fn check(&self) {
        for nest in self.graph.nests.by_call.values() {
            let is_known = |version| self.graph.versions.contains_key(version);
            assert!(nest.handles.keys().chain(nest.left.keys()).all(is_known), "{nest:?}");
        }
        for (id, version) in &self.graph.versions {
            let super::version::State::Present(copies) = &version.state else { continue };
            for member in &copies.members {
                assert!(self.stores[member].contains_key(id), "{id:?} is not with {member:?}");
            }
        }
    }
}

impl Running {
    /// Returns the number of what it does next, and its position.
    fn number(&mut self) -> (CallId, u64) {
        let position = self.position;
        self.position += 1;
        (number_within(self.assignment.call, self.assignment.tries, position), position)
    }
}

fn run(scripts: Vec<Script>, events: &[Event], has_losses: bool) {
    let mut run = Run::new(scripts, has_losses);
    for event in events {
        run.happens(event, has_losses);
    }
    for which in 0..run.handles.len() {
        run.get(which);
    }
    while run.graph.unfinished() > 0 {
        run.goes_on_anywhere();
    }
    for handle in run.handles.clone() {
        run.graph.release(handle);
    }
    run.perform();
    assert!(run.graph.is_empty(), "{:?} {:?}", run.graph.calls, run.graph.versions);
    for (member, store) in &mut run.stores {
        // What the program has read is kept for the case that it begins anew.
        store.retain(|version, _| !run.graph.kept.has(*version, *member));
        assert!(store.is_empty(), "{member:?} keeps {store:?}");
    }
}

proptest! {
    #[test]
    fn tasks_that_call_tasks_end_as_in_their_sequential_run(scripts in scripts(), events in events()) {
        run(scripts, &events, false);
    }

    #[test]
    fn losses_of_members_change_nothing_for_them(scripts in scripts(), events in events()) {
        run(scripts, &events, true);
    }
}
