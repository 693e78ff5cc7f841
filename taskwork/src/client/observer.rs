//! Observing a cluster: everything that changes in it, as the events of a [view](crate::view).

use std::time::Duration;

use tokio::time;
use zk::{ClusterPaths, Connect, ConnectError};

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
    /// Returns an observer of the client's cluster, with its own session.
    pub fn observer(&self) -> Observer {
        Observer { connect: self.connection_settings().clone(), cluster: self.cluster().clone() }
    }
}

impl Observer {
    /// Observes the cluster without end, and passes its state and all changes to `tell`, with a
    /// [tick](crate::view::Content::Tick) about every second. While ZooKeeper does not answer, it reports
    /// [`Lost`](crate::view::Content::Lost) and retries. [`Found`](crate::view::Content::Found) is reported once
    /// everything was read, initially and after each outage.
    ///
    /// Returns only if ZooKeeper refuses a request, with the reason.
    ///
    /// # Cancellation safety
    /// When the future is dropped, the session is not closed, and expires.
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
