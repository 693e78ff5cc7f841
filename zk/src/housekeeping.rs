//! Housekeeping: removal of data of jobs that are over, by one node of the cluster.
//!
//! The working member with the lowest id runs it periodically. If two nodes run it at once, because one of them does not know the
//! other yet, no harm is done: every step can be repeated.

use std::{cmp::Reverse, collections::BTreeSet};

use crate::{
    error::{Error, Result},
    job::{self, JobRecord},
    membership,
    paths::ClusterPaths,
    store::Store,
};

/// The limits beyond which jobs that are over are forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// The number of jobs that are kept: those that ended last.
    pub jobs_max: usize,
    /// The total size of their results, in bytes. The job that ended last is kept whatever the size of its result.
    pub result_bytes_max: u64,
    /// The time for which a job is kept after its end, in milliseconds.
    pub age_ms_max: u64,
}

/// Completes the [release](job::release) of jobs that are over, for leaders that were lost before they had done it, and
/// forgets old jobs. Does nothing unless the node is the working member with the lowest id.
///
/// # Errors
/// Any error from the store. It can be called again.
pub async fn keep_house(
    store: &dyn Store,
    cluster: &ClusterPaths,
    node: &str,
    keep: Keep,
    now_ms: u64,
) -> Result<()> {
    if !is_lowest(store, cluster, node).await? {
        return Ok(());
    }
    // A job that cannot be read may be waiting for any other, but nodes do not run it.
    let jobs = job::list(store, cluster).await?;
    let jobs: Vec<(String, JobRecord)> =
        jobs.into_iter().filter_map(|(name, record)| Some((name, record.ok()?))).collect();
    let forgotten = too_old(&jobs, keep, now_ms);
    for name in &forgotten {
        tracing::info!(
            job = %name,
            "the job is forgotten: it ended long ago, or later jobs or their results need its place"
        );
        job::forget(store, cluster, name).await?;
    }
    let kept = jobs.iter().filter(|(name, record)| record.state.is_over() && !forgotten.contains(name));
    let paths: Vec<_> =
        kept.map(|(name, record)| (name, cluster.job(name).attempt(record.attempt).released())).collect();
    let asked: Vec<_> = paths.iter().map(|(_, path)| store.exists(path)).collect();
    for ((name, _), answer) in paths.iter().zip(asked) {
        if answer.await?.is_none() {
            match job::release(store, cluster, name).await {
                // A user has forgotten it.
                Ok(()) | Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Returns whether a node is a member, and no member with a lower id keeps house. Members with an unreadable record and
/// those without workers, which only have data of a job, do not.
async fn is_lowest(store: &dyn Store, cluster: &ClusterPaths, node: &str) -> Result<bool> {
    let mut members = store.children(&cluster.members()).await?;
    members.sort_unstable();
    for name in members {
        if name == node {
            return Ok(true);
        }
        let path = cluster.member(&name);
        match store.get(&path).await {
            Ok((content, _)) => {
                if membership::decode(&path, &content).is_ok_and(|member| member.workers > 0) {
                    return Ok(false);
                }
            }
            Err(Error::NoNode { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Returns the jobs to be forgotten. A job that another one waits for is kept: without it, the other one would start
/// even if this one has failed.
fn too_old(jobs: &[(String, JobRecord)], keep: Keep, now_ms: u64) -> BTreeSet<String> {
    let waiting = jobs.iter().filter(|(_, record)| !record.state.is_over());
    let awaited: BTreeSet<&String> = waiting.flat_map(|(_, record)| &record.after).collect();
    let ended_ms = |record: &JobRecord| record.finished_ms.unwrap_or(record.submitted_ms);
    let mut over: Vec<_> = jobs.iter().filter(|(_, record)| record.state.is_over()).collect();
    over.sort_unstable_by_key(|(name, record)| Reverse((ended_ms(record), name)));
    let (mut kept, mut bytes, mut forgotten) = (0, 0_u64, BTreeSet::new());
    for (name, record) in over {
        let with_it = bytes.saturating_add(record.result_bytes);
        let is_old = now_ms.saturating_sub(ended_ms(record)) > keep.age_ms_max;
        let is_too_large = record.result_bytes > 0 && with_it > keep.result_bytes_max && kept > 0;
        let is_surplus = kept >= keep.jobs_max || is_too_large;
        if (is_old || is_surplus) && !awaited.contains(name) {
            forgotten.insert(name.clone());
        } else {
            (kept, bytes) = (kept + 1, with_it);
        }
    }
    forgotten
}

/// The number of znodes that are requested at once.
const REQUESTS_MAX: usize = 256;

/// Returns the size of the data of a znode and of all znodes below it, in bytes.
///
/// # Errors
/// Any error from the store.
pub async fn bytes_kept(store: &dyn Store, path: &str) -> Result<u64> {
    let (mut open, mut bytes) = (vec![path.to_owned()], 0);
    while !open.is_empty() {
        let paths = open.split_off(open.len().saturating_sub(REQUESTS_MAX));
        let asked: Vec<_> = paths.iter().map(|path| store.exists(path)).collect();
        for (path, answer) in paths.iter().zip(asked) {
            let Some(stat) = answer.await? else { continue };
            bytes += stat.bytes as u64;
            if stat.children > 0 {
                match store.children(path).await {
                    Ok(names) => open.extend(names.iter().map(|name| format!("{path}/{name}"))),
                    Err(Error::NoNode { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::{
        job::{JobState, NewJob},
        labels::Labels,
        membership::Member,
        store::CreateMode,
        testing::{ROOT, Stage, member},
    };

    async fn submit(stage: &Stage, after: &[String]) -> String {
        let new = NewJob {
            program: "test",
            program_version: "1",
            kind: "",
            task_type: "",
            name: "",
            shared: &[],
            shared_name: "",
            shared_from: "",
            brought: None,
            root_id: ROOT,
            root: &[],
            variables: &[],
            attempts_max: 1,
            crashes_max: 3,
            require: Labels::NONE,
            after,
            stays_open: false,
            share: job::Share::default(),
            submitter: "",
            now_ms: 0,
        };
        job::submit(&*stage.store, &stage.cluster, &new).await.unwrap()
    }

    async fn names(stage: &Stage) -> Vec<String> {
        stage.store.children(&stage.cluster.jobs()).await.unwrap()
    }

    const KEEP: Keep =
        Keep { jobs_max: 1_000, result_bytes_max: 256 << 20, age_ms_max: 30 * 24 * 60 * 60 * 1_000 };

    async fn keep_house_as(stage: &Stage, node: &str, keep: Keep, now_ms: u64) {
        keep_house(&*stage.store, &stage.cluster, node, keep, now_ms).await.unwrap();
    }

    #[tokio::test]
    async fn ended_jobs_are_forgotten_by_number_and_age_unless_another_waits() {
        let stage = Stage::new().await;
        let _members = [stage.stranger("a").await, stage.stranger("b").await];
        let mut ended = Vec::new();
        for ended_ms in 10..20 {
            let job = submit(&stage, &[]).await;
            job::cancel(&*stage.store, &stage.cluster, &job, "enough", ended_ms).await.unwrap();
            ended.push(job);
        }
        let waits = submit(&stage, &ended[..1]).await;
        let few = Keep { jobs_max: 4, age_ms_max: 100, ..KEEP };
        let soon = Keep { jobs_max: 100, age_ms_max: 2, ..KEEP };
        keep_house_as(&stage, "b", few, 20).await;
        assert_eq!(names(&stage).await.len(), 12, "another member does it");
        keep_house_as(&stage, "a", few, 20).await;
        let kept = [&[stage.job.clone(), ended[0].clone()], &ended[6..], slice::from_ref(&waits)].concat();
        assert_eq!(names(&stage).await, kept);
        keep_house_as(&stage, "a", soon, 20).await;
        let kept = [&[stage.job.clone(), ended[0].clone()], &ended[8..], slice::from_ref(&waits)].concat();
        assert_eq!(names(&stage).await, kept);
        job::cancel(&*stage.store, &stage.cluster, &waits, "enough", 20).await.unwrap();
        keep_house_as(&stage, "a", soon, 20).await;
        assert_eq!(
            names(&stage).await,
            [slice::from_ref(&stage.job), &ended[8..], slice::from_ref(&waits)].concat()
        );
    }

    #[tokio::test]
    async fn results_beyond_total_size_are_forgotten_except_the_latest() {
        let stage = Stage::new().await;
        let (_, mut record) = job::list(&*stage.store, &stage.cluster).await.unwrap().remove(0);
        let record = record.as_mut().unwrap();
        let ended = |(ended_ms, result_bytes): (u64, u64)| {
            let mut record = record.clone();
            (record.state, record.finished_ms, record.result_bytes) =
                (JobState::Done, Some(ended_ms), result_bytes);
            (ended_ms.to_string(), record)
        };
        let jobs: Vec<_> = [(1, 40), (2, 5), (3, 50), (4, 0), (5, 60)].map(ended).to_vec();
        let forgotten = |result_bytes_max| {
            let keep = Keep { result_bytes_max, ..KEEP };
            Vec::from_iter(too_old(&jobs, keep, 10))
        };
        assert_eq!(forgotten(155), Vec::<String>::new());
        assert_eq!(forgotten(114), ["1", "2"]);
        assert_eq!(forgotten(105), ["3"], "smaller results fit");
        assert_eq!(forgotten(10), ["1", "2", "3"], "the latest result is kept");
    }

    #[tokio::test]
    async fn unreadable_members_and_those_without_workers_keep_no_house() {
        let stage = Stage::new().await;
        let _members = [stage.stranger("b").await, stage.stranger("c").await];
        let mode = CreateMode::Ephemeral;
        stage.store.create(&stage.cluster.member("0"), b"\xff", mode).await.unwrap();
        let submitter = Member { workers: 0, ..member("a") };
        membership::join(&*stage.store, &stage.cluster, &submitter).await.unwrap();
        let lowest = async |node: &str| is_lowest(&*stage.store, &stage.cluster, node).await.unwrap();
        assert_eq!([lowest("b").await, lowest("c").await, lowest("d").await], [true, false, false]);
    }

    #[tokio::test]
    async fn release_not_done_by_lost_leader_is_done_by_another_node() {
        let stage = Stage::new().await;
        let _member = stage.stranger("a").await;
        let shared = stage.cluster.job(&stage.job).shared();
        keep_house_as(&stage, "a", KEEP, 20).await;
        assert!(stage.store.exists(&shared).await.unwrap().is_some(), "the job is not over");
        job::fail(&*stage.store, &stage.cluster, &stage.job, "it is wrong", 10).await.unwrap();
        keep_house_as(&stage, "a", KEEP, 20).await;
        assert!(stage.store.exists(&shared).await.unwrap().is_none());
        let (record, _) = job::read(&*stage.store, &stage.cluster, &stage.job).await.unwrap();
        assert_eq!(record.state, JobState::Failed);
    }
}
