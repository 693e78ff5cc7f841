//! Looks for what nodes that are gone have left behind.

use std::{collections::BTreeSet, sync::Arc};

use zk::accounting;

use super::Coordination;
use crate::{
    core::Event,
    holdings::Transit,
    id::{Attempt, NodeId},
};

/// The maximum number of tasks on their way to lost nodes that one look reports; nodes that find no tasks look
/// again.
const TRANSITS_MAX: usize = 10_000;

impl Coordination {
    /// Looks whenever the node asks for it.
    pub(super) async fn look_for_orphans(self: Arc<Self>) {
        let mut wanted = self.orphans_wanted.clone();
        // Ends with the driver, which requests them.
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
            let Some(found) = self.persist("looking for what lost nodes have left behind", find).await else {
                return;
            };
            let Some(accounting::Orphans { members, transits, held }) = found else { continue };
            // Names that no node could have written are no concern of this one.
            let names = transits.iter().filter_map(|name| name.parse::<Transit>().ok());
            let mut held: Vec<_> = held.iter().filter_map(|node| node.parse().ok()).collect();
            let members: BTreeSet<NodeId> = members.iter().filter_map(|node| node.parse().ok()).collect();
            held.retain(|node| !members.contains(node));
            // What is on its way to this node must not be missing.
            let (mine, others): (Vec<Transit>, Vec<Transit>) = names.partition(|name| name.to == self.node);
            let others = others.into_iter().filter(|transit| !members.contains(&transit.to));
            let transits = mine.into_iter().chain(others.take(TRANSITS_MAX)).collect();
            self.tell(Event::Orphans { attempt, look, members, transits, held }).await;
        }
    }
}
