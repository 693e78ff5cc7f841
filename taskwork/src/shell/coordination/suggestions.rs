//! Users' suggestions to the job: the leader lets the program look at them, and answers.
//!
//! This is a separate loop beside the one that leads: whatever the program's code does, and however long it
//! takes, the leader still notices lost nodes and the end of the job. A suggestion that takes too long is
//! answered, but its thread cannot be ended: the number of such threads is limited.

use std::{convert::Infallible, future, sync::Arc, time::Duration};

use tokio::{sync::Semaphore, task, time};
use zk::suggestion::{self, Answer, Suggestions};

use super::Coordination;

/// The maximum time for which a program may look at a suggestion.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of suggestions being looked at: one, and those that have taken too long.
pub(crate) const LOOKS_MAX: usize = 4;

impl Coordination {
    /// Handles one suggestion after another, as long as this node leads.
    pub(super) async fn take_suggestions(&self) -> Infallible {
        // A run within one process takes no suggestions.
        if !self.visibility.is_public() {
            return future::pending().await;
        }
        let mut suggestions = Suggestions::new(self.store(), self.cluster.clone(), &self.job.0);
        let mut retry = self.retry();
        loop {
            let taken = async {
                let (name, value) = suggestions.next().await?;
                self.take_suggestion(&name, value).await
            };
            match taken.await {
                Ok(()) => retry.succeeded(),
                Err(error) if retry.again(&*self.store, "taking a suggestion", &error).await => {}
                // The leading loop notices the error, too.
                Err(_) => return future::pending().await,
            }
        }
    }

    /// Handles a suggestion of a user, and answers it.
    async fn take_suggestion(&self, name: &str, value: serde_json::Value) -> zk::Result<()> {
        let (store, job) = (&*self.store, &self.job.0);
        let answer = if suggestion::begin(store, &self.cluster, job, name).await? {
            let (taken, said) = self.looked_at(value).await;
            Answer { taken, said }
        } else {
            Answer { taken: false, said: "the nodes that looked at it were lost".to_owned() }
        };
        tracing::info!(taken = answer.taken, said = answer.said, "something was suggested to the job");
        let mut retry = self.retry();
        loop {
            // It is answered once all nodes can see the value.
            let answered = match self.flush_variables().await {
                Ok(()) => suggestion::answer(store, &self.cluster, job, name, &answer).await,
                Err(error) => Err(error),
            };
            match answered {
                Ok(()) => return Ok(()),
                // Only the answer is retried: looking again would find the value no better than itself.
                Err(error) if retry.again(store, "answering a suggestion", &error).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets the program look at a suggestion, on a separate thread. Returns whether it made a difference, and
    /// the answer.
    async fn looked_at(&self, value: serde_json::Value) -> (bool, String) {
        let pool = Arc::clone(&self.pool);
        match look(&self.looks, LOOK_TIMEOUT, move || pool.suggest(value)).await {
            Ok(Ok(looked)) => looked,
            Ok(Err(reason)) => (false, reason),
            Err(reason) => (false, reason.to_owned()),
        }
    }
}

/// Runs a function that may take arbitrarily long, unless too many are running already; waits for it up to a
/// timeout.
async fn look<T: Send + 'static>(
    looks: &Arc<Semaphore>,
    timeout: Duration,
    doing: impl FnOnce() -> T + Send + 'static,
) -> Result<T, &'static str> {
    let Ok(permit) = Arc::clone(looks).try_acquire_owned() else {
        return Err(
            "the program still looks at earlier ones, for too long; it is not asked again until it has done \
             with them",
        );
    };
    let looking = task::spawn_blocking(move || {
        let done = doing();
        drop(permit);
        done
    });
    match time::timeout(timeout, looking).await {
        Ok(done) => done.map_err(|_| "the node could not look at it"),
        Err(_) => Err("the program has looked at it for too long"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_program_that_never_answers_has_a_few_threads_and_no_more() {
        let looks = Arc::new(Semaphore::new(LOOKS_MAX));
        let (may_end, ends): (Vec<_>, Vec<_>) = (0..LOOKS_MAX).map(|_| mpsc::channel::<()>()).unzip();
        for end in ends {
            let said = look(&looks, Duration::from_millis(1), move || end.recv().is_ok()).await;
            assert_eq!(said, Err("the program has looked at it for too long"));
        }
        let said = look(&looks, LOOK_TIMEOUT, || panic!("this one is not looked at")).await;
        assert!(said.is_err_and(|said: &str| said.contains("earlier ones")));
        drop(may_end);
        let all = looks.acquire_many(u32::try_from(LOOKS_MAX).unwrap());
        drop(time::timeout(Duration::from_secs(60), all).await.expect("they end").unwrap());
        assert_eq!(look(&looks, LOOK_TIMEOUT, || 7).await, Ok(7));
    }
}
