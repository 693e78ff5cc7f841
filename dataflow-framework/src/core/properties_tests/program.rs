//! Execution of random programs, in their sequential run and in the graph.

use std::collections::{BTreeMap, BTreeSet};

use super::{Run, VARIABLES, Value, default_of, statement::Statement, written};
use crate::{
    core::{
        Commute, Fact, Graph, Held, History, Input, Member, Merge, NewCall,
        graph_tests::{new_call, version},
    },
    failure::Reason,
    ids::{Argument, CallId, VersionId},
    options::{OnFailure, Options},
};

impl Run {
    pub(super) fn new(has_losses: bool, has_journal: bool) -> Self {
        let mut run = Self {
            graph: Graph::new(has_losses),
            next: 0,
            values: Vec::new(),
            depends: Vec::new(),
            cancelled: BTreeSet::new(),
            handles: Vec::new(),
            stores: BTreeMap::new(),
            running: Vec::new(),
            copies: Vec::new(),
            leaving: BTreeSet::new(),
            cordoned: BTreeSet::new(),
            vanished: BTreeSet::new(),
            log: Vec::new(),
            memory: History::default(),
            journal: Vec::new(),
            waiting: Vec::new(),
            has_journal,
            unseen: Vec::new(),
            brought: BTreeSet::new(),
            durable: BTreeSet::new(),
            limited: BTreeSet::new(),
            seen: BTreeMap::new(),
            executions: 0,
            repeated: 0,
            failing: Vec::new(),
            writes: BTreeMap::new(),
            members: 0,
            workers: BTreeMap::new(),
            group: None,
            chain: None,
            merged: BTreeMap::new(),
            merges: BTreeSet::new(),
            unfit: BTreeSet::new(),
        };
        run.begin_journal();
        run.join(2);
        run.begin_program();
        run
    }

    pub(super) fn begin_journal(&mut self) {
        if self.has_journal {
            self.graph.journal().enable();
            self.journal.iter().for_each(|fact| self.graph.recall(fact.clone()));
        }
    }

    pub(super) fn restore_kept(&mut self) {
        for fact in self.journal.clone() {
            if let Fact::Kept { version, mark, value } = fact {
                let value = u64::from_le_bytes(value.try_into().expect("it is a number"));
                self.put_brought(Member::HERE, version, (value, mark));
                self.graph.on_held(Member::HERE, Held { version, mark, bytes: 8 });
            }
        }
    }

    pub(super) fn write(&mut self) {
        for fact in std::mem::take(&mut self.waiting) {
            self.journal.push(fact.clone());
            self.graph.journalled(fact);
        }
    }

    pub(super) fn begin_program(&mut self) {
        (self.group, self.chain) = (None, None);
        self.values.clear();
        self.handles.clear();
        self.depends = vec![BTreeSet::new(); VARIABLES];
        for _ in 0..VARIABLES {
            let (value, handle) = self.bring();
            self.values.push(Ok(value));
            self.handles.push(handle);
        }
    }

    pub(super) fn number(&mut self) -> CallId {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn bring(&mut self) -> (u64, VersionId) {
        let id = self.number();
        let value = written(id, 0, &[]);
        let mark = self.graph.data(id, 8, value.into());
        self.put(Member::HERE, version(id, 0), (value, mark));
        (value, version(id, 0))
    }

    pub(super) fn assign(&mut self, variable: usize, value: Value, handle: VersionId) {
        self.values[variable] = value;
        let before = std::mem::replace(&mut self.handles[variable], handle);
        self.graph.release(before);
    }

    pub(super) fn execute(&mut self, statement: &Statement, has_losses: bool) {
        if self.graph.fatal().is_some() {
            return;
        }
        if statement.is_of_program() {
            self.log.push(statement.clone());
            self.chain = self.chain.filter(|_| matches!(statement, Statement::Commute { .. }));
        }
        match statement {
            Statement::New(variable) => {
                let (value, handle) = self.bring();
                self.assign(*variable, Ok(value), handle);
                self.depends[*variable].clear();
            }
            Statement::Clone { from, to } => {
                self.graph.retain(self.handles[*from]);
                self.assign(*to, self.values[*from], self.handles[*from]);
                self.depends[*to] = self.depends[*from].clone();
            }
            Statement::Call { reads, updates, result, fails, options } => {
                self.call(reads, updates, *result, *fails, *options);
            }
            Statement::Reduce { of, to } => self.reduce(of, *to, has_losses),
            Statement::Commute { on, by } => {
                let by = by.iter().filter(|by| *by != on);
                by.for_each(|by| self.commute(*on, *by, has_losses));
            }
            Statement::Group => self.group(),
            Statement::Cancel(calls) => self.cancel(*calls),
            Statement::End(which) => self.end_any(*which),
            Statement::Get(variable) => self.get(*variable),
            Statement::Join(workers) => self.join(*workers),
            Statement::Lose(which) => {
                if let Some(member) = self.other(*which).filter(|_| has_losses && self.may_be_lost()) {
                    self.lose(member);
                }
            }
            Statement::Vanish(which) => {
                self.vanished.extend(self.other(*which).filter(|_| has_losses && self.may_be_lost()));
            }
            Statement::Leave(which) => {
                if let Some(member) = self.other(*which).filter(|_| has_losses) {
                    self.leave(member);
                }
            }
            Statement::Cordon(which) if has_losses => self.cordon(*which),
            Statement::Unfit(which) if has_losses => self.unfit(*which),
            Statement::Damage(which) if has_losses => self.damage(*which),
            Statement::Ask(which) if has_losses => self.ask(*which),
            Statement::Write => self.write(),
            Statement::Remember => self.memory.add(self.graph.journal().take_news()),
            Statement::Restart { here, late } if has_losses => self.restart(*here, *late),
            Statement::Move(here) if has_losses => self.move_program(*here),
            Statement::Empty(first) if self.has_journal => self.all_leave(*first),
            Statement::Restart { .. }
            | Statement::Move(_)
            | Statement::Empty(_)
            | Statement::Cordon(_)
            | Statement::Unfit(_)
            | Statement::Damage(_)
            | Statement::Ask(_) => {}
        }
        self.perform();
        self.check();
    }

    pub(super) fn group(&mut self) {
        if let Some((start, _)) = self.group.take() {
            return self.graph.close_group(start..self.next);
        }
        self.group = Some((self.next, false));
        self.graph.open_group(self.next);
    }

    /// Records a call of the open group. If its failure cancels the group, any call of the group may be cancelled.
    pub(super) fn note_group(&mut self, id: CallId, gives_up: bool) {
        let Some((start, is_given_up)) = &mut self.group else { return };
        if gives_up && !std::mem::replace(is_given_up, true) {
            self.cancelled.extend(*start..id);
        }
        self.cancelled.extend(Some(id).filter(|_| *is_given_up));
    }

    /// Cancels the calls among this number of the latest ones that have not started.
    pub(super) fn cancel(&mut self, calls: u64) {
        let last = self.next.saturating_sub(calls)..self.next;
        self.cancelled.extend(last.clone().filter(|call| self.graph.is_unfinished(*call)));
        if self.has_journal {
            // The program continues once the cancellation is recorded.
            let cancelled = self.graph.prepare_cancellation(last);
            self.waiting.extend(
                cancelled
                    .into_iter()
                    .flatten()
                    .map(|call| Fact::Failed { call, reason: Reason::cancelled() }),
            );
            return self.write();
        }
        self.graph.cancel_all(last);
    }

    pub(super) fn call(
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
        if options.is_durable() {
            self.durable.insert(id);
        }
        if !options.limits.is_empty() {
            self.limited.insert(id);
        }
        self.note_group(id, fails && options.on_failure == OnFailure::CancelGroup);
        let inputs: Result<Vec<u64>, CallId> =
            reads.iter().chain(updates).map(|one| self.values[*one]).collect();
        let ignores = options.on_failure == OnFailure::Ignore;
        // If several inputs have failed, any of their failures may be returned.
        let value = |slot| match &inputs {
            Err(failed) => Err(*failed),
            Ok(_) if fails && !ignores => Err(id),
            Ok(inputs) if fails => Ok(default_of(slot, &inputs[reads.len()..])),
            Ok(inputs) => Ok(written(id, slot, inputs)),
        };
        let read = reads.iter().chain(updates);
        let depends: BTreeSet<_> =
            read.flat_map(|one| self.depends[*one].iter().copied()).chain([id]).collect();
        let mut arguments = vec![Argument::ReadAll(reads.iter().map(|read| self.handles[*read]).collect())];
        arguments.extend(updates.iter().map(|update| Argument::Update(self.handles[*update])));
        let slots: Vec<usize> = updates.iter().copied().chain(result).collect();
        let writes = u32::try_from(slots.len()).expect("they are few");
        self.writes.insert(id, writes);
        self.graph.call(id, new_call(arguments, writes, options));
        for (slot, variable) in (0..).zip(slots) {
            self.assign(variable, value(slot), version(id, slot));
            self.depends[variable] = depends.clone();
        }
    }

    /// Adds variables: in any order if the order is recorded or nothing is lost, otherwise in a fixed order.
    pub(super) fn reduce(&mut self, of: &[usize], to: usize, has_losses: bool) {
        let reduction = self.next;
        let value = of.iter().map(|of| self.values[*of]).reduce(|sum, part| Ok(sum?.wrapping_add(part?)));
        let mut depends: BTreeSet<_> = of.iter().flat_map(|of| self.depends[*of].iter().copied()).collect();
        let mut parts: Vec<_> = of.iter().map(|of| self.handles[*of]).collect();
        for part in &parts {
            self.graph.retain(*part);
        }
        let mut kept = Vec::new();
        while parts.len() > 1 {
            for pair in std::mem::take(&mut parts).chunks(2) {
                let &[into, from] = pair else {
                    parts.push(pair[0]);
                    break;
                };
                let id = self.number();
                let arguments = vec![Argument::Update(into), Argument::Read(from)];
                let merge = Merge { reduction, into: 0, from: 1 };
                let merge = Some(merge).filter(|_| self.has_journal || !has_losses);
                let call = new_call(arguments, 1, Options::DEFAULT);
                self.graph.call(id, NewCall { merge, ..call });
                self.writes.insert(id, 1);
                self.merges.insert(id);
                self.note_group(id, false);
                depends.insert(id);
                kept.extend([into, from]);
                parts.push(version(id, 0));
            }
        }
        self.graph.start_reductions();
        for part in kept {
            self.graph.release(part);
        }
        self.assign(to, value.expect("there are some"), parts[0]);
        self.depends[to] = depends;
    }

    /// Adds one variable to another. The update commutes if the order is recorded or nothing is lost.
    pub(super) fn commute(&mut self, on: usize, by: usize, has_losses: bool) {
        let id = self.number();
        let before = self.chain.filter(|(variable, _)| *variable == on).map(|(_, chain)| chain);
        let chain = before.unwrap_or(id);
        self.chain = Some((on, chain));
        let commute = Some(Commute { chain, at: 0 }).filter(|_| self.has_journal || !has_losses);
        let arguments = vec![Argument::Update(self.handles[on]), Argument::Read(self.handles[by])];
        // The demands differ, and belong to the input that is added.
        let options = Options { memory: by as u64, priority: i32::from(by == 0), ..Options::DEFAULT };
        self.graph.call(id, NewCall { commute, ..new_call(arguments, 1, options) });
        self.writes.insert(id, 1);
        self.merges.insert(id);
        self.note_group(id, false);
        let sum = |on: Value, by: Value| Ok(on?.wrapping_add(by?));
        self.assign(on, sum(self.values[on], self.values[by]), version(id, 0));
        let others = self.depends[by].clone();
        self.depends[on].extend(others);
        self.depends[on].insert(id);
        // A cancelled update may have exchanged its input with any call of the chain.
        if self.cancelled.contains(&id) {
            self.cancelled.insert(chain);
        }
    }

    pub(super) fn get(&mut self, variable: usize) {
        let handle = self.handles[variable];
        let input = loop {
            let input = self.graph.want(handle);
            self.perform();
            if self.graph.fatal().is_some() {
                return;
            }
            match input {
                Input::Awaited if !self.waiting.is_empty() => self.write(),
                Input::Awaited if matches!(self.graph.want(handle), Input::Awaited) => {
                    self.progress();
                }
                Input::Awaited => {}
                input => break input,
            }
        };
        self.graph.unwant(handle);
        if matches!(input, Input::Here) {
            self.record_seen(handle, self.stores[&Member::HERE][&handle].0);
        }
        match (input, self.values[variable]) {
            _ if !self.depends[variable].is_disjoint(&self.cancelled) => {}
            // The value differs between runs, but every reader sees the same one; `record_seen` checks that.
            (Input::Here, Ok(_))
                if self.has_journal && !self.depends[variable].is_disjoint(&self.durable) => {}
            (Input::Here, Ok(value)) => assert_eq!(self.stores[&Member::HERE][&handle].0, value),
            (Input::Failed(_), Err(_)) => {}
            (input, value) => panic!("{handle:?} is {input:?}, and should be {value:?}"),
        }
    }

    /// Completes a running call or a pending copy. If there is none, calls must be waiting for a suitable member, and
    /// one joins.
    pub(super) fn progress(&mut self) {
        if self.running.len() + self.copies.len() > 0 {
            return self.end(0);
        }
        if !self.cordoned.is_empty() {
            return self.uncordon_all();
        }
        let waiting =
            self.graph.known().calls.iter().any(|(call, _)| self.graph.known().lacks(call).is_some());
        assert!(waiting || self.stores.is_empty(), "the program is stuck");
        self.join(2);
    }
}
