//! A job's shared data, sent once to each node. If it is large, only some nodes read it from `ZooKeeper`; the others
//! fetch it from these and from each other, while it arrives:
//!
//! ```text
//!   ZooKeeper ──▶ node 0 ──▶ node 2, node 3      the nodes by their ids, lowest first;
//!             ╲─▶ node 1 ──▶ node 4, node 5      2 and 3 forward it to 6 to 9, and so on
//! ```
//!
//! A node fetches only from nodes with lower ids, so there are no cycles. If it receives nothing in time, because the
//! nodes with lower ids are gone or do not work on the job, it reads the data from `ZooKeeper` too. The name of the
//! data, with its hash, is in the job's record.
//!
//! Data too large for `ZooKeeper` is held only by members: at first by the process that submitted the job, which
//! becomes a member without workers for this purpose ([`Provider`](crate::client::provider::Provider)) and takes the
//! place of `ZooKeeper` in the diagram; later also by every node that works on the job. A node that receives the data
//! neither from the provider nor from nodes with lower ids tries all others. It offers nothing during that time, so
//! no other node waits for it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use thiserror::Error;
use zk::{
    ClusterPaths, Store,
    job::JobRecord,
    membership::{self, Member},
};

use super::{
    seat::Seat,
    transport::bulk::{Bulk, FetchError, Filling, Object, Offer},
};
use crate::{
    id::{JobId, NodeId},
    wire::bulk::ObjectName,
};

/// The minimum size of shared data that is fetched from other nodes, in bytes.
const FETCHED_BYTES_MIN: usize = 1 << 20;
/// The maximum size of shared data stored in `ZooKeeper`, in bytes: its servers keep everything in memory.
pub(crate) const STORED_BYTES_MAX: usize = 64 << 20;
/// The number of nodes that always read the data from `ZooKeeper`.
const READERS: usize = 2;
/// The maximum number of nodes that fetch from the same node if all are present.
const CHILDREN: usize = 2;
/// The number of other nodes tried if that node does not have the data.
const OTHERS: usize = 2;
/// The maximum number of nodes tried as a last resort for data that is not in `ZooKeeper`.
const ALL_MAX: usize = 64;
/// The time without progress after which a node reads the data from `ZooKeeper`.
const PATIENCE: Duration = Duration::from_secs(3);

pub(crate) struct Shared {
    pub(crate) pieces: Vec<Bytes>,
    /// The offer of the data to other nodes.
    pub(crate) offer: Option<Offer>,
}

/// The reasons why a node does not have the shared data.
#[derive(Debug, Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Store(#[from] zk::Error),
    /// Only members hold the data, and none of them has sent it.
    #[error("no member has sent the job's shared data, {bytes} bytes: {source}")]
    Absent { bytes: u64, source: FetchError },
    #[error(
        "the job's shared data is held by its submitter, and this node has no connections to other nodes"
    )]
    Alone,
}

/// Returns the name by which nodes fetch shared data from each other; empty if each node reads it from `ZooKeeper`.
pub(crate) fn name(shared: &[u8]) -> String {
    if shared.len() < FETCHED_BYTES_MIN {
        return String::new();
    }
    Object::name_of([shared]).to_string()
}

/// The sources of the shared data of jobs.
pub(crate) struct Source {
    node: NodeId,
    store: Arc<dyn Store>,
    cluster: ClusterPaths,
    bulk: Option<Bulk>,
}

impl Source {
    /// Returns the sources available to a seat.
    pub(crate) fn of(seat: &Seat) -> Self {
        let (store, cluster) = (Arc::clone(&seat.store), seat.cluster.clone());
        Self { node: seat.node, store, cluster, bulk: seat.bulk.clone() }
    }

    /// Reads the shared data of a job.
    ///
    /// # Errors
    /// Any error from the store; [`zk::Error::Garbled`] if the stored data does not match the record.
    /// [`ReadError::Absent`] if only members hold the data and none has sent it; the caller may retry.
    pub(crate) async fn read(&self, job: &JobId, record: &JobRecord) -> Result<Shared, ReadError> {
        let (Some(bulk), Ok(name)) = (&self.bulk, record.shared_name.parse::<ObjectName>()) else {
            if !record.shared_from.is_empty() {
                return Err(ReadError::Alone);
            }
            let bytes = zk::job::shared(&*self.store, &self.cluster, &job.0).await?;
            return Ok(Shared { pieces: vec![bytes.into()], offer: None });
        };
        let members = membership::list(&*self.store, &self.cluster).await?;
        let below = self.below(&members, record);
        if !record.shared_from.is_empty() {
            return self.fetch_from_members(record, name, bulk, &members, &below).await;
        }
        let filling = Object::to_be_filled(name);
        // Offered from the start, so that other nodes can fetch the part received so far.
        let offer = bulk.offer(filling.object().clone());
        let Some(object) = fetch(bulk, name, filling, &below).await else {
            drop(offer);
            return Ok(self.read_in_zookeeper(job, record, name, bulk).await?);
        };
        Ok(Shared { pieces: object.pieces(), offer: Some(offer) })
    }

    /// Returns the nodes with a lower id that may work on a job, lowest first.
    fn below(&self, members: &[Member], record: &JobRecord) -> Vec<NodeId> {
        let takes = members.iter().filter(|member| member.takes(record).is_ok());
        let mut below: Vec<NodeId> = takes.filter_map(|member| member.node.parse().ok()).collect();
        below.retain(|&node| node < self.node);
        below.sort_unstable();
        below
    }

    /// Reads the data from `ZooKeeper`, and offers it while it arrives.
    async fn read_in_zookeeper(
        &self,
        job: &JobId,
        record: &JobRecord,
        name: ObjectName,
        bulk: &Bulk,
    ) -> zk::Result<Shared> {
        let filling = Object::to_be_filled(name);
        let offer = bulk.offer(filling.object().clone());
        let take = |chunk: Vec<u8>| filling.add(chunk.into());
        zk::job::shared_chunks(&*self.store, &self.cluster, &job.0, record, take).await?;
        let pieces = filling.object().pieces();
        if Object::name_of(&pieces) != name {
            let path = self.cluster.job(&job.0).shared();
            return Err(zk::Error::Garbled {
                path,
                reason: "it does not match the submitted data".to_owned(),
            });
        }
        filling.complete();
        Ok(Shared { pieces, offer: Some(offer) })
    }

    /// Fetches data that is not in `ZooKeeper`: first from the parent and the providers, then from any member.
    async fn fetch_from_members(
        &self,
        record: &JobRecord,
        name: ObjectName,
        bulk: &Bulk,
        members: &[Member],
        below: &[NodeId],
    ) -> Result<Shared, ReadError> {
        let providers = providers(members, record);
        let first: Vec<NodeId> = parent(below).into_iter().chain(providers.iter().copied()).collect();
        let filling = Object::to_be_filled(name);
        let offer = bulk.offer(filling.object().clone());
        let error = match bulk.fetch(name, filling, || first.clone(), PATIENCE).await {
            Ok(filling) => return Ok(Shared { pieces: filling.complete().pieces(), offer: Some(offer) }),
            Err(error) => error,
        };
        drop(offer);
        tracing::info!(%name, %error, "the expected members have not sent the data; all others are tried");
        let others: BTreeSet<NodeId> = members
            .iter()
            .filter(|member| member.runs(record))
            .filter_map(|member| member.node.parse().ok())
            .filter(|other| *other != self.node)
            .collect();
        let ask = || {
            let mut others: Vec<NodeId> = others.iter().copied().collect();
            others.shuffle(&mut rand::rng());
            others.truncate(ALL_MAX);
            others
        };
        match bulk.fetch(name, Object::to_be_filled(name), ask, PATIENCE).await {
            Ok(filling) => {
                let object = filling.complete();
                let (pieces, offer) = (object.pieces(), bulk.offer(object));
                Ok(Shared { pieces, offer: Some(offer) })
            }
            Err(source) => Err(ReadError::Absent { bytes: name.bytes, source }),
        }
    }
}

/// Returns whether a member may provide the data of a job. Otherwise only nodes that work on the job have it.
pub(crate) fn is_there(members: &[Member], record: &JobRecord) -> bool {
    !providers(members, record).is_empty()
}

/// Returns the members that may provide the data of a job: its submitter first, then other members without workers.
/// A submitter that has lost its session is a member under another id.
fn providers(members: &[Member], record: &JobRecord) -> Vec<NodeId> {
    let mut without_workers: Vec<&Member> =
        members.iter().filter(|member| member.may_bring_data(record)).collect();
    without_workers.sort_by_key(|member| member.node != record.shared_from);
    without_workers.truncate(ALL_MAX);
    without_workers.into_iter().filter_map(|member| member.node.parse().ok()).collect()
}

/// Fetches the data from nodes with lower ids; `None` if this node reads it from `ZooKeeper` or no node sent it.
async fn fetch(bulk: &Bulk, name: ObjectName, filling: Filling, below: &[NodeId]) -> Option<Object> {
    let parent = parent(below)?;
    let owners = || {
        let others = below.choose_multiple(&mut rand::rng(), OTHERS).copied();
        std::iter::once(parent).chain(others.filter(|&other| other != parent)).collect()
    };
    match bulk.fetch(name, filling, owners, PATIENCE).await {
        Ok(filling) => Some(filling.complete()),
        Err(error) => {
            let garbled = matches!(error, FetchError::Garbled | FetchError::Sink(_));
            tracing::info!(%name, %error, garbled, "no node has sent the data; it is read from ZooKeeper");
            None
        }
    }
}

/// Returns the node from which a node with these lower ids fetches; `None` if it reads from `ZooKeeper`.
fn parent(below: &[NodeId]) -> Option<NodeId> {
    let place = below.len().checked_sub(READERS)? / CHILDREN;
    below.get(place).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_fetch_from_a_lower_id_and_serve_few() {
        let nodes: Vec<NodeId> = (10..110).map(NodeId).collect();
        let mut children = std::collections::BTreeMap::new();
        for (place, node) in nodes.iter().enumerate() {
            match parent(&nodes[..place]) {
                None => assert!(place < READERS, "{node} reads in ZooKeeper"),
                Some(parent) => {
                    assert!(parent < *node);
                    *children.entry(parent).or_insert(0) += 1;
                }
            }
        }
        assert!(children.values().all(|&children| children <= CHILDREN), "{children:?}");
        assert_eq!(children.values().sum::<usize>(), nodes.len() - READERS);
    }

    #[test]
    fn small_data_has_no_name() {
        assert_eq!(name(&vec![0; FETCHED_BYTES_MIN - 1]), "");
        let named = name(&vec![0; FETCHED_BYTES_MIN]).parse::<ObjectName>().unwrap();
        assert_eq!(named.bytes, FETCHED_BYTES_MIN as u64);
    }
}
