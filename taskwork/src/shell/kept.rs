//! The job stored in a directory: whether it is the job to run, and how it continues.
//!
//! ```text
//!   no job, or one whose submission was incomplete       write the identity, submit
//!   a job with another identity                          refuse
//!   the same job, running                                its process is gone: nodes join again
//!   the same job, suspended                              resume, nodes join again
//!   the same job, over, except for tasks set aside       retry these tasks
//!   the same job, over                                   return its result
//! ```
//!
//! The identity is a separate znode, written before the job. If the process exits between the two writes, there is
//! an identity without a job, which has no meaning.

use std::{path::PathBuf, sync::Arc, time::Duration, time::Instant};

use bytes::Bytes;
use rand::Rng as _;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use zk::{
    ClusterPaths, CreateMode, MemoryTree, Release, Store, durable,
    job::{self, JobRecord, JobState, Retried},
};

use super::{
    clock::unix_ms,
    submit::{Draft, Root, Tracked, job_id},
};
use crate::report::{JobError, StateError};

/// A directory, and the job to run in it.
pub(crate) struct Kept {
    pub(crate) dir: PathBuf,
    pub(crate) identity: Identity,
    /// The time after which the job is suspended.
    pub(crate) time_limit: Option<Duration>,
}

/// The attributes by which two jobs are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    program: String,
    version: String,
    kind: String,
    /// The version of the format of tasks and holdings.
    #[serde(default)]
    form: u32,
    /// The SHA-256 of the job's input: shared data, root task and initial values.
    instance: String,
}

/// The number of attempts is unlimited: every unclean exit of the process may end one.
pub(crate) const ATTEMPTS_MAX: u32 = u32::MAX;

/// The current version of the format of tasks and holdings. Other versions cannot be read.
const FORM: u32 = 3;

/// The number of hexadecimal digits of the fingerprint that [`Release`](crate::Release) adds to a version.
const BUILD_DIGITS: usize = 12;

impl Identity {
    pub(crate) fn new(
        release: &Release,
        kind: &str,
        shared: &[Bytes],
        root: &Root,
        start_values: &[(String, Vec<u8>)],
    ) -> Self {
        let mut digest = Context::new(&SHA256);
        // Prefixed by its length, so that different parts with the same concatenation differ.
        let mut add = |part: &[Bytes]| {
            let bytes: usize = part.iter().map(Bytes::len).sum();
            digest.update(&(bytes as u64).to_be_bytes());
            for piece in part {
                digest.update(piece);
            }
        };
        add(shared);
        add(&[Bytes::copy_from_slice(root.bytes())]);
        for (name, value) in start_values {
            add(&[Bytes::copy_from_slice(name.as_bytes())]);
            add(&[Bytes::copy_from_slice(value)]);
        }
        let digest = digest.finish();
        let digits = |digits, byte| format!("{digits}{byte:02x}");
        let instance = digest.as_ref().iter().fold(String::new(), digits);
        let Release { program, version } = release.clone();
        Self { program, version, kind: kind.to_owned(), form: FORM, instance }
    }

    /// Compares this identity with that of the job in the directory.
    fn check(&self, held: &Self, kept: &Kept) -> Result<(), StateError> {
        let file = kept.file();
        let (program, there, here) = (held.program.clone(), held.version.clone(), self.version.clone());
        if self.program != held.program {
            return Err(StateError::OtherProgram { file, there: program, here: self.program.clone() });
        }
        if here != there && !is_build_of(&here, &there) {
            let same = base(&here).is_some_and(|version| version == base(&there).unwrap_or(&there));
            return Err(if same {
                StateError::OtherBuild { file, program, there, here }
            } else {
                StateError::OtherVersion { file, program, there, here }
            });
        }
        if self.form != held.form {
            let reason = format!(
                "{file} was written by another version of the runtime, in a form that this one cannot read: \
                 continue with that version, use another directory, or delete it to start over"
            );
            return Err(StateError::Unusable { reason });
        }
        if (&self.kind, &self.instance) != (&held.kind, &held.instance) {
            return Err(StateError::OtherInstance { file, program });
        }
        Ok(())
    }
}

/// Returns whether `build` is `version` followed by the fingerprint of a build.
fn is_build_of(version: &str, build: &str) -> bool {
    base(build) == Some(version)
}

/// Returns the part before the fingerprint of the build, if there is one.
fn base(version: &str) -> Option<&str> {
    let (base, build) = version.rsplit_once('-')?;
    let is_build = build.len() == BUILD_DIGITS && build.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_build.then_some(base)
}

impl Kept {
    pub(crate) fn open(&self) -> Result<MemoryTree, StateError> {
        durable::open(&self.dir).map_err(|error| match error {
            durable::OpenError::Io { .. } => StateError::Io { reason: error.to_string() },
            error => StateError::Unusable { reason: error.to_string() },
        })
    }

    /// Finds the job, or submits it. Also returns its record if it was already over.
    pub(crate) async fn find(
        &self,
        store: Arc<dyn Store>,
        cluster: ClusterPaths,
        draft: &Draft<'_>,
        started: Instant,
    ) -> Result<(Tracked, Option<JobRecord>), JobError> {
        for (name, record) in job::list(&*store, &cluster).await? {
            let record = record?;
            if record.state == JobState::Submitting {
                job::forget(&*store, &cluster, &name).await?;
                continue;
            }
            self.identity.check(&self.read(&*store, &cluster).await?, self)?;
            let tracked = Tracked::new(store, cluster.clone(), job_id(&cluster, &name)?, started);
            if record.state == JobState::Failed {
                return Err(self.failed_earlier(record));
            }
            if record.state == JobState::Incomplete {
                let key = format!("{:032x}", rand::rng().random::<u128>());
                let Retried::Begun(_) = job::retry(&*tracked.store, &cluster, &name, &key).await? else {
                    return Ok((tracked, Some(record)));
                };
                tracing::info!(job = %name, "the tasks that the job had set aside are retried");
                return Ok((tracked, None));
            }
            if record.state.is_over() {
                return Ok((tracked, Some(record)));
            }
            job::resume(&*tracked.store, &cluster, &name, unix_ms()).await?;
            tracing::info!(job = %name, dir = %self.dir.display(), "the job of the directory continues");
            return Ok((tracked, None));
        }
        self.write(&*store, &cluster).await?;
        Ok((Tracked::submit(store, cluster, draft, started).await?, None))
    }

    /// Returns the error of a job that has already failed. It would fail again.
    fn failed_earlier(&self, record: JobRecord) -> JobError {
        let file = self.file();
        let reason = record.reason.unwrap_or_default();
        JobError::Failed {
            reason: format!("{reason}. The job failed in an earlier run; delete {file} to start over"),
        }
    }

    async fn read(&self, store: &dyn Store, cluster: &ClusterPaths) -> Result<Identity, JobError> {
        let (content, _) = store.get(&cluster.identity()).await?;
        let file = self.file();
        Ok(serde_json::from_slice(&content).map_err(|error| {
            let reason = format!("the identity of the job in {file} cannot be read: {error}");
            StateError::Unusable { reason }
        })?)
    }

    async fn write(&self, store: &dyn Store, cluster: &ClusterPaths) -> Result<(), JobError> {
        let content = serde_json::to_vec(&self.identity).expect("strings have a form in JSON");
        match store.create(&cluster.identity(), &content, CreateMode::Persistent).await {
            Err(zk::Error::NodeExists { path }) => store.set(&path, &content, None).await.map(drop)?,
            other => other.map(drop)?,
        }
        Ok(())
    }

    fn file(&self) -> String {
        durable::file_of(&self.dir).display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(version: &str) -> Identity {
        let text = |text: &str| text.to_owned();
        let [program, version, kind, instance] = ["p", version, "k", "00"].map(text);
        Identity { program, version, kind, form: FORM, instance }
    }

    #[test]
    fn release_without_a_build_continues_a_job_of_any_build_of_its_version() {
        let kept = Kept { dir: PathBuf::from("dir"), identity: identity("1.0"), time_limit: None };
        let continues = |here: &str, there: &str| identity(here).check(&identity(there), &kept);
        let (one, two) = ("1.0-0123456789ab", "1.0-ba9876543210");
        assert!(
            continues("1.0", "1.0").is_ok() && continues("1.0", one).is_ok() && continues(one, one).is_ok()
        );
        assert!(matches!(continues(one, two), Err(StateError::OtherBuild { .. })));
        assert!(matches!(continues(one, "1.0"), Err(StateError::OtherBuild { .. })));
        assert!(matches!(continues("1.0", "1.0-rc1"), Err(StateError::OtherVersion { .. })));
        assert!(matches!(continues("1.0-rc1", "1.0-rc2"), Err(StateError::OtherVersion { .. })));
        assert!(matches!(continues("1.1-0123456789ab", one), Err(StateError::OtherVersion { .. })));
    }
}
