//! A call under construction.

use std::{fmt, rc::Rc};

use super::{
    data::Data,
    flow::{Flow, Freedom, Handle, Merging},
};
use crate::{
    core::{Commute, Merge, NewCall},
    encoding::encode,
    failure::{Failed, Failure},
    ids::{Argument, CallId, VersionId},
    needs,
    options::{OnFailure, Options},
    task::TaskDef,
    value::{Datum, Value},
};

/// The maximum total size of values that are copied into a call, in bytes. Further values are passed as data.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// The maximum number of data that a call reads as one argument.
const DATA_MAX: usize = 10_000;

/// A call under construction: its arguments are added in the order of the parameters. The code that the
/// attribute [`task`](crate::task) generates uses it.
#[must_use = "a call is made when it is submitted"]
pub struct Calling {
    flow: Rc<Flow>,
    position: u64,
    id: CallId,
    task: &'static TaskDef,
    /// The number of the task in the table of the program.
    number: u32,
    options: Options,
    arguments: Vec<Argument>,
    writes: u32,
    /// Versions whose handles have moved to a later version.
    dropped: Vec<VersionId>,
    refused: Option<String>,
    /// The updates in any order: the chains of calls, and the positions of the arguments.
    commutes: Vec<Commute>,
    copied_bytes: usize,
}

impl Calling {
    /// Starts a call.
    ///
    /// # Panics
    /// Panics outside of a workflow.
    pub fn of(task: &'static TaskDef, options: Options) -> Self {
        let flow = Flow::current(task.name);
        let number = flow.number_of(task);
        let mut options = flow.counting(task, options);
        let refused = refusal(task, number.is_some(), options);
        if task.is_future() && !options.isolated {
            options.cores = 0;
        }
        let lacks =
            || flow.lacks(&options).map(|lack| format!("it needs {lack}; all nodes are in this process"));
        let refused = refused.or_else(lacks);
        let position = flow.position();
        let id = flow.number(position);
        Self {
            flow,
            position,
            id,
            task,
            number: number.unwrap_or_default(),
            options,
            arguments: Vec::new(),
            writes: 0,
            dropped: Vec::new(),
            refused,
            commutes: Vec::new(),
            copied_bytes: 0,
        }
    }

    fn check(&mut self, handle: &Handle) {
        // A reader gets the output of all earlier calls.
        handle.take_commuting();
        if !Rc::ptr_eq(&self.flow, &handle.flow) {
            self.refused = Some("an argument is data of another workflow".to_owned());
        }
    }

    fn slot(&mut self) -> VersionId {
        let slot = self.writes;
        self.writes += 1;
        VersionId { call: self.id, slot }
    }

    /// Passes data to read.
    pub fn read<T: Datum>(&mut self, data: &Data<T>) {
        self.check(&data.handle);
        self.arguments.push(Argument::Read(data.handle.version));
    }

    /// Passes a list of data to read, as one argument.
    pub fn read_all<T: Datum>(&mut self, all: &[Data<T>]) {
        for data in all {
            self.check(&data.handle);
        }
        if all.len() > DATA_MAX {
            self.refused =
                Some(format!("it reads {} data at once, and may read {DATA_MAX}: see `reduce`", all.len()));
        }
        self.arguments.push(Argument::ReadAll(all.iter().map(|data| data.handle.version).collect()));
    }

    /// Passes data to update. The handle then names the output of the call.
    pub fn update<T: Datum>(&mut self, data: &mut Data<T>) {
        let commuting = data.handle.take_commuting();
        self.check(&data.handle);
        let next = self.slot();
        if self.refused.is_some() && !Rc::ptr_eq(&self.flow, &data.handle.flow) {
            // The versions of another flow are unknown here.
            data.handle = Handle::counted(&self.flow, next);
            return;
        }
        let before = data.handle.advance(next);
        if commuting.is_next {
            let chain = commuting.chain.unwrap_or(self.id);
            self.commutes.push(Commute { chain, at: self.arguments.len() });
            data.handle.continue_chain(chain);
        }
        self.arguments.push(Argument::Update(before));
        self.dropped.push(before);
    }

    /// Passes a copy of a value.
    pub fn copy<T: Datum>(&mut self, value: &T) {
        match encode(value) {
            Ok(bytes) if self.copied_bytes + bytes.len() <= COPIED_BYTES_MAX => {
                self.copied_bytes += bytes.len();
                self.arguments.push(Argument::Copied(bytes));
            }
            Ok(bytes) => self.bring(bytes),
            Err(Failed { reason, .. }) => self.refused = Some(reason),
        }
    }

    /// Passes a large copy as its own data, so that calls stay small.
    fn bring(&mut self, bytes: Vec<u8>) {
        let version = self.flow.bring(Value::from_encoded(bytes));
        self.arguments.push(Argument::Read(version));
        self.dropped.push(version);
    }

    /// Returns a result. Results come after all updates.
    pub fn result<T: Datum>(&mut self) -> Data<T> {
        let version = self.slot();
        Data::of(Handle::counted(&self.flow, version))
    }

    /// Makes the call.
    pub fn submit(self) {
        let Self { flow, position, id, task, number, options, mut arguments, writes, dropped, .. } = self;
        let (mut refused, commutes) = (self.refused, self.commutes);
        let merging = flow.take_merging();
        let merge = merging.and_then(|merging| merge(merging, &arguments, writes));
        if merging.is_some() && merge.is_none() {
            refused.get_or_insert_with(|| {
                "a reduction in any order merges by one call that updates its first argument, reads its second, and \
                 writes nothing else"
                    .to_owned()
            });
        }
        if !commutes.is_empty() && (writes > 1 || options.is_durable()) {
            refused.get_or_insert_with(|| {
                "a call that commutes updates one datum and returns nothing, and is neither an effect nor \
                 nondeterministic: what else it does would depend on the order"
                    .to_owned()
            });
        }
        let refused = refused.map(|reason| Failure::new(task.name, id, reason));
        if refused.is_some() {
            arguments.clear();
        }
        let merge = merge.filter(|_| refused.is_none());
        let is_free = refused.is_none() && merge.is_none() && flow.freedom() == Freedom::AnyOrder;
        let commute = commutes.first().copied().filter(|_| is_free);
        let call = NewCall { task, number, options, arguments, writes, refused, merge, commute };
        flow.call(position, call, &dropped);
    }
}

/// Returns the positions of the arguments to merge; `None` if the call does something else.
fn merge(Merging { reduction, parts }: Merging, arguments: &[Argument], writes: u32) -> Option<Merge> {
    let [into, from] = parts;
    let into = arguments.iter().position(|argument| matches!(argument, Argument::Update(at) if *at == into));
    let from = arguments.iter().position(|argument| matches!(argument, Argument::Read(at) if *at == from));
    let (into, from) = into.zip(from).filter(|_| writes == 1)?;
    Some(Merge { reduction, into, from })
}

/// Returns the reason why a call cannot run, as far as it is known without the arguments.
fn refusal(task: &TaskDef, is_in_table: bool, options: Options) -> Option<String> {
    let TaskDef { module, name, default_outputs, .. } = task;
    if !is_in_table {
        return Some(format!(
            "{module}::{name} is not in the program's table of tasks: add it to `#[program(…)]`, or to `tasks!`"
        ));
    }
    if options.cores == 0 {
        return Some("it is to take no worker: a call takes one or more (`cores`)".to_owned());
    }
    if let Err(reason) = needs::check_limits(options.limits.iter().copied()) {
        return Some(reason);
    }
    if options.cached && options.is_durable() {
        return Some(
            "it is `cached`, and an effect or nondeterministic: its output in the cache would be of another run".to_owned(),
        );
    }
    let lacks_defaults = options.on_failure == OnFailure::Ignore && default_outputs.is_none();
    lacks_defaults.then(|| {
        "its failure cannot be ignored: that has to be said with the task, `#[task(on_failure = ignore)]`, so that \
         its results have defaults"
            .to_owned()
    })
}

impl fmt::Debug for Calling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calling").field("task", self.task).field("id", &self.id).finish_non_exhaustive()
    }
}
