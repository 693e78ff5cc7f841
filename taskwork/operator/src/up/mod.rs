//! `taskwork up` and `taskwork down`: create and end a small cluster, on this machine or over ssh.

mod machine;
mod program;
mod site;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use futures_util::future::try_join_all;
use serde_json::json;
use taskwork::client::{Client, ClientError, Connect, Credentials, Tls, doctor, records::Member};
use taskwork_cli::{
    Failure,
    command::{interruptible, print, runtime},
    note,
};
use tokio::time::{self, Instant};

use self::{
    machine::{LOOPBACK, Machine},
    program::{Place, Program},
    site::{Nodes, Record, Site},
};
use crate::{findings, json::versioned, table};

/// The maximum time until ZooKeeper answers, and until the nodes are members.
const START_MAX: Duration = Duration::from_secs(60);

/// The UDP port of the first node on a machine.
const NODE_PORT: u16 = 7420;

/// The interval at which members are read.
const READ_EVERY: Duration = Duration::from_millis(200);

/// The interval at which processes are looked at that do not answer.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// The options of `taskwork up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    /// The machines, as ssh names them: HOST, USER@HOST, or a name of ~/.ssh/config; HOST=ADDRESS if the others reach it at
    /// another address. The first one also runs ZooKeeper. `localhost` is this machine, without ssh. By default, the
    /// machines of the last call, or only this machine.
    #[arg(value_name = "MACHINE")]
    machines: Vec<Machine>,
    /// The program that the nodes run.
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// The number of nodes on each machine. [default: as the last time, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: Option<u16>,
    /// The port of ZooKeeper. [default: 2181]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    zk_port: Option<u16>,
    /// The UDP port of the first node on a machine; the next nodes use the following ports. 0 means free ports. [default: as
    /// the last time, or 7420]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(..=65_000))]
    port: Option<u16>,
    #[command(flatten)]
    of: Name,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Options of the nodes: -- --workers 8 --label zone=a. Without any, those of the last time.
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<String>,
}

/// The options of `taskwork down`.
#[derive(Debug, clap::Args)]
pub(crate) struct Down {
    /// The machines to remove from the cluster. By default, the nodes of all machines leave, and then ZooKeeper ends.
    #[arg(value_name = "MACHINE")]
    machines: Vec<Machine>,
    #[command(flatten)]
    of: Name,
}

/// The name of a cluster.
#[derive(Debug, clap::Args)]
struct Name {
    /// The name of the cluster.
    #[arg(long, value_name = "NAME", default_value = "default", env = "TASKWORK_CLUSTER")]
    cluster: String,
}

/// A started node, by the name of its host and its process.
#[derive(Debug)]
struct Started<'a> {
    machine: &'a Machine,
    name: String,
    host: String,
    pid: u32,
}

impl Started<'_> {
    fn of<'a>(&self, members: &'a [Member]) -> Option<&'a Member> {
        members.iter().find(|member| member.pid == self.pid && member.host == self.host)
    }
}

impl Up {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        runtime()?.block_on(interruptible(Box::pin(self.start()))).map(|()| ExitCode::SUCCESS)
    }

    async fn start(&self) -> Result<(), Failure> {
        let site = Site::new(&self.of.cluster)?;
        let _lock = site.lock()?;
        let program = Program::read(&self.program)?;
        let mut record = self.record(&site).await?;
        let nodes = self.nodes(record.programs.get(&program.name));
        record.programs.insert(program.name.clone(), nodes.clone());
        let places = record.machines.iter().map(|machine| program.examine(machine, &site));
        let places = try_join_all(places).await?;
        check_distinct(&record.machines, &places)?;
        let texts = site.write(&record)?;
        let installed = record.machines.iter().zip(&places);
        let installed = installed.map(|(machine, place)| program.install(machine, place, &site, &texts));
        try_join_all(installed).await?;
        // Before the first process starts, so that `down` finds it.
        site.save(&record)?;
        let client = start_zookeeper(&site, &record).await?;
        let machines = record.machines.iter().zip(&record.addresses).zip(&places);
        let started = machines.map(|((machine, address), place)| {
            start_on(&site, &program, &nodes, machine, address, &place.host)
        });
        let started = try_join_all(started).await?.into_iter().flatten().collect::<Vec<_>>();
        let members = members(&site, &client, &started).await;
        client.close().await;
        self.report(&site, &record, &program, &started, &members?);
        check(&site, &record).await
    }

    /// Returns the record of the cluster with the machines of this call.
    async fn record(&self, site: &Site) -> Result<Record, Failure> {
        for machine in &self.machines {
            machine.check()?;
        }
        let known = site.record()?;
        let mut record = known.unwrap_or(Record {
            machines: vec![],
            addresses: vec![],
            zk_port: self.zk_port.unwrap_or(2181),
            programs: BTreeMap::new(),
        });
        let is_new = record.machines.is_empty();
        let changed = |what: &str| {
            Failure::usage(format!(
                "cluster {} exists {what}: end it by `taskwork down --cluster {0}`, or choose another --cluster",
                site.cluster
            ))
        };
        if self.zk_port.is_some_and(|port| port != record.zk_port) {
            return Err(changed(&format!("with ZooKeeper at port {}", record.zk_port)));
        }
        let mut named = self.machines.clone();
        if named.is_empty() && is_new {
            named.push(Machine::here());
        }
        let is_here = if is_new { named == [Machine::here()] } else { record.is_here() };
        for machine in named {
            match record.machines.iter().find(|known| known.name == machine.name) {
                Some(known) if machine.address.is_some() && *known != machine => {
                    return Err(changed(&format!("with another address of {}", machine.name)));
                }
                Some(_) => continue,
                None => {}
            }
            if is_here && !machine.is_here() {
                return Err(changed("on this machine only"));
            }
            let address = if is_here { LOOPBACK.to_owned() } else { machine.address().await? };
            record.machines.push(machine);
            record.addresses.push(address);
        }
        Ok(record)
    }

    /// Returns the nodes of each machine: the options of this call, or else of the last one.
    fn nodes(&self, known: Option<&Nodes>) -> Nodes {
        let options = match known {
            Some(known) if self.options.is_empty() => &known.options,
            _ => &self.options,
        };
        Nodes {
            count: self.nodes.or(known.map(|known| known.count)).unwrap_or(1),
            port: self.port.or(known.map(|known| known.port)).unwrap_or(NODE_PORT),
            options: options.clone(),
        }
    }

    fn report(
        &self,
        site: &Site,
        record: &Record,
        program: &Program,
        started: &[Started<'_>],
        members: &[Member],
    ) {
        let environment = site.folder.join("env");
        let nodes = started.iter().filter_map(|node| Some((node, node.of(members)?)));
        if self.json {
            let nodes: Vec<_> = nodes
                .map(|(node, member)| {
                    json!({ "machine": node.machine.name, "node": member.node, "host": member.host, "pid": node.pid, "workers": member.workers })
                })
                .collect();
            let value =
                json!({ "zookeeper": record.zookeeper(), "environment": environment, "nodes": nodes });
            print(&format!("{}\n", versioned(value)));
            return;
        }
        let rows = nodes.map(|(node, member)| {
            vec![
                member.node.clone(),
                node.machine.name.clone(),
                node.pid.to_string(),
                member.workers.to_string(),
            ]
        });
        let table = table::table(&["NODE", "MACHINE", "#PROCESS", "#WORKERS"], rows);
        print(&format!(
            "ZooKeeper  {} on {}\nfiles      {} on each machine\n\n{table}\nIn each shell:\n  . {}\n  {} submit FILE --wait\n  \
             taskwork status\n  taskwork down\n",
            record.zookeeper(),
            record.machines[0].name,
            site.folder.display(),
            environment.display(),
            program.name,
        ));
    }
}

impl Down {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        runtime()?.block_on(interruptible(Box::pin(self.end()))).map(|()| ExitCode::SUCCESS)
    }

    async fn end(&self) -> Result<(), Failure> {
        let site = Site::new(&self.of.cluster)?;
        let missing =
            || Failure::not_found(format!("`taskwork up` has created no cluster {} from here", site.cluster));
        // First, since the lock would create the folder of a cluster.
        site.record()?.ok_or_else(missing)?;
        let _lock = site.lock()?;
        let mut record = site.record()?.ok_or_else(missing)?;
        let is_named = |machine: &Machine| self.machines.iter().any(|named| named.name == machine.name);
        for named in &self.machines {
            if !record.machines.iter().any(|machine| machine.name == named.name) {
                return Err(Failure::not_found(format!(
                    "{} is no machine of cluster {}",
                    named.name, site.cluster
                )));
            }
        }
        let all = self.machines.is_empty() || record.machines.iter().all(is_named);
        if !all && is_named(&record.machines[0]) {
            let name = &record.machines[0].name;
            return Err(Failure::usage(format!(
                "{name} runs ZooKeeper: it can only end with all other machines"
            )));
        }
        let leaving = record.machines.iter().filter(|machine| all || is_named(machine));
        let left = leaving.map(|machine| async {
            if let Err(failure) = machine.run(&site.cluster, &["leave"], b"").await {
                note(&format!("{failure}\nIf its nodes still run, they continue until ZooKeeper is lost"));
            }
            Ok::<_, Failure>(())
        });
        try_join_all(left).await?;
        if !all {
            (record.machines, record.addresses) = record
                .machines
                .into_iter()
                .zip(record.addresses)
                .filter(|(machine, _)| !is_named(machine))
                .unzip();
            return site.save(&record);
        }
        let first = &record.machines[0];
        let stopped = first.run(&site.cluster, &["stop"], b"").await;
        // Also if the machine is gone, so that another cluster can have the name.
        site.forget()?;
        stopped?;
        print(&format!("ended; {} keeps the jobs in {}\n", first.name, site.folder.join("data").display()));
        Ok(())
    }
}

/// Refuses two names of one machine, since their nodes would replace each other.
fn check_distinct(machines: &[Machine], places: &[Place]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    match machines.iter().zip(places).find(|(_, place)| !seen.insert((&place.host, &place.folder))) {
        Some((machine, place)) => {
            Err(machine
                .failed(&format!("another name stands for this machine, {}: give it once", place.host)))
        }
        None => Ok(()),
    }
}

/// Starts the nodes of a machine that do not run.
async fn start_on<'a>(
    site: &Site,
    program: &Program,
    nodes: &Nodes,
    machine: &'a Machine,
    address: &str,
    host: &str,
) -> Result<Vec<Started<'a>>, Failure> {
    let (count, port) = (nodes.count.to_string(), nodes.port.to_string());
    let words = ["nodes", &program.name, &program.file, &count, &port, address];
    let options = nodes.options.iter().map(String::as_str);
    let words: Vec<&str> = words.into_iter().chain(options).collect();
    let said = machine.run(&site.cluster, &words, b"").await?;
    let started = said.lines().zip(1..).map(|(pid, number)| {
        let pid = pid.parse().map_err(|_| machine.failed(&format!("{pid:?} is no process")))?;
        Ok(Started { machine, name: format!("node-{}-{number}", program.name), host: host.to_owned(), pid })
    });
    started.collect()
}

fn connect(site: &Site, record: &Record) -> Result<Connect, Failure> {
    let mut connect = Connect::new(record.zookeeper());
    connect.connect_timeout = LOOK_EVERY;
    connect.credentials = Credentials::parse(&site.read("credentials")?);
    if !record.is_here() {
        let identity = Some((site.read("node.cert")?, site.read("node.key")?));
        connect.tls = Some(Tls { ca: site.read("ca.pem")?, identity });
    }
    Ok(connect)
}

/// Starts ZooKeeper, if it does not run, and connects to it.
async fn start_zookeeper(site: &Site, record: &Record) -> Result<Client, Failure> {
    let (machine, cluster) = (&record.machines[0], site.cluster.as_str());
    let (port, kind) = (record.zk_port.to_string(), if record.is_here() { "plain" } else { "tls" });
    if !record.is_here() && !machine.is_here() {
        machine.write(cluster, "server.pem", "600", site.read("server.pem")?.as_bytes()).await?;
    }
    machine.run(cluster, &["zookeeper", &record.addresses[0], &port, kind], b"").await?;
    let deadline = Instant::now() + START_MAX;
    loop {
        match Client::builder_of(connect(site, record)?).cluster(cluster).connect().await {
            Ok(client) => return Ok(client),
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Err(_) => machine.run(cluster, &["look", "zookeeper"], b"").await.map(drop)?,
        }
        time::sleep(READ_EVERY).await;
    }
}

/// Waits until the nodes are members of the cluster.
async fn members(site: &Site, client: &Client, started: &[Started<'_>]) -> Result<Vec<Member>, Failure> {
    let (deadline, mut look) = (Instant::now() + START_MAX, Instant::now() + LOOK_EVERY);
    loop {
        let members = match client.overview().await {
            // The first node creates it.
            Err(ClientError::NoCluster { .. }) => Vec::new(),
            read => read?.members,
        };
        let missing: Vec<_> = started.iter().filter(|node| node.of(&members).is_none()).collect();
        let Some(first) = missing.first() else { return Ok(members) };
        let now = Instant::now();
        if now >= look {
            look = now + LOOK_EVERY;
            try_join_all(
                missing
                    .iter()
                    .map(async |node| node.machine.run(&site.cluster, &["look", &node.name], b"").await),
            )
            .await?;
        }
        if now >= deadline {
            return Err(first.machine.failed(&format!(
                "{} is no member after {} s. Can it reach ZooKeeper? Its log {}.log is in the folder of the cluster",
                first.name,
                START_MAX.as_secs(),
                first.name
            )));
        }
        time::sleep(READ_EVERY).await;
    }
}

/// Prints the problems that `taskwork doctor` would find.
async fn check(site: &Site, record: &Record) -> Result<(), Failure> {
    let mut found = doctor::diagnose(&connect(site, record)?, &site.cluster).await?;
    found.retain(|finding| !finding.ok);
    if !found.is_empty() {
        note(&findings::text(&found));
    }
    Ok(())
}
