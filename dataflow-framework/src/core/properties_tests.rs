//! Programs made by chance, whose calls end in any order on members that join and are lost, against their sequential
//! run.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use proptest::{collection::vec, prelude::*};

use super::{
    Action, Argument, Assignment, CallId, Graph, Input, Member, Outcome, VersionId,
    graph_tests::{new_call, version},
    version::State,
};
use crate::{failure::Failure, options::Options};

/// The number of variables of a program.
const VARIABLES: usize = 5;

/// A statement of a program.
#[derive(Debug, Clone)]
enum Statement {
    /// A variable names new data.
    New(usize),
    /// A variable becomes a clone of another one.
    Clone {
        from: usize,
        to: usize,
    },
    Call {
        reads: Vec<usize>,
        updates: Vec<usize>,
        result: Option<usize>,
        fails: bool,
        options: Options,
    },
    /// A call that was assigned ends, if there is one.
    End(prop::sample::Index),
    /// The program waits for a variable.
    Get(usize),
    /// A member with so many workers joins.
    Join(u32),
    /// A member is lost, if there is another one than that of the program.
    Lose(prop::sample::Index),
    /// A member leaves, if there is another one than that of the program.
    Leave(prop::sample::Index),
}

fn statement() -> impl Strategy<Value = Statement> {
    let variable = || 0..VARIABLES;
    let options = (-1..=1, 0..=1_u32).prop_map(|(priority, retry)| Options { priority, retry });
    let call = (vec(variable(), 0..3), vec(variable(), 0..3), prop::option::of(variable()), 0..12, options);
    prop_oneof![
        1 => variable().prop_map(Statement::New),
        2 => (variable(), variable()).prop_map(|(from, to)| Statement::Clone { from, to }),
        6 => call.prop_map(|(reads, mut updates, result, fails, options)| {
            // The borrow checker allows one update of a handle in a call.
            updates.sort_unstable();
            updates.dedup();
            Statement::Call { reads, updates, result, fails: fails == 0, options }
        }),
        5 => any::<prop::sample::Index>().prop_map(Statement::End),
        1 => variable().prop_map(Statement::Get),
        1 => (1..3_u32).prop_map(Statement::Join),
        1 => any::<prop::sample::Index>().prop_map(Statement::Lose),
        1 => any::<prop::sample::Index>().prop_map(Statement::Leave),
    ]
}

/// A value, or the call whose failure has prevented it.
type Value = Result<u64, CallId>;

/// What a call writes in one slot.
fn written(id: CallId, slot: u32, inputs: &[u64]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (id, slot, inputs).hash(&mut hasher);
    hasher.finish()
}

/// A program in its sequential run and in the graph.
struct Run {
    graph: Graph,
    next: CallId,
    /// The variables in the sequential run.
    values: Vec<Value>,
    /// The same as handles.
    handles: Vec<VersionId>,
    /// What each member keeps.
    stores: BTreeMap<Member, BTreeMap<VersionId, u64>>,
    /// The calls that run, and their inputs.
    running: Vec<(Member, Assignment, Vec<u64>)>,
    /// The calls that fail, whenever they run.
    failing: Vec<CallId>,
    members: u32,
}

impl Run {
    fn new(has_losses: bool) -> Self {
        let mut run = Self {
            graph: Graph::new(has_losses),
            next: 0,
            values: Vec::new(),
            handles: Vec::new(),
            stores: BTreeMap::new(),
            running: Vec::new(),
            failing: Vec::new(),
            members: 0,
        };
        run.join(2);
        for _ in 0..VARIABLES {
            let (value, handle) = run.bring();
            run.values.push(Ok(value));
            run.handles.push(handle);
        }
        run
    }

    fn join(&mut self, workers: u32) {
        let member = Member(self.members);
        self.members += 1;
        self.stores.insert(member, BTreeMap::new());
        self.graph.joined(member, workers);
    }

    fn number(&mut self) -> CallId {
        self.next += 1;
        self.next - 1
    }

    fn bring(&mut self) -> (u64, VersionId) {
        let id = self.number();
        self.graph.data(id, 8);
        let value = written(id, 0, &[]);
        self.put(Member::HERE, version(id, 0), value);
        (value, version(id, 0))
    }

    fn put(&mut self, member: Member, version: VersionId, value: u64) {
        self.stores.get_mut(&member).expect("it is there").insert(version, value);
    }

    fn assign(&mut self, variable: usize, value: Value, handle: VersionId) {
        self.values[variable] = value;
        let before = std::mem::replace(&mut self.handles[variable], handle);
        self.graph.release(before);
    }

    fn state(&mut self, statement: &Statement, has_losses: bool) {
        match statement {
            Statement::New(variable) => {
                let (value, handle) = self.bring();
                self.assign(*variable, Ok(value), handle);
            }
            Statement::Clone { from, to } => {
                self.graph.retain(self.handles[*from]);
                self.assign(*to, self.values[*from], self.handles[*from]);
            }
            Statement::Call { reads, updates, result, fails, options } => {
                self.call(reads, updates, *result, *fails, *options);
            }
            Statement::End(which) => {
                if !self.running.is_empty() {
                    self.end(which.index(self.running.len()));
                }
            }
            Statement::Get(variable) => self.get(*variable),
            Statement::Join(workers) => self.join(*workers),
            Statement::Lose(which) => {
                if let Some(member) = self.other(*which).filter(|_| has_losses) {
                    self.stores.remove(&member);
                    self.running.retain(|(on, ..)| *on != member);
                    self.graph.lost(member);
                }
            }
            Statement::Leave(which) => {
                if let Some(member) = self.other(*which) {
                    self.graph.leaves(member);
                }
            }
        }
        self.perform();
        self.check();
    }

    /// Returns a member on which the program does not run.
    fn other(&self, which: prop::sample::Index) -> Option<Member> {
        let others: Vec<_> = self.stores.keys().filter(|member| **member != Member::HERE).collect();
        (!others.is_empty()).then(|| *others[which.index(others.len())])
    }

    fn call(
        &mut self,
        reads: &[usize],
        updates: &[usize],
        result: Option<usize>,
        fails: bool,
        options: Options,
    ) {
        let id = self.number();
        if fails {
            self.failing.push(id);
        }
        let inputs: Result<Vec<u64>, CallId> =
            reads.iter().chain(updates).map(|one| self.values[*one]).collect();
        // Which of several failures is told is not said.
        let value = |slot| match &inputs {
            Err(failed) => Err(*failed),
            Ok(_) if fails => Err(id),
            Ok(inputs) => Ok(written(id, slot, inputs)),
        };
        let mut arguments = vec![Argument::ReadAll(reads.iter().map(|read| self.handles[*read]).collect())];
        arguments.extend(updates.iter().map(|update| Argument::Update(self.handles[*update])));
        let slots: Vec<usize> = updates.iter().copied().chain(result).collect();
        let writes = u32::try_from(slots.len()).expect("they are few");
        self.graph.call(id, new_call(arguments, writes, options));
        for (slot, variable) in (0..).zip(slots) {
            self.assign(variable, value(slot), version(id, slot));
        }
    }

    /// Waits for a variable, and checks it.
    fn get(&mut self, variable: usize) {
        let handle = self.handles[variable];
        let input = loop {
            let input = self.graph.want(handle);
            self.perform();
            match input {
                Input::Awaited if matches!(self.graph.want(handle), Input::Awaited) => self.end(0),
                Input::Awaited => {}
                input => break input,
            }
        };
        self.graph.unwant(handle);
        match (input, self.values[variable]) {
            (Input::Here, Ok(value)) => assert_eq!(self.stores[&Member::HERE][&handle], value),
            (Input::Failed(_), Err(_)) => {}
            (input, value) => panic!("{handle:?} is {input:?}, and should be {value:?}"),
        }
    }

    /// Does what is to be done, and checks that it can be.
    fn perform(&mut self) {
        loop {
            let actions = self.graph.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    Action::Forget(member, version) => {
                        if let Some(store) = self.stores.get_mut(&member) {
                            store.remove(&version);
                        }
                    }
                    Action::Bring(version, from) => {
                        if let Some(value) = self.fetch(version, &from) {
                            self.put(Member::HERE, version, value);
                            self.graph.copied(version, Member::HERE);
                        }
                    }
                    Action::Assign(member, assignment) => self.begin(member, assignment),
                }
            }
        }
    }

    fn fetch(&self, version: VersionId, from: &[Member]) -> Option<u64> {
        let mut stores = from.iter().filter_map(|member| self.stores.get(member));
        stores.find_map(|store| store.get(&version)).copied()
    }

    fn begin(&mut self, member: Member, assignment: Assignment) {
        for (version, from) in &assignment.elsewhere {
            let Some(value) = self.fetch(*version, from) else {
                return self.graph.unable(assignment.call, member, *version);
            };
            self.put(member, *version, value);
            let mut updates =
                assignment.arguments.iter().filter(|argument| matches!(argument, Argument::Update(_)));
            // What is changed at once is no copy for others.
            if updates
                .position(|update| update.versions() == [*version])
                .is_none_or(|update| !assignment.in_place[update])
            {
                self.graph.copied(*version, member);
            }
        }
        let store = self.stores.get_mut(&member).expect("calls are assigned to members that are there");
        let (mut inputs, mut in_place) = (Vec::new(), assignment.in_place.iter());
        for argument in &*assignment.arguments {
            let is_taken = matches!(argument, Argument::Update(_)) && *in_place.next().expect("one for each");
            for version in argument.versions() {
                let value = if is_taken { store.remove(version) } else { store.get(version).copied() };
                inputs.push(value.unwrap_or_else(|| panic!("{version:?} is not with {member:?}")));
            }
        }
        self.running.push((member, assignment, inputs));
    }

    fn end(&mut self, which: usize) {
        let (member, Assignment { call, .. }, inputs) = self.running.swap_remove(which);
        if self.failing.contains(&call) {
            let failure = Failure::new("task", call, "as it was told");
            return self.graph.ended(call, member, Outcome::Failed(failure));
        }
        let writes = self.graph.calls[&call].writes;
        for slot in 0..writes {
            self.put(member, version(call, slot), written(call, slot, &inputs));
        }
        let bytes = (0..writes).map(|_| 8).collect();
        self.graph.ended(call, member, Outcome::Written { bytes, ns: 1_000_000 });
    }

    /// Checks that everything is where the graph says it is.
    fn check(&self) {
        for (id, version) in &self.graph.versions {
            let State::Present(copies) = &version.state else { continue };
            assert!(!copies.members.is_empty(), "{id:?}");
            for member in &copies.members {
                assert!(self.stores[member].contains_key(id), "{id:?} is not with {member:?}");
            }
        }
    }
}

fn run(statements: &[Statement], has_losses: bool) {
    let mut run = Run::new(has_losses);
    for statement in statements {
        run.state(statement, has_losses);
    }
    while !run.running.is_empty() {
        run.end(0);
        run.perform();
        run.check();
    }
    assert_eq!(run.graph.unfinished(), 0);
    for variable in 0..VARIABLES {
        run.get(variable);
    }
    // Nothing is known any more of what nobody names, and nobody keeps it.
    for handle in run.handles.clone() {
        run.graph.release(handle);
    }
    run.perform();
    assert!(run.graph.is_empty());
    for (member, store) in run.stores {
        assert!(store.is_empty(), "{member:?} keeps {store:?}");
    }
}

proptest! {
    #[test]
    fn every_program_ends_as_its_sequential_run(statements in vec(statement(), 0..120)) {
        run(&statements, false);
    }

    #[test]
    fn losses_change_nothing(statements in vec(statement(), 0..120)) {
        run(&statements, true);
    }
}
