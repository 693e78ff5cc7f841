//! Retry of the tasks that a job has set aside: a new attempt that starts with these tasks and with the
//! result of the previous attempt.
//!
//! ```text
//!   attempts/<k>     quarantine/<task>  result             (removed once the next attempt runs)
//!                        │                  │
//!   attempts/<k+1>   parked/<task>      outputs/carried    one multi, which makes the job Running
//! ```
//!
//! If an unprotected node is lost after that, the next attempt starts at the root, without these data.

use super::{JobState, Retry, create, lead::result, read, submit::attempt};
use crate::{
    blob,
    error::{Error, Result},
    paths::{CARRIED, ClusterPaths},
    quarantine, record,
    store::{Op, Store},
};

/// The outcome of a retry.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retried {
    /// The job runs again, with this number of set-aside tasks.
    Begun(usize),
    /// The job is in this state, in which it cannot be retried.
    Not(JobState),
}

/// The number of times that a retry may lose the race against other changes of the record.
const TRIES_MAX: usize = 16;

/// The maximum size of data that is written in the multi itself, in bytes.
const INLINE_BYTES_MAX: usize = 128;

/// Starts another attempt with the tasks that were set aside, if the job has ended without them. `key` identifies
/// the retry when it is called again.
///
/// # Errors
/// Any error from the store. It can be called again.
pub async fn retry(store: &dyn Store, cluster: &ClusterPaths, job: &str, key: &str) -> Result<Retried> {
    let paths = cluster.job(job);
    for _ in 0..TRIES_MAX {
        let (mut record, version) = read(store, cluster, job).await?;
        if let Some(retry) = record.retry.as_ref().filter(|retry| retry.key == key) {
            return Ok(Retried::Begun(retry.tasks));
        }
        if record.state != JobState::Incomplete {
            return Ok(Retried::Not(record.state));
        }
        let ended = paths.attempt(record.attempt);
        store.sync(&ended.base()).await?;
        let result = match result(store, cluster, job).await {
            // Another retry has started, or an earlier try of this one was committed.
            Err(Error::NoNode { .. }) => continue,
            result => result?.result,
        };
        record.attempt += 1;
        let put = async |name: String, data: &[u8]| {
            blob::put(store, paths.carried(record.attempt, &name), data, INLINE_BYTES_MAX, None).await
        };
        let mut tasks = Vec::new();
        for (task, envelope) in quarantine::envelopes(store, &ended).await? {
            let content = put(format!("{key}-{task}"), &envelope).await?;
            tasks.push((task, content));
        }
        let carried = put(format!("{key}-{CARRIED}"), &result).await?;
        record.state = JobState::Running;
        (record.finished_ms, record.reason) = (None, None);
        record.attempts_max = record.attempts_max.saturating_add(1);
        record.retry = Some(Retry { key: key.to_owned(), tasks: tasks.len() });
        let next = paths.attempt(record.attempt);
        let parked = tasks.iter().map(|(task, content)| (task.as_str(), content.as_slice()));
        let mut ops = vec![
            Op::Set { path: paths.record(), data: record::write(&record), version: Some(version) },
            Op::Delete { path: paths.result(), version: None },
        ];
        ops.extend(attempt(&next, false, parked));
        // `carried` is not a node, so no node would write its clean leave.
        ops.extend([create(next.output(CARRIED), &carried), create(next.left_node(CARRIED), b"")]);
        match store.multi(ops).await {
            Ok(_) => return Ok(Retried::Begun(tasks.len())),
            // Another retry was faster, or an earlier try of this one.
            Err(Error::Multi { cause, .. })
                if matches!(
                    *cause,
                    Error::BadVersion { .. } | Error::NodeExists { .. } | Error::NoNode { .. }
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::Contended { path: paths.record(), tries: TRIES_MAX })
}
