//! The operations available to an operator.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use serde_json::json;
use taskwork::{
    JobId,
    client::{SUGGESTION_BYTES_MAX, Stage},
};
use taskwork_cli::{
    Failure,
    command::{submitter, tell},
};

use super::{connection::Connection, selection::Selection, top::text::things};

/// Prints a job's result, or the best values of a stopped job. If tasks were set aside, or the job was stopped, the exit
/// code is 1.
pub(super) async fn result(connection: &Connection, id: &JobId) -> Result<ExitCode, Failure> {
    let shown = connection.client.shown_result(id).await?;
    let pretty = || serde_json::to_string_pretty(&shown).unwrap_or_default();
    let is_incomplete = shown.get("set_aside").is_some();
    let stopped = shown["stopped"].as_str().map(str::to_owned);
    connection.say_as_is(&shown, pretty);
    if let Some(state) = stopped {
        tell(format_args!(
            "note: job {id} has no result, since it is {state}: these are the best known values"
        ));
    } else if is_incomplete {
        tell(format_args!(
            "note: job {id} is incomplete: tasks were set aside, see taskwork job {id}. taskwork retry {id} \
             tries them again"
        ));
    } else {
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

/// Applies an operation to several jobs or nodes. A failure does not prevent the others; the first one is returned.
pub(super) async fn each<T>(all: &[T], act: impl AsyncFn(&T) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut first = Ok(());
    for one in all {
        match act(one).await {
            Ok(()) => {}
            Err(failure) if first.is_ok() => first = Err(failure),
            Err(failure) => tell(format_args!("error: {failure}")),
        }
    }
    first
}

/// Asks nodes to leave; none, if one of the names is unknown or ambiguous. A second request to a node that is named makes it
/// leave at once; one by a label has no effect.
pub(super) async fn drain(
    connection: &Connection,
    selection: &Selection,
    wait: Option<Duration>,
) -> Result<(), Failure> {
    let (mut asked, mut failed) = (Vec::new(), None);
    for node in selection.of(connection).await? {
        let done = if selection.is_by_label() {
            connection.client.drain_once(node).await.map(drop)
        } else {
            connection.client.drain(node).await
        };
        match done {
            Ok(()) => asked.push(node),
            Err(error) => _ = failed.get_or_insert(Failure::from(error)),
        }
    }
    let until = wait.map(|timeout| Instant::now() + timeout);
    let left = each(&asked, async |&node| {
        if let Some(until) = until {
            let left = until.saturating_duration_since(Instant::now());
            connection.client.wait_until_left(node, left).await?;
        }
        let state = if wait.is_some() { "has left" } else { "was asked to leave" };
        connection.say(
            || json!({ "node": node.to_string(), "left": wait.is_some() }),
            || format!("node {node} {state}"),
        );
        Ok(())
    })
    .await;
    failed.map_or(left, Err)
}

/// Cordons or uncordons nodes; none, if one of the names is unknown or ambiguous.
pub(super) async fn cordon(
    connection: &Connection,
    selection: &Selection,
    is_cordoned: bool,
) -> Result<(), Failure> {
    each(&selection.of(connection).await?, async |&node| {
        if is_cordoned {
            connection.client.cordon(node).await?;
        } else {
            connection.client.uncordon(node).await?;
        }
        connection.say(
            || json!({ "node": node.to_string(), "cordoned": is_cordoned }),
            || {
                if is_cordoned {
                    format!("node {node} is cordoned until taskwork uncordon {node}")
                } else {
                    format!("node {node} is uncordoned")
                }
            },
        );
        Ok(())
    })
    .await
}

/// The maximum size of the text of a suggestion, in bytes. The text may be indented; [`SUGGESTION_BYTES_MAX`] limits
/// its compact JSON.
const TEXT_BYTES_MAX: usize = 4 * SUGGESTION_BYTES_MAX;

/// Reads a file, or standard input for `-`, up to [`TEXT_BYTES_MAX`].
fn read(file: &Path) -> io::Result<String> {
    if file == Path::new("-") { read_all(io::stdin()) } else { read_all(File::open(file)?) }
}

fn read_all(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    // Bounded, because a device may never reach an end of file.
    source.take(TEXT_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    if text.len() > TEXT_BYTES_MAX {
        let reason =
            format!("it has more than {TEXT_BYTES_MAX} bytes, the maximum for the text of a suggestion");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(text)
}

/// Makes a suggestion to a job and prints the answer. If it made no difference, the exit code is 1.
pub(super) async fn inject(
    connection: &Connection,
    id: &JobId,
    file: &Path,
    timeout: Duration,
) -> Result<ExitCode, Failure> {
    let name = file.display();
    let text = read(file).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let value: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("{name}: found something else; expected JSON: {error}")))?;
    let told = connection.client.inject(id, value, timeout).await?;
    let what = if told.taken { "took" } else { "did not take" };
    connection.say(
        || json!({ "job": id.as_str(), "taken": told.taken, "said": told.answer }),
        || format!("job {id} {what} it: {}", told.answer),
    );
    Ok(if told.taken { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Cancels a job.
pub(super) async fn cancel(connection: &Connection, id: &JobId, reason: &str) -> Result<(), Failure> {
    connection.client.cancel(id, reason).await?;
    connection.say(|| json!({ "job": id.as_str(), "cancelled": true }), || format!("job {id} is cancelled"));
    Ok(())
}

/// Finishes adding tasks to a job.
pub(super) async fn finish(connection: &Connection, id: &JobId) -> Result<(), Failure> {
    connection.client.finish(id).await?;
    connection.say(
        || json!({ "job": id.as_str(), "finished": true }),
        || format!("job {id} accepts no more tasks; it is finished when all are complete"),
    );
    Ok(())
}

/// A new share of the workers for a job.
#[derive(Debug, Clone, Copy, clap::Args)]
#[group(required = true, multiple = true)]
pub(super) struct NewShare {
    /// The weight, from 1 to 1000: workers are divided in proportion to the weights of the jobs of a priority that have
    /// tasks.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    weight: Option<u32>,
    /// The priority, from -100 to 100: jobs of a higher priority come first.
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-100..=100))]
    priority: Option<i32>,
}

/// Changes the weight or the priority of a job.
pub(super) async fn set(connection: &Connection, id: &JobId, new: NewShare) -> Result<(), Failure> {
    let share = connection.client.set_share(id, new.weight, new.priority, &submitter()).await?;
    connection.say(
        || json!({ "job": id.as_str(), "weight": share.weight, "priority": share.priority }),
        || format!("job {id} has {share}"),
    );
    Ok(())
}

/// Suspends a job.
pub(super) async fn suspend(connection: &Connection, id: &JobId) -> Result<(), Failure> {
    connection.client.suspend(id).await?;
    connection.say(|| json!({ "job": id.as_str(), "suspended": true }), || format!("job {id} is suspended"));
    Ok(())
}

/// Resumes a job.
pub(super) async fn resume(connection: &Connection, id: &JobId) -> Result<(), Failure> {
    connection.client.resume(id).await?;
    connection.say(|| json!({ "job": id.as_str(), "resumed": true }), || format!("job {id} is resumed"));
    Ok(())
}

/// Retries the tasks that a job has set aside.
pub(super) async fn retry(connection: &Connection, id: &JobId) -> Result<(), Failure> {
    let tasks = connection.client.retry(id).await?;
    let again = if tasks == 1 { "task that was".to_owned() } else { "tasks that were".to_owned() };
    connection.say(
        || json!({ "job": id.as_str(), "tried_again": tasks }),
        || format!("job {id} retries {tasks} {again} set aside"),
    );
    Ok(())
}

/// Removes the data of the given jobs; without a list, of all finished jobs and abandoned submissions.
pub(super) async fn forget(connection: &Connection, ids: Vec<JobId>, force: bool) -> Result<(), Failure> {
    let ids = if ids.is_empty() {
        let over = |stage: Stage| {
            matches!(
                stage,
                Stage::Done | Stage::Incomplete | Stage::Failed | Stage::Cancelled | Stage::Abandoned
            ) || force && stage == Stage::Submitting
        };
        let jobs = connection.overview().await?.jobs.into_iter();
        jobs.filter(|job| over(job.stage)).filter_map(|job| job.id.parse().ok()).collect()
    } else {
        ids
    };
    connection.client.forget(&ids, force).await?;
    connection.say(|| json!({ "forgotten": ids }), || format!("{} removed", things(ids.len() as u64, "job")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn suggestion_over_size_limit_is_refused() {
        let most = "x".repeat(TEXT_BYTES_MAX);
        assert_eq!(read_all(most.as_bytes()).unwrap(), most);
        let error = read_all(io::repeat(b'x')).unwrap_err();
        assert!(error.to_string().contains("more than 2097152 bytes"), "{error}");
    }

    #[tokio::test]
    async fn failure_of_one_job_does_not_prevent_the_others() {
        let done = Cell::new(0);
        let failure = each(&[1, 2, 3], async |&number| {
            done.set(done.get() + number);
            if number == 3 { Ok(()) } else { Err(Failure::failed(format!("{number} failed"))) }
        });
        assert_eq!(failure.await.unwrap_err().to_string(), "1 failed");
        assert_eq!(done.get(), 6);
    }
}
