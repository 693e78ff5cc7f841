//! Observing a cluster: everything that changes in it, as the events of a [view](crate::view).

use std::time::Duration;

use tokio::time;
use zk::{ClusterPaths, Connect, ConnectError, Store as _};

use super::{BoxFuture, Client, ClientError};
use crate::{report::JobError, shell::observe::Observation, view::Event};

/// The pause before another session is opened.
const PAUSE: Duration = Duration::from_millis(500);

/// Observes a cluster in a session of its own, in which it never writes.
#[derive(Debug, Clone)]
pub struct Observer {
    connect: Connect,
    cluster: ClusterPaths,
}

impl Client {
    /// Returns what observes the client's cluster. It does not use the client's session.
    pub fn observer(&self) -> Observer {
        Observer { connect: self.connection_settings().clone(), cluster: self.cluster().clone() }
    }
}

impl Observer {
    /// Observes the cluster for ever, and tells everything that is there and that changes; a
    /// [tick](crate::view::Content::Tick) at least every second or so. While ZooKeeper does not answer, that is
    /// [told](crate::view::Content::Lost), and it goes on by itself. [Everything has been
    /// read](crate::view::Content::Found) some time after the beginning and after each such time.
    ///
    /// Ends only if ZooKeeper refuses something, and returns the reason.
    ///
    /// # Cancellation safety
    /// When the future is dropped, the session is not closed, and ends by itself.
    pub fn follow<'a>(&'a self, tell: &'a mut (dyn FnMut(Event) + Send)) -> BoxFuture<'a, ClientError> {
        Box::pin(async move {
            let mut observation = Observation::new(self.cluster.clone(), tell);
            loop {
                match observation.meanwhile(self.connect.open()).await {
                    Ok(store) => match observation.follow(store.clone()).await {
                        zk::Error::SessionExpired => drop(store.close()),
                        error => return JobError::from(error).into(),
                    },
                    Err(ConnectError::Unreachable { .. }) => {}
                    Err(error) => return error.into(),
                }
                observation.lose();
                observation.meanwhile(time::sleep(PAUSE)).await;
            }
        })
    }
}
