//! Waiting for events of a seat of which there may be several sources or none.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use tokio::time;
use zk::retry::Retry;

use super::{Active, Closing, NotOpened, OpenPool, Opening, Pausing};

/// Waits for the first future to complete, and returns its index.
pub(super) async fn first<T>(mut futures: Vec<Pin<Box<dyn Future<Output = T> + Send>>>) -> (usize, T) {
    poll_fn(|cx| {
        for (place, future) in futures.iter_mut().enumerate() {
            if let Poll::Ready(done) = future.as_mut().poll(cx) {
                return Poll::Ready((place, done));
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits until the node's part in an active job has ended, and returns the job's index.
pub(super) async fn next_ended(active: &mut [Active]) -> usize {
    poll_fn(|cx| {
        for (place, active) in active.iter_mut().enumerate() {
            if std::pin::pin!(active.running.ended()).poll(cx).is_ready() {
                return Poll::Ready(place);
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits until all workers have returned from a closing job, and returns the job's index.
pub(super) async fn next_back(closing: &mut [Closing]) -> usize {
    poll_fn(|cx| {
        for (place, closing) in closing.iter_mut().enumerate() {
            if std::pin::pin!(closing.stopping.workers_back()).poll(cx).is_ready() {
                return Poll::Ready(place);
            }
        }
        Poll::Pending
    })
    .await
}

pub(super) async fn due(at: Option<time::Instant>) {
    match at {
        Some(at) => time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

pub(super) async fn paused(pausing: Option<&mut Pausing>) -> (Retry, bool) {
    match pausing {
        Some(pausing) => pausing.await,
        None => std::future::pending().await,
    }
}

pub(super) async fn opened(opening: Option<&mut Opening<'_>>) -> Result<OpenPool, NotOpened> {
    match opening {
        Some(opening) => opening.pool.as_mut().await,
        None => std::future::pending().await,
    }
}
