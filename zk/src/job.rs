//! job
use crate::{
    election::Fence,
    error::{Error, Result},
    paths::{AttemptPaths, ClusterPaths},
    store::{CreateMode, OneShot, Op, Store, Version, WatchEvent},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
/// s
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum JobState {
    Submitting,
    Queued,
    Running,
    Suspended,
    Done,
    Failed,
    Cancelled,
}
impl JobState {
    /// o
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
    /// r
    pub fn is_running(self) -> bool {
        matches!(self, Self::Running)
    }
}
/// r
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct JobRecord {
    pub state: JobState,
    pub attempt: u32,
    pub attempts_max: u32,
    pub reason: Option<String>,
}
/// n
#[derive(Debug)]
#[allow(missing_docs)]
pub struct NewJob<'a> {
    pub program: &'a str,
    pub program_version: &'a str,
    pub name: &'a str,
    pub shared: &'a [u8],
    pub root_id: &'a str,
    pub root: &'a [u8],
    pub variables: &'a [(String, Vec<u8>)],
    pub attempts_max: u32,
    pub submitter: &'a str,
    pub now_ms: u64,
}
/// e
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum LeadError {
    #[error("deposed")]
    Deposed,
    #[error(transparent)]
    Store(#[from] Error),
}
/// c
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Closing {
    Closed,
    AlreadyOver,
    NotCurrent,
}
/// c
#[derive(Debug)]
#[allow(missing_docs)]
pub enum NewAttempt {
    Started(u32),
    GaveUp,
    NotCurrent,
}
fn create(path: String, data: Vec<u8>) -> Op {
    Op::Create { path, data, mode: CreateMode::Persistent }
}
fn attempt_ops(a: &AttemptPaths, root_id: &str, root: &[u8]) -> Vec<Op> {
    vec![
        create(a.base(), vec![]),
        create(a.list(), vec![]),
        create(a.task(root_id), vec![]),
        create(a.parked(), vec![]),
        create(a.parked_task(root_id), root.to_vec()),
        create(a.txns(), vec![]),
        create(a.outputs(), vec![]),
        create(a.left(), vec![]),
    ]
}
fn json(r: &JobRecord) -> Vec<u8> {
    serde_json::to_vec(r).unwrap()
}
/// s
pub async fn submit(s: &dyn Store, c: &ClusterPaths, n: &NewJob<'_>) -> Result<String> {
    let mut r =
        JobRecord { state: JobState::Submitting, attempt: 1, attempts_max: n.attempts_max, reason: None };
    let path = s.create(&format!("{}/j-", c.jobs()), &json(&r), CreateMode::PersistentSequential).await?;
    let id = path.rsplit('/').next().unwrap().to_owned();
    let j = c.job(&id);
    r.state = JobState::Running;
    let mut ops = vec![
        Op::Set { path: j.record(), data: json(&r), version: Some(0) },
        create(j.root(), n.root.to_vec()),
        create(j.vars(), vec![]),
        create(j.attempts(), vec![]),
    ];
    for (name, v) in n.variables {
        ops.push(create(j.var(name), v.clone()));
    }
    ops.extend(attempt_ops(&j.attempt(1), n.root_id, n.root));
    s.multi(ops).await?;
    Ok(id)
}
/// r
pub async fn read(s: &dyn Store, c: &ClusterPaths, job: &str) -> Result<(JobRecord, Version)> {
    let p = c.job(job).record();
    let (d, st) = s.get(&p).await?;
    Ok((
        serde_json::from_slice(&d).map_err(|e| Error::Garbled { path: p, reason: e.to_string() })?,
        st.version,
    ))
}
/// w
pub struct JobWatch {
    store: Arc<dyn Store>,
    path: String,
    armed: Option<OneShot>,
}
impl JobWatch {
    /// o
    pub async fn open(store: Arc<dyn Store>, c: &ClusterPaths, job: &str) -> Result<Self> {
        Ok(Self { store, path: c.job(job).record(), armed: None })
    }
    /// n
    pub async fn next(&mut self) -> Result<JobRecord> {
        if let Some(w) = &mut self.armed {
            if w.await == WatchEvent::Ended {
                return Err(Error::SessionExpired);
            }
            self.armed = None;
        }
        let (d, _, w) = self.store.get_and_watch(&self.path).await?;
        self.armed = Some(w);
        serde_json::from_slice(&d)
            .map_err(|e| Error::Garbled { path: self.path.clone(), reason: e.to_string() })
    }
}
/// l
pub async fn lost(s: &dyn Store, c: &ClusterPaths, a: &AttemptPaths) -> Result<Vec<String>> {
    let o = s.children(&a.outputs()).await?;
    let m = s.children(&c.members()).await?;
    let l = s.children(&a.left()).await?;
    Ok(o.into_iter().filter(|n| !m.contains(n) && !l.contains(n)).collect())
}
/// o
pub async fn outputs(s: &dyn Store, a: &AttemptPaths) -> Result<Vec<(String, Vec<u8>)>> {
    let mut v = Vec::new();
    for n in s.children(&a.outputs()).await? {
        let (d, _) = s.get(&a.output(&n)).await?;
        v.push((n, d));
    }
    Ok(v)
}
/// c
pub async fn close(
    s: &dyn Store,
    f: &Fence,
    c: &ClusterPaths,
    job: &str,
    attempt: u32,
    result: &[u8],
    _now: u64,
) -> std::result::Result<Closing, LeadError> {
    let (mut r, v) = read(s, c, job).await?;
    if r.state.is_over() {
        return Ok(Closing::AlreadyOver);
    }
    if r.attempt != attempt {
        return Ok(Closing::NotCurrent);
    }
    r.state = JobState::Done;
    match s
        .multi(vec![
            f.check(),
            Op::Set { path: c.job(job).record(), data: json(&r), version: Some(v) },
            create(c.job(job).result(), result.to_vec()),
        ])
        .await
    {
        Ok(_) => Ok(Closing::Closed),
        Err(Error::Multi { index: 0, .. }) => Err(LeadError::Deposed),
        Err(Error::Multi { index: 1, .. }) => Ok(Closing::NotCurrent),
        Err(e) => Err(e.into()),
    }
}
/// n
pub async fn new_attempt(
    s: &dyn Store,
    f: &Fence,
    c: &ClusterPaths,
    job: &str,
    attempt: u32,
    _lost: &[String],
    _now: u64,
) -> std::result::Result<NewAttempt, LeadError> {
    let (mut r, v) = read(s, c, job).await?;
    if r.state.is_over() {
        return Ok(NewAttempt::GaveUp);
    }
    if r.attempt != attempt {
        return Ok(NewAttempt::NotCurrent);
    }
    let j = c.job(job);
    if r.attempt >= r.attempts_max {
        r.state = JobState::Failed;
        r.reason = Some("too many attempts".into());
        s.multi(vec![f.check(), Op::Set { path: j.record(), data: json(&r), version: Some(v) }]).await?;
        return Ok(NewAttempt::GaveUp);
    }
    r.attempt += 1;
    let (root, _) = s.get(&j.root()).await?;
    let mut ops = vec![f.check(), Op::Set { path: j.record(), data: json(&r), version: Some(v) }];
    ops.extend(attempt_ops(&j.attempt(r.attempt), "n0000000000000000-0", &root));
    match s.multi(ops).await {
        Ok(_) => Ok(NewAttempt::Started(r.attempt)),
        Err(Error::Multi { index: 0, .. }) => Err(LeadError::Deposed),
        Err(Error::Multi { index: 1, .. }) => Ok(NewAttempt::NotCurrent),
        Err(e) => Err(e.into()),
    }
}
async fn end(s: &dyn Store, c: &ClusterPaths, job: &str, state: JobState, reason: &str) -> Result<()> {
    loop {
        let (mut r, v) = read(s, c, job).await?;
        if r.state.is_over() {
            return Ok(());
        }
        r.state = state;
        r.reason = Some(reason.into());
        match s.set(&c.job(job).record(), &json(&r), Some(v)).await {
            Ok(_) => return Ok(()),
            Err(Error::BadVersion { .. }) => {}
            Err(e) => return Err(e),
        }
    }
}
/// f
pub async fn fail(s: &dyn Store, c: &ClusterPaths, job: &str, reason: &str, _now: u64) -> Result<()> {
    end(s, c, job, JobState::Failed, reason).await
}
/// c
pub async fn cancel(s: &dyn Store, c: &ClusterPaths, job: &str, reason: &str, _now: u64) -> Result<()> {
    end(s, c, job, JobState::Cancelled, reason).await
}
/// r
pub async fn result(s: &dyn Store, c: &ClusterPaths, job: &str) -> Result<Vec<u8>> {
    Ok(s.get(&c.job(job).result()).await?.0)
}
