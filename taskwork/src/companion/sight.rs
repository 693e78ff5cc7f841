//! What a companion shows people who look at the job.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use serde_json::Value;
pub use zk::figures::Sight;

/// The maximum size of what a companion shows, in bytes of its JSON. More is not shown.
const SIGHT_BYTES_MAX: usize = 256 << 10;

/// Tells people what a companion knows of the job. It is only asked when somebody looks: every two seconds as long as the
/// job runs on a cluster, and when there is a line of progress.
///
/// It is asked on a thread of the runtime, so it must not wait.
pub trait Witness: Send + Sync {
    /// Returns what is to be seen of the job, up to 256 KiB; `None` if another node knows more.
    fn sight(&self) -> Option<Sight>;

    /// Answers a question about the job, which [`Client::ask_about`](crate::Client::ask_about) has asked; `None` if another
    /// node knows. The answer may have 500 KiB.
    fn answer(&self, question: &Value) -> Option<Value>;

    /// Returns the companion's own work on this node, which counts as work on the job: in busy workers, rates, costs and
    /// the number of machines that the job needs. By default a companion does not work.
    fn load(&self) -> Load {
        Load::default()
    }
}

/// The work of a companion on its node, apart from the tasks in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// The number of its threads that compute now, each in place of a worker.
    pub busy: usize,
    /// The number of waiting pieces of work.
    pub queued: usize,
    /// The number of completed pieces of work.
    pub ended: u64,
    /// The time for which its threads have computed, in nanoseconds.
    pub busy_ns: u64,
}

/// The witness of a companion, once it has named one.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    witness: OnceLock<Weak<dyn Witness>>,
    /// The last answer of the witness, which counts after its end, too.
    load: Mutex<Load>,
}

impl Seat {
    /// Takes a witness. The first one stays.
    pub(crate) fn take(&self, witness: Weak<dyn Witness>) {
        let _ = self.witness.set(witness);
    }

    fn witness(&self) -> Option<Arc<dyn Witness>> {
        self.witness.get().and_then(Weak::upgrade)
    }

    /// Returns what the companion shows.
    pub(crate) fn sight(&self) -> Option<Sight> {
        let sight = self.witness()?.sight()?;
        let bytes = sight.content.to_string().len();
        if bytes > SIGHT_BYTES_MAX {
            tracing::debug!(bytes, "what the companion shows is too large");
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

/// Returns what counts of what several nodes show.
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
    fn work_of_a_companion_counts_after_its_end() {
        let (seat, shows) = (Seat::default(), Arc::new(Shows(1)));
        assert_eq!(seat.load(), Load::default());
        let weak: Weak<Shows> = Arc::downgrade(&shows);
        seat.take(weak);
        assert_eq!(seat.load(), shows.load());
        drop(shows);
        assert_eq!(seat.load(), Load { busy: 0, queued: 0, ended: 7, busy_ns: 9 });
    }

    #[test]
    fn what_a_companion_shows_is_bounded_and_ends_with_it() {
        for (bytes, is_shown) in [(10, true), (SIGHT_BYTES_MAX, false)] {
            let (seat, shows) = (Seat::default(), Arc::new(Shows(bytes)));
            assert_eq!(seat.sight(), None, "nobody is there");
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
    fn of_what_several_nodes_show_the_latest_counts() {
        let sight = |rank| Sight { rank, content: json!(rank) };
        assert_eq!(highest([2, 3, 1].map(sight).into_iter()), Some(json!(3)));
        assert_eq!(highest([].into_iter()), None);
    }
}
