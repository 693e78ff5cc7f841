//! The keys of calls.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::{
    core::Assignment,
    encoding::encode,
    ids::Argument,
    task::TaskDef,
    value::{Identity, Value},
};

/// The version of the keys and of the entries. A change makes all earlier entries unused.
pub(super) const FORMAT: u32 = 1;

/// The key of a call: the hash of all that its output depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Key([u8; 32]);

impl Key {
    /// Returns the name of its entry.
    pub(super) fn name(self) -> String {
        let mut name = String::new();
        for (place, byte) in self.0.into_iter().enumerate() {
            // Folders of some hundred thousand files are slow to list.
            let _ = write!(name, "{}{byte:02x}", if place == 1 { "/" } else { "" });
        }
        name
    }
}

/// The description of a call by which its output is found.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Described<'a> {
    pub(super) format: u32,
    /// The build of the program, unless any will do.
    pub(super) build: Option<&'a str>,
    pub(super) module: &'a str,
    pub(super) task: &'a str,
    pub(super) signature: &'a str,
    pub(super) code: &'a str,
    pub(super) arguments: Vec<Content<'a>>,
}

/// The content of an argument.
#[derive(Debug, Clone, Serialize)]
pub(super) enum Content<'a> {
    Copied(&'a [u8]),
    Read(Identity),
    ReadAll(Vec<Identity>),
    Update(Identity),
}

impl Described<'_> {
    /// Returns the key. The encoding of different descriptions differs, since it contains the lengths of all parts.
    pub(super) fn key(&self) -> Option<Key> {
        Some(Key(*blake3::hash(&encode(self).ok()?).as_bytes()))
    }
}

/// Returns the key of a call; `None` if an input cannot be read.
pub(super) fn of(assignment: &Assignment, inputs: &[Value], build: Option<&str>) -> Option<Key> {
    let mut identities = inputs.iter().map(Value::identity);
    let mut next = || identities.next().flatten();
    let arguments = assignment.arguments.iter().map(|argument| {
        Some(match argument {
            Argument::Copied(bytes) => Content::Copied(bytes),
            Argument::Read(_) => Content::Read(next()?),
            Argument::ReadAll(all) => Content::ReadAll(all.iter().map(|_| next()).collect::<Option<_>>()?),
            Argument::Update(_) => Content::Update(next()?),
        })
    });
    let arguments = arguments.collect::<Option<_>>()?;
    let TaskDef { module, name: task, signature, code, .. } = *assignment.task();
    Described { format: FORMAT, build, module, task, signature, code, arguments }.key()
}
