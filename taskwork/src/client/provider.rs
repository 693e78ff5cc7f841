//! The provider of shared data that is too large for `ZooKeeper`, and of the program of a job: the submitting process is
//! a member without workers from which nodes fetch the data ([`shared`](crate::shell::shared)), and agents the program
//! ([`agents`](super::agents)), until it exits.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use bytes::Bytes;
use tokio::{runtime::Handle, sync::watch, task, time};
use zk::{
    job::JobRecord,
    membership::{self, Member},
};

use super::{Client, ClientError};
use crate::{
    id::NodeId,
    node::{Address, Node, NodeBuilder, NodeError},
    release::Release,
    shell::{
        serve::Brought,
        shared::{STORED_BYTES_MAX, is_there},
        transport::bulk::Object,
    },
    wire::bulk::ObjectName,
};

const SEAT_TIMEOUT: Duration = Duration::from_secs(30);

const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The starts of error messages of a provider.
const TOO_LARGE: &str = "the job's data is too large for ZooKeeper, so nodes fetch it from this process";
pub(super) const TRAVELS: &str = "the program travels with the job, so agents fetch it from this process";

/// Offers an object to the members of a release until it is dropped.
pub(crate) struct Provider {
    object: Object,
    member: NodeId,
    /// Whether the object is a program, which only agents fetch.
    is_for_agents: bool,
    /// `None` once it leaves.
    node: Option<Node>,
}

impl Client {
    /// Joins the cluster as a member that offers shared data, if that is too large to be stored.
    pub(super) async fn bring(&self, shared: &[Bytes]) -> Result<Option<Provider>, ClientError> {
        if shared.iter().map(Bytes::len).sum::<usize>() <= STORED_BYTES_MAX {
            return Ok(None);
        }
        let pieces = shared.to_vec();
        self.provide(self.release()?, pieces, TOO_LARGE).await.map(Some)
    }

    /// Joins the cluster as a member that offers an object to the members of a release. `why` starts messages of errors.
    pub(super) async fn provide(
        &self,
        release: &Release,
        pieces: Vec<Bytes>,
        why: &str,
    ) -> Result<Provider, ClientError> {
        self.check_reach(release, why).await?;
        let mut node = Node::builder(&self.with_release(release.clone())).listen(self.listen);
        if let Some(address) = self.advertise.clone() {
            node = node.advertise(address);
        }
        // Computing the object's name reads every byte.
        let object = task::spawn_blocking(move || Object::new(pieces)).await;
        let object = object.expect("hashing does not panic");
        Provider::start(node, object).await.map_err(|error| match error {
            NodeError::Client(error) => error,
            error => ClientError::Invalid { reason: format!("{why}; but {error}") },
        })
    }

    /// Checks that the current members could reach this process.
    async fn check_reach(&self, release: &Release, why: &str) -> Result<(), ClientError> {
        let here = self.advertise.as_ref().map_or(Some(self.listen.ip()), Address::ip);
        // A host name is resolved only later.
        let Some(here) = here.filter(IpAddr::is_loopback) else { return Ok(()) };
        let release = release.inner();
        let elsewhere = |member: &Member| {
            let address = member.address.filter(|address| !address.ip().is_loopback());
            address
                .map(|address| address.ip())
                .filter(|_| release.matches(&member.program, &member.program_version))
        };
        let there: Option<IpAddr> = self.members().await?.iter().find_map(elsewhere);
        match there {
            None => Ok(()),
            Some(there) => Err(ClientError::Invalid {
                reason: format!(
                    "{why}; but a node at {there} cannot reach {here}: set an address of this machine \
                     that nodes reach, with ClientBuilder::listen or --listen ADDR:PORT"
                ),
            }),
        }
    }

    /// Returns whether the data of a job survives when no node works on the job.
    pub(super) async fn keeps_data(&self, record: &JobRecord) -> Result<bool, ClientError> {
        Ok(record.shared_from.is_empty() || is_there(&self.members().await?, record))
    }

    pub(super) async fn members(&self) -> Result<Vec<Member>, ClientError> {
        self.ask(|store| async move { membership::list(&*store, self.cluster()).await }).await
    }
}

impl Provider {
    /// Joins the cluster as a member that offers an object.
    ///
    /// # Errors
    /// As [`NodeBuilder::serve`] and [`Node::ended`].
    pub(crate) async fn start(node: NodeBuilder, object: Object) -> Result<Self, NodeError> {
        let seated = watch::Sender::new(None);
        let mut member = seated.subscribe();
        let mut node = node
            .workers(0)
            .keep(usize::MAX, Duration::MAX)
            .brings(Brought { objects: vec![object.clone()], seated })
            .serve()?;
        let late = || {
            NodeError::Invalid {
            reason:
                "this process could not join the cluster to provide a job's data or program: ZooKeeper does not answer"
                    .to_owned(),
        }
        };
        let member = tokio::select! {
            biased;
            seated = member.wait_for(Option::is_some) => seated.ok().and_then(|seated| Some(seated.as_ref()?.node)),
            ended = node.ended() => {
                ended?;
                None
            }
            () = time::sleep(SEAT_TIMEOUT) => None,
        };
        let member = member.ok_or_else(late)?;
        Ok(Self { object, member, is_for_agents: false, node: Some(node) })
    }

    /// Declares that the object is a program.
    pub(super) fn for_agents(mut self) -> Self {
        self.is_for_agents = true;
        self
    }

    pub(super) fn is_for_agents(&self) -> bool {
        self.is_for_agents
    }

    pub(crate) fn name(&self) -> ObjectName {
        self.object.name()
    }

    pub(crate) fn member(&self) -> NodeId {
        self.member
    }

    pub(crate) async fn leave(mut self) {
        if let Some(node) = self.node.take() {
            leave(node).await;
        }
    }

    /// Waits until those members have the object, and have notified this one, that a condition needs.
    pub(crate) async fn taken_by(&self, holds: impl FnMut(&BTreeSet<NodeId>) -> bool) {
        self.object.taken_by(holds).await;
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        if let (Some(node), Ok(runtime)) = (self.node.take(), Handle::try_current()) {
            runtime.spawn(leave(node));
        }
    }
}

/// Leaves the cluster. If the process exits first, it remains a member until its session has expired.
async fn leave(mut node: Node) {
    node.drain();
    match time::timeout(LEAVE_TIMEOUT, node.ended()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the provider of a job has not left"),
        Err(_) => tracing::debug!("the provider of a job has not left in time"),
    }
}
