//! The status that a companion provides to observers of its job.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use serde_json::Value;
pub use zk::figures::Sight;

/// The maximum size of a status, in bytes of its JSON. A larger one is not shown.
const SIGHT_BYTES_MAX: usize = 256 << 10;

/// A provider of a companion's job status. It is called every two seconds while the job runs on a cluster, and for each
/// line of progress.
///
/// It is called on a thread of the runtime, so it must not block.
pub trait Witness: Send + Sync {
    /// Returns the status of the job, up to 256 KiB; `None` if another node knows more.
    fn sight(&self) -> Option<Sight>;

    /// Answers a question about the job from [`Client::ask_about`](crate::Client::ask_about), in up to 500 KiB;
    /// `None` if another node knows the answer.
    fn answer(&self, question: &Value) -> Option<Value>;

    /// Returns the companion's own work on this node, which counts as work on the job: in busy workers, rates, costs
    /// and the number of machines that the job needs. By default a companion does no work.
    fn load(&self) -> Load {
        Load::default()
    }
}

/// The work of a companion on its node, apart from the tasks in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// The number of its threads that currently compute, each in place of a worker.
    pub busy: usize,
    /// The number of waiting work items.
    pub queued: usize,
    /// The number of completed work items.
    pub ended: u64,
    /// The computing time of its threads, in nanoseconds.
    pub busy_ns: u64,
}

/// The status provider of a companion, once it is set.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    witness: OnceLock<Weak<dyn Witness>>,
    /// The last load of the provider, which remains after its end.
    load: Mutex<Load>,
}

impl Seat {
    /// Sets the provider. Further calls have no effect.
    pub(crate) fn take(&self, witness: Weak<dyn Witness>) {
        let _ = self.witness.set(witness);
    }

    fn witness(&self) -> Option<Arc<dyn Witness>> {
        self.witness.get().and_then(Weak::upgrade)
    }

    /// Returns the companion's status.
    pub(crate) fn sight(&self) -> Option<Sight> {
        let sight = self.witness()?.sight()?;
        let bytes = sight.content.to_string().len();
        if bytes > SIGHT_BYTES_MAX {
            tracing::debug!(bytes, "the status of the companion is too large");
            return None;
        }
        Some(sight)
    }

    /// Returns the companion's own work.
    pub(crate) fn load(&self) -> Load {
        let now = self.witness().map(|witness| witness.load());
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        *load = now.unwrap_or(Load { busy: 0, queued: 0, ..*load });
        *load
    }

    /// Returns the companion's answer to a question.
    pub(crate) fn answer(&self, question: &Value) -> Option<Value> {
        self.witness()?.answer(question)
    }
}

/// Returns the status of the highest rank.
pub(crate) fn highest(sights: impl Iterator<Item = Sight>) -> Option<Value> {
    sights.max_by_key(|sight| sight.rank).map(|sight| sight.content)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Shows(usize);

    impl Witness for Shows {
        fn sight(&self) -> Option<Sight> {
            Some(Sight { rank: 1, content: json!("x".repeat(self.0)) })
        }

        fn answer(&self, question: &Value) -> Option<Value> {
            (question == "how large").then(|| json!(self.0))
        }

        fn load(&self) -> Load {
            Load { busy: 2, queued: 1, ended: 7, busy_ns: 9 }
        }
    }

    #[test]
    fn companion_work_counts_after_its_exit() {
        let (seat, shows) = (Seat::default(), Arc::new(Shows(1)));
        assert_eq!(seat.load(), Load::default());
        let weak: Weak<Shows> = Arc::downgrade(&shows);
        seat.take(weak);
        assert_eq!(seat.load(), shows.load());
        drop(shows);
        assert_eq!(seat.load(), Load { busy: 0, queued: 0, ended: 7, busy_ns: 9 });
    }

    #[test]
    fn companion_status_is_bounded_and_ends_with_the_companion() {
        for (bytes, is_shown) in [(10, true), (SIGHT_BYTES_MAX, false)] {
            let (seat, shows) = (Seat::default(), Arc::new(Shows(bytes)));
            assert_eq!(seat.sight(), None, "there is no provider");
            let weak: Weak<Shows> = Arc::downgrade(&shows);
            seat.take(weak);
            assert_eq!(seat.sight().is_some(), is_shown);
            assert_eq!(seat.answer(&json!("how large")), Some(json!(bytes)));
            assert_eq!(seat.answer(&json!("how old")), None);
            drop(shows);
            assert_eq!((seat.sight(), seat.answer(&json!("how large"))), (None, None));
        }
    }

    #[test]
    fn companion_status_of_the_highest_rank_is_shown() {
        let sight = |rank| Sight { rank, content: json!(rank) };
        assert_eq!(highest([2, 3, 1].map(sight).into_iter()), Some(json!(3)));
        assert_eq!(highest([].into_iter()), None);
    }
}
