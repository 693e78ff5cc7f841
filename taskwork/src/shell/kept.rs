//! The job that a directory holds: whether it is the one that is to run, and how it continues.
//!
//! ```text
//!   no job, or one that was never submitted completely   write the identity, submit
//!   a job of another identity                            refuse
//!   the same, running                                    its process is gone: nodes join anew
//!   the same, suspended                                  resume, nodes join anew
//!   the same, over, but for tasks that were set aside    try these again
//!   the same, over                                       answer
//! ```
//!
//! The identity is a znode of its own, written before the job, which it outlives if the process ends between
//! the two: without a job it means nothing.

use std::{path::PathBuf, sync::Arc, time::Duration, time::Instant};

use bytes::Bytes;
use rand::Rng as _;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use zk::{
    ClusterPaths, CreateMode, MemoryTree, Release, Store, durable,
    job::{self, JobRecord, JobState, Retried},
};

use super::submit::{Draft, Root, Tracked, job_id};
use crate::report::{JobError, StateError};

/// A directory, and the job that is to run in it.
pub(crate) struct Kept {
    pub(crate) dir: PathBuf,
    pub(crate) identity: Identity,
    /// The time after which the job is suspended.
    pub(crate) time_limit: Option<Duration>,
}

/// What makes two jobs the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    program: String,
    version: String,
    kind: String,
    /// The number of the form in which tasks and holdings are written.
    #[serde(default)]
    form: u32,
    /// The SHA-256 of everything that the job begins with.
    instance: String,
}

/// The jobs of a directory have no limit of attempts: each end of the process without warning may end one.
pub(crate) const ATTEMPTS_MAX: u32 = u32::MAX;

/// The form in which tasks and holdings are written now. What has another one cannot be read.
const FORM: u32 = 3;

/// The number of hexadecimal digits of the fingerprint that [`Release`](crate::Release) adds to a version.
const BUILD_DIGITS: usize = 12;

impl Identity {
    /// Creates the identity of a job with this encoded shared data.
    pub(crate) fn new(
        release: &Release,
        kind: &str,
        shared: &[Bytes],
        root: &Root,
        start_values: &[(String, Vec<u8>)],
    ) -> Self {
        let mut digest = Context::new(&SHA256);
        // With its length: parts that are joined otherwise are other parts.
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

    /// Compares this identity with that of the job that a directory holds.
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
                 continue with that version, use another directory, or delete it to begin anew"
            );
            return Err(StateError::Unusable { reason });
        }
        if (&self.kind, &self.instance) != (&held.kind, &held.instance) {
            return Err(StateError::OtherInstance { file, program });
        }
        Ok(())
    }
}

/// Returns whether `build` is this version with the fingerprint of a build.
fn is_build_of(version: &str, build: &str) -> bool {
    base(build) == Some(version)
}

/// Returns a version without the fingerprint of its build, if it has one.
fn base(version: &str) -> Option<&str> {
    let (base, build) = version.rsplit_once('-')?;
    let is_build = build.len() == BUILD_DIGITS && build.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_build.then_some(base)
}

impl Kept {
    /// Opens the tree of the directory.
    pub(crate) fn open(&self) -> Result<MemoryTree, StateError> {
        durable::open(&self.dir).map_err(|error| match error {
            durable::OpenError::Io { .. } => StateError::Io { reason: error.to_string() },
            error => StateError::Unusable { reason: error.to_string() },
        })
    }

    /// Finds the job, or submits it. Returns its record too if it was over before.
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
                tracing::info!(job = name, "what the job had set aside is tried again");
                return Ok((tracked, None));
            }
            if record.state.is_over() {
                return Ok((tracked, Some(record)));
            }
            job::resume(&*tracked.store, &cluster, &name).await?;
            tracing::info!(job = name, dir = %self.dir.display(), "the job of the directory goes on");
            return Ok((tracked, None));
        }
        self.write(&*store, &cluster).await?;
        Ok((Tracked::submit(store, cluster, draft, started).await?, None))
    }

    /// Returns the error of a job that has failed before. It would fail again.
    fn failed_earlier(&self, record: JobRecord) -> JobError {
        let file = self.file();
        let reason = record.reason.unwrap_or_default();
        JobError::Failed {
            reason: format!("{reason}. That was in an earlier run; delete {file} to begin anew"),
        }
    }

    async fn read(&self, store: &dyn Store, cluster: &ClusterPaths) -> Result<Identity, JobError> {
        let (content, _) = store.get(&cluster.identity()).await?;
        let file = self.file();
        Ok(serde_json::from_slice(&content).map_err(|error| {
            let reason = format!("{file} does not say which job it holds: {error}");
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

    /// Returns the name of the file in the directory.
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
    fn a_release_without_a_build_continues_what_any_build_of_its_version_has_left() {
        let kept = Kept { dir: PathBuf::from("dir"), identity: identity("1.0"), time_limit: None };
        let goes_on = |here: &str, there: &str| identity(here).check(&identity(there), &kept);
        let (one, two) = ("1.0-0123456789ab", "1.0-ba9876543210");
        assert!(goes_on("1.0", "1.0").is_ok() && goes_on("1.0", one).is_ok() && goes_on(one, one).is_ok());
        assert!(matches!(goes_on(one, two), Err(StateError::OtherBuild { .. })));
        assert!(matches!(goes_on(one, "1.0"), Err(StateError::OtherBuild { .. })));
        assert!(matches!(goes_on("1.0", "1.0-rc1"), Err(StateError::OtherVersion { .. })));
        assert!(matches!(goes_on("1.0-rc1", "1.0-rc2"), Err(StateError::OtherVersion { .. })));
        assert!(matches!(goes_on("1.1-0123456789ab", one), Err(StateError::OtherVersion { .. })));
    }
}
