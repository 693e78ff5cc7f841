//! The plan: all commands of a job file, with their files, in an order in which each comes after those it depends on.

use std::{
    collections::{BTreeSet, HashMap},
    path::{Component, Path},
};

use dataflow_framework::Options;
use serde::{Deserialize, Serialize};

use crate::{
    job_file::{Invalid, JobFile, Task, Values},
    pattern::{self, Binding, Variables},
    record::FOLDER,
};

/// The maximum numbers of values of a variable, of commands, and of files that all commands read.
const VALUES_MAX: usize = 100_000;
const STEPS_MAX: usize = 100_000;
const READS_MAX: usize = 5_000_000;

/// The maximum number of files that one command reads.
const INPUTS_MAX: usize = 10_000;

/// Names that stand for the files of a command.
const RESERVED: [&str; 2] = ["in", "out"];

/// A plan.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The words of the command that starts the shell.
    pub(crate) shell: Vec<String>,
    pub(crate) kinds: Vec<Kind>,
    /// The commands, by levels.
    pub(crate) steps: Vec<Step>,
    /// The number of commands of each level: those of the first level read only files that exist.
    pub(crate) levels: Vec<usize>,
}

/// A task of the job file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kind {
    pub(crate) name: String,
    pub(crate) options: Options,
    pub(crate) is_temporary: bool,
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

impl Plan {
    /// Plans all commands of a job file; `is_file` tells whether a file exists in its folder.
    pub(crate) fn new(
        file: &JobFile,
        variables: &Variables,
        is_file: impl Fn(&str) -> bool,
    ) -> Result<Self, Invalid> {
        let (mut kinds, mut steps, mut reads) = (Vec::new(), Vec::new(), 0);
        for (name, position, task) in file.tasks() {
            check_task(file, name, position, task, variables)?;
            kinds.push(Kind {
                name: name.to_owned(),
                options: file.options(task)?,
                is_temporary: task.temporary,
            });
            let names = output_variables(task);
            let count = product(&names, variables);
            if count.is_none_or(|count| steps.len() + count > STEPS_MAX) {
                return Err(file.invalid(position, format!("the job has more than {STEPS_MAX} commands")));
            }
            for binding in pattern::combinations(&names, variables) {
                let step = step(file, kinds.len() - 1, (name, task), &binding, variables)?;
                reads += step.inputs.len();
                if reads > READS_MAX {
                    return Err(
                        file.invalid(position, format!("the commands read more than {READS_MAX} files"))
                    );
                }
                steps.push((step, position));
            }
        }
        let makers = makers(file, &kinds, &steps)?;
        for (step, position) in &steps {
            if let Some(path) =
                step.inputs.iter().find(|path| !makers.contains_key(&***path) && !is_file(path))
            {
                let reason = format!(
                    "task {} reads {path}, which no task writes and which does not exist: create it, or correct the name",
                    step.label
                );
                return Err(file.invalid(*position, reason));
            }
        }
        let levels = levels(&steps, &makers);
        if let Some(stuck) = levels.iter().position(Option::is_none) {
            let cycle = cycle(stuck, &steps, &makers, &levels);
            let reason = format!("tasks wait for each other: {cycle}; remove one of these inputs");
            return Err(file.invalid(steps[stuck].1, reason));
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
        let made: BTreeSet<&str> =
            self.steps.iter().flat_map(|step| &step.outputs).map(|path| &**path).collect();
        let read = self.steps.iter().flat_map(|step| &step.inputs).map(|path| &**path);
        read.filter(|path| !made.contains(path)).collect()
    }
}

/// Returns the values of all variables of a job file.
pub(crate) fn variables(file: &JobFile, folder: &Path) -> Result<Variables, Invalid> {
    let mut variables = Variables::new();
    for (name, position, values) in file.variables() {
        if !pattern::is_name(name) || RESERVED.contains(&name) {
            let reason = format!(
                "{name:?} cannot be a variable: use letters, digits, `_` and `-`, and not `in` or `out`"
            );
            return Err(file.invalid(position, reason));
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
        if found.len() > VALUES_MAX {
            return Err(file.invalid(position, format!("variable {name} has more than {VALUES_MAX} values")));
        }
        // A command contains the value as it is.
        let is_plain = |value: &&String| {
            !value.is_empty()
                && value.chars().all(|c| c.is_alphanumeric() || "._-+".contains(c))
                && !value.starts_with('-')
        };
        if let Some(value) = found.iter().find(|value| !is_plain(value)) {
            let reason = format!(
                "variable {name} has the value {value:?}: a value consists of letters, digits, `.`, `_`, `-` and `+`, and \
                 does not start with `-`"
            );
            return Err(file.invalid(position, reason));
        }
        let unique: BTreeSet<_> = found.iter().collect();
        if unique.len() < found.len() {
            return Err(
                file.invalid(position, format!("variable {name} has a value twice: remove one of them"))
            );
        }
        variables.insert(name.to_owned(), found);
    }
    Ok(variables)
}

/// Returns the variables of the outputs of a task: it has a command for each combination of their values.
fn output_variables(task: &Task) -> Vec<&str> {
    let mut names = Vec::new();
    for name in task.outputs.iter().flat_map(|output| pattern::names(output.get_ref())) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the number of combinations; `None` if it is too large.
fn product(names: &[&str], variables: &Variables) -> Option<usize> {
    names.iter().try_fold(1_usize, |product, name| product.checked_mul(variables.get(*name)?.len()))
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
    for pattern in task.inputs.iter().chain(&task.outputs) {
        if let Some(unknown) =
            pattern::names(pattern.get_ref()).iter().find(|name| !variables.contains_key(**name))
        {
            let known: Vec<_> = variables.keys().map(String::as_str).collect();
            let reason =
                format!("there is no variable {unknown}: define it in [each]; known: {}", known.join(", "));
            return Err(file.invalid(pattern.span().start, reason));
        }
    }
    let in_outputs = output_variables(task);
    let is_missing = |name: &&&str| variables.contains_key(**name) && !in_outputs.contains(*name);
    if let Some(missing) = pattern::names(task.run.get_ref()).iter().find(is_missing) {
        let reason =
            format!("{{{missing}}} has no single value in run: add it to out, or use {{in}} for all inputs");
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
    let too_many = |position| {
        file.invalid(position, format!("a command of task {name} reads more than {INPUTS_MAX} files"))
    };
    let (mut inputs, mut outputs, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for input in &task.inputs {
        let bound = pattern::fill(input.get_ref(), value);
        let mut free = pattern::names(&bound);
        free.sort_unstable();
        free.dedup();
        let position = input.span().start;
        if product(&free, variables).is_none_or(|count| inputs.len() + count > INPUTS_MAX) {
            return Err(too_many(position));
        }
        for all in pattern::combinations(&free, variables) {
            let path = pattern::fill(&bound, |name| all.get(name).copied());
            check_path(&path)
                .map_err(|why| file.invalid(position, format!("task {name} reads {path:?}: {why}")))?;
            if seen.insert(path.clone()) {
                inputs.push(path);
            }
        }
    }
    for output in &task.outputs {
        let path = pattern::fill(output.get_ref(), value);
        let position = output.span().start;
        check_path(&path)
            .map_err(|why| file.invalid(position, format!("task {name} writes {path:?}: {why}")))?;
        outputs.push(path);
    }
    let (all_inputs, all_outputs) = (quoted(&inputs), quoted(&outputs));
    let command = pattern::fill(task.run.get_ref(), |name| match name {
        "in" => Some(&*all_inputs),
        "out" => Some(&*all_outputs),
        _ => value(name),
    });
    let values: Vec<_> = binding.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let label = if values.is_empty() { name.to_owned() } else { format!("{name} ({})", values.join(", ")) };
    Ok(Step { kind, label, command, inputs, outputs })
}

/// Refuses a path that leads out of the folder of the job file.
pub(crate) fn check_path(path: &str) -> Result<(), &'static str> {
    let is_normal = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    // The same file has one name only.
    if !is_normal || path.split('/').any(|part| part.is_empty() || part == ".") {
        return Err(
            "a path is relative to the folder of the job file, and contains no `.`, `..` or empty part",
        );
    }
    if path.contains('\0') {
        return Err("it contains a zero byte");
    }
    if path.split('/').next() == Some(FOLDER) {
        return Err("this folder is for the records of earlier runs");
    }
    Ok(())
}

/// Returns paths as words for the shell.
fn quoted(paths: &[String]) -> String {
    let is_plain = |path: &str| {
        path.chars().all(|c| c.is_alphanumeric() || "._-+/=,@%".contains(c)) && !path.starts_with('-')
    };
    let quoted = paths.iter().map(|path| {
        if is_plain(path) {
            return path.clone();
        }
        format!("{}'{}'", if path.starts_with('-') { "./" } else { "" }, path.replace('\'', "'\\''"))
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Returns the positions of the commands that write the files.
fn makers<'a>(
    file: &JobFile,
    kinds: &[Kind],
    steps: &'a [(Step, usize)],
) -> Result<HashMap<&'a str, usize>, Invalid> {
    let mut makers = HashMap::new();
    for (number, (step, position)) in steps.iter().enumerate() {
        for path in &step.outputs {
            let Some(other) = makers.insert(&**path, number) else { continue };
            let (other, other_position) = &steps[other];
            let reason = if other.kind == step.kind {
                let name = &kinds[step.kind].name;
                format!(
                    "task {name} writes {path} more than once: add the variables of the task to each of its outputs"
                )
            } else {
                let line = file.line(*other_position);
                format!(
                    "tasks {} (line {line}) and {} both write {path}: rename one output",
                    other.label, step.label
                )
            };
            return Err(file.invalid(*position, reason));
        }
    }
    Ok(makers)
}

/// Returns the level of each command: the length of the longest chain of commands before it; `None` in a cycle and
/// after it.
fn levels(steps: &[(Step, usize)], makers: &HashMap<&str, usize>) -> Vec<Option<usize>> {
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    let mut missing = vec![0_usize; steps.len()];
    for (number, (step, _)) in steps.iter().enumerate() {
        for maker in step.inputs.iter().filter_map(|path| makers.get(&**path)) {
            readers[*maker].push(number);
            missing[number] += 1;
        }
    }
    let mut levels = vec![None; steps.len()];
    let mut current: Vec<_> = (0..steps.len()).filter(|number| missing[*number] == 0).collect();
    for level in 0.. {
        if current.is_empty() {
            break;
        }
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

/// Formats a cycle to which this command leads.
fn cycle(
    stuck: usize,
    steps: &[(Step, usize)],
    makers: &HashMap<&str, usize>,
    levels: &[Option<usize>],
) -> String {
    let mut path = vec![stuck];
    loop {
        let last = path[path.len() - 1];
        let waits = steps[last].0.inputs.iter().filter_map(|input| makers.get(&**input).copied());
        let Some(next) = waits.into_iter().find(|maker| levels[*maker].is_none()) else { break };
        if let Some(start) = path.iter().position(|one| *one == next) {
            path.drain(..start);
            path.push(next);
            break;
        }
        path.push(next);
    }
    path.iter().rev().map(|one| &*steps[*one].0.label).collect::<Vec<_>>().join(" → ")
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
