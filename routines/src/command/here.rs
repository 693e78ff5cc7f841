//! Calls on this machine, without ZooKeeper: the process of the command is also a node, over a tree in its memory or in a
//! folder.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use clap::Args;
use taskwork::{
    Client, Node,
    client::Connect,
    node::{LabelError, NodeError},
};
use taskwork_cli::{Failure, command::interruptible};

use super::kinds;
use crate::{
    host::Host,
    isolation::{IsolationOptions, Preference},
    runtime::{Interpreters, Program},
    store::Store,
};

/// The maximum time in which running calls reach a state from which they continue later.
const LEAVE_MAX: Duration = Duration::from_secs(30);

/// The options of processes that run calls.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Runtimes {
    /// The folder for packages, and for pipes and temporary files of runtimes. Default: the system's folder for temporary files
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    #[command(flatten)]
    interpreters: Interpreters,
    #[command(flatten)]
    isolation: IsolationOptions,
}

/// The options of commands without ZooKeeper.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Here {
    /// The number of calls at a time; by default one for each processor.
    #[arg(long, conflicts_with = "zk")]
    workers: Option<NonZeroUsize>,
    /// Keep the jobs in this directory, which is created if it does not exist. The same command continues after any
    /// interruption, and returns the results of a job that is over.
    #[arg(long, value_name = "DIR", conflicts_with = "zk")]
    state: Option<PathBuf>,
    #[command(flatten)]
    runtimes: Runtimes,
}

impl Runtimes {
    /// Makes this process able to run calls, so many at a time. Isolated routines must not read the store and the state.
    pub(super) fn install(
        &self,
        store: Store,
        state: Option<&Path>,
        workers: usize,
        preference: Preference,
    ) -> Result<(), Failure> {
        let work = self.work.clone().unwrap_or_else(std::env::temp_dir);
        let private = [store.objects.local_path(), state, Some(&*work)].into_iter().flatten();
        let private = private.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let limits = self.isolation.limits(private.collect(), preference)?;
        let host = Host::new(store, &work, Program::Interpreters(self.interpreters.clone()), limits, workers);
        let host = host.map_err(|error| Failure::usage(format!("--work {}: {error}", work.display())))?;
        host.install().map_err(|_| Failure::failed("this process has a node of routines already"))
    }
}

impl Here {
    /// Opens the tree.
    pub(super) fn connect(&self) -> Result<Connect, Failure> {
        match &self.state {
            Some(folder) => Connect::in_folder(folder).map_err(Failure::usage),
            None => Ok(Connect::in_memory()),
        }
    }

    /// Returns whether jobs survive the process.
    pub(super) fn keeps_jobs(&self) -> bool {
        self.state.is_some()
    }

    /// Starts the node of this process.
    pub(super) fn start(&self, client: &Client, store: &Store) -> Result<Node, Failure> {
        let workers = self.workers.map_or_else(processors, NonZeroUsize::get);
        let mut labels = id_of(store.label())?;
        id_of(labels.merge(&id_of(store.direct_label())?))?;
        self.runtimes.install(store.clone(), self.state.as_deref(), workers, Preference::Possible)?;
        let node = Node::builder(client).kinds(kinds()).workers(workers).labels(labels);
        // The results of a finished job are printed again, however long ago it was.
        let node = if self.keeps_jobs() {
            node.keep(usize::MAX, Duration::MAX).keep_result_bytes(u64::MAX)
        } else {
            node
        };
        Ok(node.drain_deadline(LEAVE_MAX).serve()?)
    }

    /// Stops the node. If jobs survive, running calls are first asked for states; a further Ctrl-C interrupts that.
    pub(super) async fn stop(&self, mut node: Node) {
        if self.keeps_jobs() && !node.has_ended() {
            node.drain();
            if let Err(error) = interruptible(async { Ok(node.ended().await?) }).await {
                tracing::warn!(%error, "running calls will continue from earlier states");
            }
        }
        remove_host();
    }
}

/// Returns the error of a node that has ended although it was not asked to leave.
pub(super) fn broken(ended: Result<(), NodeError>) -> Failure {
    ended.map_or_else(Failure::from, |()| Failure::failed("the node of this process has left its cluster"))
}

/// Removes the temporary files of the node of this process.
pub(super) fn remove_host() {
    if let Some(host) = Host::current() {
        host.remove();
    }
}

pub(super) fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Returns a label with the id of a store.
pub(super) fn id_of<T>(label: Result<T, LabelError>) -> Result<T, Failure> {
    label.map_err(|error| Failure::failed(format!("the id of the store: {error}")))
}
