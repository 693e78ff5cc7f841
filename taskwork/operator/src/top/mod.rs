//! `taskwork top`: a cluster, or a record of one, on a terminal.
//!
//! It shows the same [view](taskwork::view) as the dashboard and the metrics. [`state`](self::state) changes by events
//! and commands, and does not depend on a terminal; `draw` draws it; [`live`](self::live) connects both; `plain` prints
//! the state if there is no terminal.

mod draw;
mod jobs;
mod keys;
mod live;
mod plain;
mod rates;
mod rows;
mod screen;
mod state;
#[cfg(test)]
mod tests;
pub(super) mod text;
mod warnings;

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, BufReader, IsTerminal as _},
    path::{Path, PathBuf},
    pin::Pin,
    process::ExitCode,
    time::Duration,
};

use taskwork::{
    Client, JobId,
    client::{AskedToLeave, ClientError, Observer},
    view::{Content, Event, read_record},
};
use taskwork_cli::{
    Failure,
    command::{ClusterArguments, Level, Notes, interruptible, job_id, print, runtime},
};
use tokio::{sync::mpsc, time};

use self::{
    draw::Look,
    live::{Ask, Live},
    state::{Leave, Shown, Source, State},
};
use super::{connection::Common, json::versioned};

/// The options for the displayed cluster and job.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The job to show, as `taskwork jobs` lists it; the number alone suffices. The default is the running job.
    #[arg(long, value_name = "ID", value_parser = job_id)]
    job: Option<JobId>,
    /// Draw with ASCII characters only; the default if the locale has no others.
    #[arg(long)]
    ascii: bool,
    /// Show the cluster at the end of a record of `taskwork dashboard --record`; no servers are needed.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
}

/// Shows a cluster, or a record of one: on a terminal until the user quits, otherwise once.
pub(super) fn run(arguments: &Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let is_live = !common.json && can_draw(io::stdout().is_terminal(), env::var_os("TERM"));
    // Log lines on the terminal would disturb the picture.
    if !is_live || !io::stderr().is_terminal() {
        common.log.start(Level::Warn);
    }
    let look = Look {
        is_ascii: arguments.ascii || !has_unicode(|name| env::var_os(name)),
        has_colours: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    let shown = arguments.job.as_ref().map_or(Shown::Running, |job| Shown::One(job.as_str().to_owned()));
    let runtime = runtime()?;
    if let Some(file) = &arguments.replay {
        let state = replayed(file, shown)?;
        if !is_live {
            return once(&state, look, common.json);
        }
        // The sender is kept, but never used.
        let (_to, events) = mpsc::unbounded_channel();
        let live = Live { state, look, events, ask: &NoCluster };
        return runtime.block_on(live.run(std::future::pending()));
    }
    let state = State::new(Source::Cluster(format!("/taskwork/{}", common.cluster.name())), shown);
    runtime.block_on(async {
        let (observer, missing) = interruptible(observer(common, arguments.job.as_ref())).await?;
        if is_live {
            let mut state = state;
            if let Some(missing) = missing {
                state.begin_to_wait(missing.to_string());
            }
            let ask = Cluster { cluster: &common.cluster, patience: common.patience.of_a_step() };
            let (to, events) = mpsc::unbounded_channel();
            // Sending fails only while the process exits.
            let mut tell = move |event: Event| drop(to.send(event));
            return Live { state, look, events, ask: &ask }.run(observer.follow(&mut tell)).await;
        }
        if let Some(missing) = missing {
            return Err(missing.into());
        }
        let looked = look_once(observer, state, common.patience.of_a_step());
        let state = interruptible(looked).await?;
        once(&state, look, common.json)
    })
}

/// Returns the observer of the cluster, after checking that servers can be reached and that the job exists. A missing
/// cluster is no error: its first node or job may be started later.
async fn observer(common: &Common, job: Option<&JobId>) -> Result<(Observer, Option<ClientError>), Failure> {
    let patience = Some(common.patience.of_a_step());
    let client = common.cluster.client(&Notes::default())?.patience(patience).connect().await?;
    let checked = async {
        client.check_cluster().await?;
        match job {
            Some(job) => client.record(job).await.map(drop),
            None => Ok(()),
        }
    };
    let checked = checked.await;
    let observer = client.observer();
    // The observer has its own session.
    client.close().await;
    match checked {
        Err(error @ ClientError::NoCluster { .. }) if job.is_none() => Ok((observer, Some(error))),
        other => other.map(|()| (observer, None)).map_err(Failure::from),
    }
}

/// Observes a cluster until everything was read once.
async fn look_once(observer: Observer, state: State, patience: Duration) -> Result<State, Failure> {
    let (to, mut events) = mpsc::unbounded_channel();
    let mut tell = move |event: Event| drop(to.send(event));
    let mut state = state;
    let follow = observer.follow(&mut tell);
    tokio::pin!(follow);
    let mut silent_until: Option<time::Instant> = None;
    loop {
        let seen = tokio::select! {
            refused = &mut follow => return Err(refused.into()),
            () = until(silent_until) => {
                let seconds = patience.as_secs();
                return Err(Failure::unreachable(format!("ZooKeeper has not answered for {seconds} s")));
            }
            Some(event) = events.recv() => event,
        };
        match seen.content {
            Content::Lost => silent_until = Some(time::Instant::now() + patience),
            Content::Found => silent_until = None,
            _ => {}
        }
        state.take(&seen);
        // The state becomes visible with a tick.
        if state.is_whole && seen.content == Content::Tick {
            return Ok(state);
        }
    }
}

async fn until(at: Option<time::Instant>) {
    match at {
        Some(at) => time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Prints the state once.
fn once(state: &State, look: Look, json: bool) -> Result<ExitCode, Failure> {
    if let Some((id, None)) = state.job() {
        return Err(Failure::not_found(format!("there is no job {id}: see taskwork jobs")));
    }
    print(&if json {
        format!("{}\n", versioned(plain::json(state)))
    } else {
        plain::text(state, look.is_ascii)
    });
    Ok(ExitCode::SUCCESS)
}

/// Reads a record.
fn replayed(file: &Path, shown: Shown) -> Result<State, Failure> {
    let refused = |why: String| Failure::usage(format!("--replay {}: {why}", file.display()));
    let from = File::open(file).map_err(|error| refused(error.to_string()))?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut state = State::new(Source::Record(name), shown);
    // An incomplete record is shown as far as it goes.
    let _end = read_record(BufReader::new(from), |event| state.take(&event))
        .map_err(|error| refused(error.to_string()))?;
    if state.snapshot.seq == 0 {
        return Err(refused(
            "it holds no tick of a cluster: it is no record, or one that ended before the cluster was read. \
             taskwork dashboard --record DIR writes records"
                .to_owned(),
        ));
    }
    if let Some((id, None)) = state.job() {
        return Err(refused(format!("there is no job {id} in it")));
    }
    Ok(state)
}

/// Returns whether a terminal can be drawn on.
fn can_draw(is_terminal: bool, kind: Option<OsString>) -> bool {
    is_terminal && kind.is_some_and(|kind| !kind.is_empty() && kind != "dumb")
}

/// Returns whether the locale has characters beyond ASCII; true if it is not specified.
fn has_unicode(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let given =
        ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|value| !value.is_empty());
    given.is_none_or(|locale| {
        let locale = locale.to_string_lossy().to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// A live cluster: its nodes can be asked to leave.
struct Cluster<'a> {
    cluster: &'a ClusterArguments,
    patience: Duration,
}

impl Ask for Cluster<'_> {
    fn ask(&self, leave: Leave) -> Pin<Box<dyn Future<Output = Result<String, Failure>> + '_>> {
        Box::pin(async move {
            let Leave { node, again } = leave;
            // Without notes about an outage: they would disturb the picture.
            let settings = Client::builder_of(self.cluster.connect()?).cluster(self.cluster.name());
            // The check for unencrypted credentials was done at the start.
            let client = settings.insecure().patience(Some(self.patience)).connect().await?;
            let asked = async {
                let id = client.member(&node).await?;
                // The name is a prefix: the node may have left, and another one may match.
                if id.to_string() != node {
                    return Err(Failure::usage(format!("{node} is gone already")));
                }
                if again {
                    client.drain(id).await?;
                    return Ok(format!("{node} was asked again, to leave at once"));
                }
                Ok(match client.drain_once(id).await? {
                    AskedToLeave::Now => format!("{node} was asked to leave"),
                    _ => format!("{node} was asked to leave already"),
                })
            };
            let asked = asked.await;
            client.close().await;
            asked
        })
    }
}

/// A record: there are no nodes to ask.
struct NoCluster;

impl Ask for NoCluster {
    fn ask(&self, leave: Leave) -> Pin<Box<dyn Future<Output = Result<String, Failure>> + '_>> {
        Box::pin(async move { Err(Failure::usage(format!("{} is in a record", leave.node))) })
    }
}
