//! What a task gets for a call, and what it gives back.

use std::{slice, sync::Arc, vec};

use crate::{
    core::{Argument, Assignment, VersionId},
    failure::Failed,
    node::Put,
    program::{self, Data},
    value::{Datum, Value, decode},
};

/// A call that runs: the code that the attribute [`task`](crate::task) writes takes its arguments from here, in their
/// order, and puts what it has written, first what it has updated.
#[derive(Debug)]
pub struct Invocation<'a> {
    arguments: slice::Iter<'a, Argument>,
    /// What it reads, and which versions that is.
    inputs: vec::IntoIter<(Value, VersionId)>,
    written: Vec<Put>,
}

impl<'a> Invocation<'a> {
    pub(crate) fn new(assignment: &'a Assignment, inputs: Vec<Value>) -> Self {
        let versions = assignment.arguments.iter().flat_map(Argument::versions).copied();
        let inputs: Vec<_> = inputs.into_iter().zip(versions).collect();
        Self { arguments: assignment.arguments.iter(), inputs: inputs.into_iter(), written: Vec::new() }
    }

    /// Returns what the task has written.
    pub(crate) fn into_written(self) -> Vec<Put> {
        self.written
    }

    fn argument(&mut self) -> Result<&'a Argument, Failed> {
        self.arguments.next().ok_or_else(|| Failed::of("the call has too few arguments"))
    }

    /// Returns the next input, as what is made of it.
    fn input<R>(&mut self, made: impl FnOnce(Value) -> Result<R, Failed>) -> Result<R, Failed> {
        let (value, version) = self.inputs.next().ok_or_else(|| Failed::of("the call has too few inputs"))?;
        let made = value.check().and_then(|()| made(value));
        made.map_err(|failed| failed.of_version(version))
    }

    /// Returns an argument that is read.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn read<T: Datum>(&mut self) -> Result<Arc<T>, Failed> {
        self.argument()?;
        self.input(Value::read)
    }

    /// Returns an argument that consists of any number of data that are read.
    ///
    /// # Errors
    /// If one of them is of another type.
    pub fn read_all<T: Datum>(&mut self) -> Result<Vec<Arc<T>>, Failed> {
        let number = self.argument()?.versions().len();
        (0..number).map(|_| self.input(Value::read)).collect()
    }

    /// Returns an argument that is updated: the one before, or a copy.
    ///
    /// # Errors
    /// If it is of another type, or cannot be copied.
    pub fn update<T: Datum>(&mut self) -> Result<T, Failed> {
        self.argument()?;
        self.input(Value::own)
    }

    /// Returns an argument that was copied into the call.
    ///
    /// # Errors
    /// If it cannot be decoded.
    pub fn copied<T: Datum>(&mut self) -> Result<T, Failed> {
        match self.argument()? {
            Argument::Copied(bytes) => decode(bytes),
            // It was too large.
            Argument::Read(_) => self.input(Value::own),
            _ => Err(Failed::of("an argument is data where the task takes a value")),
        }
    }

    /// Puts what was written.
    pub fn put<T: Datum>(&mut self, value: T) {
        self.written.push(program::put(Value::new(value)));
    }

    /// Puts what a call writes that the task has made.
    ///
    /// # Errors
    /// If another one has made it.
    pub fn hand_on<T: Datum>(&mut self, data: &Data<T>) -> Result<(), Failed> {
        self.written.push(data.handed_on()?);
        Ok(())
    }
}
