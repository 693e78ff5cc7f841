//! Options of tasks that the user of a program changes: `--task-option align.retry=5`.

use std::{collections::BTreeMap, fmt, num::NonZero};

use taskwork::{Labels, node::LabelError};

use crate::{
    needs::{self, Needs},
    options::{OnFailure, Options},
    size,
    task::TaskDef,
};

/// Changes the options of a call.
type Change = Box<dyn Fn(&mut Options) + Send + Sync>;

type Parse = fn(&str) -> Result<Change, String>;

/// The options, with the parsers of their values. The attribute `task` has the same.
const KNOWN: [(&str, Parse); 17] = [
    ("priority", |text| change(text.parse(), |options, priority| options.priority = priority)),
    ("retry", |text| change(text.parse(), |options, retry| options.retry = retry)),
    ("pause", |text| change(humantime::parse_duration(text), |options, pause| options.pause = Some(pause))),
    ("pause_max", |text| {
        change(humantime::parse_duration(text), |options, pause| options.pause_max = Some(pause))
    }),
    ("on_failure", |text| change(on_failure(text), |options, what| options.on_failure = what)),
    ("timeout", |text| {
        change(humantime::parse_duration(text), |options, timeout| options.timeout = Some(timeout))
    }),
    ("cores", |text| change(text.parse::<NonZero<u32>>(), |options, cores| options.cores = cores.get())),
    ("memory", |text| change(size::parse(text), |options, bytes| options.memory = bytes)),
    ("needs", |text| change(labels(text), |options, needs| options.needs = needs)),
    ("limits", |text| change(limits(text), |options, limits| options.limits = limits)),
    ("spread", |text| change(text.parse(), |options, spread| options.spread = spread)),
    ("everywhere", |text| change(text.parse(), |options, everywhere| options.everywhere = everywhere)),
    ("isolated", |text| change(text.parse(), |options, isolated| options.isolated = isolated)),
    ("memory_max", |text| change(size::parse(text), |options, bytes| options.memory_max = Some(bytes))),
    ("effect", |text| change(text.parse(), |options, effect| options.effect = effect)),
    ("nondeterministic", |text| change(text.parse(), |options, it_is| options.nondeterministic = it_is)),
    ("cached", |text| change(text.parse(), |options, cached| options.cached = cached)),
];

fn change<T: Copy + Send + Sync + 'static, E: fmt::Display>(
    value: Result<T, E>,
    change: fn(&mut Options, T),
) -> Result<Change, String> {
    let value = value.map_err(|error| error.to_string())?;
    Ok(Box::new(move |options| change(options, value)))
}

fn on_failure(text: &str) -> Result<OnFailure, &'static str> {
    match text {
        "cancel_successors" => Ok(OnFailure::CancelSuccessors),
        "cancel_group" => Ok(OnFailure::CancelGroup),
        "fail" => Ok(OnFailure::Fail),
        "ignore" => Ok(OnFailure::Ignore),
        _ => Err("it is cancel_successors, cancel_group, fail or ignore"),
    }
}

/// Parses labels with commas between them, each with or without a value.
fn labels(text: &str) -> Result<Needs, LabelError> {
    for label in text.split(',') {
        let value = if label.contains('=') { "" } else { "=any" };
        format!("{label}{value}").parse::<Labels>()?;
    }
    Ok(needs::kept(text.split(',').map(str::to_owned).collect()))
}

/// Parses limits with commas between them.
fn limits(text: &str) -> Result<Needs, String> {
    needs::check_limits(text.split(','))?;
    Ok(needs::kept(text.split(',').map(str::to_owned).collect()))
}

/// Returns the change of an option.
fn parse_change(option: &str, value: &str) -> Result<Change, String> {
    let (_, parse) = KNOWN.iter().find(|(known, _)| *known == option).ok_or_else(|| {
        let known = KNOWN.map(|(known, _)| known);
        format!("there is no option {option}; the options are {}", known.join(", "))
    })?;
    parse(value).map_err(|reason| format!("{value:?} is no value of {option}: {reason}"))
}

impl Options {
    /// Sets an option, by its name and its value as in `--task-option`: `cores` to `4`, `memory` to `2 GiB`.
    ///
    /// # Errors
    /// If there is no such option, or the value is invalid.
    pub fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        parse_change(option, value)?(self);
        Ok(())
    }
}

/// The changes of options, by the modules and names of tasks, in the order in which they were given.
#[derive(Default)]
pub(crate) struct TaskOptions(BTreeMap<(&'static str, &'static str), Vec<Change>>);

impl TaskOptions {
    /// Parses changes of the form `TASK.OPTION=VALUE`; an option that is true or false needs no value.
    ///
    /// # Errors
    /// Fails if there is no such task or option, or the value is invalid.
    pub(crate) fn parse<'a>(
        given: impl IntoIterator<Item = &'a str>,
        tasks: &[&'static TaskDef],
    ) -> Result<Self, String> {
        let mut changes = Self::default();
        for text in given {
            let (task, change) = parse(text, tasks).map_err(|reason| format!("{text}: {reason}"))?;
            changes.0.entry((task.module, task.name)).or_default().push(change);
        }
        Ok(changes)
    }

    /// Returns the options of a call, changed.
    pub(crate) fn of(&self, task: &TaskDef, mut options: Options) -> Options {
        for change in self.0.get(&(task.module, task.name)).into_iter().flatten() {
            change(&mut options);
        }
        options
    }
}

fn parse(text: &str, tasks: &[&'static TaskDef]) -> Result<(&'static TaskDef, Change), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, "true"));
    let (task, option) = name.split_once('.').ok_or("expected TASK.OPTION=VALUE, such as align.retry=5")?;
    let is_meant = |known: &&&TaskDef| known.name == task || full_name(known) == task;
    let found: Vec<_> = tasks.iter().filter(is_meant).collect();
    let found = match found[..] {
        [found] => found,
        [] => {
            let known: Vec<_> = tasks.iter().map(|known| known.name).collect();
            return Err(format!("there is no task {task}; the tasks are {}", known.join(", ")));
        }
        _ => {
            let found: Vec<_> = found.into_iter().map(|found| full_name(found)).collect();
            return Err(format!("several tasks are named {task}: {}", found.join(", ")));
        }
    };
    let change = parse_change(option, value)?;
    let mut options = found.options;
    change(&mut options);
    if options.on_failure == OnFailure::Ignore && found.default_outputs.is_none() {
        return Err(
            "failures of the task cannot be ignored: only `#[task(on_failure = ignore)]` gives it defaults"
                .into(),
        );
    }
    Ok((found, change))
}

fn full_name(task: &TaskDef) -> String {
    format!("{}::{}", task.module, task.name)
}

impl fmt::Debug for TaskOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::TaskOptions;
    use crate::{
        options::{OnFailure, Options},
        task::{NOT_RUN, TaskDef},
    };

    const TASKS: [&TaskDef; 2] =
        [&TaskDef { name: "align", ..NOT_RUN }, &TaskDef { name: "merge", ..NOT_RUN }];

    #[test]
    fn given_options_replace_those_of_calls_of_their_task() {
        let given = [
            "align.retry=5",
            "align.timeout=1 min 30 s",
            "align.needs=blast,os=linux",
            "align.memory=2 GiB",
            "merge.priority=-3",
            "align.retry=6",
            "align.spread",
            "align.effect=false",
            "align.on_failure=fail",
        ];
        let changes = TaskOptions::parse(given, &TASKS).expect("they are valid");
        let options = Options { cores: 2, retry: 1, effect: true, ..Options::DEFAULT };
        let timeout = Some(std::time::Duration::from_secs(90));
        let (needs, on_failure) = (&["blast", "os=linux"][..], OnFailure::Fail);
        let changed = Options {
            retry: 6,
            timeout,
            needs,
            memory: 2 << 30,
            spread: true,
            effect: false,
            on_failure,
            ..options
        };
        assert_eq!(changes.of(TASKS[0], options), changed);
        assert_eq!(changes.of(TASKS[1], options), Options { priority: -3, ..options });
    }

    #[test]
    fn every_option_can_be_given() {
        for (option, value) in [
            ("priority", "1"),
            ("retry", "1"),
            ("pause", "1 s"),
            ("pause_max", "1 min"),
            ("on_failure", "cancel_group"),
            ("timeout", "1 s"),
            ("cores", "2"),
            ("memory", "1 GiB"),
            ("needs", "gpu"),
            ("limits", "licence=2,disk=1"),
            ("spread", "true"),
            ("everywhere", "true"),
            ("isolated", "true"),
            ("memory_max", "1 GiB"),
            ("effect", "true"),
            ("nondeterministic", "true"),
            ("cached", "true"),
        ] {
            let text = format!("align.{option}={value}");
            let changes = TaskOptions::parse([&*text], &TASKS).expect("it is an option");
            assert_ne!(changes.of(TASKS[0], Options::DEFAULT), Options::DEFAULT, "{text}");
        }
        // A new field is missing in this pattern: add it to `KNOWN` and above.
        let Options {
            priority: _,
            retry: _,
            pause: _,
            pause_max: _,
            on_failure: _,
            timeout: _,
            cores: _,
            memory: _,
            needs: _,
            limits: _,
            spread: _,
            everywhere: _,
            isolated: _,
            memory_max: _,
            effect: _,
            nondeterministic: _,
            cached: _,
        } = Options::DEFAULT;
    }

    #[test]
    fn tasks_of_one_name_are_distinguished_by_their_modules() {
        const OTHER: [&TaskDef; 2] = [
            &TaskDef { name: "align", module: "a", ..NOT_RUN },
            &TaskDef { name: "align", module: "b", ..NOT_RUN },
        ];
        let error = TaskOptions::parse(["align.retry=5"], &OTHER).expect_err("it is ambiguous");
        assert!(error.ends_with("several tasks are named align: a::align, b::align"), "{error}");
        let changes = TaskOptions::parse(["b::align.retry=5"], &OTHER).expect("it is one task");
        let retries = OTHER.map(|task| changes.of(task, Options::DEFAULT).retry);
        assert_eq!(retries, [Options::DEFAULT.retry, 5]);
    }

    #[test]
    fn unknown_names_and_values_are_refused_with_known_ones() {
        for (text, expected) in [
            ("retry=5", "expected TASK.OPTION=VALUE, such as align.retry=5"),
            ("aline.retry=5", "there is no task aline; the tasks are align, merge"),
            (
                "align.tries=5",
                "there is no option tries; the options are priority, retry, pause, pause_max, on_failure, timeout, cores",
            ),
            ("align.retry=often", "\"often\" is no value of retry: invalid digit"),
            ("align.retry", "\"true\" is no value of retry"),
            ("align.cores=0", "zero"),
            ("align.needs=a b", "is not a label"),
            ("align.limits=licence", "\"licence\" is no limit: expected NAME=CALLS"),
            ("align.limits=licence=2,licence=3", "the limit licence is given twice"),
            ("align.limits=licence=0", "\"licence=0\" is no limit"),
            ("align.on_failure=retry", "cancel_group, fail or ignore"),
            ("align.on_failure=ignore", "cannot be ignored"),
        ] {
            let error = TaskOptions::parse([text], &TASKS).expect_err(text);
            assert!(error.starts_with(&format!("{text}: ")) && error.contains(expected), "{error}");
        }
    }
}
