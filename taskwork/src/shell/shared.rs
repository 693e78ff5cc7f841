//! A job's shared data, sent once to each node. If it is large, only some nodes read it in `ZooKeeper`, and
//! the others fetch it from these and from each other, while it comes:
//!
//! ```text
//!   ZooKeeper ──▶ node 0 ──▶ node 2, node 3      the nodes by their ids, lowest first;
//!             ╲─▶ node 1 ──▶ node 4, node 5      2 and 3 hand on to 6 to 9, and so on
//! ```
//!
//! A node asks only nodes with lower ids, so none waits for itself. Who gets nothing in time, because the
//! nodes below it are gone or do not work on the job, reads it in `ZooKeeper` too. Its name, with its hash, is
//! in the job's record.

use std::{sync::Arc, time::Duration};

use rand::seq::IndexedRandom as _;
use zk::{ClusterPaths, Store, job::JobRecord, membership};

use super::{
    seat::Seat,
    transport::bulk::{Bulk, FetchError, Filling, Object, Offer},
};
use crate::{
    id::{JobId, NodeId},
    wire::bulk::ObjectName,
};

/// Shared data of at least so many bytes is fetched from other nodes.
const FETCHED_BYTES_MIN: usize = 1 << 20;
/// The number of nodes that read it in `ZooKeeper` in any case.
const READERS: usize = 2;
/// The number of nodes that fetch it from the same one, if all are there.
const CHILDREN: usize = 2;
/// The number of other nodes that are asked if that one does not have it.
const OTHERS: usize = 2;
/// The time without a byte after which a node reads it in `ZooKeeper`.
const PATIENCE: Duration = Duration::from_secs(3);

/// The shared data of a job.
pub(crate) struct Shared {
    pub(crate) bytes: Vec<u8>,
    /// Offers it to other nodes.
    pub(crate) offer: Option<Offer>,
}

/// Returns the name by which nodes fetch shared data from each other; empty if each reads it in `ZooKeeper`.
pub(crate) fn name(shared: &[u8]) -> String {
    if shared.len() < FETCHED_BYTES_MIN {
        return String::new();
    }
    Object::name_of(shared).to_string()
}

/// What the shared data of jobs is read with.
pub(crate) struct Source {
    node: NodeId,
    store: Arc<dyn Store>,
    cluster: ClusterPaths,
    bulk: Option<Bulk>,
}

impl Source {
    /// Returns that of a seat.
    pub(crate) fn of(seat: &Seat) -> Self {
        let (store, cluster) = (Arc::clone(&seat.store), seat.cluster.clone());
        Self { node: seat.node, store, cluster, bulk: seat.bulk.clone() }
    }

    /// Reads the shared data of a job.
    ///
    /// # Errors
    /// Any error from the store; [`zk::Error::Garbled`] if what is there is not what the record says.
    pub(crate) async fn read(&self, job: &JobId, record: &JobRecord) -> zk::Result<Shared> {
        let (Some(bulk), Ok(name)) = (&self.bulk, record.shared_name.parse::<ObjectName>()) else {
            let bytes = zk::job::shared(&*self.store, &self.cluster, &job.0).await?;
            return Ok(Shared { bytes, offer: None });
        };
        let below = self.nodes_below(record).await?;
        let filling = Object::to_be_filled(name);
        // From the beginning, so that others can fetch from here what has come.
        let offer = bulk.offer(filling.object().clone());
        let Some(object) = fetch(bulk, name, filling, &below).await else {
            drop(offer);
            return self.read_in_zookeeper(job, record, name, bulk).await;
        };
        Ok(Shared { bytes: object.to_vec(), offer: Some(offer) })
    }

    /// Returns the nodes with a lower id that may work on a job, lowest first.
    async fn nodes_below(&self, record: &JobRecord) -> zk::Result<Vec<NodeId>> {
        let members = membership::list(&*self.store, &self.cluster).await?;
        let takes = members.iter().filter(|member| member.takes(record).is_ok());
        let mut below: Vec<NodeId> = takes.filter_map(|member| member.node.parse().ok()).collect();
        below.retain(|&node| node < self.node);
        below.sort_unstable();
        Ok(below)
    }

    /// Reads the data in `ZooKeeper`, and hands it on while it comes.
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
        let bytes = filling.object().to_vec();
        if Object::name_of(&bytes) != name {
            let path = self.cluster.job(&job.0).shared();
            return Err(zk::Error::Garbled {
                path,
                reason: "it is not the data that was submitted".to_owned(),
            });
        }
        filling.complete();
        Ok(Shared { bytes, offer: Some(offer) })
    }
}

/// Fetches the data from nodes below, unless this is one of those that do not.
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
            tracing::info!(%name, %error, garbled, "no node has sent the data; it is read in ZooKeeper");
            None
        }
    }
}

/// Returns the node that a node with these below it fetches from; `None` if it reads in `ZooKeeper`.
fn parent(below: &[NodeId]) -> Option<NodeId> {
    let place = below.len().checked_sub(READERS)? / CHILDREN;
    below.get(place).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_but_the_first_fetches_from_one_below_it_and_none_serves_many() {
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
