//! Diagnosis of a cluster: its problems and their remedies.
//!
//! Each check is a function that adds its findings; checks are read-only.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    net::{TcpStream, ToSocketAddrs as _},
    time::{Duration, Instant},
};

use zk::{
    ClusterPaths, Connect, Store, figures::NodeFigures, housekeeping, job::JobRecord, membership::Member,
};

use super::{ClientError, JobEntry, Overview, Stage};
use crate::{figures::Figures, shell::observe::Scope};

/// A finding of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The name of the check, one word.
    pub check: &'static str,
    /// Whether everything is in order.
    pub ok: bool,
    /// A description.
    pub said: String,
    /// The remedy; empty if everything is in order.
    pub advice: &'static str,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn well(&mut self, check: &'static str, said: impl Into<String>) {
        self.0.push(Finding { check, ok: true, said: said.into(), advice: "" });
    }

    fn wrong(&mut self, check: &'static str, said: impl Into<String>, advice: &'static str) {
        self.0.push(Finding { check, ok: false, said: said.into(), advice });
    }

    fn has(&self, check: &str) -> bool {
        self.0.iter().any(|finding| finding.check == check)
    }
}

const SERVER_TIMEOUT: Duration = Duration::from_secs(3);
/// The smallest clock difference that is reported, in milliseconds.
const CLOCKS_APART_MS_MAX: u64 = 10_000;
/// The time that a node may take to learn of another one, in milliseconds.
const UNKNOWN_MS_MAX: u64 = 15_000;

/// Checks the servers one by one, the access rights of the cluster, and its clocks, nodes and jobs. Must be
/// called within a tokio runtime.
///
/// # Errors
/// If the name of the cluster is invalid. Unreachable servers are findings.
pub async fn diagnose(connect: &Connect, cluster: &str) -> Result<Vec<Finding>, ClientError> {
    let invalid = |error: zk::NameError| ClientError::Invalid { reason: error.to_string() };
    let cluster = ClusterPaths::new(cluster).map_err(invalid)?;
    let mut findings = Findings::default();
    servers(connect, &mut findings).await;
    encryption(connect, &mut findings);
    match connect.open().await {
        Ok(store) => {
            let looked = look(&*store, connect, &cluster, &mut findings).await;
            close(&*store).await;
            if let Err(failure) = looked {
                findings.wrong("session", failure.to_string(), "Check the servers, and try again");
            }
        }
        Err(error) => {
            findings.wrong("session", error.to_string(), "No other check is possible without a session");
        }
    }
    Ok(findings.0)
}

/// Checks each server separately.
async fn servers(connect: &Connect, findings: &mut Findings) {
    const ADVICE: &str = "Check its log; start it, or remove it from --zk";
    let (hosts, chroot) = connect.hosts.split_once('/').unwrap_or((&connect.hosts, ""));
    for host in hosts.split(',') {
        let mut alone = connect.clone();
        alone.hosts = if chroot.is_empty() { host.to_owned() } else { format!("{host}/{chroot}") };
        alone.connect_timeout = connect.connect_timeout.min(SERVER_TIMEOUT);
        let begun = Instant::now();
        match alone.open().await {
            Ok(store) => {
                let took_ms = begun.elapsed().as_millis();
                // A server may not permit the command `srvr`, and it is not sent over TLS.
                let (asked, plain) = (host.to_owned(), connect.tls.is_none());
                let said = tokio::task::spawn_blocking(move || plain.then(|| srvr(&asked).ok()).flatten());
                let said = said.await.ok().flatten().unwrap_or_default();
                findings.well("server", format!("{host} answers after {took_ms} ms{said}"));
                close(&*store).await;
            }
            Err(error) => findings.wrong("server", format!("{host}: {error}"), ADVICE),
        }
    }
}

/// Returns the version of a server and its role in the ensemble. Empty if it reports neither.
fn srvr(host: &str) -> io::Result<String> {
    let address = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        host.to_owned()
    } else {
        format!("{host}:2181")
    };
    let address = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&address, SERVER_TIMEOUT)?;
    stream.set_read_timeout(Some(SERVER_TIMEOUT))?;
    stream.write_all(b"srvr")?;
    let mut said = String::new();
    stream.take(1 << 16).read_to_string(&mut said)?;
    let line = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let version = line("Zookeeper version:").and_then(|version| version.split(['-', ',']).next());
    let version = version.map(|version| format!(", version {version}")).unwrap_or_default();
    let mode = line("Mode:").map(|mode| format!(", {mode}")).unwrap_or_default();
    Ok(version + &mode)
}

fn encryption(connect: &Connect, findings: &mut Findings) {
    const CHECK: &str = "TLS";
    if connect.tls.is_some() {
        findings.well(CHECK, "connections to ZooKeeper use TLS");
    } else if connect.exposes_credentials() {
        findings.wrong(
            CHECK,
            "the credentials are sent to ZooKeeper in the clear",
            "Give --zk-tls-ca; deploy/zookeeper/three-servers.cfg shows the servers' side",
        );
    } else {
        findings.well(CHECK, "connections to ZooKeeper are unencrypted; no credentials leave this machine");
    }
}

/// Performs the checks that need a session.
async fn look(
    store: &dyn Store,
    connect: &Connect,
    cluster: &ClusterPaths,
    findings: &mut Findings,
) -> Result<(), ClientError> {
    if store.exists(&cluster.jobs()).await?.is_none() {
        let said = format!("there is no cluster {:?}", cluster.name());
        findings.wrong("cluster", said, "Check --cluster: a cluster is created by its first node or job");
        return Ok(());
    }
    access(connect, cluster, findings).await?;
    let overview = Overview::read(store, cluster, Scope::Current).await?;
    clocks(store, cluster, findings).await?;
    hearing(&overview, findings);
    reaching(&overview, findings);
    jobs(cluster, &overview, findings);
    data(store, cluster, findings).await?;
    stopping(&overview.unstoppable_tasks(), findings);
    Ok(())
}

/// The data of all jobs from which on it is reported as a fault, in bytes: a quarter of the memory that
/// `docs/operating.md` recommends for a server of `ZooKeeper`, which holds all data in memory.
const DATA_BYTES_MAX: u64 = 512 << 20;

/// The number of jobs whose data is reported.
const LARGEST_SHOWN: usize = 3;

/// Reports how much data the jobs keep in `ZooKeeper`.
async fn data(store: &dyn Store, cluster: &ClusterPaths, findings: &mut Findings) -> Result<(), ClientError> {
    let mut sizes = Vec::new();
    for job in store.children(&cluster.jobs()).await? {
        sizes.push((housekeeping::bytes_kept(store, &cluster.job(&job).record()).await?, job));
    }
    stored(sizes, findings);
    Ok(())
}

/// Judges the sizes of the data of jobs, in bytes.
fn stored(mut sizes: Vec<(u64, String)>, findings: &mut Findings) {
    const CHECK: &str = "data";
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let total: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let mut said = format!("{} jobs keep {} in ZooKeeper", sizes.len(), mib(total));
    if !sizes.is_empty() {
        let largest = sizes.iter().take(LARGEST_SHOWN);
        let largest: Vec<String> = largest.map(|(bytes, job)| format!("{job} {}", mib(*bytes))).collect();
        said = format!("{said}, the largest are {}", largest.join(", "));
    }
    if total <= DATA_BYTES_MAX {
        return findings.well(CHECK, said);
    }
    findings.wrong(
        CHECK,
        said,
        "ZooKeeper holds all of it in memory, and fails when that is full: forget large jobs that are over (taskwork \
         forget), and start nodes with a smaller --keep, --keep-mib or --keep-for",
    );
}

/// Reports tasks that have not stopped although they were asked to.
fn stopping(silent: &BTreeMap<String, String>, findings: &mut Findings) {
    const CHECK: &str = "stopping";
    for (node, task) in silent {
        findings.wrong(
            CHECK,
            format!("{task} at node {node} does not ask whether it is to stop"),
            "Its program must call migrate() or has_requests() more often: until then the node cannot flush its tasks, \
             and if it was told to stop the task, it continues without that thread",
        );
    }
    if silent.is_empty() {
        findings.well(CHECK, "every task asks whether it is to stop");
    }
}

async fn close(store: &dyn Store) {
    if let Err(error) = store.close().await {
        tracing::debug!(%error, "the session will expire");
    }
}

/// The maximum time until servers refuse a client without a certificate.
const STRANGER_MAX: Duration = Duration::from_secs(3);

/// Checks that a session without credentials can read nothing.
async fn access(
    connect: &Connect,
    cluster: &ClusterPaths,
    findings: &mut Findings,
) -> Result<(), ClientError> {
    const CHECK: &str = "access";
    if connect.credentials.is_none() {
        findings.well(CHECK, "no credentials are set: every client that reaches ZooKeeper has full access");
        return Ok(());
    }
    let mut stranger = connect.clone();
    stranger.credentials = None;
    if let Some(tls) = &mut stranger.tls
        && tls.identity.take().is_some()
    {
        // A certificate identifies a client as credentials do. Servers that require one refuse this client.
        stranger.connect_timeout = stranger.connect_timeout.min(STRANGER_MAX);
    }
    let stranger = match stranger.open().await {
        Ok(stranger) => stranger,
        Err(_) if connect.tls.as_ref().is_some_and(|tls| tls.identity.is_some()) => {
            // During an outage, this fails, too.
            close(&*connect.open().await?).await;
            findings.well(CHECK, "no connection is open to clients without a certificate");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let folders = [
        ClusterPaths::ALL.to_owned(),
        cluster.base(),
        cluster.members(),
        cluster.election(),
        cluster.drains(),
        cluster.cordons(),
        cluster.jobs(),
    ];
    let mut open = Vec::new();
    for folder in folders {
        match stranger.children(&folder).await {
            Ok(_) => open.push(folder),
            Err(zk::Error::NoAuth { .. } | zk::Error::NoNode { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    close(&*stranger).await;
    if open.is_empty() {
        findings.well(CHECK, "nothing can be read without credentials");
    } else {
        let said = format!("readable without credentials: {}", open.join(", "));
        let advice = "They were created without --zk-auth: in zkCli.sh, addauth digest USER:PASSWORD, then \
            setAcl -R PATH auth::cdrwa";
        findings.wrong(CHECK, said, advice);
    }
    Ok(())
}

/// Compares the clocks of the nodes with that of ZooKeeper. No decision depends on them, but displayed times
/// would be misleading.
async fn clocks(
    store: &dyn Store,
    cluster: &ClusterPaths,
    findings: &mut Findings,
) -> Result<(), ClientError> {
    const CHECK: &str = "clock";
    for node in store.children(&cluster.members()).await? {
        let (content, stat) = match store.get(&cluster.member(&node)).await {
            Err(zk::Error::NoNode { .. }) => continue,
            other => other?,
        };
        let Ok(member) = serde_json::from_slice::<Member>(&content) else {
            let said = format!("the entry of member {node} cannot be read");
            findings.wrong("member", said, "If it is of a newer version, update this command");
            continue;
        };
        let apart_ms = member.started_ms.abs_diff(stat.modified_ms);
        if apart_ms > CLOCKS_APART_MS_MAX {
            let ahead = if member.started_ms > stat.modified_ms { "ahead of" } else { "behind" };
            let lapse = format!("{:.1} s", apart_ms as f64 / 1000.0);
            findings.wrong(
                CHECK,
                format!("that of node {node} is {lapse} {ahead} ZooKeeper's"),
                "Synchronise the clocks by NTP: displayed times are wrong",
            );
        }
    }
    if !findings.has(CHECK) {
        findings.well(CHECK, "the nodes' clocks agree with ZooKeeper's");
    }
    Ok(())
}

/// Reports nodes that do not know all other members, according to their figures.
fn hearing(overview: &Overview, findings: &mut Findings) {
    const CHECK: &str = "members";
    for (id, node, said) in overview.reports() {
        let job = overview.job(id).filter(|job| job.stage == Stage::Running);
        let Some((record, known)) = job.and_then(|job| job.record.as_ref()).zip(said.members_known) else {
            continue;
        };
        let others = others(overview, record, node, said);
        if (known as usize) < others {
            findings.wrong(
                CHECK,
                format!("node {node} knows of {known} of {others} other nodes of its release"),
                "It does not get events from ZooKeeper: send it SIGTERM, and restart it",
            );
        }
    }
    if !findings.has(CHECK) {
        let nodes = overview.members.len();
        findings.well(CHECK, format!("{nodes} nodes, and all working nodes know each other"));
    }
}

/// Reports nodes that cannot reach each other.
fn reaching(overview: &Overview, findings: &mut Findings) {
    const CHECK: &str = "network";
    let mut pairs = BTreeMap::new();
    for (_, node, said) in overview.reports() {
        for other in &said.cut_off {
            let member = overview.members.iter().find(|member| member.node == *other);
            pairs.extend(member.and_then(|member| member.address).map(|address| ((node, other), address)));
        }
    }
    for ((node, other), address) in &pairs {
        findings.wrong(
            CHECK,
            format!("node {node} cannot reach node {other} at {address}"),
            "Check --listen and --advertise of the node at this address, and that firewalls let UDP pass between both",
        );
    }
    if pairs.is_empty() {
        findings.well(CHECK, "no working node reports another one as unreachable");
    }
}

/// Returns how many other nodes a node should have known when it published its figures: the members of the
/// release that had started at least [`UNKNOWN_MS_MAX`] before. 0 if it is no longer a member.
fn others(overview: &Overview, record: &JobRecord, node: &str, said: &NodeFigures<Figures>) -> usize {
    if !overview.members.iter().any(|member| member.node == node) {
        return 0;
    }
    let known = |member: &&Member| {
        member.node != node && member.runs(record) && member.started_ms + UNKNOWN_MS_MAX < said.at_ms
    };
    overview.members.iter().filter(known).count()
}

fn jobs(cluster: &ClusterPaths, overview: &Overview, findings: &mut Findings) {
    const CHECK: &str = "job";
    for JobEntry { id, stage, missing, .. } in &overview.jobs {
        let path = cluster.job(id).record();
        match stage {
            Stage::Unreadable => {
                findings.wrong(CHECK, format!("{path} cannot be read"), "Remove it with taskwork forget");
            }
            Stage::Abandoned => findings.wrong(
                CHECK,
                format!("{id} was submitted incompletely, and its submitter is gone"),
                "Remove it with taskwork forget, and submit it again",
            ),
            Stage::NoNodes => findings.wrong(
                CHECK,
                format!("{id} waits: {}", missing.as_deref().unwrap_or("no suitable node")),
                "Start a suitable node",
            ),
            _ => {}
        }
    }
    if !findings.has(CHECK) {
        findings.well(CHECK, format!("{} jobs, all in order", overview.jobs.len()));
    }
}
