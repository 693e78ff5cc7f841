//! Users' suggestions for the job: the leader passes them to the program and answers them.
//!
//! This loop is separate from the leading loop: however long the program's code takes, the leader still
//! notices lost nodes and the completion of the job. A suggestion that takes too long is answered, but its thread
//! cannot be stopped, so the number of such threads is limited.

use std::{convert::Infallible, future, sync::Arc, time::Duration};

use tokio::{sync::Semaphore, task, time};
use zk::suggestion::{self, Answer, Suggestions};

use super::Coordination;

/// The maximum time for the program to evaluate a suggestion.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of concurrent evaluations: the current one, and those that have timed out.
pub(crate) const LOOKS_MAX: usize = 4;

impl Coordination {
    /// Handles suggestions one by one while this node leads.
    pub(super) async fn take_suggestions(&self) -> Infallible {
        // A job within one process receives no suggestions.
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

    /// Evaluates and answers a user's suggestion.
    async fn take_suggestion(&self, name: &str, value: serde_json::Value) -> zk::Result<()> {
        let (store, job) = (&*self.store, &self.job.0);
        let answer = if suggestion::begin(store, &self.cluster, job, name).await? {
            let (taken, said) = self.looked_at(value).await;
            Answer { taken, said }
        } else {
            Answer { taken: false, said: "the nodes that evaluated it were lost".to_owned() }
        };
        tracing::info!(taken = answer.taken, said = answer.said, "a suggestion for the job was answered");
        let mut retry = self.retry();
        loop {
            // The suggestion is answered once all nodes can see the value.
            let answered = match self.flush_variables().await {
                Ok(()) => suggestion::answer(store, &self.cluster, job, name, &answer).await,
                Err(error) => Err(error),
            };
            match answered {
                Ok(()) => return Ok(()),
                // Only the answer is retried: a second evaluation would find that the value does not improve on itself.
                Err(error) if retry.again(store, "answering a suggestion", &error).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets the program evaluate a suggestion on a separate thread. Returns whether it made a difference, and the
    /// answer.
    async fn looked_at(&self, value: serde_json::Value) -> (bool, String) {
        let pool = Arc::clone(&self.pool);
        match look(&self.looks, LOOK_TIMEOUT, move || pool.suggest(value)).await {
            Ok(Ok(looked)) => looked,
            Ok(Err(reason)) => (false, reason),
            Err(reason) => (false, reason.to_owned()),
        }
    }
}

/// Runs a function that may take arbitrarily long, unless too many are running; waits for it up to a timeout.
async fn look<T: Send + 'static>(
    looks: &Arc<Semaphore>,
    timeout: Duration,
    doing: impl FnOnce() -> T + Send + 'static,
) -> Result<T, &'static str> {
    let Ok(permit) = Arc::clone(looks).try_acquire_owned() else {
        return Err(
            "the program still evaluates earlier ones beyond the time limit; suggestions are refused until it has \
             finished",
        );
    };
    let looking = task::spawn_blocking(move || {
        let done = doing();
        drop(permit);
        done
    });
    match time::timeout(timeout, looking).await {
        Ok(done) => done.map_err(|_| "the evaluation failed"),
        Err(_) => Err("the program took too long to evaluate it"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn program_that_never_answers_occupies_a_bounded_number_of_threads() {
        let looks = Arc::new(Semaphore::new(LOOKS_MAX));
        let (may_end, ends): (Vec<_>, Vec<_>) = (0..LOOKS_MAX).map(|_| mpsc::channel::<()>()).unzip();
        for end in ends {
            let said = look(&looks, Duration::from_millis(1), move || end.recv().is_ok()).await;
            assert_eq!(said, Err("the program took too long to evaluate it"));
        }
        let said = look(&looks, LOOK_TIMEOUT, || panic!("this one is not evaluated")).await;
        assert!(said.is_err_and(|said: &str| said.contains("earlier ones")));
        drop(may_end);
        let all = looks.acquire_many(u32::try_from(LOOKS_MAX).unwrap());
        drop(time::timeout(Duration::from_secs(60), all).await.expect("they end").unwrap());
        assert_eq!(look(&looks, LOOK_TIMEOUT, || 7).await, Ok(7));
    }
}
