//! A real Slurm on this machine: its controller, and four compute nodes, each with its own daemon. It runs in
//! separate namespaces (mounts, processes, host name, network), so that it leaves nothing behind and does not
//! meet a Slurm of this machine. Requires root, and the Debian packages `slurmctld`, `slurmd`, `slurm-client`
//! and `munge`.

use std::{
    env,
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use taskwork_tests::cluster::SOON;

/// The variable with the folder of the site's files, set within its namespaces.
const FOLDER: &str = "TASKWORK_SLURM_FOLDER";

/// The address of this machine in the network of the site. Slurm does not accept loopback addresses.
const ADDRESS: &str = "10.79.0.1";

/// The number of compute nodes.
pub(crate) const NODES: usize = 4;

/// The interval at which conditions are checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The maximum time for a test in its namespaces.
const TEST_MAX: Duration = Duration::from_secs(900);

/// A running site. Its daemons are killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Site {
    folder: PathBuf,
    controller: Child,
    daemons: Vec<Child>,
}

/// Runs a test of this program again, in separate namespaces, and fails if it does. Within the namespaces,
/// returns the folder for the site's files.
pub(crate) fn in_namespaces(test: &str) -> Option<PathBuf> {
    if let Some(folder) = env::var_os(FOLDER) {
        return Some(folder.into());
    }
    let folder = tempfile::tempdir().unwrap();
    let mut inside = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--uts", "--net", "--mount-proc", "--kill-child=KILL"])
        // The first process of a namespace has to reap orphaned processes.
        .args(["bash", "-c", "\"$@\"; exit $?", "bash"])
        .arg(env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, folder.path())
        .env("SLURM_CONF", folder.path().join("slurm.conf"))
        .spawn()
        .unwrap();
    let deadline = Instant::now() + TEST_MAX;
    let status = loop {
        if let Some(status) = inside.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            // This also kills everything in its namespaces.
            inside.kill().unwrap();
        }
        thread::sleep(LOOK_EVERY);
    };
    assert!(status.success(), "in its namespaces the test has failed: {status}");
    None
}

impl Site {
    /// Starts the site, and returns when its nodes are available.
    ///
    /// # Errors
    /// If something is missing, or is not ready in time; with the logs of the daemons.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
        for name in ["state", "munge", "logs"] {
            fs::create_dir(folder.join(name))?;
        }
        network(folder)?;
        configure(folder)?;
        let mut munge = daemon("munged", folder);
        let at = |name: &str| folder.join("munge").join(name).display().to_string();
        munge.args(["--foreground", "--force"]);
        for (option, file) in [("--key-file", "key"), ("--socket", "socket"), ("--pid-file", "pid")] {
            munge.arg(format!("{option}={}", at(file)));
        }
        munge.args([format!("--log-file={}", at("log")), format!("--seed-file={}", at("seed"))]);
        let munge = munge.spawn().context("munged cannot be started")?;
        wait_until("munge answers", folder, || folder.join("munge/socket").exists())?;
        let controller =
            daemon("slurmctld", folder).arg("-D").spawn().context("slurmctld cannot be started")?;
        let mut this = Self { folder: folder.to_owned(), controller, daemons: vec![munge] };
        for node in 1..=NODES {
            let mut slurmd = daemon("slurmd", folder);
            slurmd.args(["-D", "-N", &format!("n{node}")]);
            this.daemons.push(slurmd.spawn().context("slurmd cannot be started")?);
        }
        wait_until("all nodes are idle", folder, || {
            said("sinfo", &["-h", "-o", "%t %D"]).is_ok_and(|said| said.trim() == format!("idle {NODES}"))
        })?;
        Ok(this)
    }

    /// Returns the log of a job.
    pub(crate) fn log(&self, machine: &str) -> String {
        fs::read_to_string(self.folder.join("logs").join(format!("{machine}.log"))).unwrap_or_default()
    }

    /// Kills the controller.
    pub(crate) fn kill_controller(&mut self) {
        self.controller.kill().unwrap();
        self.controller.wait().unwrap();
    }
}

/// Runs a command of Slurm, and returns its output.
///
/// # Errors
/// If it fails; with its message.
pub(crate) fn said(command: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(command).args(arguments).output().with_context(|| format!("no {command}"))?;
    ensure!(output.status.success(), "{command} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Gives this network namespace an address, and the compute nodes their names.
fn network(folder: &Path) -> Result<()> {
    let hosts = folder.join("hosts");
    let names: Vec<String> = (1..=NODES).map(|node| format!("n{node}")).collect();
    fs::write(&hosts, format!("127.0.0.1 localhost\n{ADDRESS} ctl {}\n", names.join(" ")))?;
    let (address, hosts) = (format!("{ADDRESS}/24"), hosts.display().to_string());
    for (command, arguments) in [
        ("ip", &["link", "set", "lo", "up"][..]),
        ("ip", &["link", "add", "tw0", "type", "veth", "peer", "name", "tw1"]),
        ("ip", &["address", "add", &address, "dev", "tw0"]),
        ("ip", &["link", "set", "tw0", "up"]),
        ("ip", &["link", "set", "tw1", "up"]),
        ("hostname", &["ctl"]),
        ("mount", &["--bind", &hosts, "/etc/hosts"]),
    ] {
        said(command, arguments)?;
    }
    Ok(())
}

fn configure(folder: &Path) -> Result<()> {
    let at = folder.display();
    let last = 17_000 + NODES;
    let configuration = format!(
        "ClusterName=test\n\
         SlurmctldHost=ctl({ADDRESS})\n\
         SlurmUser=root\n\
         SlurmdUser=root\n\
         AuthType=auth/munge\n\
         AuthInfo=socket={at}/munge/socket\n\
         StateSaveLocation={at}/state\n\
         SlurmdSpoolDir={at}/spool-%n\n\
         SlurmctldPidFile={at}/slurmctld.pid\n\
         SlurmdPidFile={at}/slurmd-%n.pid\n\
         SlurmctldPort=16817\n\
         # Control groups are not to be had everywhere.\n\
         ProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\n\
         JobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_CPU\n\
         # Each daemon takes the machine for its own.\n\
         SlurmdParameters=config_overrides\n\
         ReturnToService=2\n\
         KillWait=30\n\
         MpiDefault=none\n\
         NodeName=n[1-{NODES}] NodeHostname=ctl NodeAddr={ADDRESS} Port=[17001-{last}] CPUs=2 State=UNKNOWN\n\
         PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    );
    fs::write(folder.join("slurm.conf"), configuration)?;
    let key = folder.join("munge/key");
    // Any key will do: nothing it protects can be reached from elsewhere.
    fs::write(&key, [7; 128])?;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o400))?;
    Ok(())
}

/// Returns a daemon whose output goes to a file.
fn daemon(name: &str, folder: &Path) -> Command {
    // Debian installs them in the search path of root only.
    let path =
        ["/usr/sbin", "/usr/bin"].iter().map(|place| Path::new(place).join(name)).find(|path| path.exists());
    let mut command = Command::new(path.unwrap_or_else(|| name.into()));
    let log = File::options().create(true).append(true).open(folder.join(format!("{name}.log")));
    let log = log.and_then(|log| Ok((log.try_clone()?, log)));
    if let Ok((out, err)) = log {
        command.stdout(out).stderr(err);
    }
    command.stdin(Stdio::null());
    command
}

fn wait_until(what: &str, folder: &Path, mut holds: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + SOON;
    while !holds() {
        if Instant::now() > deadline {
            let logs = ["munged", "slurmctld", "slurmd"].map(|name| {
                let log = fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                format!("--- {name}\n{}", lines[lines.len().saturating_sub(15)..].join("\n"))
            });
            bail!("not in time: {what}\n{}", logs.join("\n"));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

impl Drop for Site {
    fn drop(&mut self) {
        for process in self.daemons.iter_mut().chain([&mut self.controller]) {
            // It may have exited; an error cannot be reported here.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
