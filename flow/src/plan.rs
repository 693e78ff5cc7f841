//! The plan: all commands of a job file, with their files, each after those on which it depends.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::{Component, Path},
};

use dataflow_framework::Options;
use serde::{Deserialize, Serialize};

use crate::{
    job_file::{Invalid, JobFile, Task, Values},
    object::{self, in_folder, is_uri},
    pattern::{self, Binding, COMBINATIONS_MAX, Variables},
    record::FOLDER,
};

/// The maximum number of inputs of a command, and of its outputs: a call has at most so many.
const FILES_MAX: usize = 10_000;

/// The maximum length of a path, as on Linux.
const PATH_BYTES_MAX: usize = 4_095;

/// The maximum length of a command: Linux limits an argument of a program to 128 KiB.
pub(crate) const COMMAND_BYTES_MAX: usize = 120_000;

/// The maximum size of the commands of a job with the names of their files, in bytes.
const PLAN_BYTES_MAX: usize = 128 << 20;

/// The maximum number of characters of an invalid path that an error contains.
const SHOWN_CHARS_MAX: usize = 200;

/// The maximum number of commands that an error lists.
const LISTED_MAX: usize = 5;

/// A plan.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The words of the command that starts the shell.
    pub(crate) shell: Vec<String>,
    pub(crate) kinds: Vec<Kind>,
    /// The commands, by levels.
    pub(crate) steps: Vec<Step>,
    /// The number of commands of each level. Those of a level read only files of earlier ones.
    pub(crate) levels: Vec<usize>,
}

/// A task of the job file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kind {
    pub(crate) name: String,
    pub(crate) options: Options,
    pub(crate) is_temporary: bool,
    /// Whether the standard output of a command is its result, and its only output. Nothing is recorded.
    pub(crate) prints: bool,
}

/// A command. Paths are relative to the folder of the job file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// The position of its task in [`Plan::kinds`].
    pub(crate) kind: usize,
    /// The name of the task with the values of its variables.
    pub(crate) label: String,
    pub(crate) command: String,
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
}

/// The size of the commands so far.
#[derive(Debug, Default)]
pub(crate) struct Size(usize);

impl Size {
    /// Adds a command. Refuses it if the job becomes too large.
    pub(crate) fn add(&mut self, step: &Step) -> Result<(), String> {
        let files = step.inputs.iter().chain(&step.outputs).map(|path| path.len() + size_of::<String>());
        self.0 += step.command.len() + files.sum::<usize>();
        if self.0 <= PLAN_BYTES_MAX {
            return Ok(());
        }
        let reason = format!(
            "the commands of the job and the names of their files have more than {PLAN_BYTES_MAX} bytes"
        );
        Err(format!("{reason}: merge files in several stages, or divide the job"))
    }
}

impl Plan {
    /// Plans all commands of a job file; `is_file` looks for a file in its folder.
    pub(crate) fn new(
        file: &JobFile,
        variables: &Variables,
        is_file: impl Fn(&str) -> bool,
    ) -> Result<Self, Invalid> {
        let (mut kinds, mut steps, mut size) = (Vec::new(), Vec::new(), Size::default());
        for (name, position, task) in file.tasks() {
            check_task(file, name, position, task, variables)?;
            kinds.push(Kind {
                name: name.to_owned(),
                options: file.options(task)?,
                is_temporary: task.temporary,
                prints: false,
            });
            let too_many =
                || file.invalid(position, format!("the job has more than {COMBINATIONS_MAX} commands"));
            for binding in pattern::combinations(&output_variables(task), variables).ok_or_else(too_many)? {
                let step = step(file, kinds.len() - 1, (name, task), &binding, variables)?;
                size.add(&step).map_err(|reason| file.invalid(position, reason))?;
                steps.push((step, position));
            }
            if steps.len() > COMBINATIONS_MAX {
                return Err(too_many());
            }
        }
        let makers = makers(file, &steps)?;
        check_folders(file, &steps, &makers)?;
        for (step, position) in &steps {
            if let Some(path) =
                step.inputs.iter().find(|path| !makers.contains_key(&***path) && !is_file(path))
            {
                let what = "which no task writes and which does not exist: create it, or correct its name";
                let path = path.escape_debug();
                return Err(file.invalid(*position, format!("task {} reads {path}, {what}", step.label)));
            }
        }
        let levels = levels(&steps, &makers);
        if let Some(cycle) = cycle(&steps, &makers, &levels) {
            let labels: Vec<_> =
                cycle.iter().take(LISTED_MAX).map(|number| &*steps[*number].0.label).collect();
            let more = if cycle.len() > LISTED_MAX { ", …" } else { "" };
            let reason = format!(
                "a cycle of inputs: each of these commands waits for another one of them: {}{more}; remove an input",
                labels.join(", ")
            );
            return Err(file.invalid(steps[cycle[0]].1, reason));
        }
        let mut steps: Vec<_> = levels.into_iter().flatten().zip(steps).collect();
        steps.sort_by_key(|(level, _)| *level);
        let mut levels = vec![0; steps.last().map_or(0, |(level, _)| level + 1)];
        for (level, _) in &steps {
            levels[*level] += 1;
        }
        let steps = steps.into_iter().map(|(_, (step, _))| step).collect();
        Ok(Self { shell: file.shell(), kinds, steps, levels })
    }

    /// Returns the files that must exist before the first command.
    pub(crate) fn sources(&self) -> BTreeSet<&str> {
        let made: BTreeSet<_> = self.steps.iter().flat_map(|step| &step.outputs).collect();
        let read = self.steps.iter().flat_map(|step| &step.inputs);
        read.filter(|path| !made.contains(path)).map(String::as_str).collect()
    }
}

/// Returns the values of all variables of a job file.
pub(crate) fn variables(file: &JobFile, folder: &Path) -> Result<Variables, Invalid> {
    let mut variables = Variables::new();
    for (name, position, values) in file.variables() {
        if !pattern::is_name(name) || matches!(name, "in" | "out") {
            let reason = "a variable has letters, digits, `_` and `-`, and is not `in` or `out`";
            return Err(file.invalid(position, format!("{name:?}: {reason}")));
        }
        let found = match values {
            Values::List(list) => list.clone(),
            Values::Pattern(pattern) => pattern::matches(folder, pattern)
                .map_err(|error| file.invalid(position, format!("{name} = {pattern:?}: {error}")))?,
        };
        if found.is_empty() {
            let reason = format!("variable {name} has no values: no file matches, or the list is empty");
            return Err(file.invalid(position, reason));
        }
        // A command contains the value as it is.
        let is_plain = |value: &str| value.chars().all(|c| c.is_alphanumeric() || "._-+".contains(c));
        if let Some(value) =
            found.iter().find(|value| value.is_empty() || value.starts_with('-') || !is_plain(value))
        {
            let reason = "a value has letters, digits, `.`, `_`, `-` and `+`, and does not start with `-`";
            return Err(file.invalid(position, format!("variable {name} has the value {value:?}: {reason}")));
        }
        variables.insert(name.to_owned(), found);
    }
    Ok(variables)
}

/// Returns the variables of the outputs of a task: it has a command for each combination of their values.
fn output_variables(task: &Task) -> Vec<&str> {
    let all: BTreeSet<_> = task.outputs.iter().flat_map(|output| pattern::names(output.get_ref())).collect();
    all.into_iter().collect()
}

/// Checks a task without its files.
fn check_task(
    file: &JobFile,
    name: &str,
    position: usize,
    task: &Task,
    variables: &Variables,
) -> Result<(), Invalid> {
    if !pattern::is_name(name) {
        let reason = format!("{name:?} cannot be the name of a task: use letters, digits, `_` and `-`");
        return Err(file.invalid(position, reason));
    }
    if task.outputs.is_empty() {
        let reason = format!("task {name} has no output: name the files that its command writes in out");
        return Err(file.invalid(position, reason));
    }
    if task.outputs.len() > FILES_MAX {
        return Err(
            file.invalid(position, format!("a command of task {name} writes more than {FILES_MAX} files"))
        );
    }
    for pattern in task.inputs.iter().chain(&task.outputs) {
        let names = pattern::names(pattern.get_ref());
        if let Some(unknown) = names.iter().find(|name| !variables.contains_key(**name)) {
            let reason = format!("there is no variable {unknown}: define its values in [each]");
            return Err(file.invalid(pattern.span().start, reason));
        }
    }
    let bound = output_variables(task);
    let is_free = |name: &&&str| variables.contains_key(**name) && !bound.contains(*name);
    if let Some(free) = pattern::names(task.run.get_ref()).iter().find(is_free) {
        let reason =
            format!("{{{free}}} has no single value in run: add it to out, or use {{in}} for all inputs");
        return Err(file.invalid(task.run.span().start, reason));
    }
    Ok(())
}

/// Makes the command of a task for these values. Variables that are only in its inputs stand for all of their values.
fn step(
    file: &JobFile,
    kind: usize,
    (name, task): (&str, &Task),
    binding: &Binding<'_>,
    variables: &Variables,
) -> Result<Step, Invalid> {
    let value = |name: &str| binding.get(name).copied();
    let checked = |path: String, verb, position| match check_file(&path, verb == "writes") {
        Ok(()) => Ok(path),
        Err(why) => {
            let start: String = path.chars().take(SHOWN_CHARS_MAX).collect();
            Err(file.invalid(position, format!("task {name} {verb} {start:?}: {why}")))
        }
    };
    let (mut inputs, mut seen) = (Vec::new(), BTreeSet::new());
    for input in &task.inputs {
        let position = input.span().start;
        let bound = pattern::fill(input.get_ref(), value);
        let free: BTreeSet<_> = pattern::names(&bound).into_iter().collect();
        let all = pattern::combinations(&free.into_iter().collect::<Vec<_>>(), variables);
        let too_many =
            || file.invalid(position, format!("a command of task {name} reads more than {FILES_MAX} files"));
        for all in all.ok_or_else(too_many)? {
            let path = checked(pattern::fill(&bound, |name| all.get(name).copied()), "reads", position)?;
            if seen.insert(path.clone()) {
                inputs.push(path);
            }
        }
        if inputs.len() > FILES_MAX {
            return Err(too_many());
        }
    }
    let outputs = task.outputs.iter();
    let outputs = outputs
        .map(|output| {
            let position = output.span().start;
            let path = checked(pattern::fill(output.get_ref(), value), "writes", position)?;
            if task.temporary && is_uri(&path) {
                let reason = format!("task {name} is temporary, and would not write {path}: use a path");
                return Err(file.invalid(position, reason));
            }
            check_output(file, &path).map_err(|why| file.invalid(position, format!("task {name} {why}")))?;
            Ok(path)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut places = HashMap::new();
    for path in inputs.iter().chain(&outputs) {
        let place = in_folder(path);
        if let Some(other) = places.insert(place, path).filter(|other| *other != path) {
            let reason =
                format!("task {name}: {other} and {path} have the same path in its folder: rename one");
            return Err(file.invalid(task.run.span().start, reason));
        }
    }
    let (all_inputs, all_outputs) = (quoted(&inputs), quoted(&outputs));
    let command = pattern::fill(task.run.get_ref(), |name| match name {
        "in" => Some(&*all_inputs),
        "out" => Some(&*all_outputs),
        _ => value(name),
    });
    if command.len() > COMMAND_BYTES_MAX {
        let reason = format!(
            "a command of task {name} has {} bytes, and at most {COMMAND_BYTES_MAX} are possible",
            command.len()
        );
        let remedy = "divide its inputs among several commands, whose outputs another task merges";
        return Err(file.invalid(task.run.span().start, format!("{reason}: {remedy}")));
    }
    let values: Vec<_> = binding.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let label = if values.is_empty() { name.to_owned() } else { format!("{name} ({})", values.join(", ")) };
    Ok(Step { kind, label, command, inputs, outputs })
}

/// Refuses a file that is neither in the folder of the job file nor in a store.
fn check_file(path: &str, is_output: bool) -> Result<(), String> {
    if is_uri(path) { object::check(path, is_output) } else { check_path(path).map_err(str::to_owned) }
}

/// Refuses a path that leads out of the folder of the job file.
pub(crate) fn check_path(path: &str) -> Result<(), &'static str> {
    let is_normal = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    // The same file has one name only.
    if !is_normal || path.contains('\0') || path.split('/').any(|part| part.is_empty() || part == ".") {
        return Err(
            "a path is relative to the folder of the job file, and contains no `.`, `..` or empty part",
        );
    }
    if path.len() > PATH_BYTES_MAX {
        return Err("a path has at most 4,095 bytes");
    }
    if path.split('/').next() == Some(FOLDER) {
        return Err("this folder is for the records of earlier runs");
    }
    Ok(())
}

/// Refuses an output that would change the job.
fn check_output(file: &JobFile, path: &str) -> Result<(), String> {
    if file.path().file_name().is_some_and(|name| name == path) {
        return Err(format!("writes {path}, which is the job file: use another name"));
    }
    let is_value =
        |values: &Values| matches!(values, Values::Pattern(pattern) if pattern::is_match(pattern, path));
    if let Some((variable, ..)) = file.variables().find(|(_, _, values)| is_value(values)) {
        let why = format!("writes {path}, which the next run would take as a value of variable {variable}");
        return Err(format!("{why}: use another folder or ending"));
    }
    Ok(())
}

/// Refuses outputs that are folders of other files, or contained in a file.
fn check_folders(
    file: &JobFile,
    steps: &[(Step, usize)],
    makers: &HashMap<&str, usize>,
) -> Result<(), Invalid> {
    let inputs: HashSet<_> = steps.iter().flat_map(|(step, _)| &step.inputs).map(|path| &**path).collect();
    for (step, position) in steps {
        let outputs = step.outputs.iter().map(|path| (path, true));
        for (path, is_output) in step.inputs.iter().map(|path| (path, false)).chain(outputs) {
            if is_uri(path) {
                continue;
            }
            let mut folders = path.match_indices('/').map(|(at, _)| &path[..at]);
            let is_file = |folder: &&str| makers.contains_key(folder) || is_output && inputs.contains(folder);
            if let Some(folder) = folders.find(is_file) {
                let (label, folder, path) = (&step.label, folder.escape_debug(), path.escape_debug());
                let reason = format!("task {label}: {folder} is a file of the job and the folder of {path}");
                return Err(file.invalid(*position, format!("{reason}: rename one of them")));
            }
        }
    }
    Ok(())
}

/// Returns paths as words for the shell.
pub(crate) fn quoted(paths: &[String]) -> String {
    let quoted = paths.iter().map(|path| {
        let before = if path.starts_with('-') { "./" } else { "" };
        format!("{before}{}", word(&in_folder(path)))
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Returns a text as a word for the shell.
pub(crate) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "._-+/=,@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the positions of the commands that write the files.
fn makers<'a>(file: &JobFile, steps: &'a [(Step, usize)]) -> Result<HashMap<&'a str, usize>, Invalid> {
    let mut makers = HashMap::new();
    for (number, (step, position)) in steps.iter().enumerate() {
        for path in &step.outputs {
            if let Some(other) = makers.insert(&**path, number) {
                let (other, other_position) = &steps[other];
                let (one, line, two) = (&other.label, file.line(*other_position), &step.label);
                let remedy = "each output needs a name of its own, with all variables of its task";
                let path = path.escape_debug();
                let reason = format!("{one} (line {line}) and {two} both write {path}: {remedy}");
                return Err(file.invalid(*position, reason));
            }
        }
    }
    Ok(makers)
}

/// Returns the level of each command: the length of the longest chain of commands before it; `None` in a cycle and
/// after it.
fn levels(steps: &[(Step, usize)], makers: &HashMap<&str, usize>) -> Vec<Option<usize>> {
    let (mut readers, mut missing) = (vec![Vec::new(); steps.len()], vec![0_usize; steps.len()]);
    for (number, (step, _)) in steps.iter().enumerate() {
        for maker in step.inputs.iter().filter_map(|path| makers.get(&**path)) {
            readers[*maker].push(number);
            missing[number] += 1;
        }
    }
    let mut levels = vec![None; steps.len()];
    let mut current: Vec<_> = (0..steps.len()).filter(|number| missing[*number] == 0).collect();
    for level in 0..steps.len() {
        let mut next = Vec::new();
        for number in current {
            levels[number] = Some(level);
            for reader in &readers[number] {
                missing[*reader] -= 1;
                if missing[*reader] == 0 {
                    next.push(*reader);
                }
            }
        }
        current = next;
    }
    levels
}

/// Returns the commands of a cycle, the first one of the job file first; `None` if all commands have levels.
fn cycle(
    steps: &[(Step, usize)],
    makers: &HashMap<&str, usize>,
    levels: &[Option<usize>],
) -> Option<Vec<usize>> {
    let mut number = levels.iter().position(Option::is_none)?;
    let mut path: Vec<usize> = Vec::new();
    let mut seen = HashSet::new();
    // A command without a level waits for another one without a level.
    while seen.insert(number) {
        path.push(number);
        let mut all = steps[number].0.inputs.iter().filter_map(|path| makers.get(&**path).copied());
        number = all.find(|maker| levels[*maker].is_none())?;
    }
    let at = path.iter().position(|one| *one == number)?;
    let mut cycle = path.split_off(at);
    // From makers to readers.
    cycle.reverse();
    let first = (0..cycle.len()).min_by_key(|at| cycle[*at])?;
    cycle.rotate_left(first);
    Some(cycle)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
