//! The command line.

mod access;
mod cancel;
mod develop;
mod download;
mod failures;
mod find;
mod here;
mod serve;
mod token;
mod usage;

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use rustix::process::geteuid;
use serde_json::{json, value::RawValue};
use taskwork::{JobId, node::Kinds};
use taskwork_cli::{
    Failure,
    command::{
        Completions, Level, NodeArguments, ended, job_id, not_parsed, print, run_node, tell, with_notes,
    },
    note,
};

use self::{
    access::{Access, Ran},
    cancel::{Cancel, Remove, cancel, remove},
    develop::{Check, Init},
    download::{Download, download},
    find::{Find, find},
    here::{Runtimes, id_of, processors, remove_host},
    serve::{Gateway, serve},
    token::{Token, add_token},
    usage::{Usage, usage},
};
use crate::{
    NAME, VERSION,
    batch::{self, Batch},
    conform::{Conform, conform},
    gateway::BODY_BYTES_MAX,
    groups::Selector,
    isolation::{Enclose, Preference},
    mesh::{self, Direct},
    order::Work,
    package::Package,
    reduction::{Reduce, Reduction},
    resource::Resource,
    search::{self, Foreign},
    service::Service,
    space::{self, Space},
    store::{Outcome, Store, StoreError},
    template::{RUN_TEMPLATE, run_template},
    wire::check_value,
};

/// The size of the parts in which a file is read, in bytes.
const PART_BYTES: usize = 1 << 20;

/// A library of functions in any language, called over REST and run on a cluster.
#[derive(Debug, Parser)]
#[command(name = NAME, version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create the folder of a routine, with an example.
    Init(Init),
    /// Check the folder of a routine: its description, its schemas, its code, and the results of its examples.
    Check(Check),
    /// Copy a package into the store, and print its name and digest.
    Deploy(Deploy),
    /// Upload a file as a resource, whose path calls get by {"$resource": "NAME"} in their arguments.
    Put(Put),
    /// List the routines of the store, or those with words in their names, texts and tags.
    Find(Find),
    /// Run a node of a cluster: it makes calls until it is asked to leave (SIGTERM, `taskwork drain`).
    Node(Box<NodeOptions>),
    /// Serve the REST interface; without --zk, the calls run on this machine.
    Gateway(Gateway),
    /// Make a token for a tenant of a gateway: print it, and add its hash to the file of --tokens.
    Token(Token),
    /// Call a routine once, as a job, and print its result as JSON.
    Call(Call),
    /// Call a routine with many arguments, and print a line of JSON for each result, sorted by index.
    Map(Map),
    /// Repeat the failed calls of a job as another job, and print their results with their indices, as map does.
    Rerun(Rerun),
    /// Search a tree, and print its result as JSON.
    Search(Search),
    /// Cancel single calls of a running job: the others continue.
    Cancel(Cancel),
    /// Remove the data of a job that is over, and print a report as one line of JSON.
    Remove(Remove),
    /// Print all results of a job that is over, sorted by index.
    Download(Download),
    /// Print the consumption of calls, by tenant and routine.
    Usage(Usage),
    /// Test a program that claims to be a runtime of routines.
    Conform(Conform),
    /// Limit this process, and become a program.
    #[command(hide = true)]
    Enclose(Enclose),
    /// Run the command lines of a package for a node.
    #[command(hide = true, name = RUN_TEMPLATE)]
    RunTemplate,
    /// Print the completion script for a shell: bash, elvish, fish, powershell or zsh.
    Completions(Completions),
    /// Write the man pages of this command and its subcommands.
    #[cfg(feature = "man")]
    Man(taskwork_cli::command::Man),
}

#[derive(Debug, Clone, Args)]
#[group(skip)]
struct StoreArguments {
    /// The place of packages and results, which all nodes and gateways share: a folder, as a path or `file:///PATH`, or a
    /// bucket, `s3://BUCKET/PREFIX`.
    #[arg(long, value_name = "STORE", env = "ROUTINES_STORE")]
    store: PathBuf,
}

#[derive(Debug, Args)]
struct Deploy {
    /// The folder with routine.toml.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    #[command(flatten)]
    store: StoreArguments,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Put {
    /// An existing resource with this name is replaced for new jobs.
    #[arg(value_name = "NAME")]
    name: String,
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    store: StoreArguments,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct NodeOptions {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    runtimes: Runtimes,
    #[command(flatten)]
    options: NodeArguments,
}

#[derive(Debug, Args)]
struct Call {
    /// NAME@VERSION, NAME for its latest version, or a digest.
    #[arg(value_name = "ROUTINE")]
    routine: String,
    /// The argument in JSON: a list has positional arguments, an object named ones.
    #[arg(value_name = "JSON", default_value = "[]", allow_hyphen_values = true)]
    argument: String,
    /// Print one JSON object with the job and the outcome.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

#[derive(Debug, Args)]
struct Map {
    /// NAME@VERSION, NAME for its latest version, or a digest.
    #[arg(value_name = "ROUTINE")]
    routine: String,
    /// Call it with each integer from FROM to TO, excluding TO.
    #[arg(long, value_name = "FROM..TO", value_parser = integers, allow_hyphen_values = true)]
    range: Option<(i64, i64)>,
    /// Call it with each point of a space in this JSON file: a list, or an object with range, list, product, zip or file.
    /// - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "range", required_unless_present = "range")]
    arguments: Option<PathBuf>,
    /// Print only these numbers of the results, which are numbers then, as one line of JSON: sum, mean, min, max, argmin,
    /// argmax, count, topk=K, bottomk=K and histogram=FROM:TO:BINS; routine=NAME is the value that a reducer makes of all
    /// results; several are separated by commas.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    reduce: Vec<Reduction>,
    /// Print these numbers for each group of calls with the same values of an argument, a name or a position such as 0, as
    /// one line of JSON; several are separated by commas.
    #[arg(long, value_name = "ARGUMENT", value_delimiter = ',', requires = "reduce")]
    by: Vec<Selector>,
    /// Print one JSON object with the job and all outcomes.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

#[derive(Debug, Args)]
struct Rerun {
    /// The job, such as j-0000000003. Its calls are repeated once: a second command prints the same results.
    #[arg(value_name = "JOB", value_parser = job_id)]
    job: JobId,
    /// Print one JSON object with the new job and its outcomes.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

#[derive(Debug, Args)]
struct Search {
    /// NAME@VERSION, NAME for its latest version, or a digest.
    #[arg(value_name = "ROUTINE")]
    routine: String,
    /// The argument in JSON: a list has positional arguments, an object named ones.
    #[arg(value_name = "JSON", default_value = "[]", allow_hyphen_values = true)]
    argument: String,
    /// Print one JSON object with the job and its result.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

fn integers(text: &str) -> Result<(i64, i64), String> {
    let parsed = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    parsed.ok_or_else(|| "expected a range such as 0..1000".to_owned())
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

/// Runs a command line; the first argument is the name of the program.
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let CommandLine { command } = match with_notes(CommandLine::command())
        .try_get_matches_from(arguments)
        .and_then(|matches| CommandLine::from_arg_matches(&matches))
    {
        Ok(line) => line,
        Err(error) => return not_parsed(&error, NAME, VERSION),
    };
    ended(match command {
        Command::Init(arguments) => develop::init(&arguments),
        Command::Check(arguments) => develop::check(&arguments),
        Command::Deploy(arguments) => deploy(&arguments),
        Command::Put(arguments) => put(&arguments),
        Command::Find(arguments) => find(&arguments),
        Command::Node(arguments) => node(*arguments),
        Command::Gateway(arguments) => serve(&arguments),
        Command::Token(arguments) => add_token(&arguments),
        Command::Call(arguments) => call(&arguments),
        Command::Map(arguments) => map(&arguments),
        Command::Rerun(arguments) => rerun(&arguments),
        Command::Search(arguments) => search(&arguments),
        Command::Cancel(arguments) => cancel(&arguments),
        Command::Remove(arguments) => remove(&arguments),
        Command::Download(arguments) => download(&arguments),
        Command::Usage(arguments) => usage(&arguments),
        Command::Conform(arguments) => conform(&arguments),
        Command::Enclose(enclose) => enclose.run(),
        Command::RunTemplate => run_template(),
        Command::Completions(completions) => Ok(completions.run(CommandLine::command())),
        #[cfg(feature = "man")]
        Command::Man(man) => man.run(CommandLine::command()),
    })
}

impl StoreArguments {
    fn open(&self) -> Result<Store, Failure> {
        Ok(Store::open(&self.store)?)
    }
}

fn deploy(arguments: &Deploy) -> Result<ExitCode, Failure> {
    let package = Package::read(&arguments.folder).map_err(StoreError::from)?;
    arguments.store.open()?.deploy(&package)?;
    let (name, digest) = (package.name(), &package.digest);
    print(&if arguments.json {
        format!("{}\n", json!({ "routine": name, "digest": digest }))
    } else {
        format!("{name} {digest}\n")
    });
    Ok(ExitCode::SUCCESS)
}

fn put(arguments: &Put) -> Result<ExitCode, Failure> {
    let refused = |error: io::Error| Failure::usage(format!("{}: {error}", arguments.file.display()));
    let mut file = File::open(&arguments.file).map_err(refused)?;
    let mut draft = arguments.store.open()?.put_resource(&arguments.name)?;
    let mut part = vec![0; PART_BYTES];
    loop {
        match file.read(&mut part).map_err(refused)? {
            0 => break,
            bytes => draft.write(&part[..bytes])?,
        }
    }
    let Resource { name, digest, bytes, .. } = draft.finish()?;
    print(&if arguments.json {
        format!("{}\n", json!({ "name": name, "digest": digest, "bytes": bytes }))
    } else {
        format!("{name} {digest}\n")
    });
    Ok(ExitCode::SUCCESS)
}

fn node(arguments: NodeOptions) -> Result<ExitCode, Failure> {
    let store = arguments.store.open()?;
    let (label, direct) = (id_of(store.label())?, id_of(store.direct_label())?);
    let workers = arguments.options.workers().unwrap_or_else(processors);
    arguments.runtimes.install(store, None, workers, Preference::Required)?;
    if geteuid().is_root() {
        note("routines on this node run as root: start it as a user that owns nothing else");
    }
    let ran = run_node(&arguments.options.label(label).label(direct), kinds(), NAME, VERSION);
    remove_host();
    ran
}

fn kinds() -> Kinds {
    let mut kinds = Kinds::default();
    kinds.add::<Batch>(batch::KIND).add::<Foreign>(search::KIND).add::<Direct>(mesh::KIND);
    kinds
}

/// Parses the argument of a call or a search.
fn parse(argument: &str) -> Result<Box<RawValue>, Failure> {
    let refused = |error: String| Failure::usage(format!("the argument is not JSON: {error}"));
    let argument: Box<RawValue> =
        serde_json::from_str(argument).map_err(|error| refused(error.to_string()))?;
    check_value(argument.get()).map_err(|error| refused(error.to_string()))?;
    Ok(argument)
}

fn search(arguments: &Search) -> Result<ExitCode, Failure> {
    let work = Work::Search(parse(&arguments.argument)?.get().to_owned());
    let (ran, result) = arguments.access.run(Level::Warn, async |service, _| {
        let ran = arguments.access.succeed(&service, &arguments.routine, work).await?;
        let result = service.search_result(&ran.job).await?;
        Ok((ran, result.ok_or_else(|| Failure::failed("the job is not a search"))?))
    })?;
    print(&if arguments.json {
        format!("{},\"result\":{result}}}\n", ran.head())
    } else {
        format!("{result}\n")
    });
    Ok(ExitCode::SUCCESS)
}

fn call(arguments: &Call) -> Result<ExitCode, Failure> {
    let argument = parse(&arguments.argument)?;
    let space = Space::List(vec![argument.get().to_owned()]);
    let mut outcome = String::new();
    let work = Work::Calls { space, reduce: Reduce::default() };
    let succeed = async |service: &Service| arguments.access.succeed(service, &arguments.routine, work).await;
    let ran = arguments.access.outcomes(succeed, |_, json| {
        json.clone_into(&mut outcome);
        Ok(())
    })?;
    let parsed = serde_json::from_str::<Outcome>(&unindexed(&outcome)).map_err(Failure::failed)?;
    if arguments.json {
        print(&format!("{},{}\n", ran.head(), outcome.trim_start_matches('{')));
    }
    Ok(match parsed {
        Outcome::Value(value) => {
            if !arguments.json {
                print(&format!("{value}\n"));
            }
            ExitCode::SUCCESS
        }
        Outcome::Error(error) => {
            if !arguments.json {
                tell(format_args!("{}", error.trace.trim_end()));
                tell(format_args!("error: the call has failed: {}", error.message));
            }
            ExitCode::FAILURE
        }
    })
}

/// Removes the index of an outcome.
fn unindexed(outcome: &str) -> String {
    let rest = outcome.split_once(',').map_or("", |(_, rest)| rest);
    format!("{{{rest}")
}

fn map(arguments: &Map) -> Result<ExitCode, Failure> {
    let space = match (arguments.range, &arguments.arguments) {
        (Some((from, to)), _) => space::range(from, to),
        (None, Some(file)) => space::parse(&read(file)?),
        (None, None) => Err("give --range or --arguments".to_owned()),
    };
    let reduce = Reduce::new(arguments.reduce.clone(), arguments.by.clone()).map_err(Failure::usage)?;
    let work = Work::Calls { space: space.map_err(Failure::usage)?, reduce };
    let access = &arguments.access;
    print_outcomes(access, arguments.json, async |service: &Service| {
        access.succeed(service, &arguments.routine, work).await
    })
}

fn rerun(Rerun { job, json, access }: &Rerun) -> Result<ExitCode, Failure> {
    print_outcomes(access, *json, async |service: &Service| {
        let submitted = service.rerun(job).await?;
        access.ended(service, submitted, false).await
    })
}

/// Prints the outcomes of the job that `succeed` submits, or its reduced numbers.
fn print_outcomes(
    access: &Access,
    is_json: bool,
    succeed: impl AsyncFnOnce(&Service) -> Result<Ran, Failure>,
) -> Result<ExitCode, Failure> {
    let mut is_first = true;
    let ran = access.outcomes(succeed, |ran, json| {
        if !is_json {
            print(&format!("{json}\n"));
        } else if std::mem::take(&mut is_first) {
            print(&format!("{},\"results\":[{json}", ran.head()));
        } else {
            print(&format!(",{json}"));
        }
        Ok(())
    })?;
    match (&ran.reduced, &ran.groups, is_json) {
        (Some(reduced), _, false) => print(&format!("{reduced}\n")),
        (Some(reduced), _, true) => print(&format!("{},\"reduced\":{reduced}}}\n", ran.head())),
        (None, Some(groups), false) => groups.iter().for_each(|group| print(&format!("{group}\n"))),
        (None, Some(groups), true) => print(&format!("{},\"groups\":{}}}\n", ran.head(), json!(groups))),
        (None, None, true) if is_first => print(&format!("{},\"results\":[]}}\n", ran.head())),
        (None, None, true) => print("]}\n"),
        (None, None, false) => {}
    }
    ran.reason.iter().for_each(|reason| tell(format_args!("error: job {}: {reason}", ran.job)));
    if ran.failed > 0 {
        let (failed, job) = (ran.failed, &ran.job);
        // A job in the memory of this process ends with it.
        let remedy =
            if access.keeps_jobs() { format!(": routines rerun {job} repeats them") } else { String::new() };
        tell(format_args!("error: {failed} calls of job {job} have failed{remedy}"));
    }
    Ok(if ran.failed > 0 || ran.reason.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Reads a file with a list of arguments.
fn read(file: &Path) -> Result<Box<RawValue>, Failure> {
    let refused = |error: String| Failure::usage(format!("--arguments {}: {error}", file.display()));
    let read = |source: &mut dyn Read| {
        let mut bytes = Vec::new();
        source.take(BODY_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = if file == Path::new("-") {
        read(&mut io::stdin())
    } else {
        File::open(file).and_then(|mut file| read(&mut file))
    };
    let bytes = bytes.map_err(|error| refused(error.to_string()))?;
    if bytes.len() > BODY_BYTES_MAX {
        return Err(refused(format!("it has more than {BODY_BYTES_MAX} bytes")));
    }
    serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_without_effect_are_refused() {
        for line in [
            &["call", "pi", "--store", "s", "--workers", "0"][..],
            &["gateway", "--store", "s", "--node-listen", "127.0.0.1:1"],
            &["gateway", "--store", "s", "--node-advertise", "127.0.0.1:1"],
        ] {
            let line = || [NAME].iter().chain(line);
            assert!(CommandLine::try_parse_from(line()).is_err(), "{:?}", line().collect::<Vec<_>>());
        }
        let line = [NAME, "gateway", "--store", "s", "--zk", "127.0.0.1:1", "--node-listen", "127.0.0.1:2"];
        assert!(CommandLine::try_parse_from(line).is_ok());
        assert!(CommandLine::try_parse_from([NAME, "gateway", "--store", "s", "--workers", "1"]).is_ok());
    }
}
