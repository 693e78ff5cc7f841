//! `gateway`: serves the REST interface, as a node that takes the service job only. Without ZooKeeper, the node of the process
//! takes this job.

use std::{future, io, net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use taskwork::{
    Labels, Node,
    node::{Address, NodeBuilder, NodeError},
};
use taskwork_cli::{
    Failure,
    command::{Endings, Level, print},
    web::tls::TlsArguments,
};
use tokio::{task::spawn_blocking, time::timeout};

use super::{Access, here::broken, id_of, kinds};
use crate::{
    gateway::{self, Entrance},
    mesh,
    service::Quotas,
};

/// The maximum time that a gateway takes to leave its cluster.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// The interval at which usage is written: a gateway that crashes loses that of its direct calls since the last time.
const USAGE: Duration = Duration::from_secs(60);

/// The interval at which the files of lost calls are removed.
const SWEEP: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Args)]
pub(super) struct Gateway {
    /// The address to listen on; port 0 selects any free port. If other machines can reach it, --tls-cert, --tls-key and
    /// --tokens are required.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8790")]
    listen: SocketAddr,
    /// A file with the tokens of tenants, one of which each request must have: lines of TENANT ROLE TOKEN, with the role read,
    /// run, deploy or operator. It must be readable only by its owner, or a group assigned by root, and is read again when it changes.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// A file in TOML with limits of tenants: the table `default`, and tables `tenants.NAME` instead, with running, waiting,
    /// jobs, `resource_bytes` and `result_bytes`.
    #[arg(long, value_name = "FILE", requires = "tokens")]
    quota: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArguments,
    /// The address to listen on for nodes; port 0 selects any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", requires = "zk")]
    node_listen: SocketAddr,
    /// The address at which nodes reach this gateway, if it differs: an IP address or a host name, with or without a
    /// port.
    #[arg(long, value_name = "ADDR", value_parser = str::parse::<Address>, requires = "zk")]
    node_advertise: Option<Address>,
    /// End at the end of standard input, which a client holds open as long as it exists.
    #[arg(long, hide = true)]
    until_eof: bool,
    #[command(flatten)]
    access: Access,
}

pub(super) fn serve(arguments: &Gateway) -> Result<ExitCode, Failure> {
    let Gateway { access, listen, tokens, quota, tls, .. } = arguments;
    let has_servers = access.cluster.has_servers();
    let level = if has_servers { Level::Info } else { Level::Warn };
    access.connected(level, async |service, store, client| {
        let service = match quota {
            Some(file) => service.with_quotas(
                Quotas::read(file)
                    .map_err(|why| Failure::usage(format!("--quota {}: {why}", file.display())))?,
            ),
            None => service,
        };
        let entrance = Entrance::open(*listen, tls, tokens.as_deref())?;
        let label = id_of(store.direct_label())?;
        let mut node = if has_servers { Some(node_of(arguments, &label)?.serve()?) } else { None };
        let version = access.release()?.version().to_owned();
        let mut endings = Endings::listen()?;
        print(&format!("serving {}\n", entrance.url()));
        let (sweeper, keeper) = (service.clone(), service.clone());
        let ended = Box::pin(async {
            tokio::select! {
                never = gateway::serve(entrance, service) => match never {},
                never = mesh::keep(client, label, version) => match never {},
                never = sweeper.sweep(SWEEP) => match never {},
                never = keeper.keep_usage(USAGE) => match never {},
                () = endings.next() => Ok(()),
                () = end_of_input(), if arguments.until_eof => Ok(()),
                ended = ended(node.as_mut()) => Err(broken(ended)),
            }
        })
        .await;
        // So that nodes do not wait for the end of its session.
        if let Some(mut node) = node {
            node.drain_within(LEAVE_MAX);
            let _ = timeout(LEAVE_MAX * 2, node.ended()).await;
        }
        ended.map(|()| ExitCode::SUCCESS)
    })
}

async fn ended(node: Option<&mut Node>) -> Result<(), NodeError> {
    match node {
        Some(node) => node.ended().await,
        None => future::pending().await,
    }
}

/// Waits for the end of standard input, or an error of it.
async fn end_of_input() {
    let _ = spawn_blocking(|| io::copy(&mut io::stdin().lock(), &mut io::sink())).await;
}

/// Returns the node of a gateway, which takes the service job and no others.
fn node_of(arguments: &Gateway, label: &Labels) -> Result<NodeBuilder, Failure> {
    let Gateway { access, node_listen, node_advertise, .. } = arguments;
    let builder = Node::builder_at(access.cluster.connect()?, access.cluster.name(), access.release()?)?
        .kinds(kinds())
        .workers(1)
        .labels(label.clone())
        .listen(*node_listen);
    let builder = if access.cluster.is_insecure() { builder.insecure() } else { builder };
    Ok(match node_advertise {
        Some(address) => builder.advertise(address.clone()),
        None => builder,
    })
}
