//! Private ZooKeeper servers on loopback and free ports, whose data is in a temporary folder.
//!
//! They use Debian's package `zookeeper`, but neither use nor change the package's own configuration. Tests
//! that start their own servers can run in parallel, and nothing is left when they end.
//!
//! ```no_run
//! let mut servers = zk_server::Servers::start(&zk_server::Setup::ensemble())?;
//! println!("connect to {}", servers.hosts());
//! let leader = servers.leader().expect("an ensemble has one");
//! servers.kill(leader)?; // as if its machine had lost its power
//! # Ok::<(), anyhow::Error>(())
//! ```

mod command;
mod four_letters;
mod guard;

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

pub use crate::command::{PACKAGES, is_installed};

/// The configuration of the servers to start.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The number of servers: one is standalone, three or more form an ensemble.
    pub servers: usize,
    /// ZooKeeper's unit of time, in milliseconds.
    pub tick_ms: u32,
    /// Additional lines for `zoo.cfg` of every server.
    pub config: Vec<String>,
    /// Additional arguments for Java, such as system properties.
    pub java: Vec<String>,
    /// The address at which they listen; loopback by default.
    pub address: Ipv4Addr,
    /// Whether, and with which files, to listen for TLS as well, and to ask clients for a certificate.
    pub tls: Option<TlsFiles>,
}

/// The TLS files of a server, in PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Its certificate and its key, in one file.
    pub key_store: PathBuf,
    /// The certificates of the authorities that sign its clients' certificates.
    pub trust_store: PathBuf,
}

impl Setup {
    /// Returns the setup of one server.
    pub fn standalone() -> Self {
        Self {
            servers: 1,
            tick_ms: 500,
            config: Vec::new(),
            java: Vec::new(),
            address: Ipv4Addr::LOCALHOST,
            tls: None,
        }
    }

    /// Returns the setup of an ensemble of three servers.
    pub fn ensemble() -> Self {
        Self { servers: 3, ..Self::standalone() }
    }
}

/// Running servers. When this is dropped, they end and their data is removed.
#[derive(Debug)]
pub struct Servers {
    all: Vec<Server>,
    folder: TempDir,
    setup: Setup,
}

#[derive(Debug)]
struct Server {
    ports: Ports,
    /// `None` while it is down.
    process: Option<Child>,
}

impl Server {
    /// Returns the process id while it runs.
    fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    client: u16,
    secure: u16,
    peer: u16,
    election: u16,
}

/// Maximum time for servers to start serving.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of tries with other ports: another program may take a free port before it is used.
const START_TRIES: usize = 4;
/// The interval at which a server is asked whether it is serving.
const ASK_EVERY: Duration = Duration::from_millis(40);

impl Servers {
    /// Starts servers, and returns when they are serving.
    ///
    /// # Errors
    /// If ZooKeeper is not installed, or the servers are not serving within a minute; with the end of their
    /// logs.
    pub fn start(setup: &Setup) -> Result<Self> {
        ensure!(
            is_installed(),
            "ZooKeeper is not installed. On Debian:\n    \
             apt-get install --no-install-recommends {}",
            PACKAGES.join(" ")
        );
        for _ in 1..START_TRIES {
            if let Ok(servers) = Self::try_start(setup) {
                return Ok(servers);
            }
        }
        Self::try_start(setup)
    }

    fn try_start(setup: &Setup) -> Result<Self> {
        let folder = tempfile::tempdir().context("no folder for the servers' data")?;
        let servers = free_ports(setup.address, setup.servers)?.into_iter();
        let servers = servers.map(|ports| Server { ports, process: None }).collect();
        let mut this = Self { all: servers, folder, setup: setup.clone() };
        for server in 0..setup.servers {
            this.write_config(server)?;
            this.launch(server)?;
        }
        for server in 0..setup.servers {
            this.wait_until_serving(server)?;
        }
        Ok(this)
    }

    /// Leaves the servers running until this process exits, and returns their addresses. When it exits for
    /// any reason, even if it is killed, the servers are killed and their data is removed.
    ///
    /// # Errors
    /// If no process can be started that waits for this one.
    pub fn end_with_this_process(self) -> Result<String> {
        let guard = guard::start(self.all.iter().filter_map(Server::id), self.folder.path())?;
        // Never dropped: the guard ends when its standard input is closed, with this process.
        let (servers, _) = Box::leak(Box::new((self, guard)));
        Ok(servers.hosts())
    }

    /// Returns the servers' addresses: `127.0.0.1:port,127.0.0.1:port`.
    pub fn hosts(&self) -> String {
        let hosts = self.all.iter().map(|server| format!("{}:{}", self.setup.address, server.ports.client));
        hosts.collect::<Vec<_>>().join(",")
    }

    /// Returns the servers' addresses for TLS, if [`Setup::tls`] is set; certificates must be for
    /// `localhost`.
    pub fn tls_hosts(&self) -> String {
        let hosts = self.all.iter().map(|server| format!("localhost:{}", server.ports.secure));
        hosts.collect::<Vec<_>>().join(",")
    }

    /// Returns the number of servers, running or not.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the server that leads the ensemble now, if there is one.
    pub fn leader(&self) -> Option<usize> {
        (0..self.all.len()).find(|&server| self.mode(server).is_some_and(|mode| mode == "leader"))
    }

    /// Kills a server immediately, like a power failure.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn kill(&mut self, server: usize) -> Result<()> {
        if let Some(mut process) = self.all[server].process.take() {
            process.kill().context("the server cannot be killed")?;
            process.wait().context("the server cannot be waited for")?;
        }
        Ok(())
    }

    /// Restarts a server with its data, without waiting until it is serving.
    ///
    /// # Errors
    /// If Java cannot be started.
    pub fn revive(&mut self, server: usize) -> Result<()> {
        if self.all[server].process.is_none() {
            self.launch(server)?;
        }
        Ok(())
    }

    /// Removes all data of a server that is down. If all servers of an ensemble are wiped, no data is left.
    ///
    /// # Errors
    /// If the server runs, or its data cannot be removed.
    pub fn wipe(&mut self, server: usize) -> Result<()> {
        ensure!(self.all[server].process.is_none(), "server {server} runs");
        fs::remove_dir_all(self.home(server).join("data")).context("the server's data cannot be removed")?;
        self.write_config(server)
    }

    /// Waits until a server is serving.
    ///
    /// # Errors
    /// If it is not serving within a minute, or has ended; with the end of its log.
    pub fn wait_until_serving(&mut self, server: usize) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        // An answer is not enough: a server answers before its data is loaded, and without a quorum.
        while self.mode(server).is_none() {
            let process = self.all[server].process.as_mut();
            if let Some(status) = process.map(Child::try_wait).transpose()?.flatten() {
                bail!("ZooKeeper server {server} has ended with {status}:\n{}", self.end_of_log(server));
            }
            if Instant::now() > deadline {
                bail!("ZooKeeper server {server} does not serve:\n{}", self.end_of_log(server));
            }
            thread::sleep(ASK_EVERY);
        }
        Ok(())
    }

    /// Returns a server's metrics (`mntr`): names without their prefix `zk_`, and values.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn figures(&self, server: usize) -> Result<BTreeMap<String, String>> {
        let text = four_letters::ask(self.address(server), "mntr")?;
        let lines = text.lines().filter_map(|line| line.strip_prefix("zk_")?.split_once('\t'));
        Ok(lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn address(&self, server: usize) -> SocketAddr {
        (self.setup.address, self.all[server].ports.client).into()
    }

    fn mode(&self, server: usize) -> Option<String> {
        let text = four_letters::ask(self.address(server), "srvr").ok()?;
        text.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    fn home(&self, server: usize) -> PathBuf {
        self.folder.path().join(server.to_string())
    }

    fn write_config(&self, server: usize) -> Result<()> {
        let home = self.home(server);
        let data = home.join("data");
        fs::create_dir_all(&data).context("no folder for a server's data")?;
        let mut lines = vec![
            format!("dataDir={}", data.display()),
            format!("clientPort={}", self.all[server].ports.client),
            format!("clientPortAddress={}", self.setup.address),
            format!("tickTime={}", self.setup.tick_ms),
            format!("minSessionTimeout={}", 2 * self.setup.tick_ms),
            "maxSessionTimeout=60000".to_owned(),
            "maxClientCnxns=0".to_owned(),
            "4lw.commands.whitelist=*".to_owned(),
            // It would listen on port 8080 of every interface.
            "admin.enableServer=false".to_owned(),
        ];
        if let Some(TlsFiles { key_store, trust_store }) = &self.setup.tls {
            lines.extend([
                format!("secureClientPort={}", self.all[server].ports.secure),
                format!("secureClientPortAddress={}", self.setup.address),
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
                format!("ssl.keyStore.location={}", key_store.display()),
                "ssl.keyStore.type=PEM".to_owned(),
                format!("ssl.trustStore.location={}", trust_store.display()),
                "ssl.trustStore.type=PEM".to_owned(),
                "ssl.clientAuth=need".to_owned(),
            ]);
        }
        if self.all.len() > 1 {
            lines.extend(["initLimit=10".to_owned(), "syncLimit=5".to_owned()]);
            let peers = self.all.iter().enumerate();
            lines.extend(peers.map(|(k, Server { ports, .. })| {
                format!("server.{}={}:{}:{}", k + 1, self.setup.address, ports.peer, ports.election)
            }));
            fs::write(data.join("myid"), format!("{}\n", server + 1)).context("no myid")?;
        }
        lines.extend(self.setup.config.iter().cloned());
        fs::write(home.join("zoo.cfg"), lines.join("\n") + "\n").context("no zoo.cfg")
    }

    fn launch(&mut self, server: usize) -> Result<()> {
        let home = self.home(server);
        let log = fs::OpenOptions::new().create(true).append(true).open(home.join("log"));
        let log = log.context("no log of the server")?;
        let mut command = command::server(&home.join("zoo.cfg"), &self.setup.java);
        let process = command
            .current_dir(&home)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("no log of the server")?)
            .stderr(log)
            .spawn()
            .context("Java cannot be started")?;
        self.all[server].process = Some(process);
        Ok(())
    }

    fn end_of_log(&self, server: usize) -> String {
        let log = fs::read_to_string(self.home(server).join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in 0..self.all.len() {
            // An error cannot be reported here.
            let _ = self.kill(server);
        }
    }
}

/// Returns ports that are free now, all different.
fn free_ports(address: Ipv4Addr, servers: usize) -> Result<Vec<Ports>> {
    let listen = || TcpListener::bind((address, 0)).context("no free port");
    let listeners = (0..4 * servers).map(|_| listen()).collect::<Result<Vec<_>>>()?;
    let ports = listeners.iter().map(|listener| Ok(listener.local_addr()?.port()));
    let ports = ports.collect::<Result<Vec<u16>>>()?;
    Ok(ports
        .chunks_exact(4)
        .map(|ports| Ports { client: ports[0], secure: ports[1], peer: ports[2], election: ports[3] })
        .collect())
}
