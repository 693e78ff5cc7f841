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
    fmt, fs, io,
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
/// How often a submitter is notified of a copy, if it is busy or cannot be reached, and the first pause, which is doubled.
const CONFIRMS_MAX: u32 = 6;
const CONFIRM_PAUSE: Duration = Duration::from_millis(250);
/// The interval at which a submitter reads the members again while it waits for copies.
const COPIES_EVERY: Duration = Duration::from_secs(1);
/// The maximum size of a program that travels with a job, in bytes.
pub const PROGRAM_BYTES_MAX: u64 = 2 << 30;

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

    /// Waits until the agent is a member with another id than this one, and returns the new id. Submitters count copies of
    /// members, so they need to be [notified](Self::confirm) again.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub async fn joined_after(&self, last: Option<NodeId>) -> NodeId {
        let mut seats = self.seats.clone();
        loop {
            let node = seat(&mut seats).await.node;
            if Some(node) != last {
                return node;
            }
            if seats.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Fetches a program into an empty file, from a submitter or any other agent, and verifies the content. If it fails, the
    /// file has an incomplete content.
    ///
    /// # Errors
    /// If no member has sent it, or another content, or the file cannot be written.
    pub async fn fetch(&self, name: ObjectName, file: fs::File) -> Result<(), FetchError> {
        let seat = seat(&mut self.seats.clone()).await;
        let bulk = seat.bulk.as_ref().and_then(WeakBulk::upgrade).ok_or(FetchError::Over)?;
        let members = membership::list(&*seat.store, &self.cluster).await;
        let members = members.map_err(|error| FetchError::CutOff(error.to_string()))?;
        let owners = owners(&members, &seat.member);
        let sink = FileSink::new(file, bulk.blocking());
        bulk.fetch(name, sink, || owners.clone(), PATIENCE).await.map(drop)
    }

    /// Notifies all submitters that wait for copies of a program that this agent has it: the agent may have it from an
    /// earlier job or from another agent. A submitter that is busy is notified again. An error is logged: the submitter may
    /// be gone.
    pub async fn confirm(&self, name: ObjectName) {
        let mut pause = CONFIRM_PAUSE;
        let mut notified = BTreeSet::new();
        for _ in 0..CONFIRMS_MAX {
            let seat = seat(&mut self.seats.clone()).await;
            let Some(bulk) = seat.bulk.as_ref().and_then(WeakBulk::upgrade) else { return };
            let mut is_complete = true;
            match membership::list(&*seat.store, &self.cluster).await {
                Ok(members) => {
                    for owner in submitters(&members, &seat.member.program_version) {
                        if notified.contains(&owner) {
                            continue;
                        }
                        match bulk.confirm(name, owner).await {
                            // It submits another program.
                            Ok(()) | Err(FetchError::Unknown) => drop(notified.insert(owner)),
                            Err(error) => {
                                tracing::debug!(object = %name, %owner, %error, "a submitter is not notified of a copy");
                                is_complete = false;
                            }
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the submitters cannot be read now");
                    is_complete = false;
                }
            }
            if is_complete {
                return;
            }
            time::sleep(pause).await;
            pause *= 2;
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

/// Returns the members that may have a program: submitters first, then all other agents of its target.
fn owners(members: &[Member], here: &Member) -> Vec<NodeId> {
    let may_have = |member: &&Member| {
        member.program == AGENT && member.program_version == here.program_version && member.node != here.node
    };
    let mut owners: Vec<&Member> = members.iter().filter(may_have).collect();
    owners.sort_by_key(|member| member.is_agent());
    owners.iter().filter_map(|member| member.node.parse().ok()).collect()
}

/// Returns the members that may wait for copies of a program of this target.
fn submitters(members: &[Member], target: &str) -> Vec<NodeId> {
    let may_wait =
        |member: &&Member| member.program == AGENT && member.program_version == target && !member.is_agent();
    members.iter().filter(may_wait).filter_map(|member| member.node.parse().ok()).collect()
}

/// Returns whether enough of the agents that may start a program have it: `copies`, or all, if there are fewer.
fn is_handed_over(starting: &[NodeId], takers: &BTreeSet<NodeId>, copies: usize) -> bool {
    let have = starting.iter().filter(|agent| takers.contains(agent)).count();
    have >= copies.min(starting.len()).max(1)
}

/// Checks the size of a program.
fn check_size(bytes: u64) -> Result<(), ClientError> {
    if bytes <= PROGRAM_BYTES_MAX {
        return Ok(());
    }
    Err(ClientError::Invalid {
        reason: format!(
            "{}: the program has {bytes} bytes; agents accept at most {PROGRAM_BYTES_MAX}: submit one without debugging \
             information (strip)",
            this_file()
        ),
    })
}

impl Client {
    /// Waits until so many agents that may start the program of a job have it, or all of them, if there are fewer. Agents
    /// that leave no longer count.
    pub(super) async fn program_handed_over(
        &self,
        provider: &Provider,
        record: &JobRecord,
        copies: usize,
    ) -> Result<(), ClientError> {
        loop {
            let members = self.members().await?;
            let starting = members.iter().filter(|member| member.starts(record).is_ok());
            let starting: Vec<NodeId> = starting.filter_map(|member| member.node.parse().ok()).collect();
            let taken = provider.taken_by(|takers| is_handed_over(&starting, takers, copies));
            if time::timeout(COPIES_EVERY, taken).await.is_ok() {
                return Ok(());
            }
        }
    }

    /// Joins the cluster as a member that offers the file of this process to agents.
    pub(super) async fn bring_program(&self) -> Result<(Provider, BroughtProgram), ClientError> {
        let read = || {
            let bytes = fs::metadata(this_file())?.len();
            Ok((bytes, if bytes > PROGRAM_BYTES_MAX { Vec::new() } else { fs::read(this_file())? }))
        };
        let read = task::spawn_blocking(read).await.expect("reading does not panic");
        let (bytes, file) = read.map_err(|error: io::Error| ClientError::Invalid {
            reason: format!("{}: the program cannot be read: {error}", this_file()),
        })?;
        check_size(bytes)?;
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
        Ok((provider.for_agents(), brought))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Labels, view::fixtures};

    fn member(number: u64, labels: &str, program: &str) -> Member {
        Member {
            labels: if labels.is_empty() { Labels::default() } else { labels.parse().unwrap() },
            program: program.to_owned(),
            program_version: "x86_64-linux".to_owned(),
            ..fixtures::member(&NodeId(number).to_string())
        }
    }

    #[test]
    fn copies_count_only_on_agents_that_may_start_the_program() {
        let (here, there, gone) = (NodeId(1), NodeId(2), NodeId(3));
        let takers = |nodes: &[NodeId]| nodes.iter().copied().collect::<BTreeSet<_>>();
        // The other agent does not have the required label, so that it never fetches.
        assert!(is_handed_over(&[here], &takers(&[here]), 2));
        assert!(!is_handed_over(&[here, there], &takers(&[here]), 2));
        assert!(is_handed_over(&[here, there], &takers(&[here, there]), 2));
        // A copy of an agent that has left does not count, and without an agent the submitter waits for the first one.
        assert!(!is_handed_over(&[here, there], &takers(&[here, gone]), 2));
        assert!(!is_handed_over(&[], &takers(&[gone]), 1));
    }

    #[test]
    fn only_submitters_of_the_target_are_notified_of_copies() {
        let members = [
            member(1, "agent=yes", AGENT),
            member(2, "", AGENT),
            member(3, "", "tree"),
            Member { program_version: "aarch64-linux".to_owned(), ..member(4, "", AGENT) },
        ];
        assert_eq!(submitters(&members, "x86_64-linux"), [NodeId(2)]);
        assert_eq!(owners(&members, &member(5, "agent=yes", AGENT)), [NodeId(2), NodeId(1)]);
    }

    #[test]
    fn program_larger_than_agents_accept_is_refused_at_the_submission() {
        assert!(check_size(PROGRAM_BYTES_MAX).is_ok());
        assert!(check_size(PROGRAM_BYTES_MAX + 1).unwrap_err().to_string().contains("strip"));
    }
}
