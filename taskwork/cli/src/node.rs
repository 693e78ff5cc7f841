//! `node`: runs a node of a cluster until it is asked to leave.

use std::{net::SocketAddr, pin::pin, process::ExitCode, time::Duration};

use clap::Args;
use taskwork::{
    Labels, Node,
    node::{Address, Kinds, NodeBuilder},
};
use tokio::time::Instant;

use crate::{
    Failure,
    build::BuildArguments,
    interrupts::Endings,
    job_log::interval,
    log::{Level, LogArguments},
    preemption::{self, Notice, Notices, Source},
    target::{ClusterArguments, merged, runtime, seconds, time},
};

/// The options of a node.
// Repeated options override: scripts set options, and their users may append others.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
#[group(skip)]
pub struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// The number of workers; by default one for each processor. With 0 the node is a member that works on no
    /// job.
    #[arg(long)]
    workers: Option<usize>,
    /// A label of the node, or several separated by commas: it also accepts jobs that require it. May be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = str::parse::<Labels>)]
    labels: Vec<Labels>,
    /// Prefer to steal tasks from nodes that have the same value as this node for the label of this name. This node
    /// needs the label, too: for example --label zone=a --near zone. Some tasks still come from other nodes.
    #[arg(long, value_name = "NAME")]
    near: Option<String>,
    /// The address to listen on for other nodes; port 0 selects any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The address at which other nodes reach this one, if it differs: an IP address or a host name, with or without a
    /// port. A name is resolved on this machine each time the node joins.
    #[arg(long, value_name = "ADDR", value_parser = str::parse::<Address>)]
    advertise: Option<Address>,
    /// Time to leave after a signal, in seconds. In the last third of it, tasks that no other node has taken are
    /// written to ZooKeeper. Other nodes continue a task that is not written in time, such as one that does not stop,
    /// from its last written state.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    drain_deadline: Duration,
    /// Serve /livez, /readyz and the metrics of this node over HTTP on an address that only this machine can reach,
    /// for example 127.0.0.1:8788.
    #[arg(long, value_name = "ADDR")]
    health: Option<SocketAddr>,
    /// The source of preemption notices for the machine: aws, gcp or azure (their metadata services), slurm (the time
    /// limit of the job), `file:PATH` (a file that appears; it contains the seconds left, a time, or nothing: write it
    /// under another name and rename it, and remove it before the next start), or none. After a notice the node leaves
    /// within the time left, at most within the drain deadline. May be repeated.
    #[arg(
        long = "notice",
        value_name = "SOURCE",
        env = "TASKWORK_NOTICE",
        value_delimiter = ',',
        value_parser = preemption::source
    )]
    notices: Vec<Source>,
    /// Leave when the node has had no job for this time, for example 10m.
    #[arg(long, value_name = "TIME", value_parser = time)]
    idle_exit: Option<Duration>,
    /// Leave early enough to be gone after this time, for example 12h.
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_lifetime: Option<Duration>,
    /// The number of finished jobs kept in ZooKeeper; older ones are removed, except those that another job waits for.
    /// Use the same number for all nodes of a cluster.
    #[arg(long, value_name = "JOBS", default_value = "1000")]
    keep: usize,
    /// How long a finished job is kept, for example 90d. Use the same time for all nodes of a cluster.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = time)]
    keep_for: Duration,
    /// The total size of the results of finished jobs kept in ZooKeeper, in MiB; beyond it, jobs that ended earlier are
    /// removed. Use the same number for all nodes of a cluster.
    #[arg(long, value_name = "MIB", default_value = "256")]
    keep_mib: u32,
    /// The interval at which the node logs its work in each of its jobs, in seconds; with 0 it does not.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = interval)]
    log_every: Duration,
    #[command(flatten)]
    build: BuildArguments,
    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    /// Returns the number of workers, if it is set.
    pub fn workers(&self) -> Option<usize> {
        self.workers
    }

    /// Adds labels to the given ones.
    #[must_use]
    pub fn label(mut self, labels: Labels) -> Self {
        self.labels.push(labels);
        self
    }
}

/// Runs a node of a program with this name and version.
///
/// # Errors
/// If an option is invalid, or the node cannot start or has broken down.
pub fn run(arguments: &Arguments, kinds: Kinds, name: &str, version: &str) -> Result<ExitCode, Failure> {
    arguments.log.start(Level::Info);
    let connect = arguments.cluster.connect()?;
    let release = arguments.build.release(name, version)?;
    let mut node = Node::builder_at(connect, arguments.cluster.name(), release)?
        .kinds(kinds)
        .listen(arguments.listen)
        .drain_deadline(arguments.drain_deadline)
        .report_every(arguments.log_every)
        .keep(arguments.keep, arguments.keep_for)
        .keep_result_bytes(u64::from(arguments.keep_mib) << 20);
    node = node.labels(node_labels(&arguments.labels)?);
    if let Some(label) = &arguments.near {
        node = node.near(label);
    }
    if let Some(workers) = arguments.workers {
        node = node.workers(workers);
    }
    if let Some(address) = arguments.advertise.clone() {
        node = node.advertise(address);
    }
    if arguments.cluster.is_insecure() {
        node = node.insecure();
    }
    let runtime = runtime()?;
    let served = runtime.block_on(serve(node, arguments));
    // A task that never checks whether it should stop must not keep this process alive.
    runtime.shutdown_background();
    served
}

/// The variables in which `taskwork scale` passes a node the id of its machine and further labels.
const MACHINE_VARIABLE: &str = "TASKWORK_MACHINE";
const LABELS_VARIABLE: &str = "TASKWORK_LABELS";

/// Returns the labels of a node: the given ones, and those of its machine, from the environment.
///
/// # Errors
/// If they contradict each other, or those of the environment are invalid.
pub fn node_labels(given: &[Labels]) -> Result<Labels, Failure> {
    labels(given, |name| std::env::var(name).ok())
}

fn labels(given: &[Labels], variable: impl Fn(&str) -> Option<String>) -> Result<Labels, Failure> {
    let mut labels = merged("--label", given)?;
    let is_set = |text: &String| !text.is_empty();
    let machine =
        variable(MACHINE_VARIABLE).filter(is_set).map(|id| (MACHINE_VARIABLE, format!("machine={id}")));
    let more = variable(LABELS_VARIABLE).filter(is_set).map(|text| (LABELS_VARIABLE, text));
    for (name, text) in machine.into_iter().chain(more) {
        let added = text.parse::<Labels>().and_then(|more| labels.merge(&more));
        added.map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    }
    Ok(labels)
}

/// Runs the node until it has left, and returns the exit code. [Signals](Endings) and notices make it leave.
async fn serve(node: NodeBuilder, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut endings = Endings::listen()?;
    let lead = preemption::lead(arguments.drain_deadline);
    let mut notices = Notices::watch(&arguments.notices, lead)?;
    if let Some(lifetime) = arguments.max_lifetime {
        notices.end_after(lifetime, lead);
    }
    let listener = arguments.health.map(health::listen).transpose()?;
    let mut node = node.serve()?;
    let mut health = pin!(health::serve(listener, &node));
    let mut idle = pin!(or_never(arguments.idle_exit.map(|time| node.idle_for(time))));
    let (mut is_idle, mut leaving) = (false, Leaving::default());
    loop {
        tokio::select! {
            never = &mut health => match never {},
            ended = node.ended() => return Ok(ended.map(|()| ExitCode::SUCCESS)?),
            () = endings.next() => signalled(&node, &mut leaving, arguments.drain_deadline),
            Notice { why, gone_at } = notices.next() => {
                let left = gone_at.saturating_duration_since(Instant::now());
                let deadline = preemption::deadline(left, arguments.drain_deadline);
                if leaving.shortens(Instant::now() + deadline) {
                    tracing::warn!(
                        why, left_s = left.as_secs(), deadline_s = deadline.as_secs_f64(), "the node is to leave"
                    );
                    node.drain_within(deadline);
                } else {
                    tracing::info!(why, left_s = left.as_secs(), "the node is leaving already, and in time");
                }
            }
            () = &mut idle, if !is_idle => {
                is_idle = true;
                leaving.shortens(Instant::now() + arguments.drain_deadline);
                tracing::info!("there has been no job for the node for long; it leaves");
                node.drain();
            }
        }
    }
}

/// Serves the health of the node.
#[cfg(feature = "health")]
mod health {
    use std::{convert::Infallible, net::SocketAddr};

    use taskwork::Node;
    use tokio::net::TcpListener;

    use crate::{
        Failure,
        web::{self, Pages},
    };

    pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
        let listener = web::listen("--health", address)?;
        // The system may have selected the port.
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "health and metrics are served");
        }
        Ok(listener)
    }

    /// Serves until the process exits.
    pub(super) fn serve(
        listener: Option<TcpListener>,
        node: &Node,
    ) -> impl Future<Output = Infallible> + use<> {
        let health = node.watch_health();
        async move {
            match listener {
                Some(listener) => web::serve(listener, Pages::of_node(health)).await,
                None => std::future::pending().await,
            }
        }
    }
}

/// Without the feature, health is not served.
#[cfg(not(feature = "health"))]
mod health {
    use std::{convert::Infallible, net::SocketAddr};

    use taskwork::Node;

    use crate::Failure;

    pub(super) fn listen(_: SocketAddr) -> Result<Infallible, Failure> {
        Err(Failure::usage("this program was built without --health: build it with --features health"))
    }

    pub(super) fn serve(_: Option<Infallible>, _: &Node) -> impl Future<Output = Infallible> + use<> {
        std::future::pending()
    }
}

/// Waits for a future; without one, forever.
async fn or_never(waits: Option<impl Future<Output = ()>>) {
    match waits {
        Some(waits) => waits.await,
        None => std::future::pending().await,
    }
}

/// Asks a node to leave because of a signal, within a time limit.
fn signalled(node: &Node, leaving: &mut Leaving, most: Duration) {
    if leaving.is_signalled(Instant::now(), most) {
        node.drain();
    } else {
        tracing::info!("the node is leaving already, and in time; a further signal makes it hurry");
    }
}

/// The requests to leave so far. A second request makes the node park its tasks instead of handing them over, so a
/// request is forwarded only if it leaves less time, or if it is a second signal.
#[derive(Debug, Default)]
struct Leaving {
    /// The time by which the node must have left.
    by: Option<Instant>,
    was_signalled: bool,
}

impl Leaving {
    /// Records a request to have left by a time. Returns whether to forward it to the node.
    fn shortens(&mut self, at: Instant) -> bool {
        let shortens = self.by.is_none_or(|by| at < by);
        if shortens {
            self.by = Some(at);
        }
        shortens
    }

    /// Records a signal with a time limit. Returns whether to forward it to the node: a machine that shuts down after a
    /// notice also sends a signal, but two signals are a user's request to hurry.
    fn is_signalled(&mut self, now: Instant, most: Duration) -> bool {
        if std::mem::replace(&mut self.was_signalled, true) {
            // The time that the node takes after a second request.
            self.shortens(now + most / 3);
            return true;
        }
        self.shortens(now + most)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    const MOST: Duration = Duration::from_secs(30);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn notice_with_less_time_is_forwarded() {
        let (now, mut leaving) = (Instant::now(), Leaving::default());
        assert!(leaving.shortens(now + s(30)));
        assert!(!leaving.shortens(now + s(31)));
        assert!(leaving.shortens(now + s(5)));
        assert!(!leaving.shortens(now + s(29)));
    }

    #[test]
    fn notice_after_signal_is_forwarded_only_with_less_time() {
        let (now, mut leaving) = (Instant::now(), Leaving::default());
        assert!(leaving.is_signalled(now, MOST));
        assert!(!leaving.shortens(now + s(1) + MOST), "the signal has left it less");
        assert!(leaving.shortens(now + s(12)));
    }

    #[test]
    fn second_signal_after_notice_is_forwarded_but_not_first() {
        let (now, mut leaving) = (Instant::now(), Leaving::default());
        assert!(leaving.shortens(now + s(27)));
        assert!(!leaving.is_signalled(now + s(2), MOST));
        assert!(leaving.is_signalled(now + s(3), MOST), "a second request");
        assert!(!leaving.shortens(now + s(14)), "it hurries already");
        assert!(leaving.shortens(now + s(5)));
    }

    #[test]
    fn second_signal_is_forwarded() {
        let (now, mut leaving) = (Instant::now(), Leaving::default());
        assert!(leaving.is_signalled(now, MOST) && leaving.is_signalled(now, MOST));
    }

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn repeated_option_overrides_and_labels_add_up() {
        let line = [
            "node",
            "--workers",
            "1",
            "--label",
            "a=1",
            "--drain-deadline",
            "30",
            "--insecure",
            "--workers",
            "2",
            "--insecure",
            "--label",
            "b=2",
            "--drain-deadline",
            "5",
            "--notice",
            "aws",
            "--notice",
            "gcp",
        ];
        let Line { arguments } = Line::try_parse_from(line).unwrap();
        assert_eq!((arguments.workers, arguments.drain_deadline), (Some(2), s(5)));
        let labels = merged("--label", &arguments.labels).unwrap();
        assert_eq!((labels.get("a"), labels.get("b")), (Some("1"), Some("2")));
        assert_eq!(arguments.notices, [Source::Aws, Source::Gcp]);
    }

    #[test]
    fn machine_variables_become_labels() {
        let given = ["zone=a".parse().unwrap()];
        let of = |machine: &str, more: &str| {
            labels(&given, |name| Some(if name == MACHINE_VARIABLE { machine } else { more }.to_owned()))
                .map(|labels| labels.to_string())
                .map_err(|error| error.to_string())
        };
        assert_eq!(of("", "").unwrap(), "zone=a", "a variable that is set to nothing");
        assert_eq!(of("k-0.1", "price=0.1/h,zone=a").unwrap(), "machine=k-0.1,price=0.1/h,zone=a");
        for (machine, more, part) in [
            ("a b", "", "TASKWORK_MACHINE"),
            ("m", "zone=b", "TASKWORK_LABELS"),
            ("m", "zone", "TASKWORK_LABELS"),
        ] {
            let refused = of(machine, more).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn empty_notice_source_means_none() {
        // As from a variable that is set but empty.
        let Line { arguments } = Line::try_parse_from(["node", "--notice", ""]).unwrap();
        assert_eq!(arguments.notices, [Source::None]);
        assert!(Line::try_parse_from(["node", "--notice", "ftp"]).is_err());
    }
}
