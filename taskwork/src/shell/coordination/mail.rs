//! Letters: messages by way of the tree, between nodes that the network does not connect.

use std::sync::Arc;

use zk::mail::{self, Mailbox, Posted};

use super::{Coordination, RETRY_PAUSE};
use crate::{
    id::{Attempt, NodeId},
    shell::mail::{Letter, Mail},
    wire::{codec, parcel::Parcel},
};

impl Coordination {
    /// Takes every letter of an attempt to the driver.
    pub(super) async fn follow_mail(self: Arc<Self>, attempt: Attempt) {
        // Within one process everybody is reached.
        if !self.seen {
            return;
        }
        let (paths, node) = (self.job_paths().attempt(attempt.0), self.node.to_string());
        let open = || Mailbox::open(self.store(), &paths, &node);
        let Some(mut mailbox) = self.persist("putting up the mailbox", open).await else { return };
        loop {
            match mailbox.next().await {
                Ok(bytes) => match codec::decode::<Letter>(&bytes) {
                    Ok(letter) => {
                        // When the driver is gone the node ends, and this loop with it.
                        let _ = self.letters.send(letter).await;
                    }
                    Err(error) => tracing::warn!(%error, "a letter could not be read and was dropped"),
                },
                // The attempt is over and forgotten.
                Err(zk::Error::SessionExpired | zk::Error::NoNode { .. }) => return,
                Err(error) => {
                    tracing::debug!(%error, "the mailbox could not be read; it is tried again");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Posts a letter, once: what matters is said again.
    pub(super) async fn post(&self, to: NodeId, parcel: Parcel) {
        let attempt = self.job_paths().attempt(parcel.packet.attempt.0);
        let name = Mail::subject(parcel.job, &parcel.packet.message)
            .map_or_else(String::new, |subject| format!("{}-{}", subject.grant, subject.kind));
        let letter = match codec::encode(&Letter { from: self.node, parcel }) {
            Ok(letter) => letter,
            Err(error) => return tracing::error!(%to, %error, "a letter could not be encoded"),
        };
        let (from, to) = (self.node.to_string(), to.to_string());
        match mail::post(&*self.store, &self.cluster, &attempt, &from, &to, &name, &letter).await {
            Ok(Posted::Posted) => tracing::info!(to, "a letter was posted to a node out of reach"),
            Ok(Posted::NotTaken) => tracing::debug!(to, "a letter was not taken"),
            Err(error) => tracing::warn!(to, %error, "a letter could not be posted"),
        }
    }
}
