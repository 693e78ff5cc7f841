//! The cluster of commands that submit jobs: that of a ZooKeeper, or without one this process.

use clap::Args;
use serde_json::Value;
use taskwork::{Client, JobId, Node, Release};
use taskwork_cli::{
    Failure,
    command::{
        BuildArguments, ClusterArguments, Level, LogArguments, Notes, Patience, interruptible, runtime,
        submitter,
    },
    note,
};

use super::{
    StoreArguments,
    here::{self, Here},
};
use crate::{
    NAME, VERSION,
    order::Work,
    package::is_name,
    service::{SUCCESSFUL, Service, Status},
    store::{PART, PART_BYTES, Store},
};

/// The options of commands that submit jobs.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Access {
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    pub(super) cluster: ClusterArguments,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    build: BuildArguments,
    #[command(flatten)]
    log: LogArguments,
    #[command(flatten, next_help_heading = "Without --zk, on this machine")]
    here: Here,
}

impl Access {
    pub(super) fn release(&self) -> Result<Release, Failure> {
        self.build.release(NAME, VERSION)
    }

    /// Returns whether jobs survive this process.
    pub(super) fn keeps_jobs(&self) -> bool {
        self.cluster.has_servers() || self.here.keeps_jobs()
    }

    /// Connects, and calls `with` with the service until it has ended or Ctrl-C arrives.
    pub(super) fn run<T>(
        &self,
        level: Level,
        with: impl AsyncFnOnce(Service, Store) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if !self.cluster.has_servers() {
            note("without --zk, the calls run on this machine");
        }
        let done = self.connected(level, async |service, store, _| interruptible(with(service, store)).await);
        let is_kept = self.here.keeps_jobs();
        done.map_err(|failure| if is_kept { failure.hint("The same command continues") } else { failure })
    }

    /// Connects, and calls `with` with the service. Without servers, the cluster is this process.
    pub(super) fn connected<T>(
        &self,
        level: Level,
        with: impl AsyncFnOnce(Service, Store, Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.log.start(level);
        let (store, release) = (self.store.open()?, self.release()?);
        let is_here = !self.cluster.has_servers();
        let runtime = runtime()?;
        let done = runtime.block_on(async {
            let client = if is_here {
                Client::builder_of(self.here.connect()?).cluster(self.cluster.name())
            } else {
                self.cluster.client(&Notes::default())?
            };
            let client = client.release(release).submitter(submitter()).connect().await?;
            let client = client.with_patience(Some(self.patience.of_a_step()));
            let service = Service::new(Client::clone(&client), store.clone())?;
            let node = if is_here { Some(self.here.start(&client, &store)?) } else { None };
            let done = self.with_node(node, with(service, store, Client::clone(&client))).await;
            client.close().await;
            done
        });
        // A node does not wait for calls that do not stop.
        runtime.shutdown_background();
        done
    }

    /// Awaits a future while the node of this process, if there is one, runs.
    async fn with_node<T>(
        &self,
        node: Option<Node>,
        doing: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let Some(mut node) = node else { return doing.await };
        let done = tokio::select! {
            done = doing => done,
            ended = node.ended() => Err(here::broken(ended)),
        };
        self.here.stop(node).await;
        done
    }

    /// Submits a job by `succeed`, which waits for it; prints the outcomes by `show`, unless they are reduced.
    pub(super) fn outcomes(
        &self,
        succeed: impl AsyncFnOnce(&Service) -> Result<Ran, Failure>,
        show: impl FnMut(&Ran, &str) -> Result<(), Failure>,
    ) -> Result<Ran, Failure> {
        self.run(Level::Warn, async |service, _| {
            let ran = succeed(&service).await?;
            if ran.reduced.is_some() || ran.groups.is_some() {
                return Ok(ran);
            }
            let mut show = show;
            let results = service.results(&ran.job).await?;
            let mut from = 0;
            loop {
                let lines = Service::lines(&results, from, PART, PART_BYTES).await?;
                let Some(last) = lines.last() else { return Ok(ran) };
                from = last.index + 1;
                lines.iter().try_for_each(|line| show(&ran, &line.json))?;
            }
        })
    }

    /// Submits a job and waits until it is successful. A command that keeps its jobs continues an earlier one.
    pub(super) async fn succeed(&self, service: &Service, routine: &str, work: Work) -> Result<Ran, Failure> {
        let (work, key) = if self.here.keeps_jobs() {
            // First, so that other lines of a file are other work.
            let work = service.with_files(work).await?;
            let key = service.key_of(routine, &work).await?;
            (work, Some(key))
        } else {
            (work, None)
        };
        let submitted = service.submit(routine, work, key.as_deref()).await?;
        self.ended(service, submitted, is_name(routine)).await
    }

    /// Waits until a job, which may be new, is successful. `is_latest`: the command names no version.
    pub(super) async fn ended(
        &self,
        service: &Service,
        (id, is_new): (JobId, bool),
        is_latest: bool,
    ) -> Result<Ran, Failure> {
        if let Some(other) = service.other_build(&id, &self.release()?).await? {
            return Err(Failure::usage(format!(
                "job {id} was submitted by another build of {NAME} ({other}), and only that build continues it: use it, or \
                 another directory to start over"
            )));
        }
        service.wait(&id).await?;
        let status = service.status(&id).await?;
        if let Some((name, _)) = status.routine.split_once('@').filter(|_| is_latest) {
            note(&format!("{name} is {}", status.routine));
        }
        if status.state == SUCCESSFUL {
            let failed = status.tally.iter().flat_map(|tally| tally.failed.values()).sum();
            let Status { routine, reduced, groups, reason, .. } = status;
            return Ok(Ran { job: id, routine, reduced, groups, failed, reason });
        }
        let reason = status.reason.unwrap_or_default();
        let is_kept = !is_new && self.here.keeps_jobs();
        let remedy =
            if is_kept { ". It was submitted earlier: use another directory to start over" } else { "" };
        Err(Failure::failed(format!("job {id} is {}: {reason}{remedy}", status.state)))
    }
}

/// The job of a command, and the version of its routine.
pub(super) struct Ran {
    pub(super) job: JobId,
    routine: String,
    /// The numbers of its results, if they are reduced.
    pub(super) reduced: Option<Value>,
    /// The numbers of each group.
    pub(super) groups: Option<Vec<Value>>,
    /// The number of failed calls.
    pub(super) failed: u64,
    /// The reason for which its results are not combined.
    pub(super) reason: Option<String>,
}

impl Ran {
    /// Returns the first fields of a JSON object.
    pub(super) fn head(&self) -> String {
        format!("{{\"job\":\"{}\",\"routine\":\"{}\"", self.job, self.routine)
    }
}
