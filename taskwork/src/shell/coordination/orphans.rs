//! Looks for work that lost nodes have left behind.

use std::{collections::BTreeSet, sync::Arc};

use zk::accounting;

use super::Coordination;
use crate::{
    core::Event,
    holdings::Transit,
    id::{Attempt, NodeId},
};

/// The maximum number of tasks in transit to lost nodes that one search reports. Nodes that find no tasks search
/// again.
const TRANSITS_MAX: usize = 10_000;

impl Coordination {
    /// Searches whenever the driver requests it.
    pub(super) async fn look_for_orphans(self: Arc<Self>) {
        let mut wanted = self.orphans_wanted.clone();
        // The channel is closed when the driver stops.
        while wanted.changed().await.is_ok() {
            let look = *wanted.borrow_and_update();
            let attempt = Attempt(self.attempt_seen());
            let paths = self.job_paths().attempt(attempt.0);
            let find = || async {
                match accounting::orphans(&*self.store, &self.cluster, &paths).await {
                    Ok(orphans) => Ok(Some(orphans)),
                    // The attempt is over.
                    Err(zk::Error::NoNode { .. }) => Ok(None),
                    Err(error) => Err(error),
                }
            };
            let Some(found) = self.persist("looking for work of lost nodes", find).await else {
                return;
            };
            let Some(accounting::Orphans { members, transits, held }) = found else { continue };
            // Names that no node could have written are ignored.
            let names = transits.iter().filter_map(|name| name.parse::<Transit>().ok());
            let mut held: Vec<_> = held.iter().filter_map(|node| node.parse().ok()).collect();
            let members: BTreeSet<NodeId> = members.iter().filter_map(|node| node.parse().ok()).collect();
            held.retain(|node| !members.contains(node));
            // Transfers to this node are always included.
            let (mine, others): (Vec<Transit>, Vec<Transit>) = names.partition(|name| name.to == self.node);
            let others = others.into_iter().filter(|transit| !members.contains(&transit.to));
            let transits = mine.into_iter().chain(others.take(TRANSITS_MAX)).collect();
            self.notify_driver(Event::Orphans { attempt, look, members, transits, held }).await;
        }
    }
}
