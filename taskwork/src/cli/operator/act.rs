//! What an operator can do.

use std::{fs, io, path::Path, process::ExitCode, time::Duration};

use rand::Rng as _;
use serde_json::json;
use tokio::time;
use zk::{CreateMode, Session, Store, WatchEvent, job, suggestion};

use super::{
    Desk,
    job::{no_job, record},
    overview::Stage,
};
use crate::{cli::Failure, shell::clock::unix_ms};

/// Prints what a job has produced.
pub(super) async fn result(desk: &Desk, id: &str) -> Result<(), Failure> {
    let record = record(desk, id).await?;
    let read = desk.ask(async |store| match job::result(&*store, &desk.cluster, id).await {
        Ok(outcome) => Ok(Some(outcome)),
        Err(zk::Error::NoNode { .. }) => Ok(None),
        Err(error) => Err(error),
    });
    let Some(outcome) = read.await? else {
        let reason = record.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let state = format!("{:?}", record.state).to_lowercase();
        return Err(Failure::failed(format!("job {id} has no result; it is {state}{reason}")));
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
    let (path, word) = (desk.cluster.drain(&node), format!("{:016x}", rand::rng().random::<u64>()));
    desk.ask(async |store| ask_to_leave(&*store, &path, word.as_bytes()).await).await?;
    if let Some(patience) = wait {
        wait_until_gone(desk, &node, patience).await?;
    }
    let state = if wait.is_some() { "has left" } else { "was asked to leave" };
    desk.say(|| json!({ "node": node, "left": wait.is_some() }), || format!("node {node} {state}"));
    Ok(())
}

/// Asks a node to leave. Asked again, which it hears of as a change, it leaves at once: so each request has a word of its own, by which
/// one whose answer was lost is known.
async fn ask_to_leave(store: &dyn Store, path: &str, word: &[u8]) -> zk::Result<()> {
    let asked = match store.get(path).await {
        Ok((said, _)) if said == word => return Ok(()),
        Ok((_, stat)) => store.set(path, word, Some(stat.version)).await.map(drop),
        Err(zk::Error::NoNode { .. }) => store.create(path, word, CreateMode::Persistent).await.map(drop),
        Err(error) => return Err(error),
    };
    match asked {
        // Somebody asks at the same time, or this server was behind: it is looked at again.
        Err(zk::Error::BadVersion { path } | zk::Error::NodeExists { path } | zk::Error::NoNode { path }) => {
            Err(zk::Error::Contended { path, tries: 1 })
        }
        other => other,
    }
}

async fn wait_until_gone(desk: &Desk, node: &str, patience: Duration) -> Result<(), Failure> {
    let waiting = desk.ask(async |store| {
        loop {
            let (there, changed) = store.exists_and_watch(&desk.cluster.member(node)).await?;
            if there.is_none() {
                return Ok::<(), zk::Error>(());
            }
            if changed.await == WatchEvent::Ended && *store.session().borrow() == Session::Expired {
                return Err(zk::Error::SessionExpired);
            }
        }
    });
    time::timeout(patience, waiting).await.unwrap_or_else(|_| {
        let waited = patience.as_secs_f64();
        Err(Failure::failed(format!("node {node} has not left within {waited} s; it still may")))
    })
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
    let value: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("{name}: found something else; expected JSON: {error}")))?;
    let job = record(desk, id).await?;
    if job.state.is_over() {
        return Err(not_that(id, &job, "only one that is not over can be told anything"));
    }
    let key = format!("{:032x}", rand::rng().random::<u128>());
    let suggested = desk.ask(async |store| {
        // Dropped and made again it is known by its key.
        suggestion::suggest(&*store, &desk.cluster, id, &key, value.clone()).await
    });
    let suggested = suggested.await?;
    let answered = desk.ask(async |store| suggestion::answered(&*store, &desk.cluster, id, &suggested).await);
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
    let now_ms = unix_ms();
    desk.ask(async |store| job::cancel(&*store, &desk.cluster, id, reason, now_ms).await).await?;
    desk.say(|| json!({ "job": id, "cancelled": true }), || format!("job {id} is cancelled"));
    Ok(())
}

/// Puts a job aside.
pub(super) async fn suspend(desk: &Desk, id: &str) -> Result<(), Failure> {
    let record = record(desk, id).await?;
    if !desk.ask(async |store| job::suspend(&*store, &desk.cluster, id).await).await? {
        return Err(not_that(id, &record, "only one that is at work or queued can be put aside"));
    }
    desk.say(|| json!({ "job": id, "suspended": true }), || format!("job {id} is put aside"));
    Ok(())
}

/// Lets a job go on.
pub(super) async fn resume(desk: &Desk, id: &str) -> Result<(), Failure> {
    let record = record(desk, id).await?;
    if !desk.ask(async |store| job::resume(&*store, &desk.cluster, id).await).await? {
        return Err(not_that(id, &record, "only one that was put aside can go on"));
    }
    desk.say(|| json!({ "job": id, "resumed": true }), || format!("job {id} goes on"));
    Ok(())
}

fn not_that(id: &str, record: &job::JobRecord, what: &str) -> Failure {
    Failure::failed(format!("job {id} is {}: {what}", format!("{:?}", record.state).to_lowercase()))
}

/// Removes what is kept of jobs; without a list, of all that are over or whose submission was abandoned.
pub(super) async fn forget(desk: &Desk, ids: Vec<String>, force: bool) -> Result<(), Failure> {
    let overview = desk.overview().await?;
    let stages = overview.stages();
    let ids = if ids.is_empty() {
        let over = |stage: Stage| {
            matches!(stage, Stage::Done | Stage::Failed | Stage::Cancelled | Stage::Abandoned)
                || force && stage == Stage::Submitting
        };
        stages.iter().filter(|(_, stage, _)| over(*stage)).map(|(id, ..)| (*id).to_owned()).collect()
    } else {
        for id in &ids {
            let stage = stages.iter().find(|(known, ..)| known == id).map(|(_, stage, _)| *stage);
            may_be_forgotten(desk, id, stage, force)?;
        }
        ids
    };
    for id in &ids {
        desk.ask(async |store| job::forget(&*store, &desk.cluster, id).await).await?;
    }
    desk.say(|| json!({ "forgotten": ids }), || format!("{} jobs are forgotten", ids.len()));
    Ok(())
}

fn may_be_forgotten(desk: &Desk, id: &str, stage: Option<Stage>, force: bool) -> Result<(), Failure> {
    match stage {
        None => Err(no_job(desk, id)),
        Some(Stage::Submitting) if !force => Err(Failure::failed(format!(
            "job {id} is being submitted; if its submitter is gone, forget it in ten minutes, or with --force"
        ))),
        // What cannot be read can be removed all the same.
        Some(
            Stage::Submitting
            | Stage::Abandoned
            | Stage::Done
            | Stage::Failed
            | Stage::Cancelled
            | Stage::Unreadable,
        ) => Ok(()),
        Some(Stage::Running | Stage::Queued | Stage::NoNodes | Stage::Suspended) => {
            Err(Failure::failed(format!("job {id} is not over: cancel it first")))
        }
    }
}
