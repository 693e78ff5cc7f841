//! Random programs with nested calls, compared with their sequential runs. Members join and are lost, and the program
//! is restarted in the middle.

mod journal;
mod script;
mod task;

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, prelude::*, sample::Index};

use self::{
    journal::Book,
    script::{KINDS, Lacking, MEMORY, ONCE, Script, options, pick, scripts, sequential},
    task::{Now, Running},
};
use super::{
    Action, Answer, Assignment, Capacity, Cause, Demand, Graph, Held, History, Input, Mark, Member, Outcome,
    Source, Step, Unfit, Work,
    graph_tests::{new_call, version},
    virtual_stores::{self, Stores, check_rest, fetch},
};
use crate::ids::{Argument, CallId, Execution, VersionId};

#[derive(Debug, Clone)]
enum Event {
    /// The program makes a call that reads outputs of earlier calls.
    Call {
        kind: Index,
        reads: Vec<Index>,
    },
    /// The program waits for the output of a call.
    Get(Index),
    /// A running task executes its next act.
    Run(Index),
    Join,
    /// A member is unfit to run a call.
    Trouble(Index),
    Lose(Index),
    Remember,
    /// The pending records are written to the journal.
    Write,
    /// The member of the program is lost, and the program restarts on another one.
    Restart(Index),
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
        2 => Just(Event::Write),
        1 => index().prop_map(Event::Restart),
    ];
    vec(event, 0..150)
}

struct Run {
    scripts: Vec<Script>,
    graph: Graph,
    next: CallId,
    /// The calls of the program: their kinds, and the earlier calls that they read.
    calls: Vec<(usize, Vec<usize>)>,
    /// The expected outputs of the calls of the program, as far as they are known.
    values: Vec<Result<u64, Lacking>>,
    handles: Vec<VersionId>,
    stores: Stores,
    running: Vec<Running>,
    log: Vec<Event>,
    memory: History,
    members: u32,
    executions: u64,
    /// The calls that a member was unfit to run.
    troubled: BTreeSet<CallId>,
    book: Book,
}

impl Run {
    fn new(mut scripts: Vec<Script>, has_losses: bool, has_journal: bool) -> Self {
        if has_journal {
            // Run-once tasks make no calls.
            scripts[ONCE].acts.clear();
        }
        let mut run = Self {
            scripts,
            graph: Graph::new(has_losses),
            next: 0,
            calls: Vec::new(),
            values: Vec::new(),
            handles: Vec::new(),
            stores: BTreeMap::new(),
            running: Vec::new(),
            log: Vec::new(),
            memory: History::default(),
            members: 0,
            executions: 0,
            troubled: BTreeSet::new(),
            book: Book::new(has_journal),
        };
        run.book.recall(&mut run.graph);
        run.join();
        run
    }

    fn join(&mut self) {
        let member = Member(self.members);
        self.members += 1;
        self.stores.insert(member, BTreeMap::new());
        self.graph.joined(member, Capacity { memory: MEMORY, ..Capacity::of_workers(2) });
    }

    fn put(&mut self, member: Member, version: VersionId, value: (u64, Mark)) {
        self.stores.get_mut(&member).expect("it is there").insert(version, value);
    }

    fn apply(&mut self, event: &Event, has_losses: bool) {
        if self.graph.fatal().is_some() {
            return;
        }
        match event {
            Event::Call { kind, reads } => {
                self.log.push(event.clone());
                self.make_call(*kind, reads);
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
                    self.run_next_act(at);
                }
            }
            Event::Join => self.join(),
            Event::Trouble(which) => self.report_unfit(*which),
            Event::Lose(which) if has_losses => {
                let others: Vec<_> = self.stores.keys().copied().filter(|on| *on != Member::HERE).collect();
                if let Some(member) = pick(&others, *which).filter(|member| self.may_be_lost(*member)) {
                    self.stores.remove(&member);
                    self.running.retain(|running| running.member != member);
                    self.book.on_lost(member);
                    self.graph.lost(member);
                }
            }
            Event::Remember => self.memory.add(self.graph.journal().take_news()),
            Event::Write => self.book.write(&mut self.graph),
            Event::Restart(here) if has_losses => self.restart(*here),
            Event::Lose(_) | Event::Restart(_) => {}
        }
        self.perform();
        self.check();
    }

    /// Reports the member of a call as unfit, at most once for each call, if another member can run it.
    fn report_unfit(&mut self, which: Index) {
        let may = |task: &Running| {
            let has_demands = Demand::of(&options(task.kind, self.book.is_kept)) != Demand::NONE;
            let is_new = !self.troubled.contains(&task.assignment.call);
            is_new && !has_demands && !task.is_earlier && self.stores.len() > 1
        };
        let all: Vec<_> = (0..self.running.len()).filter(|at| may(&self.running[*at])).collect();
        if let Some(at) = pick(&all, which) {
            let task = self.running.swap_remove(at);
            let call = task.assignment.call;
            self.troubled.insert(call);
            let unfit =
                Unfit { reason: "its disk is full".into(), unchanged: Vec::new(), cause: Cause::Member };
            self.graph.ended(call, task.member, Outcome::Unfit(unfit));
        }
    }

    fn make_call(&mut self, kind: Index, reads: &[Index]) {
        let kind = kind.index(KINDS);
        let reads: Vec<usize> = reads
            .iter()
            .filter(|_| !self.handles.is_empty())
            .map(|read| read.index(self.handles.len()))
            .collect();
        self.calls.push((kind, reads.clone()));
        self.values.push(Err(Lacking::Unseen));
        let id = self.next;
        self.next += 1;
        let reads = reads.into_iter().map(|read| self.handles[read]).collect();
        let arguments =
            vec![Argument::Copied(vec![u8::try_from(kind).expect("they are few")]), Argument::ReadAll(reads)];
        self.graph.call(id, new_call(arguments, 1, options(kind, self.book.is_kept)));
        self.handles.push(version(id, 0));
    }

    fn get(&mut self, which: usize) {
        let handle = self.handles[which];
        let input = loop {
            let input = self.graph.want(handle);
            self.perform();
            if self.graph.fatal().is_some() {
                return;
            }
            if !matches!(input, Input::Awaited) {
                break input;
            }
            if matches!(self.graph.want(handle), Input::Awaited) {
                self.progress();
            }
        };
        self.graph.unwant(handle);
        let value = matches!(input, Input::Here).then(|| self.stores[&Member::HERE][&handle].0);
        if let Some(value) = value {
            self.book.record_seen(handle, value);
        }
        match (input, self.expected(which)) {
            (Input::Here, Ok(expected)) => assert_eq!(value, Some(expected)),
            (Input::Failed(_), Err(Lacking::Failed)) | (_, Err(Lacking::Unseen)) => {}
            (input, expected) => panic!("{handle:?} is {input:?}, and should be {expected:?}"),
        }
    }

    /// Returns the expected output of a call of the program.
    fn expected(&mut self, which: usize) -> Result<u64, Lacking> {
        for at in 0..=which {
            if self.values[at] != Err(Lacking::Unseen) {
                continue;
            }
            let (kind, reads) = &self.calls[at];
            let inputs: Result<Vec<u64>, _> = reads.iter().map(|read| self.values[*read]).collect();
            let call = (at as CallId, *kind);
            self.values[at] =
                inputs.and_then(|inputs| sequential(&self.scripts, call, &inputs, self.book.seen()));
        }
        self.values[which]
    }

    fn progress(&mut self) {
        if self.graph.fatal().is_some() {
            return;
        }
        if let Some(at) = self.running.iter().position(|running| running.now != Now::Waits) {
            self.run_next_act(at);
        } else {
            assert!(!self.book.waiting.is_empty(), "the program is stuck");
            self.book.write(&mut self.graph);
        }
        self.perform();
        self.check();
    }

    /// Restarts the program on a surviving member, or on a new one.
    fn restart(&mut self, here: Index) {
        self.stores.remove(&Member::HERE);
        self.book.interrupt(here.index(self.book.waiting.len() + 1));
        // Tasks that have made calls are ended. Tasks that have not started are dropped; here every third one is.
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
        self.book.recall(&mut self.graph);
        self.graph.journal().add_history(self.memory.clone());
        (self.members, self.next) = (0, 0);
        self.handles.clear();
        self.calls.clear();
        self.values.clear();
        if survivors.is_empty() {
            self.join();
        }
        let mut running: Vec<_> = running.into_iter().map(|(_, running)| running).collect();
        let (mut unseen, brought) = self.book.take_unseen();
        for survivor in survivors {
            let member = Member(self.members);
            self.join();
            let store = before.remove(&survivor).expect("it is there");
            let is_brought = |version: &VersionId| brought.contains(&(survivor, *version));
            for (version, (_, mark)) in &store {
                // The outputs of an unrecorded outcome are reported with that outcome.
                let is_unseen = unseen.iter().any(|(of, call, ..)| (*of, *call) == (survivor, version.call));
                if is_unseen && !is_brought(version) {
                    continue;
                }
                self.graph.on_held(member, Held { version: *version, mark: *mark, bytes: 8 });
            }
            self.book.restore_brought(member, store.keys().copied().filter(is_brought));
            self.stores.insert(member, store);
            for task in running.extract_if(.., |task| task.member == survivor) {
                self.graph.on_running(member, task.assignment.call, task.assignment.mark);
                self.running.push(Running { member, is_earlier: true, ..task });
            }
            for (_, call, mark, outcome) in unseen.extract_if(.., |(of, ..)| *of == survivor) {
                self.graph.on_running(member, call, mark);
                self.graph.ended(call, member, outcome.clone());
                self.book.add_unseen(member, call, mark, outcome);
            }
        }
        for event in std::mem::take(&mut self.log) {
            self.apply(&event, true);
        }
        assert_eq!(self.graph.divergence(), None);
    }

    /// Carries out all actions of the graph, and checks that they are possible.
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
                self.book.on_forgotten(member, version);
            }
            Action::Bring(source) | Action::Copy(Member::HERE, source) => self.copy(Member::HERE, &source),
            Action::Copy(member, source) => self.copy(member, &source),
            Action::LetGo(_) | Action::Preserve { .. } => unreachable!("no member leaves in this test"),
            Action::Record(fact) => self.book.waiting.push(fact),
            Action::Wake { call, failures, .. } => self.graph.wake(call, failures),
            Action::Restore { version, mark, value } => {
                let value = u64::from_le_bytes((*value).try_into().expect("it is a number"));
                self.put_brought(Member::HERE, version, (value, mark));
            }
            Action::Assign(member, assignment) => self.begin(member, assignment),
            Action::Cancel(member, call) => self.stop(member, call),
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
                task.now = Now::Runs;
                match answer {
                    Answer::Failed(_) | Answer::Ended(Some(_)) => task.now = Now::Fails,
                    Answer::Ended(None) => {}
                    Answer::Over => self.end_obsolete(at),
                }
            }
        }
    }

    fn copy(&mut self, member: Member, source: &Source) {
        if self.stores.contains_key(&member) && self.bring_to(member, source) {
            self.graph.copied(source.version, member);
        } else if member == Member::HERE {
            self.graph.not_brought(source.version, &source.members);
        } else {
            self.graph.not_copied(source.version, member, &source.members);
        }
    }

    /// Copies a version to a member, unless it has one. Returns whether the member has the version now.
    fn bring_to(&mut self, member: Member, source: &Source) -> bool {
        let version = source.version;
        let is_seen = self.book.is_seen(member, version);
        let store = self.stores.get_mut(&member).expect("it is there");
        if is_seen && store.contains_key(&version) {
            return true;
        }
        store.remove(&version);
        let value = fetch(&self.stores, source, &BTreeSet::new());
        value.map(|value| self.put_brought(member, version, value)).is_some()
    }

    /// Stores a copy on a member that may have another execution of the same call, running or unrecorded.
    fn put_brought(&mut self, member: Member, version: VersionId, value: (u64, Mark)) {
        let is_it = |task: &Running| (task.member, task.assignment.call) == (member, version.call);
        let is_running = self.running.iter().any(is_it);
        self.book.on_brought(member, version, is_running);
        self.put(member, version, value);
    }

    fn begin(&mut self, member: Member, assignment: Assignment) {
        if !self.stores.contains_key(&member) {
            return;
        }
        for source in &assignment.elsewhere {
            if !self.bring_to(member, source) {
                return self.graph.unable(assignment.call, member, source.version, &source.members, &[]);
            }
            self.graph.copied(source.version, member);
        }
        let store = &self.stores[&member];
        let reads = assignment.arguments.iter().flat_map(Argument::versions);
        let inputs: Vec<u64> = reads
            .map(|read| store.get(read).unwrap_or_else(|| panic!("{read:?} is not with {member:?}")).0)
            .collect();
        for (read, input) in assignment.arguments.iter().flat_map(Argument::versions).zip(&inputs) {
            self.book.record_seen(*read, *input);
        }
        if let Work::Get(execution) = assignment.work {
            let task = self.running.iter_mut().find(|task| task.execution == execution);
            if let Some(task) = task {
                task.now = Now::Runs;
                task.got.push(inputs[0]);
                self.graph.step(member, execution, Step::Got, None);
            }
            return;
        }
        let Argument::Copied(kind) = &assignment.arguments[0] else {
            panic!("the first argument is the kind")
        };
        let kind = usize::from(kind[0]);
        assert!(self.graph.is_unfinished(assignment.call));
        self.book.on_assigned(assignment.call, assignment.manner.once_token.is_some());
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
            now: Now::Runs,
            is_earlier: false,
            is_cancelled: false,
            assignment,
        });
    }

    fn check(&self) {
        for nest in self.graph.nests().by_call.values() {
            let is_known = |version| self.graph.known().versions.contains_key(version);
            assert!(nest.handles.keys().chain(nest.left.keys()).all(is_known), "{nest:?}");
        }
        virtual_stores::check(&self.stores, &self.graph);
    }
}

fn run(scripts: Vec<Script>, events: &[Event], has_losses: bool, has_journal: bool) {
    let mut run = Run::new(scripts, has_losses, has_journal);
    for event in events {
        run.apply(event, has_losses);
    }
    (0..run.handles.len()).for_each(|which| run.get(which));
    while run.graph.unfinished() > 0 && run.graph.fatal().is_none() {
        run.progress();
    }
    if run.book.has_failed_by_loss(&run.graph) {
        return;
    }
    run.handles.iter().for_each(|handle| run.graph.release(*handle));
    run.perform();
    check_rest(&run.stores, &run.graph);
}

proptest! {
    #[test]
    fn nested_program_equals_sequential_run(scripts in scripts(), events in events()) {
        run(scripts, &events, false, false);
    }

    #[test]
    fn nested_program_with_losses_equals_sequential_run(scripts in scripts(), events in events()) {
        run(scripts, &events, true, false);
    }

    #[test]
    fn nested_recorded_calls_have_one_outcome(scripts in scripts(), events in events()) {
        run(scripts, &events, true, true);
    }
}
