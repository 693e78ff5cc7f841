//! The status that a companion provides to observers of its job.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use serde_json::{Value, json};
use zk::{figures::Status, question::ANSWER_BYTES_MAX};

use crate::display::{Document, JobDisplay, answer_of, merged, requested};

/// The maximum size of a display, in bytes of its JSON.
const DISPLAY_BYTES_MAX: usize = 256 << 10;

/// The maximum size of a document, in bytes of its JSON: an answer, without the message around it.
const DOCUMENT_BYTES_MAX: usize = ANSWER_BYTES_MAX - (1 << 10);

/// The status of a job, as the companion on one node knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct JobStatus {
    /// Displays of the highest rank are shown. If several nodes have that rank, each describes its part: counts and bytes
    /// are added, rows of tables are joined, and the first of other items with the same name stays.
    pub rank: u64,
    /// The displayed content, up to 256 KiB. If it is larger, its pictures are left out, and if it is still larger, nothing is shown.
    pub display: JobDisplay,
}

/// A provider of a companion's job status. It is called every two seconds while the job runs on a cluster, and for each
/// line of progress.
///
/// It is called on a thread of the runtime, so it must not block.
pub trait StatusProvider: Send + Sync {
    /// Returns the status of the job; `None` if another node knows more.
    fn status(&self) -> Option<JobStatus>;

    /// Creates a document that the display offers, in up to 500 KiB; `None` if another node knows it. The reason of a
    /// refusal completes the sentence "the job does not provide it:".
    fn document(&self, name: &str, argument: Option<&str>) -> Option<Result<Document, String>> {
        let _ = (name, argument);
        None
    }

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
pub(crate) struct ProviderSlot {
    provider: OnceLock<Weak<dyn StatusProvider>>,
    /// The last load of the provider, which remains after its end.
    load: Mutex<Load>,
}

impl ProviderSlot {
    /// Sets the provider. Further calls have no effect.
    pub(crate) fn set(&self, provider: Weak<dyn StatusProvider>) {
        let _ = self.provider.set(provider);
    }

    fn provider(&self) -> Option<Arc<dyn StatusProvider>> {
        self.provider.get().and_then(Weak::upgrade)
    }

    /// Returns the companion's status as it is published.
    pub(crate) fn status(&self) -> Option<Status> {
        let JobStatus { rank, mut display } = self.provider()?.status()?;
        let mut content = json!(display);
        let mut bytes = content.to_string().len();
        if bytes > DISPLAY_BYTES_MAX {
            tracing::debug!(bytes, "the display of the job is too large for its pictures");
            display.pictures.clear();
            content = json!(display);
            bytes = content.to_string().len();
        }
        (bytes <= DISPLAY_BYTES_MAX).then_some(Status { rank, content })
    }

    /// Returns the companion's own work.
    pub(crate) fn load(&self) -> Load {
        let now = self.provider().map(|provider| provider.load());
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        *load = now.unwrap_or(Load { busy: 0, queued: 0, ..*load });
        *load
    }

    /// Returns the companion's answer to a request for a document.
    pub(crate) fn answer(&self, request: &Value) -> Option<Value> {
        let provider = self.provider()?;
        let Some((name, argument)) = requested(request) else {
            let reason = "its nodes do not know this kind of request: use their version of the command";
            return Some(answer_of(&Err(reason.to_owned())));
        };
        let answer = answer_of(&provider.document(name, argument)?);
        let bytes = answer.to_string().len();
        if bytes > DOCUMENT_BYTES_MAX {
            return Some(answer_of(&Err(format!(
                "it is too large: {bytes} of at most {DOCUMENT_BYTES_MAX} bytes"
            ))));
        }
        Some(answer)
    }
}

/// Returns the display of the highest rank, merged if several nodes provide one.
pub(crate) fn highest(statuses: impl Iterator<Item = (bool, Status)>) -> Option<JobDisplay> {
    let statuses: Vec<_> = statuses.collect();
    let rank = statuses.iter().map(|(_, status)| status.rank).max()?;
    let highest = statuses.iter().filter(|(_, status)| status.rank == rank);
    let displays: Vec<_> = highest
        .filter_map(|(is_there, status)| Some((*is_there, JobDisplay::read(&status.content)?)))
        .collect();
    merged(displays.iter().map(|(is_there, display)| (*is_there, display)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::{Field, Format, Picture, Unit, document_of, request_of};

    /// Provides a value, a picture and documents with the given sizes.
    struct Provider {
        value: usize,
        picture: usize,
    }

    impl StatusProvider for Provider {
        fn status(&self) -> Option<JobStatus> {
            let text = "x".repeat(self.value);
            let display = JobDisplay::new()
                .value(Field::new("text", "text", Unit::Text, text.as_str()))
                .picture(Picture::dot("a.dot", "graph", "x".repeat(self.picture)));
            Some(JobStatus { rank: 1, display })
        }

        fn document(&self, name: &str, argument: Option<&str>) -> Option<Result<Document, String>> {
            let content = argument.unwrap_or("none").repeat(self.value);
            match name {
                "text" => Some(Ok(Document::new(Format::Text, content))),
                "refused" => Some(Err("it was not recorded".to_owned())),
                _ => None,
            }
        }

        fn load(&self) -> Load {
            Load { busy: 2, queued: 1, ended: 7, busy_ns: 9 }
        }
    }

    fn slot_with(provider: &Arc<Provider>) -> ProviderSlot {
        let slot = ProviderSlot::default();
        let weak: Weak<Provider> = Arc::downgrade(provider);
        slot.set(weak);
        slot
    }

    #[test]
    fn companion_work_counts_after_its_exit() {
        assert_eq!(ProviderSlot::default().load(), Load::default());
        let provider = Arc::new(Provider { value: 1, picture: 1 });
        let slot = slot_with(&provider);
        assert_eq!(slot.load(), provider.load());
        drop(provider);
        assert_eq!(slot.load(), Load { busy: 0, queued: 0, ended: 7, busy_ns: 9 });
    }

    #[test]
    fn companion_status_is_bounded_and_ends_with_the_companion() {
        for (value, picture, shown) in
            [(10, 10, Some(1)), (10, DISPLAY_BYTES_MAX, Some(0)), (DISPLAY_BYTES_MAX, 10, None)]
        {
            let provider = Arc::new(Provider { value, picture });
            let slot = slot_with(&provider);
            let pictures = |status: Status| status.content["pictures"].as_array().map(Vec::len);
            assert_eq!(slot.status().and_then(pictures), shown);
            drop(provider);
            assert_eq!((slot.status(), slot.answer(&request_of("text", None))), (None, None));
        }
        assert_eq!(ProviderSlot::default().status(), None);
    }

    #[test]
    fn companion_document_is_created_refused_or_unknown() {
        let provider = Arc::new(Provider { value: 2, picture: 1 });
        let slot = slot_with(&provider);
        let answer = |name, argument| Some(document_of(&slot.answer(&request_of(name, argument))?));
        assert_eq!(answer("text", Some("7")), Some(Ok(Document::new(Format::Text, "77".to_owned()))));
        assert_eq!(answer("refused", None), Some(Err("it was not recorded".to_owned())));
        assert_eq!(answer("other", None), None);
        let refused = document_of(&slot.answer(&json!({ "task": 7 })).unwrap()).unwrap_err();
        assert!(refused.contains("this kind of request"), "{refused}");
        let large = "x".repeat(DOCUMENT_BYTES_MAX / 2);
        assert!(answer("text", Some(&large)).unwrap().unwrap_err().contains("too large"));
    }

    #[test]
    fn companion_status_of_the_highest_rank_is_shown() {
        let status = |rank: u64| {
            let display = JobDisplay::new().value(Field::new("rank", "rank", Unit::Count, rank));
            Status { rank, content: json!(display) }
        };
        let shown =
            |ranks: &[u64]| highest(ranks.iter().map(|rank| (true, status(*rank)))).unwrap().count_of("rank");
        assert_eq!(shown(&[2, 3, 1]), Some(3));
        assert_eq!(shown(&[3, 1, 3]), Some(6), "each of two nodes describes a part");
        assert_eq!(highest([].into_iter()), None);
    }
}
