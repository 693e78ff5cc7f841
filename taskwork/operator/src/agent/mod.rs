//! `taskwork agent`: a member that starts the programs of jobs that travel with them.
//!
//! ```text
//!   job ─▶ is its submitter allowed? ─▶ is the program kept, with its content? ─▶ otherwise fetch it ─▶ start `PROGRAM node`
//! ```
//!
//! The node leaves when it has had no job for a while. If it exits while a job is open, it is started again, after a pause.

mod cache;
mod fetch;
mod guest;
mod run;
mod table;

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
    command::{
        ClusterArguments, Level, LogArguments, Notices, node_labels, notice_lead, notice_source, runtime,
        seconds, time,
    },
};

use self::{cache::Cache, run::Running};

/// The maximum size of the file of authorities, in bytes.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// The options of `taskwork agent`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only run programs of this submitter: a DNS name in its certificate (an exact one; wildcards do not count), or the
    /// SHA-256 of the certificate. May be repeated. By default, every submitter whose certificate is signed by the authority
    /// is allowed, except for the agent's own certificate.
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
    /// The source of preemption notices for the machine, as for nodes: aws, gcp, azure, slurm, `file:PATH` or none. After a
    /// notice the agent and its nodes leave. May be repeated.
    #[arg(long = "notice", value_name = "SOURCE", env = "TASKWORK_NOTICE", value_delimiter = ',', value_parser = notice)]
    notices: Vec<String>,
    /// A node ends when it has had no job for this time.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    idle_exit: Duration,
    /// The folder that keeps programs. [default: ~/.cache/taskwork/programs]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// The total size of these programs, in GiB. The least recently used ones are removed first.
    /// Those of open jobs are kept; a program that does not fit next to them is not fetched.
    #[arg(long, value_name = "GIB", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    cache_gib: u32,
    /// Further options of the nodes: -- --near zone. A node that leaves by such an option is started again while its job is
    /// open.
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<OsString>,
    // Last, since the headings also apply to later options.
    #[command(flatten, next_help_heading = "Connection")]
    cluster: ClusterArguments,
    #[command(flatten, next_help_heading = "Log")]
    log: LogArguments,
}

/// Runs an agent until it is asked to leave.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    arguments.log.start(Level::Info);
    let submitters = arguments.submitters()?;
    arguments.check_ports()?;
    let sources = arguments.notices.iter().map(|text| notice_source(text)).collect::<Result<Vec<_>, _>>();
    let sources = sources.map_err(Failure::usage)?;
    let cache = Cache::open(&arguments.folder()?, u64::from(arguments.cache_gib) << 30)?;
    let node = arguments.node()?;
    let options = (0..arguments.guests).map(|slot| arguments.of_guest(slot)).collect();
    runtime()?.block_on(async {
        let notices = Notices::watch(&sources, notice_lead(arguments.drain_deadline))?;
        let agent = agents::Agent::start(node)?;
        let cluster = arguments.cluster.name().to_owned();
        let (idle_exit, drain_deadline) = (arguments.idle_exit, arguments.drain_deadline);
        Running::new(cluster, submitters, cache, options, idle_exit, drain_deadline).run(agent, notices).await
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
        let tls = self.cluster.connect()?.tls;
        let own = tls.as_ref().and_then(|tls| Some(tls.identity.as_ref()?.0.clone()));
        let authorities = match &self.submitters_ca {
            Some(file) => read_text(file, PEM_BYTES_MAX)
                .map_err(|error| Failure::usage(format!("--submitters-ca {}: {error}", file.display())))?,
            None => tls.map(|tls| tls.ca).ok_or_else(|| {
                Failure::usage(
                    "an agent runs programs of certified submitters: give the authority of their certificates by \
                     --zk-tls-ca FILE or --submitters-ca FILE.\n  Or pass --allow-any, if you trust everybody who can \
                     write to this ZooKeeper",
                )
            })?,
        };
        if self.allow.is_empty() && self.submitters_ca.is_none() {
            tracing::warn!(
                "this agent runs programs of everybody with a certificate of the authority of ZooKeeper's servers, also of \
                 the servers themselves: name the submitters with --allow, or their own authority with --submitters-ca"
            );
        }
        let submitters = Submitters::certified(&authorities, &self.allow)?;
        Ok(match own {
            Some(own) => submitters.except(&own)?,
            None => submitters,
        })
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

    /// Checks that each node gets a port of its own.
    fn check_ports(&self) -> Result<(), Failure> {
        let last = u32::from(self.listen.port()) + u32::from(self.guests);
        if self.listen.port() == 0 || u16::try_from(last).is_ok() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "--listen {}: the nodes of {} guests listen on the next ports, up to {last}, and the last port is {}: give a \
             lower one",
            self.listen,
            self.guests,
            u16::MAX
        )))
    }

    fn node(&self) -> Result<NodeBuilder, Failure> {
        let mut given = vec![agent_label()];
        given.extend(self.labels.iter().cloned());
        let labels = node_labels(&given)?;
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
            // `check_ports` has refused an overflow.
            listen.set_port(listen.port().saturating_add(1 + slot));
        }
        add("--listen", listen.to_string());
        if let Some(host) = &self.advertise {
            add("--advertise", host.clone());
        }
        // A job may require each label of the agent, and its node must have it, too.
        for labels in [&agent_label()].into_iter().chain(&self.labels) {
            add("--label", labels.to_string());
        }
        add("--drain-deadline", self.drain_deadline.as_secs_f64().to_string());
        add("--idle-exit", humantime::format_duration(self.idle_exit).to_string());
        for source in &self.notices {
            add("--notice", source.clone());
        }
        options.extend(self.options.iter().cloned());
        options
    }
}

/// Returns the label by which agents differ from submitters.
fn agent_label() -> Labels {
    format!("{}=yes", agents::AGENT).parse().unwrap_or_default()
}

/// Checks a source of notices.
fn notice(text: &str) -> Result<String, String> {
    notice_source(text).map(|_| text.to_owned())
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
            assert_eq!((of("--zk"), of("--near"), of("--idle-exit")), ("a:1", "zone", "10s"));
            let labels = options.windows(2).filter(|option| option[0] == "--label");
            assert_eq!(labels.map(|option| &*option[1]).collect::<Vec<_>>(), ["agent=yes", "zone=a"]);
        }
    }

    #[test]
    fn each_node_gets_a_port_of_its_own() {
        let check = |listen, guests| parse(&["--listen", listen, "--guests", guests]).check_ports();
        assert!(check("0.0.0.0:65531", "4").is_ok() && check("0.0.0.0:0", "64").is_ok());
        let refused = check("0.0.0.0:65532", "4").unwrap_err().to_string();
        assert!(refused.contains("up to 65536"), "{refused}");
    }

    #[test]
    fn notices_are_for_the_agent_and_its_nodes() {
        let agent = parse(&["--notice", "file:/run/leave,slurm"]);
        let options = agent.of_guest(0);
        let sources = options.windows(2).filter(|option| option[0] == "--notice").map(|option| &option[1]);
        assert_eq!(sources.collect::<Vec<_>>(), ["file:/run/leave", "slurm"]);
        assert!(Line::try_parse_from(["agent", "--zk", "a:1", "--notice", "ftp"]).is_err());
    }

    #[test]
    fn advertised_host_has_no_port() {
        assert!(host("192.0.2.1").is_ok() && host("2001:db8::1").is_ok() && host("h1.example").is_ok());
        assert!(host("192.0.2.1:7420").is_err() && host("h1:7420").is_err() && host("a b").is_err());
    }
}
