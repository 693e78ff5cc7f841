//! `init` and `check`: the folder of a routine before it is deployed.

mod laws;

use std::{
    collections::HashMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use taskwork_cli::{Failure, command::print};

use crate::{
    call::CallHere,
    host::Host,
    isolation::{IsolationOptions, Preference},
    package::{Description, Example, Package, PackageError, is_name},
    runtime::{Event, Installed, Interpreters, Program, Runtime},
    search::search_alone,
    store::{Outcome, Store},
    tenant::Tenant,
    wire::{CallError, EntryKind, ErrorKind, Step, check_value},
};

/// The maximum duration of an example.
const EXAMPLE_MAX: Duration = Duration::from_secs(60);

/// The time between two looks at a runtime that loads.
const LOOK: Duration = Duration::from_millis(20);

/// The difference up to which two numbers are equal, relative to the largest of them and of their inputs.
const TOLERANCE: f64 = 1e-9;

const DESCRIPTION: &str = "routine.toml";

#[derive(Debug, Args)]
pub(super) struct Init {
    /// The name of the routine and of the new folder.
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Debug, Args)]
pub(super) struct Check {
    /// The folder with routine.toml.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    #[command(flatten)]
    interpreters: Interpreters,
    /// The store of the routines and resources that the examples use, a folder or a bucket. Default: they use
    /// none.
    #[arg(long, value_name = "STORE", env = "ROUTINES_STORE")]
    store: Option<PathBuf>,
    #[command(flatten)]
    isolation: IsolationOptions,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// A reason for which a folder is no working routine.
#[derive(Debug, Serialize)]
struct Defect {
    file: PathBuf,
    line: Option<usize>,
    message: String,
    remedy: &'static str,
}

pub(super) fn init(Init { name }: &Init) -> Result<ExitCode, Failure> {
    if !is_name(name) {
        return Err(Failure::usage(format!("{name:?} must have letters, digits, `.`, `-` or `_`")));
    }
    let failed = |error| Failure::usage(format!("the folder {name} cannot be created: {error}"));
    fs::create_dir(name).map_err(failed)?;
    // A module is an identifier, other than those of the standard library.
    let module =
        format!("{}_routine", name.replace(['.', '-'], "_").trim_start_matches(|c: char| !c.is_alphabetic()));
    let module = module.trim_start_matches('_');
    let text = include_str!("../../template/routine.toml").replace("NAME", name).replace("MODULE", module);
    let files = [
        (DESCRIPTION.to_owned(), text),
        (format!("{module}.py"), include_str!("../../template/module.py").to_owned()),
    ];
    for (file, text) in files {
        let path = Path::new(name).join(file);
        let mut file = fs::File::create_new(&path).map_err(failed)?;
        file.write_all(text.as_bytes()).map_err(failed)?;
        print(&format!("{}\n", path.display()));
    }
    print(&format!("next: routines check {name}\n"));
    Ok(ExitCode::SUCCESS)
}

pub(super) fn check(arguments: &Check) -> Result<ExitCode, Failure> {
    let (name, examples, defects) = match Package::read(&arguments.folder) {
        Ok(package) => {
            let (name, examples, folder) =
                (package.name(), package.description.example.len(), package.folder.clone());
            let mut defects = run(arguments, package)?;
            for defect in &mut defects {
                if let Ok(file) = defect.file.strip_prefix(&folder) {
                    defect.file = arguments.folder.join(file);
                }
            }
            (Some(name), examples, defects)
        }
        Err(error) => (None, 0, vec![Defect::of_package(error)]),
    };
    if arguments.json {
        print(&format!("{}\n", json!({ "routine": name, "examples": examples, "defects": defects })));
    } else {
        for Defect { file, line, message, remedy } in &defects {
            let line = line.map_or_else(String::new, |line| format!(":{line}"));
            print(&format!("{}{line}: {message}\n    remedy: {remedy}\n", file.display()));
        }
        if defects.is_empty() {
            let name = name.unwrap_or_default();
            print(&format!("{name}: the signature, the code and {examples} examples are correct\n"));
        }
    }
    Ok(if defects.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Loads a package and runs its examples. Returns the defects.
fn run(arguments: &Check, package: Package) -> Result<Vec<Defect>, Failure> {
    let work = tempfile::tempdir().map_err(Failure::failed)?;
    let store = arguments.store.clone().unwrap_or_else(|| work.path().join("store"));
    let store = Store::open(&store)?;
    let private = store.objects.local_path().into_iter().chain([work.path()]).map(Path::to_owned);
    let limits = arguments.isolation.limits(private.collect(), Preference::Possible)?;
    let host =
        Host::new(store, work.path(), Program::Interpreters(arguments.interpreters.clone()), limits, 1);
    host.map_err(Failure::failed)?.install().map_err(|_| Failure::failed("a host is installed"))?;
    let Some(host) = Host::current() else { return Err(Failure::failed("no host is installed")) };
    let installed = host.packages.add(package);
    let package = &installed.package;
    let is_program = package.description.program().is_some();
    let loaded = match host.runtime(package, &Tenant::default()) {
        Ok(mut runtime) => load(&mut runtime).map(|()| runtime),
        Err(error) if is_program => Err(CallError::new(ErrorKind::Crash, error.to_string())),
        Err(error) => return Err(Failure::usage(error)),
    };
    match loaded {
        Ok(runtime) => host.keep(&installed, runtime),
        Err(error) => {
            let remedy = if is_program {
                "build the program for this machine, and correct `entry`: its file, and a routine in its table"
            } else {
                "correct the code, or `entry`; --python, --node, --java, --rscript and --octave select interpreters with the imported packages"
            };
            return Ok(vec![Defect::of_call(package, 1, "the routine cannot be loaded", error, remedy)]);
        }
    }
    let path = package.folder.join(DESCRIPTION);
    let (_, text) = Description::read(&package.folder).map_err(|error| Failure::failed(error.to_string()))?;
    let mut defects = Vec::new();
    for example in &package.description.example {
        let line = line_of(&text, example.span().start);
        if let Err(mut defect) = run_example(host, &installed, example.get_ref(), line) {
            if defect.file.as_os_str().is_empty() {
                (defect.file, defect.line) = (path.clone(), Some(line));
            }
            defects.push(defect);
        }
    }
    if defects.is_empty() && package.description.reducer {
        let at = text.find("\nreducer").map_or(0, |at| at + 1);
        defects.extend(
            laws::check(host, &installed)
                .map_err(|(message, remedy)| Defect {
                    file: path,
                    line: Some(line_of(&text, at)),
                    message,
                    remedy,
                })
                .err(),
        );
    }
    Ok(defects)
}

fn load(runtime: &mut Runtime) -> Result<(), CallError> {
    loop {
        for event in runtime.poll(LOOK) {
            match event {
                Event::Step(Step::Loaded) => return Ok(()),
                Event::Step(Step::NotLoaded(error)) => return Err(error),
                Event::Step(_) => {}
                Event::Broken(reason) => return Err(CallError::new(ErrorKind::Crash, reason)),
                Event::Memory(reason) => return Err(CallError::new(ErrorKind::Memory, reason)),
            }
        }
        if let Some(reason) = runtime.late_load() {
            return Err(CallError::new(ErrorKind::Timeout, reason));
        }
    }
}

fn run_example(
    host: &Host,
    installed: &Arc<Installed>,
    example: &Example,
    line: usize,
) -> Result<(), Defect> {
    let package = &installed.package;
    let json = example.argument.to_string();
    let parameters = package.description.parameters.as_ref();
    let valid = check_value(&json).map_err(|error| error.to_string());
    valid.and_then(|()| parameters.map_or(Ok(()), |parameters| parameters.check(&json))).map_err(
        |reason| Defect::here(format!("the argument, {reason}"), "correct the example, or the parameters"),
    )?;
    let json = host.store.refer(json, &mut HashMap::new()).map_err(|error| {
        Defect::here(error.to_string(), "upload it with routines put, or correct the example")
    })?;
    let argument = RawValue::from_string(json)
        .map_err(|error| Defect::here(error.to_string(), "correct the example"))?;
    let outcome = match package.description.kind {
        EntryKind::Function => {
            let deadline = Instant::now() + EXAMPLE_MAX;
            let call =
                CallHere::new(host, Arc::clone(installed), argument, 0, Some(EXAMPLE_MAX), Tenant::default());
            call.run(&|| Instant::now() >= deadline)
        }
        EntryKind::Search => {
            match host.runtime(package, &Tenant::default()).map_err(|error| error.to_string()) {
                Ok(mut runtime) => search_alone(&mut runtime, &argument, EXAMPLE_MAX),
                Err(reason) => Outcome::Error(CallError::new(ErrorKind::Crash, reason)),
            }
        }
    };
    match outcome {
        Outcome::Error(error) => {
            let remedy = "correct the code, or the example";
            Err(Defect::of_call(package, line, "the example has failed", error, remedy))
        }
        Outcome::Value(found) => {
            let found: Value = serde_json::from_str(found.get()).unwrap_or_default();
            match &example.result {
                Some(expected) if !is_close(expected, &found, 0.0) => Err(Defect::here(
                    format!("the result of the example is {found}, not {expected}"),
                    "correct the code, or the expected result",
                )),
                _ => Ok(()),
            }
        }
    }
}

impl Defect {
    /// Returns a defect at the example.
    fn here(message: String, remedy: &'static str) -> Self {
        Self { file: PathBuf::new(), line: None, message, remedy }
    }

    fn of_package(error: PackageError) -> Self {
        let message = error.to_string();
        let (file, line) = match error {
            PackageError::Description { path, error } => {
                let text = fs::read_to_string(&path).unwrap_or_default();
                let line = error.span().map(|span| line_of(&text, span.start));
                return Self {
                    file: path,
                    line,
                    message: error.message().to_owned(),
                    remedy: "correct this entry",
                };
            }
            PackageError::Io { path, .. }
            | PackageError::Invalid { path, .. }
            | PackageError::Changed { path, .. } => (path, None),
        };
        Self { file, line, message, remedy: "docs/routines.md describes packages" }
    }

    /// Returns a defect at the last place of the package in a trace; without one, at a line of the description.
    fn of_call(package: &Package, line: usize, event: &str, error: CallError, remedy: &'static str) -> Self {
        let CallError { message, trace, .. } = error;
        let of_file = |(file, rest): (&str, &str)| {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            let mut own = package.files.iter().map(|own| package.folder.join(own));
            Some((own.find(|own| own.ends_with(file))?, digits.parse().ok()?))
        };
        // As in Python, or a word as in the other languages.
        let place = |text: &str| match text.trim_start().strip_prefix("File \"") {
            Some(rest) => rest.split_once("\", line ").and_then(of_file),
            None => text
                .split(['(', ' '])
                .find_map(|word| of_file(word.trim_start_matches("file://").split_once(':')?)),
        };
        let mut places = trace.lines().filter_map(place);
        // Python prints the innermost place at last.
        let place = if trace.contains(" at ") { places.next() } else { places.next_back() };
        let (file, line) = place.unwrap_or_else(|| (package.folder.join(DESCRIPTION), line));
        Self { file, line: Some(line), message: format!("{event}: {message}"), remedy }
    }
}

fn line_of(text: &str, place: usize) -> usize {
    text.bytes().take(place).filter(|&byte| byte == b'\n').count() + 1
}

/// Compares results. Numbers may differ by rounding; `largest` is the largest input of the results, or 0.
fn is_close(expected: &Value, found: &Value, largest: f64) -> bool {
    match (expected, found) {
        (Value::Number(one), Value::Number(other)) => {
            let (one, other) = (one.as_f64().unwrap_or(f64::NAN), other.as_f64().unwrap_or(f64::NAN));
            (one - other).abs() <= TOLERANCE * one.abs().max(other.abs()).max(largest)
        }
        (Value::Array(ones), Value::Array(others)) => {
            let is_same = |(one, other)| is_close(one, other, largest);
            ones.len() == others.len() && ones.iter().zip(others).all(is_same)
        }
        (Value::Object(ones), Value::Object(others)) => {
            let is_same = |(key, one)| others.get(key).is_some_and(|other| is_close(one, other, largest));
            ones.len() == others.len() && ones.iter().all(is_same)
        }
        (one, other) => one == other,
    }
}
