//! Another chance for the tasks that a job has set aside: a new attempt that begins with them, and with the
//! outputs of the one before.
//!
//! ```text
//!   attempts/<k>     quarantine/<task>  outputs/<node>         (tidied away once the next one runs)
//!                        │                  │
//!   attempts/<k+1>   parked/<task>      outputs/carried-<n>    one multi, which makes the job Running
//! ```

use super::{JobState, create, lead::outputs, read, submit::attempt};
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
    /// The job runs again, with this number of tasks that were set aside.
    Begun(usize),
    /// The job is in this state, in which nothing is to be tried again.
    Not(JobState),
}

/// How often a retry may lose the race against other changes of the record.
const TRIES_MAX: usize = 16;

/// The largest data that is written in the multi itself, in bytes.
const INLINE_BYTES_MAX: usize = 128;

/// Begins another attempt with the tasks that were set aside, if the job has ended without them. `key` must be
/// unique, and the same at every try.
///
/// # Errors
/// Any error from the store. It can be called again.
pub async fn retry(store: &dyn Store, cluster: &ClusterPaths, job: &str, key: &str) -> Result<Retried> {
    let paths = cluster.job(job);
    for _ in 0..TRIES_MAX {
        let (mut record, version) = read(store, cluster, job).await?;
        if record.state != JobState::Incomplete {
            return Ok(Retried::Not(record.state));
        }
        let ended = paths.attempt(record.attempt);
        store.sync(&ended.base()).await?;
        record.state = JobState::Running;
        (record.finished_ms, record.reason) = (None, None);
        record.attempt += 1;
        record.attempts_max = record.attempts_max.saturating_add(1);
        let next = paths.attempt(record.attempt);
        let put = async |name: String, data: &[u8]| {
            blob::put(store, paths.carried(record.attempt, &name), data, INLINE_BYTES_MAX, None).await
        };
        let mut tasks = Vec::new();
        for (task, envelope) in quarantine::envelopes(store, &ended).await? {
            let content = put(format!("{key}-{task}"), &envelope).await?;
            tasks.push((task, content));
        }
        let parked = tasks.iter().map(|(task, content)| (task.as_str(), content.as_slice()));
        let mut ops = vec![
            Op::Set { path: paths.record(), data: record::write(&record), version: Some(version) },
            Op::Delete { path: paths.result(), version: None },
        ];
        ops.extend(attempt(&next, parked));
        for (number, (_, output)) in outputs(store, &ended).await?.into_iter().enumerate() {
            let content = put(format!("{key}-output{number}"), &output).await?;
            let carried = format!("{CARRIED}{number}");
            // It is no node, and nobody waits for it.
            ops.extend([create(next.output(&carried), &content), create(next.left_node(&carried), b"")]);
        }
        match store.multi(ops).await {
            Ok(_) => return Ok(Retried::Begun(tasks.len())),
            // Somebody else was faster, or an earlier try of this.
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
