//! Records for tests.

use zk::{
    Labels,
    job::{JobRecord, JobState, Share},
    membership::Member,
};

/// Returns a member of a cluster.
pub(crate) fn member(node: &str) -> Member {
    Member {
        node: node.to_owned(),
        address: None,
        fingerprint: String::new(),
        workers: 2,
        memory_bytes: 0,
        labels: Labels::default(),
        program: "test".to_owned(),
        program_version: "1".to_owned(),
        started_ms: 0,
        host: "gpu-17".to_owned(),
        pid: 17,
    }
}

/// Returns the record of a job that runs.
pub(crate) fn record() -> JobRecord {
    JobRecord {
        program: "test".to_owned(),
        program_version: "1".to_owned(),
        kind: String::new(),
        task_type: String::new(),
        name: String::new(),
        submitter: String::new(),
        key: String::new(),
        state: JobState::Running,
        attempt: 2,
        attempts_max: 3,
        crashes_max: 3,
        require: Labels::default(),
        after: Vec::new(),
        stays_open: false,
        share: Share::default(),
        share_changes: Vec::new(),
        root: String::new(),
        shared_chunks: 0,
        shared_name: String::new(),
        shared_from: String::new(),
        brought: None,
        submitted_ms: 0,
        result_bytes: 0,
        finished_ms: None,
        suspended_since_ms: None,
        suspended_ms: 0,
        reason: None,
        retry: None,
        lost: Vec::new(),
    }
}
