//! Routines: calls, jobs and searches of Python functions over REST, and the same calls in other systems.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use taskwork_tests::cluster::{Cluster, Running, SOON};
use zk_server::Setup;

use crate::{
    measure::Sample,
    row::{Row, Target},
};

/// The other systems, and their packages.
const PEERS: &[(&str, &str)] = &[("dask", "dask[distributed]"), ("parsl", "parsl"), ("ray", "ray")];

/// The maximum time for the measurement of another system.
const PEER_SECONDS_MAX: &str = "900";

/// The entries of the measured package, with the kinds of its routines.
const ENTRIES: &[(&str, &str)] =
    &[("empty", "function"), ("nested", "function"), ("pi", "function"), ("polls", "search")];

/// The measured values of a figure, by name.
pub(crate) type Figures = BTreeMap<String, Vec<f64>>;

/// Runs the benchmark, with `peers` also in other systems, which are installed from `PyPI`.
///
/// # Errors
/// If a program gives a wrong answer, or none.
pub fn run(rounds: usize, peers: bool) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir().context("no folder for the package")?;
    let package = package(folder.path())?;
    let script = folder.path().join("measure.py");
    fs::write(&script, include_str!("measure.py"))?;
    let mut rows = ours(rounds, &script, &package)?;
    if peers {
        for (name, package) in PEERS {
            match python_with(name, package).and_then(|python| {
                let mut measure = Command::new("timeout");
                figures(
                    measure
                        .arg(PEER_SECONDS_MAX)
                        .arg(python)
                        .arg(&script)
                        .args([name, &*rounds.to_string()])
                        .current_dir(folder.path()),
                )
            }) {
                Ok(figures) => rows.extend(calls(name, &figures)?),
                Err(error) => eprintln!("{name} is not measured: {error:#}"),
            }
        }
    }
    Ok(rows)
}

/// Writes the package, with the function in C.
fn package(within: &Path) -> Result<PathBuf> {
    let folder = within.join("package");
    fs::create_dir(&folder)?;
    fs::write(folder.join("package.py"), include_str!("package.py"))?;
    fs::write(within.join("pi.c"), include_str!("pi.c"))?;
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-shared", "-fPIC", "-o"]).arg(folder.join("pi.so")).arg(within.join("pi.c"));
    succeed(&mut compile)?;
    Ok(folder)
}

/// A cluster of nodes with one worker each, and its gateway.
struct Site {
    cluster: Cluster,
    address: String,
    _gateway: Running,
}

impl Site {
    fn start(nodes: usize, package: &Path) -> Result<Self> {
        let mut cluster = Cluster::start(&Setup::standalone())?;
        let (store, work) = (cluster.folder().join("store"), cluster.folder().join("work"));
        cluster.environment.push(("ROUTINES_STORE".to_owned(), store.display().to_string()));
        for (name, kind) in ENTRIES {
            let entry = if *name == "polls" { "Polls" } else { name };
            let text = format!(
                "name = '{name}'\nversion = '1.0'\nruntime = 'python3'\nkind = '{kind}'\nentry = 'package:{entry}'\n"
            );
            fs::write(package.join("routine.toml"), text)?;
            cluster.json("routines", &["deploy", &package.to_string_lossy()])?;
        }
        let queens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../routines/examples/queens");
        cluster.json("routines", &["deploy", &queens.to_string_lossy()])?;
        cluster.start_nodes("routines", nodes, &["--workers", "1", "--work", &work.to_string_lossy()])?;
        let mut gateway = cluster.begin("routines", &["gateway", "--listen", "127.0.0.1:0"])?;
        let deadline = Instant::now() + SOON;
        let address = loop {
            if let Some((_, rest)) = gateway.output().split_once("http://") {
                break rest.split('/').next().unwrap_or_default().to_owned();
            }
            let is_late = gateway.has_ended()? || Instant::now() > deadline;
            ensure!(!is_late, "the gateway does not serve: {}", gateway.errors());
            thread::sleep(Duration::from_millis(20));
        };
        Ok(Self { cluster, address, _gateway: gateway })
    }

    fn processes(&self) -> String {
        self.cluster.nodes.iter().map(|node| node.id().to_string()).collect::<Vec<_>>().join(",")
    }
}

fn ours(rounds: usize, script: &Path, package: &Path) -> Result<Vec<Row>> {
    let (one, two) = (Site::start(1, package)?, Site::start(2, package)?);
    let mut measure = Command::new("python3");
    measure
        .arg(script)
        .args(["routines", &rounds.to_string()])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../routines/clients/python"))
        .arg(package)
        .args([&one.address, &one.processes(), &two.address, &two.processes()]);
    let figures = figures(&mut measure).with_context(|| one.cluster.logs() + &two.cluster.logs())?;
    let mut rows = Vec::new();
    let mut add = |name: &str, what: &str, unit, target| {
        sample(&figures, name)
            .map(|sample| rows.push(Row::new(format!("routines: {what}"), unit, target, sample)))
    };
    let pi = "π, 10⁹ steps in C, 100 calls, 1 worker";
    add("pi_more_s", &format!("{pi}, job − loop"), "s", Target::AtMost(0.3))?;
    add("pi_loop_s", &format!("{pi}, loop"), "s", Target::Told)?;
    add("small_s", "100 empty calls, from submission to results, 2 processes", "s", Target::AtMost(0.3))?;
    add("warm_us", "empty call of a routine by another one on its node", "µs", Target::AtMost(100.0))?;
    add("rest_ms", "REST call, 2 processes", "ms", Target::AtMost(3.0))?;
    add("slow_rest_ms", "REST call, the slowest in a hundred", "ms", Target::AtMost(20.0))?;
    add("million_rate", "10⁶ empty calls, 2 workers", "/s", Target::AtLeast(100_000.0))?;
    for (n, target) in [(12, Target::AtLeast(1.9)), (13, Target::Told)] {
        let name = format!("queens_{n}");
        add(&name, &format!("{n} queens, 2 workers ÷ 1 worker, throughput"), "", target)?;
        let what = format!("{n} queens, 2 workers ÷ 1 worker, processor time");
        add(&format!("{name}_processor"), &what, "", Target::Told)?;
        add(&format!("{name}_s"), &format!("{n} queens, 1 worker"), "s", Target::Told)?;
    }
    add("poll_share", "a poll, of a state of 1 µs", "%", Target::AtMost(5.0))?;
    rows.extend(calls("routines", &figures)?);
    Ok(rows)
}

/// Returns the figures that all systems have.
fn calls(system: &str, figures: &Figures) -> Result<[Row; 3]> {
    let row = |name, what, unit| {
        Ok::<_, anyhow::Error>(Row::new(
            format!("{system}: {what}"),
            unit,
            Target::Told,
            sample(figures, name)?,
        ))
    };
    Ok([
        row("call_ms", "empty call of a Python client", "ms")?,
        row("slow_call_ms", "empty call of a Python client, the slowest in a hundred", "ms")?,
        row("rate", "10,000 empty calls of a Python client, 2 workers", "/s")?,
    ])
}

pub(crate) fn sample(figures: &Figures, name: &str) -> Result<Sample> {
    let values = figures.get(name).filter(|values| !values.is_empty());
    Ok(Sample::of(values.with_context(|| format!("{name} was not measured"))?.iter().copied()))
}

pub(crate) fn figures(measure: &mut Command) -> Result<Figures> {
    serde_json::from_slice(&succeed(measure)?).context("the measurement printed no JSON")
}

/// Runs a command that must succeed, and returns its output.
fn succeed(command: &mut Command) -> Result<Vec<u8>> {
    let ran = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let ran = ran.with_context(|| format!("{command:?} cannot be started"))?;
    ensure!(ran.status.success(), "{command:?} has failed: {}", String::from_utf8_lossy(&ran.stderr));
    Ok(ran.stdout)
}

/// Returns an interpreter with a package from `PyPI`, in an environment next to this program.
pub(crate) fn python_with(name: &str, package: &str) -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let environment = this.with_file_name(format!("python-{name}"));
    let python = environment.join("bin/python");
    if !python.exists() {
        succeed(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    }
    succeed(Command::new(&python).args(["-m", "pip", "install", "--quiet", package]))?;
    Ok(python)
}
