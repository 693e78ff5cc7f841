//! Agents: members that start the programs of jobs.
//!
//! The program of a job [travels](crate::Job::bring_program) as a byte object, from the submitter to agents, and from
//! agents to each other:
//!
//! ```text
//!   submitter                     ZooKeeper                      agents
//!   offers its file, signed ───▶ record of the job ───────────▶ check the signature
//!           ◀────────────────────────────────────────────────── fetch the file from it, or from each other
//!                                                                start a node from the file, which takes the job
//! ```
//!
//! Agents and submitters with such a job are members of the program [`AGENT`], whose version is the target of the
//! programs. Agents also have a label of this name. The command `taskwork agent` decides which programs to run, keeps
//! their files, and starts the nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::{sync::watch, task, time};
use zk::{
    ClusterPaths,
    membership::{self, Member},
    queue::{JobQueue, Next},
};

pub use super::certificate::{SubmitterError, Submitters};
use super::{Client, ClientError, certificate, provider::Provider, provider::TRAVELS};
use crate::{
    companion::{FetchError, ObjectContent, ObjectName},
    id::{JobId, NodeId},
    node::{Node, NodeBuilder, NodeError},
    release::{Release, this_file},
    shell::{
        clock::unix_ms,
        serve::{Brought, Seated},
        transport::bulk::{FileSink, Object, Offer, WeakBulk},
    },
};
pub use zk::{
    job::{BroughtProgram, JobRecord},
    membership::AGENT,
};

/// The time without progress after which a fetch fails.
const PATIENCE: Duration = Duration::from_secs(3);
/// The pause before jobs are read again after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// Returns the target of programs that this machine can run, such as `x86_64-linux`.
pub fn target() -> String {
    format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

/// Returns the release of agents on this machine.
#[expect(clippy::missing_panics_doc, reason = "targets are short names")]
pub fn release() -> Release {
    Release::new(AGENT, &target()).expect("the names of targets are valid versions")
}

/// An agent that is a member of a cluster.
#[derive(Debug)]
#[non_exhaustive]
pub struct Agent {
    /// The member, without workers.
    pub node: Node,
    /// The jobs whose programs it may start.
    pub jobs: BroughtJobs,
    /// The exchange of programs with submitters and other agents.
    pub programs: Programs,
}

impl Agent {
    /// Joins a cluster. The node needs the [release] of agents, and a label [`AGENT`].
    ///
    /// # Errors
    /// As [`NodeBuilder::serve`].
    pub fn start(node: NodeBuilder) -> Result<Self, NodeError> {
        let (cluster, seated) = (node.cluster().clone(), watch::Sender::new(None));
        let seats = seated.subscribe();
        let node = node.workers(0).brings(Brought { objects: Vec::new(), seated }).serve()?;
        let programs = Programs { seats: seats.clone(), cluster: cluster.clone(), offers: Arc::default() };
        let (mut new_seats, renewed) = (seats.clone(), programs.clone());
        task::spawn(async move {
            while new_seats.changed().await.is_ok() {
                renewed.renew();
            }
        });
        Ok(Self { node, jobs: BroughtJobs { seats, cluster, queue: None }, programs })
    }
}

/// The jobs that travel with a program for an agent, in the order of the queue.
pub struct BroughtJobs {
    seats: watch::Receiver<Option<Seated>>,
    cluster: ClusterPaths,
    /// The queue of the current seat.
    queue: Option<(NodeId, JobQueue)>,
}

impl BroughtJobs {
    /// Skips a job from now on, until the agent joins again.
    pub fn pass(&mut self, job: &JobId) {
        if let Some((_, queue)) = &mut self.queue {
            queue.pass(job.as_str().to_owned());
        }
    }

    /// Waits for a job whose program this agent may start, and that is not in `aside`: it runs, waits for no other job,
    /// is for this target, and requires no label that the agent does not have.
    ///
    /// # Cancellation safety
    /// Dropping the future loses no job.
    pub async fn next(&mut self, aside: &BTreeSet<String>) -> (JobId, Box<JobRecord>, BroughtProgram) {
        loop {
            let seat = seat(&mut self.seats).await;
            if self.queue.as_ref().is_none_or(|(node, _)| *node != seat.node) {
                let queue =
                    JobQueue::of_agent(Arc::clone(&seat.store), self.cluster.clone(), seat.member.clone());
                self.queue = Some((seat.node, queue));
            }
            let Some((_, queue)) = &mut self.queue else { continue };
            let active = BTreeSet::new();
            let next = tokio::select! {
                biased;
                changed = self.seats.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return std::future::pending().await,
                },
                next = queue.next(&active, aside) => next,
            };
            match next {
                Ok(Next::Job(name, mut record)) => match (name.parse::<JobId>(), record.brought.take()) {
                    (Ok(job), Some(brought)) => return (job, record, brought),
                    _ => queue.pass(name),
                },
                // No node runs its program, so no node would record it.
                Ok(Next::Blocked(name, reason)) => {
                    match zk::job::fail(&*seat.store, &self.cluster, &name, &reason, unix_ms()).await {
                        Err(error) if error.is_transient() => time::sleep(PAUSE).await,
                        failed => {
                            if let Err(error) = failed {
                                tracing::warn!(job = name, %error, "the failure of the job could not be recorded");
                            }
                            queue.pass(name);
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the jobs cannot be read now and will be read again");
                    time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Programs, each with its offer in the current seat.
type Offers = BTreeMap<ObjectName, (Object, Option<Offer>)>;

/// The exchange of programs between agents and submitters. Clones share the offers.
#[derive(Clone)]
pub struct Programs {
    seats: watch::Receiver<Option<Seated>>,
    cluster: ClusterPaths,
    offers: Arc<Mutex<Offers>>,
}

impl Programs {
    /// Returns the current id of the agent, once it is a member.
    pub fn node(&self) -> Option<NodeId> {
        self.seats.borrow().as_ref().map(|seat| seat.node)
    }

    /// Fetches the program of a job into an empty file, from its submitter or any other agent, and verifies the content.
    /// If it fails, the file has an incomplete content.
    ///
    /// # Errors
    /// If no member has sent it, or another content, or the file cannot be written.
    pub async fn fetch(
        &self,
        name: ObjectName,
        brought: &BroughtProgram,
        file: fs::File,
    ) -> Result<(), FetchError> {
        let seat = seat(&mut self.seats.clone()).await;
        let bulk = seat.bulk.as_ref().and_then(WeakBulk::upgrade).ok_or(FetchError::Over)?;
        let members = membership::list(&*seat.store, &self.cluster).await;
        let members = members.map_err(|error| FetchError::CutOff(error.to_string()))?;
        let owners = owners(&members, &seat, brought);
        let sink = FileSink::new(file, bulk.blocking());
        bulk.fetch(name, sink, || owners.clone(), PATIENCE).await.map(drop)
    }

    /// Lets the submitter of a job know that this agent has the program already, so that it does not wait for it. An
    /// error is logged: the submitter may be gone.
    pub async fn confirm(&self, name: ObjectName, brought: &BroughtProgram) {
        let seat = seat(&mut self.seats.clone()).await;
        let (Some(bulk), Ok(owner)) =
            (seat.bulk.as_ref().and_then(WeakBulk::upgrade), brought.from.parse::<NodeId>())
        else {
            return;
        };
        if let Err(error) = bulk.confirm(name, owner).await {
            tracing::debug!(object = %name, %owner, %error, "the submitter does not wait for the program");
        }
    }

    /// Offers a program to other agents until it is [withdrawn](Self::withdraw). The content must not change.
    pub fn offer(&self, name: ObjectName, content: impl ObjectContent) {
        let object = Object::elsewhere(name, Arc::new(content));
        self.lock().insert(name, (object, None));
        self.renew();
    }

    /// Ends the offer of a program.
    pub fn withdraw(&self, name: ObjectName) {
        self.lock().remove(&name);
    }

    /// Makes the offers in the current seat.
    fn renew(&self) {
        let bulk = self.seats.borrow().as_ref().and_then(|seat| seat.bulk.clone());
        for (object, offer) in self.lock().values_mut() {
            *offer = bulk.as_ref().map(|bulk| bulk.offer(object.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Offers> {
        // No holder panics.
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the current seat, once there is one.
async fn seat(seats: &mut watch::Receiver<Option<Seated>>) -> Seated {
    match seats.wait_for(Option::is_some).await.map(|seat| seat.clone()) {
        Ok(Some(seat)) => seat,
        // The node has ended.
        _ => std::future::pending().await,
    }
}

/// Returns the members that may have a program: its submitter first, then all others of its target.
fn owners(members: &[Member], here: &Seated, brought: &BroughtProgram) -> Vec<NodeId> {
    let may_have = |member: &&Member| {
        member.program == AGENT && member.program_version == brought.target && member.node != here.member.node
    };
    let mut owners: Vec<&Member> = members.iter().filter(may_have).collect();
    owners.sort_by_key(|member| member.node != brought.from);
    owners.iter().filter_map(|member| member.node.parse().ok()).collect()
}

impl Client {
    /// Joins the cluster as a member that offers the file of this process to agents.
    pub(super) async fn bring_program(&self) -> Result<(Provider, BroughtProgram), ClientError> {
        let file = task::spawn_blocking(|| fs::read(this_file())).await.expect("reading does not panic");
        let file = file.map_err(|error| ClientError::Invalid {
            reason: format!("{}: the program cannot be read: {error}", this_file()),
        })?;
        let agents = self
            .members()
            .await?
            .iter()
            .filter(|member| member.is_agent())
            .filter(|member| member.program_version == target())
            .count();
        let provider = self.provide(&release(), vec![Bytes::from(file)], TRAVELS).await?;
        let mut brought = BroughtProgram {
            object: provider.name().to_string(),
            target: target(),
            from: provider.member().to_string(),
            certificates: String::new(),
            scheme: 0,
            signature: String::new(),
        };
        if let Some(identity) = self.connection_settings().tls.as_ref().and_then(|tls| tls.identity.as_ref())
        {
            let signed = certificate::sign(identity, self.cluster(), self.release()?.inner(), &mut brought);
            signed.map_err(|reason| ClientError::Invalid {
                reason: format!(
                    "the program cannot be signed with the client certificate for ZooKeeper: {reason}"
                ),
            })?;
        }
        Ok((provider.for_at_most(agents.max(1)), brought))
    }
}

impl fmt::Debug for BroughtJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroughtJobs").finish_non_exhaustive()
    }
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs").field("offers", &self.lock().len()).finish_non_exhaustive()
    }
}
