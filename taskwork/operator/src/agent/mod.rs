//! `taskwork agent`: a member that starts the programs of jobs that travel with them.
//!
//! ```text
//!   job ─▶ is its submitter allowed? ─▶ is the program kept, with its content? ─▶ otherwise fetch it ─▶ start `PROGRAM node`
//! ```
//!
//! The node leaves when it has had no job for a while. If it exits while a job is open, it is started again.

mod cache;
mod guest;
mod run;

use std::{env, ffi::OsString, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use taskwork::{
    Labels, Node,
    client::{
        agents::{self, Submitters},
        read_text,
    },
    node::{Address, NodeBuilder},
};
use taskwork_cli::{
    Failure,
    command::{ClusterArguments, Level, LogArguments, runtime, seconds, time},
};

use self::{cache::Cache, run::Running};

/// The maximum size of the file of authorities, in bytes.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// The options of `taskwork agent`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Only run programs of this submitter: a DNS name in its certificate, or the SHA-256 of the certificate. May be
    /// repeated. By default, every submitter whose certificate is signed by the authority is allowed.
    #[arg(long, value_name = "NAME")]
    allow: Vec<String>,
    /// Run programs of everybody who can write to ZooKeeper, without certificates.
    #[arg(long, conflicts_with_all = ["allow", "submitters_ca"])]
    allow_any: bool,
    /// A PEM file with the authorities of submitters. [default: those of --zk-tls-ca]
    #[arg(long, value_name = "FILE")]
    submitters_ca: Option<PathBuf>,
    /// The number of nodes that run at the same time, each of another program. They divide the workers.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    guests: u16,
    /// The number of workers of all nodes together; by default one for each processor.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    workers: Option<u32>,
    /// A label of the agent and its nodes, or several separated by commas. May be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = str::parse::<Labels>)]
    labels: Vec<Labels>,
    /// The address to listen on for other agents. Nodes listen on the following ports. Port 0 selects free ports.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The IP address or the name of this host at which others reach it, without a port, if it differs.
    #[arg(long, value_name = "HOST", value_parser = host)]
    advertise: Option<String>,
    /// Time to leave after a signal, in seconds, for the agent's nodes.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    drain_deadline: Duration,
    /// A node ends when it has had no job for this time.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    idle_exit: Duration,
    /// The folder that keeps programs. [default: ~/.cache/taskwork/programs]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// The total size of these programs, in GiB. The least recently used ones are removed first.
    #[arg(long, value_name = "GIB", default_value_t = 10)]
    cache_gib: u32,
    #[command(flatten)]
    log: LogArguments,
    /// Further options of the nodes: -- --near zone --notice aws.
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<OsString>,
}

/// Runs an agent until it is asked to leave.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    arguments.log.start(Level::Info);
    let submitters = arguments.submitters()?;
    let cache = Cache::open(arguments.folder()?, u64::from(arguments.cache_gib) << 30)?;
    let node = arguments.node()?;
    let options = (0..arguments.guests).map(|slot| arguments.of_guest(slot)).collect();
    runtime()?.block_on(async {
        let agent = agents::Agent::start(node)?;
        Running::new(arguments.cluster.name().to_owned(), submitters, cache, options, arguments.idle_exit)
            .run(agent)
            .await
    })
}

impl Arguments {
    fn submitters(&self) -> Result<Submitters, Failure> {
        if self.allow_any {
            tracing::warn!(
                "this agent runs programs of everybody who can write to ZooKeeper, as the user of this process: \
                 use certificates instead of --allow-any outside of a private network"
            );
            return Ok(Submitters::any());
        }
        let authorities = match &self.submitters_ca {
            Some(file) => read_text(file, PEM_BYTES_MAX)
                .map_err(|error| Failure::usage(format!("--submitters-ca {}: {error}", file.display())))?,
            None => self.cluster.connect()?.tls.map(|tls| tls.ca).ok_or_else(|| {
                Failure::usage(
                    "an agent runs programs of certified submitters: give the authority of their certificates by \
                     --zk-tls-ca FILE or --submitters-ca FILE.\n  Or pass --allow-any, if you trust everybody who can \
                     write to this ZooKeeper",
                )
            })?,
        };
        Ok(Submitters::certified(&authorities, &self.allow)?)
    }

    fn folder(&self) -> Result<PathBuf, Failure> {
        if let Some(folder) = &self.cache {
            return Ok(folder.clone());
        }
        let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cache"));
        let caches = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
        let caches = caches.or_else(home);
        let caches =
            caches.ok_or_else(|| Failure::usage("the variable HOME is not set: give --cache DIR"))?;
        Ok(caches.join("taskwork/programs"))
    }

    fn node(&self) -> Result<NodeBuilder, Failure> {
        let mut labels: Labels = format!("{}=yes", agents::AGENT).parse().unwrap_or_default();
        for more in &self.labels {
            labels.merge(more).map_err(|error| Failure::usage(format!("--label: {error}")))?;
        }
        let connect = self.cluster.connect()?;
        let mut node = Node::builder_at(connect, self.cluster.name(), agents::release())?
            .labels(labels)
            .listen(self.listen)
            .drain_deadline(self.drain_deadline)
            // The nodes of programs remove jobs, each as its options say.
            .keep(usize::MAX, Duration::MAX)
            .keep_result_bytes(u64::MAX);
        if let Some(host) = &self.advertise {
            node = node.advertise(host.parse().map_err(Failure::usage)?);
        }
        Ok(if self.cluster.is_insecure() { node.insecure() } else { node })
    }

    /// Returns the options of the node in a slot.
    fn of_guest(&self, slot: u16) -> Vec<OsString> {
        let mut options = self.cluster.options();
        let mut add = |name: &str, value: String| options.extend([name.into(), value.into()]);
        let guests = usize::from(self.guests);
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let workers =
            self.workers.map_or_else(processors, |workers| usize::try_from(workers).unwrap_or(usize::MAX));
        // The first slots get the rest.
        let share = workers / guests + usize::from(usize::from(slot) < workers % guests);
        add("--workers", share.max(1).to_string());
        let mut listen = self.listen;
        if listen.port() > 0 {
            listen.set_port(listen.port().saturating_add(1 + slot));
        }
        add("--listen", listen.to_string());
        if let Some(host) = &self.advertise {
            add("--advertise", host.clone());
        }
        for labels in &self.labels {
            add("--label", labels.to_string());
        }
        add("--drain-deadline", self.drain_deadline.as_secs_f64().to_string());
        add("--idle-exit", humantime::format_duration(self.idle_exit).to_string());
        options.extend(self.options.iter().cloned());
        options
    }
}

/// Parses the name of a host or an IP address.
fn host(text: &str) -> Result<String, String> {
    let has_port = text.parse::<std::net::IpAddr>().is_err() && text.contains(':');
    text.parse::<Address>()?;
    if has_port {
        Err("expected an IP address or the name of a host, without a port".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(more: &[&str]) -> Arguments {
        Line::try_parse_from([&["agent", "--zk", "a:1"], more].concat()).unwrap().arguments
    }

    #[test]
    fn agent_without_certificates_needs_an_explicit_option() {
        let refused = parse(&[]).submitters().unwrap_err().to_string();
        assert!(refused.contains("--submitters-ca FILE") && refused.contains("--allow-any"), "{refused}");
        assert!(parse(&["--allow-any"]).submitters().is_ok());
        assert!(Line::try_parse_from(["agent", "--allow-any", "--allow", "alice"]).is_err());
    }

    #[test]
    fn nodes_divide_workers_and_listen_on_the_following_ports() {
        let agent = parse(&[
            "--guests",
            "2",
            "--workers",
            "3",
            "--listen",
            "0.0.0.0:7420",
            "--label",
            "zone=a",
            "--",
            "--near",
            "zone",
        ]);
        for (slot, workers, port) in [(0, "2", "7421"), (1, "1", "7422")] {
            let options: Vec<String> =
                agent.of_guest(slot).into_iter().map(|text| text.into_string().unwrap()).collect();
            let of =
                |name: &str| options[options.iter().position(|option| option == name).unwrap() + 1].as_str();
            assert_eq!((of("--workers"), of("--listen")), (workers, &*format!("0.0.0.0:{port}")));
            assert_eq!(
                (of("--zk"), of("--label"), of("--near"), of("--idle-exit")),
                ("a:1", "zone=a", "zone", "10s")
            );
        }
    }

    #[test]
    fn advertised_host_has_no_port() {
        assert!(host("192.0.2.1").is_ok() && host("2001:db8::1").is_ok() && host("h1.example").is_ok());
        assert!(host("192.0.2.1:7420").is_err() && host("h1:7420").is_err() && host("a b").is_err());
    }
}
