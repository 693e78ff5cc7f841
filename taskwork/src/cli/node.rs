//! `node`: be a node of a cluster until told to leave.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    process::ExitCode,
    thread,
    time::Duration,
};

use clap::Args;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use super::{
    Failure, Kinds, Program,
    build::BuildArguments,
    log::{Level, LogArguments},
    target::{ClusterArguments, runtime, seconds},
};
use crate::{
    config::Limits,
    job::WORKERS_MAX,
    shell::{
        ground::{Advertise, Machine},
        seat::SeatError,
        serve::{ServeError, ServeSetup, serve},
    },
};

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Workers; by default one for each processor.
    #[arg(long)]
    workers: Option<usize>,
    /// Where to listen for other nodes; port 0 takes any that is free.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where the other nodes find this one, if not where it listens: an address, or an address and a port.
    #[arg(long, value_name = "ADDR", value_parser = advertised)]
    advertise: Option<Advertise>,
    /// By when to be gone when told to leave by a signal, in seconds. In the last third of it what no other node has taken is put
    /// into ZooKeeper; what cannot be put there by the end, such as a task that does not stop, is lost.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    drain_deadline: Duration,
    #[command(flatten)]
    build: BuildArguments,
    #[command(flatten)]
    log: LogArguments,
}

pub(super) fn run<P: Program>(arguments: &Arguments) -> Result<ExitCode, Failure> {
    arguments.log.start(Level::Info);
    arguments.check_security()?;
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = arguments.workers.unwrap_or(processors);
    if !(1..=WORKERS_MAX).contains(&workers) {
        return Err(Failure::usage(format!("{workers} workers were asked for; it takes 1 to {WORKERS_MAX}")));
    }
    let mut kinds = Kinds::default();
    P::kinds(&mut kinds);
    let drain_deadline_ms = u64::try_from(arguments.drain_deadline.as_millis()).unwrap_or(u64::MAX);
    let limits = Limits { drain_deadline_ms, ..Limits::default() };
    let (connect, cluster) = (arguments.cluster.connect()?, arguments.cluster.paths()?);
    let runs = arguments.build.runs::<P>()?;
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let setup = ServeSetup {
            ground: Box::new(Machine { connect, listen: arguments.listen, advertise: arguments.advertise }),
            cluster,
            runs,
            kinds,
            workers,
            limits,
        };
        serve(&setup, told_to_leave()?).await.map_err(failure)
    });
    // A task that never asks whether it is to stop would keep its thread, and this process, for ever.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

fn failure(error: ServeError) -> Failure {
    match error {
        ServeError::Connect(error) => error.into(),
        ServeError::Store(error) | ServeError::Seat(SeatError::Store(error)) => error.into(),
        ServeError::Seat(_) => Failure::usage(error),
        ServeError::Abandoned { .. } | ServeError::BrokenDown => Failure::failed(error),
    }
}

impl Arguments {
    /// Who can write to ZooKeeper can become a member, and members get tasks, which are code's input everywhere.
    fn check_security(&self) -> Result<(), Failure> {
        let beyond = |ip: IpAddr| !ip.is_loopback();
        let seen = beyond(self.listen.ip()) || self.advertise.is_some_and(|at| beyond(at.ip));
        if !seen || !self.cluster.is_open() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "this node would be reached from other machines (--listen {}), and without credentials everybody who \
             reaches ZooKeeper could join the cluster.\n  Write one line user:password into a file, chmod 600 it, and give \
             it to every node and command by --zk-auth FILE, with TLS to ZooKeeper by --zk-tls-ca FILE.\n  \
             Or say --insecure, if the network is yours alone",
            self.listen
        )))
    }
}

/// Each SIGTERM and each Ctrl-C asks to leave.
fn told_to_leave() -> Result<mpsc::Receiver<()>, Failure> {
    let refused = |error| Failure::failed(format!("signals cannot be listened for: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    let (sender, leave) = mpsc::channel(8);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            // With more than a few waiting, one more says nothing new.
            let _ = sender.try_send(());
        }
    });
    Ok(leave)
}

pub(super) fn advertised(text: &str) -> Result<Advertise, String> {
    if let Ok(at) = text.parse::<SocketAddr>() {
        return Ok(Advertise { ip: at.ip(), port: Some(at.port()) });
    }
    let ip = text.parse().map_err(|_| "expected an IP address, or an IP address and a port".to_owned())?;
    Ok(Advertise { ip, port: None })
}
