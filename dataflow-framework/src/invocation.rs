//! What a task gets for a call, and what it gives back.

use std::{fmt, slice, sync::Arc, vec};

use crate::{
    encoding::decode,
    failure::Failed,
    ids::{Argument, VersionId},
    value::{Datum, Value},
};

/// A call that runs: the code that the attribute [`task`](crate::task) writes takes its arguments from here, in their
/// order, and puts what it has written, first what it has updated.
pub struct Invocation<'a> {
    arguments: slice::Iter<'a, Argument>,
    /// What it reads, and which versions that is.
    inputs: vec::IntoIter<(Value, VersionId)>,
    written: Vec<Put>,
    /// How the task writes a value: one that has made calls hands it on.
    put: &'a dyn Fn(Value) -> Put,
}

impl fmt::Debug for Invocation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation").field("written", &self.written).finish_non_exhaustive()
    }
}

/// What a task writes as one version.
#[derive(Debug)]
pub(crate) enum Put {
    Value(Value),
    /// It hands on what a call writes that it has made.
    HandedOn(VersionId),
}

impl Put {
    /// Returns the value, if it is there.
    pub(crate) fn value(&self) -> Option<&Value> {
        match self {
            Self::Value(value) => Some(value),
            Self::HandedOn(_) => None,
        }
    }
}

impl<'a> Invocation<'a> {
    pub(crate) fn new(arguments: &'a [Argument], inputs: Vec<Value>, put: &'a dyn Fn(Value) -> Put) -> Self {
        let versions = arguments.iter().flat_map(Argument::versions).copied();
        let inputs: Vec<_> = inputs.into_iter().zip(versions).collect();
        Self { arguments: arguments.iter(), inputs: inputs.into_iter(), written: Vec::new(), put }
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
        let put = (self.put)(Value::new(value));
        self.written.push(put);
    }

    /// Adds a version that another call writes, and that this call hands on.
    pub(crate) fn hand_on(&mut self, put: Put) {
        self.written.push(put);
    }
}
