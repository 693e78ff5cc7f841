//! `node`: runs a node of a cluster until it is told to leave.

use std::{net::SocketAddr, pin::pin, process::ExitCode, time::Duration};

use clap::Args;
use taskwork::{Address, Kinds, Labels, Node, NodeBuilder};
use tokio::time::Instant;

use crate::{
    Failure,
    build::BuildArguments,
    course::interval,
    interrupts::Endings,
    log::{Level, LogArguments},
    notice::{self, Notice, Notices, Source},
    target::{ClusterArguments, merged, runtime, seconds, time},
};

// The last of several counts: scripts set options, and their users may set others after them.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
#[group(skip)]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// The number of workers; by default one for each processor. With 0 the node is a member that works on no
    /// job.
    #[arg(long)]
    workers: Option<usize>,
    /// A label of the node, or several with commas: it also takes jobs that require it. May be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = str::parse::<Labels>)]
    labels: Vec<Labels>,
    /// Prefer to get tasks from nodes whose label of this name has the same value as that of this node, which
    /// needs it too, for example --label zone=a --near zone. Some tasks still come from anywhere.
    #[arg(long, value_name = "NAME")]
    near: Option<String>,
    /// The address to listen on for other nodes; port 0 takes any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The address at which other nodes reach this one, if it differs: an IP address or the name of a host, with or
    /// without a port. A name is looked up here, whenever the node joins.
    #[arg(long, value_name = "ADDR", value_parser = str::parse::<Address>)]
    advertise: Option<Address>,
    /// Time to leave after a signal, in seconds. In the last third of it, tasks that no other node has taken
    /// are written to ZooKeeper; what cannot be written by the end, such as a task that does not stop, is
    /// continued by others from where it was last written.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    drain_deadline: Duration,
    /// Serve /livez, /readyz and the metrics of this node over HTTP on an address that only this machine can reach,
    /// for example 127.0.0.1:8788.
    #[arg(long, value_name = "ADDR")]
    health: Option<SocketAddr>,
    /// Where the node learns that its machine will be taken away: aws, gcp or azure (their metadata services), slurm
    /// (the time limit of the job), `file:PATH` (a file that appears, with the seconds that are left, a time, or
    /// nothing in it: write it elsewhere and rename it, and remove it before the next start), or none. It then leaves
    /// in the time that is left, and never takes longer than the drain deadline. May be repeated.
    #[arg(
        long = "notice",
        value_name = "SOURCE",
        env = "TASKWORK_NOTICE",
        value_delimiter = ',',
        value_parser = notice::source
    )]
    notices: Vec<Source>,
    /// Leave when there has been no job for the node for so long, for example 10m. It need not be told by anybody.
    #[arg(long, value_name = "TIME", value_parser = time)]
    idle_exit: Option<Duration>,
    /// Leave so early that the node is gone after this time, for example 12h.
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_lifetime: Option<Duration>,
    /// The number of jobs that are kept in ZooKeeper after their end; older ones are forgotten, except those that another
    /// job waits for. Give all nodes of a cluster the same number.
    #[arg(long, value_name = "JOBS", default_value = "1000")]
    keep: usize,
    /// The time for which a job is kept after its end, for example 90d. Give all nodes of a cluster the same time.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = time)]
    keep_for: Duration,
    /// Log what the node does in each of its jobs every so many seconds; with 0 never.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = interval)]
    log_every: Duration,
    #[command(flatten)]
    build: BuildArguments,
    #[command(flatten)]
    log: LogArguments,
}

/// Runs a node of a program of this name and version.
pub(crate) fn run(
    arguments: &Arguments,
    kinds: Kinds,
    name: &str,
    version: &str,
) -> Result<ExitCode, Failure> {
    arguments.log.start(Level::Info);
    let connect = arguments.cluster.connect()?;
    let release = arguments.build.release(name, version)?;
    let mut node = Node::builder_at(connect, arguments.cluster.name(), release)?
        .kinds(kinds)
        .listen(arguments.listen)
        .drain_deadline(arguments.drain_deadline)
        .report_every(arguments.log_every)
        .keep(arguments.keep, arguments.keep_for);
    node = node.labels(labels(&arguments.labels, |name| std::env::var(name).ok())?);
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
    // A task that never checks whether it should stop would keep its thread, and this process, for ever.
    runtime.shutdown_background();
    served
}

/// The variables by which a controller tells a node its machine and further labels: `taskwork scale`.
const MACHINE_VARIABLE: &str = "TASKWORK_MACHINE";
const LABELS_VARIABLE: &str = "TASKWORK_LABELS";

/// Returns the labels of a node: those that were given, and those that its machine has.
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

/// Runs the node until it has left, and returns the exit code. The [signals](Endings) ask it to leave, and so does a notice.
async fn serve(node: NodeBuilder, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut endings = Endings::listen()?;
    let lead = notice::lead(arguments.drain_deadline);
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
                let deadline = notice::deadline(left, arguments.drain_deadline);
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

/// What tells others how the node is.
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
        // The port may have been chosen by the system.
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "health and metrics are served");
        }
        Ok(listener)
    }

    /// Serves for ever.
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

/// Programs that are built without it tell nobody.
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

/// Waits for what there may be; for ever if there is nothing.
async fn or_never(waits: Option<impl Future<Output = ()>>) {
    match waits {
        Some(waits) => waits.await,
        None => std::future::pending().await,
    }
}

/// Lets a node leave that has got a signal, in so much time.
fn signalled(node: &Node, leaving: &mut Leaving, most: Duration) {
    if leaving.is_signalled(Instant::now(), most) {
        node.drain();
    } else {
        tracing::info!("the node is leaving already, and in time; a further signal makes it hurry");
    }
}

/// What has told the node to leave so far. A further request makes it park its tasks instead of handing them on, so
/// only those are passed on that leave it less time, or by which somebody insists.
#[derive(Debug, Default)]
struct Leaving {
    /// The time by which it is to have left.
    by: Option<Instant>,
    was_signalled: bool,
}

impl Leaving {
    /// Notes a request to have left by a time. Returns whether the node is to be told.
    fn shortens(&mut self, at: Instant) -> bool {
        let shortens = self.by.is_none_or(|by| at < by);
        if shortens {
            self.by = Some(at);
        }
        shortens
    }

    /// Notes a signal, which leaves the node so much time. Returns whether the node is to be told: a machine that shuts
    /// down after a notice also sends a signal, but nobody sends two without wanting it to hurry.
    fn is_signalled(&mut self, now: Instant, most: Duration) -> bool {
        if std::mem::replace(&mut self.was_signalled, true) {
            // What a node takes that is told again.
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
    fn only_a_notice_with_less_time_hurries_a_node_that_leaves() {
        let (now, mut leaving) = (Instant::now(), Leaving::default());
        assert!(leaving.shortens(now + s(30)));
        assert!(!leaving.shortens(now + s(31)));
        assert!(leaving.shortens(now + s(5)));
        assert!(!leaving.shortens(now + s(29)));
    }

    #[test]
    fn a_notice_after_a_signal_hurries_the_node_only_if_it_leaves_less_time() {
        let (now, mut leaving) = (Instant::now(), Leaving::default());
        assert!(leaving.is_signalled(now, MOST));
        assert!(!leaving.shortens(now + s(1) + MOST), "the signal has left it less");
        assert!(leaving.shortens(now + s(12)));
    }

    #[test]
    fn the_signal_of_a_shutdown_after_a_notice_does_not_hurry_the_node_but_a_second_one_does() {
        let (now, mut leaving) = (Instant::now(), Leaving::default());
        assert!(leaving.shortens(now + s(27)));
        assert!(!leaving.is_signalled(now + s(2), MOST));
        assert!(leaving.is_signalled(now + s(3), MOST), "somebody insists");
        assert!(!leaving.shortens(now + s(14)), "it hurries already");
        assert!(leaving.shortens(now + s(5)));
    }

    #[test]
    fn a_second_signal_hurries_a_node() {
        let (now, mut leaving) = (Instant::now(), Leaving::default());
        assert!(leaving.is_signalled(now, MOST) && leaving.is_signalled(now, MOST));
    }

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn the_last_of_an_option_counts_and_labels_add_up() {
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
    fn a_machine_gives_its_node_labels() {
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
    fn an_empty_source_of_notices_is_none() {
        // As of a variable that is set to nothing.
        let Line { arguments } = Line::try_parse_from(["node", "--notice", ""]).unwrap();
        assert_eq!(arguments.notices, [Source::None]);
        assert!(Line::try_parse_from(["node", "--notice", "ftp"]).is_err());
    }
}
