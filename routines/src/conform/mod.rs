//! `conform`: drives the frame protocol against a program that claims to be a runtime, in named cases.
//!
//! The package of the cases is the module `conform`; `conform/conform.py` defines its routines. The program loads the module
//! in its language.

mod cases;
mod checkpoints;
mod peer;

use std::{ffi::OsString, fs, path::PathBuf, process::ExitCode};

use clap::Args;
use comfy_table::{Table, presets};
use serde_json::json;
use taskwork_cli::{Failure, command::print, printable};

use self::{cases::CASES, peer::Reason};
use crate::{
    host::Host,
    isolation::{IsolationOptions, Preference},
    package::Package,
    runtime::Program,
    store::Store,
};

/// The files of the package: its module in each language.
const FILES: &[(&str, &str)] = &[
    ("routine.toml", DESCRIPTION),
    ("conform.py", include_str!("../../conform/conform.py")),
    ("conform.mjs", include_str!("../../conform/conform.mjs")),
    ("conform.java", include_str!("../../conform/conform.java")),
    ("conform.R", include_str!("../../conform/conform.R")),
    ("conform.m", include_str!("../../conform/conform.m")),
];

/// The routine that nested calls call.
const DESCRIPTION: &str = "name = 'conform'\nversion = '1'\nruntime = 'python3'\nentry = 'conform:echo'\n";

#[derive(Debug, Args)]
pub(crate) struct Conform {
    /// The folder with the module conform in the language of the runtime. Default: one with modules in Python, JavaScript, Java, R and
    /// Octave
    #[arg(long, value_name = "FOLDER")]
    package: Option<PathBuf>,
    #[command(flatten)]
    isolation: IsolationOptions,
    /// Run only the cases with this text in their names.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// The program and its arguments.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<OsString>,
}

/// The runtimes of the cases.
struct Suite {
    host: &'static Host,
    folder: PathBuf,
}

pub(crate) fn conform(arguments: &Conform) -> Result<ExitCode, Failure> {
    let work = tempfile::tempdir().map_err(Failure::failed)?;
    let own = work.path().join("package");
    fs::create_dir(&own).map_err(Failure::failed)?;
    for (file, text) in FILES {
        fs::write(own.join(file), text).map_err(Failure::failed)?;
    }
    let mut package = Package::read(&own).map_err(Failure::failed)?;
    if let Some(folder) = &arguments.package {
        package.folder = std::path::absolute(folder).map_err(Failure::usage)?;
    }
    let folder = package.folder.clone();
    let store = Store::open(&work.path().join("store"))?;
    let limits = arguments.isolation.limits(Vec::new(), Preference::None)?;
    let program = Program::Command(arguments.command.clone());
    let host = Host::new(store, work.path(), program, limits, 1);
    host.map_err(Failure::failed)?.install().map_err(|_| Failure::failed("a host is installed"))?;
    let Some(host) = Host::current() else { return Err(Failure::failed("no host is installed")) };
    host.packages.add(package);
    let suite = Suite { host, folder };
    let mut outcomes = Vec::new();
    for (name, check) in CASES.iter().filter(|(name, _)| name.contains(&arguments.only)) {
        outcomes.push((*name, check.run(&suite).map_err(|Reason(reason)| reason)));
    }
    host.starter.remove();
    show(&outcomes, arguments.json);
    let is_conforming = outcomes.iter().all(|(_, outcome)| outcome.is_ok());
    Ok(if is_conforming { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(outcomes: &[(&str, Result<(), String>)], as_json: bool) {
    let failed = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).count();
    let passed = outcomes.len() - failed;
    if as_json {
        let case = |(name, outcome): &(&str, Result<(), String>)| json!({ "case": name, "passed": outcome.is_ok(), "reason": outcome.as_ref().err() });
        let cases: Vec<_> = outcomes.iter().map(case).collect();
        return print(&format!("{}\n", json!({ "passed": passed, "failed": failed, "cases": cases })));
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["CASE", "OUTCOME"]);
    for (name, outcome) in outcomes {
        let outcome =
            outcome.as_ref().map_or_else(|reason| format!("failed: {reason}"), |()| "passed".to_owned());
        table.add_row([*name, &outcome]);
    }
    print(&format!("{}\n{passed} passed, {failed} failed\n", printable::lines(&table.trim_fmt())));
}
