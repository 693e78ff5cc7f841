//! What an operator can do.

use std::{fs, io, path::Path, process::ExitCode, time::Duration};

use serde_json::json;
use tokio::time::{self, Instant};
use zk::{CreateMode, WatchEvent, job, suggestion};

use super::{Desk, job::record};
use crate::{cli::Failure, shell::clock::unix_ms};

/// Prints what a job has produced.
pub(super) async fn result(desk: &Desk, id: &str) -> Result<(), Failure> {
    let record = record(desk, id).await?;
    let outcome = match job::result(&*desk.store, &desk.cluster, id).await {
        Ok(outcome) => outcome,
        Err(zk::Error::NoNode { .. }) => {
            let reason = record.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            let state = format!("{:?}", record.state).to_lowercase();
            return Err(Failure::failed(format!("job {id} has no result; it is {state}{reason}")));
        }
        Err(error) => return Err(error.into()),
    };
    if outcome.shown.is_null() {
        return Err(Failure::failed(format!(
            "the result of job {id} has {} bytes and is for its program alone: it is too large to be shown, or has no \
             form in JSON",
            outcome.result.len()
        )));
    }
    let pretty = serde_json::to_string_pretty(&outcome.shown).unwrap_or_default();
    desk.say(|| outcome.shown.clone(), || pretty);
    Ok(())
}

/// Asks a node to leave.
pub(super) async fn drain(desk: &Desk, node: &str, wait: Option<Duration>) -> Result<(), Failure> {
    let node = desk.member(node).await?.to_string();
    let path = desk.cluster.drain(&node);
    match desk.store.create(&path, b"", CreateMode::Persistent).await {
        Ok(_) => {}
        // Asked again: it hears of a change.
        Err(zk::Error::NodeExists { .. }) => desk.store.set(&path, b"", None).await.map(drop)?,
        Err(error) => return Err(error.into()),
    }
    if let Some(patience) = wait {
        wait_until_gone(desk, &node, patience).await?;
    }
    let state = if wait.is_some() { "has left" } else { "was asked to leave" };
    desk.say(|| json!({ "node": node, "left": wait.is_some() }), || format!("node {node} {state}"));
    Ok(())
}

async fn wait_until_gone(desk: &Desk, node: &str, patience: Duration) -> Result<(), Failure> {
    let deadline = Instant::now() + patience;
    loop {
        let (there, changed) = desk.store.exists_and_watch(&desk.cluster.member(node)).await?;
        if there.is_none() {
            return Ok(());
        }
        match time::timeout_at(deadline, changed).await {
            Ok(WatchEvent::Ended) => return Err(zk::Error::SessionExpired.into()),
            Ok(_) => {}
            Err(_) => {
                let waited = patience.as_secs_f64();
                return Err(Failure::failed(format!(
                    "node {node} has not left within {waited} s; it still may"
                )));
            }
        }
    }
}

/// Says something to a job, and prints the answer. That it made no difference is exit code 1.
pub(super) async fn inject(
    desk: &Desk,
    id: &str,
    file: &Path,
    patience: Duration,
) -> Result<ExitCode, Failure> {
    let name = file.display();
    let read =
        if file == Path::new("-") { io::read_to_string(io::stdin()) } else { fs::read_to_string(file) };
    let text = read.map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let value = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("{name}: found something else; expected JSON: {error}")))?;
    let job = record(desk, id).await?;
    if job.state.is_over() {
        return Err(not_that(id, &job, "only one that is not over can be told anything"));
    }
    let suggested = suggestion::suggest(&*desk.store, &desk.cluster, id, value).await?;
    let answered = suggestion::answered(&*desk.store, &desk.cluster, id, &suggested);
    let Ok(answer) = time::timeout(patience, answered).await else {
        let waited = patience.as_secs_f64();
        let job = record(desk, id).await?;
        if job.state.is_over() {
            return Err(not_that(id, &job, "it has ended before it could take note"));
        }
        return Err(Failure::failed(format!(
            "no node has answered within {waited} s; what was said stays with job {id} until one works on it"
        )));
    };
    let answer = answer?;
    let what = if answer.taken { "took" } else { "did not take" };
    desk.say(
        || json!({ "job": id, "taken": answer.taken, "said": answer.said }),
        || format!("job {id} {what} it: {}", answer.said),
    );
    Ok(if answer.taken { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Stops a job.
pub(super) async fn cancel(desk: &Desk, id: &str, reason: &str) -> Result<(), Failure> {
    if record(desk, id).await?.state.is_over() {
        return Err(Failure::failed(format!("job {id} is over already")));
    }
    job::cancel(&*desk.store, &desk.cluster, id, reason, unix_ms()).await?;
    desk.say(|| json!({ "job": id, "cancelled": true }), || format!("job {id} is cancelled"));
    Ok(())
}

/// Puts a job aside.
pub(super) async fn suspend(desk: &Desk, id: &str) -> Result<(), Failure> {
    let record = record(desk, id).await?;
    if !job::suspend(&*desk.store, &desk.cluster, id).await? {
        return Err(not_that(id, &record, "only one that is at work or queued can be put aside"));
    }
    desk.say(|| json!({ "job": id, "suspended": true }), || format!("job {id} is put aside"));
    Ok(())
}

/// Lets a job go on.
pub(super) async fn resume(desk: &Desk, id: &str) -> Result<(), Failure> {
    let record = record(desk, id).await?;
    if !job::resume(&*desk.store, &desk.cluster, id).await? {
        return Err(not_that(id, &record, "only one that was put aside can go on"));
    }
    desk.say(|| json!({ "job": id, "resumed": true }), || format!("job {id} goes on"));
    Ok(())
}

fn not_that(id: &str, record: &job::JobRecord, what: &str) -> Failure {
    Failure::failed(format!("job {id} is {}: {what}", format!("{:?}", record.state).to_lowercase()))
}

/// Removes what is kept of jobs; without a list, of all that are over.
pub(super) async fn forget(desk: &Desk, ids: Vec<String>) -> Result<(), Failure> {
    let ids = if ids.is_empty() {
        let jobs = job::list(&*desk.store, &desk.cluster).await?;
        let over =
            |record: &zk::Result<job::JobRecord>| record.as_ref().is_ok_and(|record| record.state.is_over());
        jobs.into_iter().filter(|(_, record)| over(record)).map(|(id, _)| id).collect()
    } else {
        for id in &ids {
            match record(desk, id).await {
                Ok(record) if !record.state.is_over() => {
                    return Err(Failure::failed(format!("job {id} is not over: cancel it first")));
                }
                Ok(_) => {}
                // What cannot be read can be removed all the same.
                Err(_) if desk.store.exists(&desk.cluster.job(id).record()).await?.is_some() => {}
                Err(failure) => return Err(failure),
            }
        }
        ids
    };
    for id in &ids {
        job::forget(&*desk.store, &desk.cluster, id).await?;
    }
    desk.say(|| json!({ "forgotten": ids }), || format!("{} jobs are forgotten", ids.len()));
    Ok(())
}
