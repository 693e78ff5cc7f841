//! `cargo xtask cluster`: a whole cluster on this machine, for experiments.

use std::{
    env,
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;
use zk_server::{Servers, Setup};

use crate::{
    install,
    step::{self, Step},
    workspace,
};

/// The options of the cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The number of nodes.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: u16,
    /// The number of workers per node.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// The number of ZooKeeper servers: 1, or 3 and more for an ensemble.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=7))]
    zk_servers: u16,
    /// The program that the nodes run: a binary of this workspace.
    #[arg(long, default_value = "tsp")]
    program: String,
}

/// Maximum time for the nodes to leave at the end.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(20);
/// The interval at which the nodes are checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Starts ZooKeeper and nodes, and ends them at Ctrl-C.
///
/// # Errors
/// If something cannot be built, installed or started, or a node has ended by itself.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    install::debian_packages(zk_server::PACKAGES)?;
    let program = &arguments.program;
    let build =
        format!("build --release --workspace --exclude taskwork-simulation --bin taskwork --bin {program}");
    step::run_chain(&[Step::cargo("build", &build)])?;
    let (interrupt, interrupted) = mpsc::channel();
    ctrlc::set_handler(move || {
        // This fails after the first Ctrl-C, when the cluster is already ending.
        let _ = interrupt.send(());
    })
    .context("Ctrl-C cannot be listened for")?;

    let setup = Setup { servers: usize::from(arguments.zk_servers), own_group: true, ..Setup::standalone() };
    let servers = Servers::start(&setup)?;
    let folder = TempDir::with_prefix("taskwork-cluster-").context("no folder for the nodes' logs")?;
    let mut nodes = Nodes(Vec::new());
    for number in 1..=arguments.nodes {
        nodes.0.push(start_node(arguments, &servers.hosts(), folder.path(), number)?);
    }
    print_help(arguments, &servers, folder.path());
    while interrupted.recv_timeout(LOOK_EVERY).is_err() {
        nodes.check(folder.path())?;
    }
    println!("\nending the nodes and ZooKeeper");
    nodes.leave();
    Ok(())
}

/// Returns the folder with the built programs.
fn programs() -> Result<PathBuf> {
    let this = env::current_exe().context("where this program lies is not known")?;
    let target = this.parent().and_then(Path::parent).context("this program lies in no build folder")?;
    Ok(target.join("release"))
}

fn start_node(arguments: &Arguments, hosts: &str, folder: &Path, number: u16) -> Result<Child> {
    let program = programs()?.join(&arguments.program);
    let log = File::create(log_of(folder, usize::from(number))).context("no log of a node")?;
    Command::new(&program)
        .args(["node", "--zk", hosts, "--workers", &arguments.workers.to_string()])
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("no log of a node")?)
        .stderr(log)
        // Only this command receives Ctrl-C; it then lets the nodes leave.
        .process_group(0)
        .spawn()
        .with_context(|| format!("{} cannot be started", program.display()))
}

fn log_of(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("node-{number}.log"))
}

fn print_help(arguments: &Arguments, servers: &Servers, folder: &Path) {
    let shown = programs().unwrap_or_default();
    let shown = shown.strip_prefix(workspace::root()).unwrap_or(&shown).to_owned();
    let (program, taskwork) = (shown.join(&arguments.program), shown.join("taskwork"));
    let hosts = servers.hosts();
    println!("\nZooKeeper  {hosts}");
    println!("nodes      {} of {}, {} workers each", arguments.nodes, arguments.program, arguments.workers);
    println!("logs       {}/node-*.log\n", folder.display());
    println!("In another terminal:\n  export TASKWORK_ZK={hosts}");
    if arguments.program == "tsp" {
        println!("  {} submit tsp-example/instances/europe.csv --wait", program.display());
    } else {
        println!("  {} submit … --wait", program.display());
    }
    for command in ["status", "nodes", "jobs", "job 0"] {
        println!("  {} {command}", taskwork.display());
    }
    println!("\nCtrl-C ends all of it.");
}

/// The nodes. They are killed when this is dropped.
struct Nodes(Vec<Child>);

impl Nodes {
    /// Fails if a node has exited with an error. A node that was asked to leave may exit.
    fn check(&mut self, folder: &Path) -> Result<()> {
        for (index, node) in self.0.iter_mut().enumerate() {
            let status = node.try_wait().context("a node cannot be asked for")?;
            if let Some(status) = status.filter(|status| !status.success()) {
                let log = fs::read_to_string(log_of(folder, index + 1)).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let end = lines[lines.len().saturating_sub(10)..].join("\n");
                bail!("node {} has ended with {status}:\n{end}", index + 1);
            }
        }
        Ok(())
    }

    /// Tells the nodes to leave, and waits for them up to a limit.
    fn leave(&mut self) {
        for node in &self.0 {
            // A node that has already left needs no signal.
            let _ =
                Command::new("kill").args(["-TERM", &node.id().to_string()]).stderr(Stdio::null()).status();
        }
        let deadline = Instant::now() + LEAVE_TIMEOUT;
        while Instant::now() < deadline
            && self.0.iter_mut().any(|node| node.try_wait().is_ok_and(|status| status.is_none()))
        {
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.0 {
            // The node may have ended; an error cannot be reported here.
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}
