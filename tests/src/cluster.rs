//! A cluster of real processes for a scenario: private or shared ZooKeeper servers, nodes, and commands that
//! run to completion.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;
use zk_server::{Servers, Setup};

use crate::{gate::Gate, shared, tree::UNPROTECTED_NODE};

/// Maximum time for any step before a scenario fails.
pub const SOON: Duration = Duration::from_secs(60);
/// The interval at which conditions are checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The number of commands and gates that were started or created, so that each has its own files.
static COMMANDS: AtomicU64 = AtomicU64::new(0);

/// The panic message if a scenario with a shared server needs private ones.
const ITS_OWN: &str = "a scenario that needs the servers starts its own";

/// Servers and nodes. All of them are killed when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    /// Its private servers, if any.
    servers: Option<Servers>,
    hosts: String,
    /// The nodes, in the order of their start, including those that have exited.
    pub nodes: Vec<Node>,
    /// Environment variables of every node and command, such as the path of the credentials.
    pub environment: Vec<(String, String)>,
    folder: TempDir,
}

/// A node's process.
#[derive(Debug)]
pub struct Node {
    process: Child,
    log: PathBuf,
}

/// The output of a command.
#[derive(Debug)]
pub struct CommandOutput {
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
    /// Its exit code.
    pub code: i32,
}

/// A running command.
#[derive(Debug)]
pub struct Running {
    process: Child,
    out: PathBuf,
    err: PathBuf,
    shown: String,
}

/// Returns the path of a program of the workspace, from the same build as the running program. An absolute path stays.
///
/// # Errors
/// If the program was not built.
pub fn program(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe().context("where this program lies is not known")?;
    let beside = this.parent().context("this program lies in no folder")?;
    // Tests are in a folder below that of the programs.
    let folder = if beside.ends_with("deps") { beside.parent().unwrap_or(beside) } else { beside };
    let place = folder.join(name);
    let is_built = place.is_file();
    is_built.then_some(place).with_context(|| {
        format!(
            "{name} is not built in {}: cargo build --workspace --exclude taskwork-simulation --bins",
            folder.display()
        )
    })
}

/// Creates another build of a program in a folder, under the same name: its file with more bytes.
///
/// # Errors
/// If the program was not built, or cannot be copied.
pub fn edited(name: &str, folder: &Path, more: &str) -> Result<PathBuf> {
    let edited = folder.join(name);
    fs::create_dir_all(folder)?;
    // By another process, since a file that this one has open for writing cannot be run.
    let mut copy = Command::new("sh");
    copy.args(["-c", r#"cp "$0" "$1" && printf %s "$2" >> "$1""#]).arg(program(name)?).arg(&edited).arg(more);
    ensure!(copy.status()?.success(), "{name} cannot be copied to {}", edited.display());
    Ok(edited)
}

impl Cluster {
    /// Starts private servers, for scenarios that affect them or read their figures.
    ///
    /// # Errors
    /// See [`Servers::start`].
    pub fn start(setup: &Setup) -> Result<Self> {
        let servers = Servers::start(setup)?;
        let hosts = servers.hosts();
        Self::new(Some(servers), hosts)
    }

    /// Creates a cluster under a private chroot of the server that the scenarios of this process share.
    ///
    /// # Errors
    /// If the server does not start or answer.
    pub fn shared() -> Result<Self> {
        Self::new(None, shared::chroot()?)
    }

    fn new(servers: Option<Servers>, hosts: String) -> Result<Self> {
        let folder = tempfile::tempdir().context("no folder for the logs")?;
        let environment = vec![("TASKWORK_ZK".to_owned(), hosts.clone())];
        Ok(Self { servers, hosts, nodes: Vec::new(), environment, folder })
    }

    /// Returns the address of ZooKeeper, with the chroot if there is one.
    pub fn hosts(&self) -> &str {
        &self.hosts
    }

    /// Returns the private servers.
    ///
    /// # Panics
    /// If its server is shared.
    pub fn servers(&self) -> &Servers {
        self.servers.as_ref().expect(ITS_OWN)
    }

    /// Returns the private servers, to change them.
    ///
    /// # Panics
    /// If its server is shared.
    pub fn servers_mut(&mut self) -> &mut Servers {
        self.servers.as_mut().expect(ITS_OWN)
    }

    /// Creates a closed gate, for a job that must not end before the gate is opened.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn gate(&self) -> Result<Gate> {
        let number = COMMANDS.fetch_add(1, Relaxed);
        Gate::closed(self.folder.path().join(format!("gate-{number}"))).context("no file of a gate")
    }

    /// Returns a folder for a scenario's files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a node of a program, and returns its index in [`nodes`](Self::nodes).
    ///
    /// # Errors
    /// If the program was not built, or cannot be started.
    pub fn start_node(&mut self, name: &str, arguments: &[&str]) -> Result<usize> {
        let command = self.command(name, &[&["node"], arguments].concat())?;
        self.spawn_node(command)
    }

    /// Starts an agent, and returns its index in [`nodes`](Self::nodes). Its log contains those of the nodes that it starts.
    ///
    /// # Errors
    /// As [`start_node`](Self::start_node).
    pub fn start_agent(&mut self, arguments: &[&str]) -> Result<usize> {
        let command = self.command("taskwork", &[&["agent"], arguments].concat())?;
        self.spawn_node(command)
    }

    /// Starts a node of the program `tree` that never writes its holdings: its loss costs an attempt.
    ///
    /// # Errors
    /// As [`start_node`](Self::start_node).
    pub fn start_unprotected_node(&mut self) -> Result<usize> {
        let command = self.command("tree", &[UNPROTECTED_NODE])?;
        self.spawn_node(command)
    }

    /// Starts a node of a program on a host, which is a network namespace.
    ///
    /// # Errors
    /// As [`start_node`](Self::start_node).
    pub fn start_node_on(&mut self, host: &str, name: &str, arguments: &[&str]) -> Result<usize> {
        let node = self.command(name, &[&["node"], arguments].concat())?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", host]).arg(node.get_program()).args(node.get_args());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        self.spawn_node(command)
    }

    fn spawn_node(&mut self, mut command: Command) -> Result<usize> {
        let log = self.folder.path().join(format!("node-{}.log", self.nodes.len()));
        let file = File::create(&log).context("no log of a node")?;
        let process = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("a node cannot be started")?;
        self.nodes.push(Node { process, log });
        Ok(self.nodes.len() - 1)
    }

    /// Starts this many nodes of a program, and waits until they are ready.
    ///
    /// # Errors
    /// If they are not ready in time.
    pub fn start_nodes(&mut self, name: &str, count: usize, arguments: &[&str]) -> Result<()> {
        let first = self.nodes.len();
        for _ in 0..count {
            self.start_node(name, arguments)?;
        }
        for node in first..self.nodes.len() {
            self.wait_for_log(node, "the node is ready")?;
        }
        Ok(())
    }

    /// Kills nodes, all at the same instant.
    ///
    /// # Errors
    /// If one of them was already waited for.
    pub fn kill_nodes(&mut self, nodes: &[usize]) -> Result<()> {
        self.signal_nodes(nodes, "KILL")?;
        nodes.iter().try_for_each(|&node| self.nodes[node].wait().map(drop))
    }

    /// Sends a signal to nodes, to all at the same instant.
    ///
    /// # Errors
    /// If one of the processes no longer exists.
    pub fn signal_nodes(&self, nodes: &[usize], name: &str) -> Result<()> {
        let ids = nodes.iter().map(|&node| self.nodes[node].id().to_string());
        let status = Command::new("kill").arg(format!("-{name}")).args(ids).status()?;
        ensure!(status.success(), "nodes {nodes:?} cannot be sent {name}");
        Ok(())
    }

    /// Returns the id under which a node last joined.
    pub fn name_of(&self, node: usize) -> Option<String> {
        let log = self.log(node);
        let (_, name) = log.rsplit_once("is ready node=")?;
        Some(name.chars().take_while(|c| !c.is_whitespace()).collect())
    }

    /// Waits until a node's log contains a text.
    ///
    /// # Errors
    /// If the text does not appear in time, or the node has exited.
    pub fn wait_for_log(&mut self, node: usize, text: &str) -> Result<()> {
        let deadline = Instant::now() + SOON;
        loop {
            let log = self.log(node);
            if log.contains(text) {
                return Ok(());
            }
            let ended = self.nodes[node].process.try_wait()?;
            ensure!(ended.is_none(), "node {node} has ended with {ended:?} before {text:?}:\n{log}");
            ensure!(Instant::now() < deadline, "node {node} does not log {text:?}:\n{log}");
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until a node has recorded that it is unprotected. Before that, its tasks may be on their way to it, and others
    /// would continue them after its loss, in the same attempt.
    ///
    /// # Errors
    /// If that does not happen in time.
    pub fn wait_until_unprotected(&self) -> Result<()> {
        let deadline = Instant::now() + SOON;
        loop {
            let nodes = self.json("taskwork", &["nodes"])?;
            if nodes.as_array().is_some_and(|nodes| nodes.iter().any(|node| !node["unprotected"].is_null())) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "no node is unprotected: {nodes}\n{}", self.logs());
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Returns the log of a node.
    pub fn log(&self, node: usize) -> String {
        fs::read_to_string(&self.nodes[node].log).unwrap_or_default()
    }

    /// Returns the logs of all nodes, to be printed when a scenario fails.
    pub fn logs(&self) -> String {
        let mut logs = String::new();
        for node in 0..self.nodes.len() {
            logs.extend(["--- node ", &node.to_string(), "\n", &self.log(node)]);
        }
        logs
    }

    /// Starts a command of a program.
    ///
    /// # Errors
    /// If the program was not built, or cannot be started.
    pub fn begin(&self, name: &str, arguments: &[&str]) -> Result<Running> {
        Running::begin(self.command(name, arguments)?, self.folder.path())
    }

    /// Runs a command of a program to completion.
    ///
    /// # Errors
    /// If it does not exit in time.
    pub fn run(&self, name: &str, arguments: &[&str]) -> Result<CommandOutput> {
        self.begin(name, arguments)?.end()
    }

    /// Runs a command that prints JSON and must succeed.
    ///
    /// # Errors
    /// If it does not exit in time, fails, or prints anything else.
    pub fn json(&self, name: &str, arguments: &[&str]) -> Result<serde_json::Value> {
        let said = self.run(name, &[arguments, &["--json"]].concat())?;
        ensure!(said.code == 0, "{name} {arguments:?} has ended with {}: {}", said.code, said.err);
        serde_json::from_str(&said.out)
            .with_context(|| format!("{name} {arguments:?} printed {:?}", said.out))
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Result<Command> {
        // Where the tests run under nohup, programs would ignore SIGHUP.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=HUP")
            .arg(program(name)?)
            .args(arguments.iter().map(OsStr::new))
            .envs(self.environment.iter().map(|(k, v)| (k, v)));
        Ok(command)
    }
}

impl Node {
    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal, such as `TERM`, `KILL`, `STOP`, `CONT`.
    ///
    /// # Errors
    /// If the process no longer exists.
    pub fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status()?;
        ensure!(status.success(), "process {} cannot be sent {name}", self.id());
        Ok(())
    }

    /// Returns whether the process has exited.
    ///
    /// # Errors
    /// If the operating system reports an error.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }

    /// Waits until the process has exited.
    ///
    /// # Errors
    /// If it does not exit in time.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        wait(&mut self.process, "a node", SOON)
    }

    /// Returns its resident memory, in KiB.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn memory_kib(&self) -> Result<u64> {
        self.status("VmRSS:")
    }

    /// Returns the number of its threads.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn threads(&self) -> Result<u64> {
        self.status("Threads:")
    }

    /// Returns a number from the operating system's status of the process.
    fn status(&self, name: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let value = line.with_context(|| format!("no {name}"))?;
        Ok(value.trim().trim_end_matches(" kB").trim().parse()?)
    }
}

impl Running {
    /// Starts a command, whose output goes to files in a folder.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn begin(mut command: Command, folder: &Path) -> Result<Self> {
        let number = COMMANDS.fetch_add(1, Relaxed);
        let file = |end: &str| folder.join(format!("command-{number}.{end}"));
        let (out, err) = (file("out"), file("err"));
        command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
        let shown = format!("{command:?}");
        let process = command.spawn().with_context(|| format!("{shown} cannot be started"))?;
        Ok(Self { process, out, err, shown })
    }

    /// Waits until the command has exited.
    ///
    /// # Errors
    /// If it does not exit in time.
    pub fn end(self) -> Result<CommandOutput> {
        self.end_within(SOON)
    }

    /// As [`end`](Self::end), with another time limit.
    ///
    /// # Errors
    /// If it does not exit in that time.
    pub fn end_within(mut self, patience: Duration) -> Result<CommandOutput> {
        let status = wait(&mut self.process, &self.shown, patience)?;
        let read = |path: &Path| fs::read_to_string(path).context("the output of a command is lost");
        Ok(CommandOutput { out: read(&self.out)?, err: read(&self.err)?, code: status.code().unwrap_or(-1) })
    }

    /// Returns whether the command has exited.
    ///
    /// # Errors
    /// If the operating system reports an error.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }

    /// Returns its standard output so far.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Returns its standard error so far.
    pub fn errors(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

fn wait(process: &mut Child, what: &str, patience: Duration) -> Result<ExitStatus> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            // A process that does not exit by itself must not remain.
            process.kill()?;
            process.wait()?;
            bail!("{what} has not ended within {} s", patience.as_secs());
        }
        thread::sleep(LOOK_EVERY);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The process may have exited; an error cannot be reported here.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
