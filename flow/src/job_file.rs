//! The job file: variables and tasks as TOML.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use dataflow_framework::Options;
use serde::Deserialize;
use thiserror::Error;
use toml::{Spanned, Value};

use crate::pattern::is_name;

/// The shell for commands: it stops at the first failed command and at unset variables.
pub(crate) const SHELL: &str = "sh -eu";

/// The options of a task in `with`. A file of commands has no use for the others.
const OPTIONS: [&str; 9] =
    ["cores", "memory", "needs", "nondeterministic", "pause", "pause_max", "priority", "retry", "timeout"];

/// An error in a job file, with its place.
#[derive(Debug, Error)]
#[error("{file}:{line}: {reason}")]
pub(crate) struct Invalid {
    file: String,
    line: usize,
    reason: String,
}

/// A job file that was parsed.
#[derive(Debug)]
pub(crate) struct JobFile {
    path: PathBuf,
    text: String,
    content: Content,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    shell: Option<String>,
    /// The numbers of commands that may run at a time, by the names of the limits.
    #[serde(default)]
    limits: BTreeMap<Spanned<String>, Spanned<u32>>,
    #[serde(default)]
    each: BTreeMap<Spanned<String>, Values>,
    #[serde(default)]
    task: BTreeMap<Spanned<String>, Task>,
}

/// The values of a variable.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a pattern such as \"samples/*.fq\", or a list of texts")]
pub(crate) enum Values {
    /// The texts for which the `*` stands in the names of files.
    Pattern(String),
    List(Vec<String>),
}

/// A task: a command for each combination of the variables in its outputs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Task {
    #[serde(default, rename = "in")]
    pub(crate) inputs: Vec<Spanned<String>>,
    #[serde(rename = "out")]
    pub(crate) outputs: Vec<Spanned<String>>,
    pub(crate) run: Spanned<String>,
    /// Whether the outputs are removed once all their readers have completed.
    #[serde(default)]
    pub(crate) temporary: bool,
    /// The limits that apply to its commands.
    #[serde(default)]
    uses: Vec<Spanned<String>>,
    #[serde(default)]
    with: BTreeMap<Spanned<String>, Value>,
}

impl JobFile {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| format!("{}: it cannot be read: {error}", path.display()))?;
        Self::parse(path, text).map_err(|error| error.to_string())
    }

    /// Parses the text of a file. The path is for messages.
    pub(crate) fn parse(path: &Path, text: String) -> Result<Self, Invalid> {
        let parsed = toml::from_str(&text);
        let content = parsed.map_err(|error| Invalid {
            file: path.display().to_string(),
            line: line_of(&text, error.span().map_or(0, |span| span.start)),
            reason: error.message().trim().replace('\n', "; "),
        })?;
        let file = Self { path: path.to_owned(), text, content };
        if file.content.task.is_empty() {
            return Err(file.invalid(0, "it has no task: add a table such as [task.sort] with out and run"));
        }
        Ok(file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates an error at a position in the text.
    pub(crate) fn invalid(&self, position: usize, reason: impl Into<String>) -> Invalid {
        let (file, reason) = (self.path.display().to_string(), reason.into());
        Invalid { file, line: self.line(position), reason }
    }

    pub(crate) fn line(&self, position: usize) -> usize {
        line_of(&self.text, position)
    }

    /// Returns the words of the command that starts the shell.
    pub(crate) fn shell(&self) -> Vec<String> {
        let shell = self.content.shell.as_deref().filter(|shell| !shell.trim().is_empty());
        words(shell.unwrap_or(SHELL))
    }

    /// Returns the variables, each with its position.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, usize, &Values)> {
        let all = self.content.each.iter();
        all.map(|(name, values)| (name.get_ref().as_str(), name.span().start, values))
    }

    /// Returns the tasks in the order of the file, each with its position.
    pub(crate) fn tasks(&self) -> Vec<(&str, usize, &Task)> {
        let all = self.content.task.iter();
        let mut all: Vec<_> =
            all.map(|(name, task)| (name.get_ref().as_str(), name.span().start, task)).collect();
        all.sort_by_key(|(_, position, _)| *position);
        all
    }

    /// Returns the options of the calls of a task.
    pub(crate) fn options(&self, task: &Task) -> Result<Options, Invalid> {
        let mut options = Options::default();
        for (name, value) in &task.with {
            let position = name.span().start;
            let name = name.get_ref();
            if !OPTIONS.contains(&name.as_str()) {
                let reason = format!("there is no option {name}; the options are {}", OPTIONS.join(", "));
                return Err(self.invalid(position, reason));
            }
            if name.starts_with("pause") && !task.with.keys().any(|other| other.get_ref() == "retry") {
                return Err(self.invalid(position, format!("{name} needs retry: add the number of retries")));
            }
            let value = match value {
                Value::String(text) => text.clone(),
                other => serde_json::to_string(other).unwrap_or_default(),
            };
            options.set(name, &value).map_err(|reason| self.invalid(position, reason))?;
        }
        let limits = task.uses.iter().map(|name| self.limit(name)).collect::<Result<Vec<_>, _>>()?;
        if let Some(first) = task.uses.first() {
            let set = options.set("limits", &limits.join(","));
            set.map_err(|reason| self.invalid(first.span().start, reason))?;
        }
        Ok(options)
    }

    /// Returns the limit of this name as the value of an option.
    fn limit(&self, name: &Spanned<String>) -> Result<String, Invalid> {
        let known = self.content.limits.iter().find(|(known, _)| known.get_ref() == name.get_ref());
        let name_position = name.span().start;
        let name = name.get_ref();
        let Some((_, calls)) = known else {
            let reason = format!("there is no limit {name}: define the number of its commands in [limits]");
            return Err(self.invalid(name_position, reason));
        };
        if *calls.get_ref() == 0 || !is_name(name) {
            let reason = format!(
                "the limit {name:?} is {}: its name has letters, digits, `_` and `-`, and it permits one command or more",
                calls.get_ref()
            );
            return Err(self.invalid(calls.span().start, reason));
        }
        Ok(format!("{name}={}", calls.get_ref()))
    }
}

/// Returns the words of a text.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn line_of(text: &str, position: usize) -> usize {
    text.bytes().take(position).filter(|byte| *byte == b'\n').count() + 1
}
