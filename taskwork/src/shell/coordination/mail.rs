//! Letters: messages through the tree, between nodes that the network does not connect.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use tokio::sync::mpsc;
use zk::mail::{self, Mailbox, Posted};

use super::Coordination;
use crate::{
    id::{Attempt, NodeId},
    wire::parcel::Parcel,
};

impl Coordination {
    /// Passes every letter of an attempt to the driver.
    pub(super) async fn follow_mail(self: Arc<Self>, attempt: Attempt) {
        // Within one process all nodes are reachable.
        if !self.visibility.is_public() {
            return;
        }
        let (paths, node) = (self.job_paths().attempt(attempt.0), self.node.to_string());
        let (mut mailbox, mut retry) = (Mailbox::new(self.store(), &paths, &node), self.retry());
        loop {
            match mailbox.next().await {
                Ok(bytes) => {
                    retry.succeeded();
                    match Parcel::open_letter(&bytes) {
                        Ok(letter) => {
                            // If the driver has stopped, the node stops, and this loop with it.
                            let _ = self.letters.send(letter).await;
                        }
                        Err(error) => tracing::warn!(%error, "a letter could not be read and was dropped"),
                    }
                }
                // The attempt is over and was removed.
                Err(zk::Error::NoNode { .. }) => return,
                Err(error) if retry.again(&*self.store, "reading the mailbox", &error).await => {}
                Err(_) => return,
            }
        }
    }

    /// Posts letters one by one. This is a separate loop because posting a large letter is slow and must not delay
    /// transactions.
    pub(super) async fn post_letters(&self, mut letters: mpsc::Receiver<(NodeId, Parcel)>) {
        while let Some((to, parcel)) = letters.recv().await {
            self.post(to, &parcel).await;
        }
    }

    /// Posts a letter in a single try: the sender repeats letters that matter.
    pub(super) async fn post(&self, to: NodeId, parcel: &Parcel) {
        let attempt = self.job_paths().attempt(parcel.attempt.0);
        let number = self.letters_posted.fetch_add(1, Relaxed);
        let letter = match parcel.letter(self.node) {
            Ok(letter) => letter,
            Err(error) => return tracing::error!(%to, %error, "a letter could not be encoded"),
        };
        let (from, to) = (self.node.to_string(), to.to_string());
        match mail::post(&*self.store, &self.cluster, &attempt, &from, &to, number, &letter).await {
            Ok(Posted::Posted) => tracing::info!(to, "a letter was posted to an unreachable node"),
            Ok(Posted::NotTaken) => tracing::debug!(to, "a letter was not accepted"),
            Err(error) => tracing::warn!(to, %error, "a letter could not be posted"),
        }
    }
}
