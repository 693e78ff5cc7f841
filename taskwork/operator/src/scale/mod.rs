//! `taskwork scale`: starts and terminates machines for a cluster.
//!
//! ```text
//!   demand     the open jobs that an offer can serve
//!   observed   the cluster as input of the policy and the fleet
//!   rounds     observe, decide, write, act
//!   memory     the state of a controller, and its report for operators
//!   explain    the report, formatted
//! ```
//!
//! The decisions are made by `taskwork-scale`, which depends neither on a cluster nor on a clock.

pub(super) mod demand;
pub(crate) mod explain;
#[cfg(test)]
pub(super) mod fixtures;
pub(crate) mod memory;
pub(super) mod observed;
pub(super) mod rounds;
pub(super) mod last_view;

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use taskwork::{
    Client, JobId,
    client::{ErrorKind, scaling::ScalingOffice},
    view::Event,
};
use taskwork_cli::{
    Failure,
    command::{Level, Notes, interruptible, job_id, runtime, seconds, time as duration},
};
use taskwork_scale::{
    connector::{self, Opened},
    policy::Goals,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{self, Instant},
};

use self::{
    last_view::LastView,
    memory::{MACHINES_MAX, Said},
    observed::Scope,
    rounds::{Controller, Mind, Outcome, recall},
};
use super::connection::Common;

/// The source of machines, and the goals.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The file that describes the provider of machines, their types and prices: see deploy/scale.
    #[arg(long, value_name = "FILE", required_unless_present = "explain")]
    connector: Option<PathBuf>,
    /// The minimum number of machines, also without a job.
    #[arg(long, value_name = "N", default_value_t = 0)]
    min: u32,
    /// The maximum number of machines.
    #[arg(long, value_name = "N", required_unless_present = "explain")]
    max: Option<u32>,
    /// Scale for this job only, as `taskwork jobs` lists it; the number alone suffices.
    #[arg(long, value_name = "ID", value_parser = job_id, conflicts_with = "program")]
    job: Option<JobId>,
    /// Scale for the jobs of this program only. The default is all jobs of the cluster.
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// When the jobs must be finished: a time such as 2027-05-01T18:00:00Z, or a duration from now such as 90m. Use a
    /// time for a controller that may be restarted.
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    deadline: Option<u64>,
    /// The maximum cost of machines, in the currency of the connector's file. It counts from the first time that a
    /// controller ran with this budget for the same jobs (--job, --program), also across restarts.
    #[arg(long, value_name = "MONEY")]
    budget: Option<f64>,
    /// Count the budget from 0 again, unless that was done after this time: a time such as 2027-05-01T18:00:00Z, or
    /// `now` for every start.
    #[arg(long, value_name = "TIME", value_parser = past, requires = "budget")]
    budget_from: Option<u64>,
    /// The minimum efficiency: a worker is added only if it contributes at least this share of its time, such as 0.8.
    #[arg(long, value_name = "SHARE")]
    efficiency: Option<f64>,
    /// The cost of an hour of delay of the result: the number of machines is chosen to minimise the sum of this cost
    /// and their price.
    #[arg(long, value_name = "MONEY")]
    delay_price: Option<f64>,
    /// The action when the budget is spent; by default the jobs wait for nodes.
    #[arg(long, value_enum, value_name = "WHAT")]
    then: Option<Then>,
    /// Decide and report, but start, terminate and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Show the recent decisions of the cluster's active controller, and their reasons.
    #[arg(long)]
    explain: bool,
    /// Decide and act once instead of until Ctrl-C. Fails if that cannot be done within the maximum time to wait for
    /// ZooKeeper.
    #[arg(long)]
    once: bool,
    /// The time between two decisions, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    every: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Then {
    /// Suspend the jobs: their tasks are parked, nothing is lost.
    Suspend,
}

/// Parses a past time, in milliseconds since 1970.
fn past(text: &str) -> Result<u64, String> {
    let now = SystemTime::now();
    if text == "now" {
        return Ok(unix_ms(now));
    }
    let at = humantime::parse_rfc3339_weak(text)
        .map_err(|_| "expected a time such as 2027-05-01T18:00:00Z, or now".to_owned())?;
    if at > now {
        return Err("this time is in the future".to_owned());
    }
    Ok(unix_ms(at))
}

/// Parses a deadline, in milliseconds since 1970. It may have passed: a restarted controller must continue even if its
/// jobs are late.
fn deadline(text: &str) -> Result<u64, String> {
    let now = SystemTime::now();
    let at = match humantime::parse_rfc3339_weak(text) {
        Ok(at) => at,
        Err(_) => {
            now + duration(text).map_err(|_| {
                "expected a time such as 2027-05-01T18:00:00Z, or a duration from now such as 90m or 2h"
                    .to_owned()
            })?
        }
    };
    Ok(unix_ms(at))
}

fn unix_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl Arguments {
    fn goals(&self) -> Result<Goals, Failure> {
        let goals = Goals {
            min: self.min,
            max: self.max.unwrap_or_default(),
            deadline_ms: self.deadline,
            budget: self.budget,
            efficiency: self.efficiency,
            delay_price: self.delay_price,
            then_suspend: self.then == Some(Then::Suspend),
        };
        goals.check().map_err(|error| Failure::usage(error.to_string()))?;
        if goals.max > MACHINES_MAX {
            return Err(Failure::usage(format!(
                "--max {}: a controller can keep the state of up to {MACHINES_MAX} machines; use larger ones",
                goals.max
            )));
        }
        Ok(goals)
    }
}

/// Runs a controller until Ctrl-C or SIGTERM, or shows the decisions of the active one.
pub(super) fn run(arguments: &Arguments, common: &Common) -> Result<ExitCode, Failure> {
    common.log.start(if arguments.explain { Level::Warn } else { Level::Info });
    let client = common.cluster.client(&Notes::default())?.patience(Some(common.patience.of_a_step()));
    let runtime = runtime()?;
    let Some(file) = arguments.connector.as_deref().filter(|_| !arguments.explain) else {
        return runtime.block_on(async {
            let client = client.connect().await?;
            let shown = interruptible(explain::run(&client, common.json)).await;
            client.close().await;
            shown.map(|()| ExitCode::SUCCESS)
        });
    };
    let goals = arguments.goals()?;
    let opened =
        connector::open(file, common.cluster.name()).map_err(|error| Failure::usage(error.to_string()))?;
    if goals.deadline_ms.is_some_and(|at_ms| at_ms <= unix_ms(SystemTime::now())) {
        tracing::warn!(
            "the deadline has passed: the jobs are late, and as many machines are started as are useful"
        );
    }
    let patience = common.patience.of_a_step();
    let ended = runtime.block_on(async {
        let client = client.connect().await?;
        let controlling = Box::pin(control(arguments, goals, &opened, &client, patience, common.json));
        let ended = until_told(interruptible(controlling)).await;
        client.close().await;
        ended
    });
    // Does not wait for a call of the connector that hangs.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

/// Runs a future until it completes or SIGTERM arrives.
async fn until_told(doing: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let refused = |error| Failure::failed(format!("signals cannot be listened for: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    tokio::select! {
        done = doing => done,
        _ = terminate.recv() => {
            tracing::info!("the controller exits; the machines stay");
            Ok(())
        }
    }
}

async fn control(
    arguments: &Arguments,
    goals: Goals,
    opened: &Opened,
    client: &Client,
    patience: Duration,
    json: bool,
) -> Result<(), Failure> {
    let (last_view, observer) = (LastView::default(), client.observer());
    let controller = Controller {
        client,
        connector: &*opened.connector,
        currency: opened.currency.clone(),
        goals,
        budget_from_ms: arguments.budget_from,
        scope: Scope { job: arguments.job.clone(), program: arguments.program.clone() },
        last_view: &last_view,
        json,
    };
    if arguments.dry_run {
        client.check_cluster().await?;
    }
    let mut tell = |event: Event| last_view.apply(&event);
    tokio::select! {
        refused = observer.follow(&mut tell) => Err(refused.into()),
        ended = terms(&controller, arguments, patience) => ended,
    }
}

/// Holds the office repeatedly, each time for as long as possible; with `--once` for one round within a time limit.
async fn terms(
    controller: &Controller<'_>,
    arguments: &Arguments,
    patience: Duration,
) -> Result<(), Failure> {
    let until = arguments.once.then(|| Instant::now() + patience);
    let name = format!("{} process {} {}", host(), std::process::id(), random());
    // Between two terms ZooKeeper may be unavailable for as long as during one.
    let client = controller.client.with_patience(arguments.once.then_some(patience));
    loop {
        let (mut office, state) = if arguments.dry_run {
            let said = client.scaling_said().await?;
            (None, said.map(|said| said.state).filter(|state| !state.is_empty()))
        } else {
            let (office, state) = take(controller, &name, until).await?;
            (Some(office), state)
        };
        let memory = recall(state.as_deref(), &controller.goals, random)?;
        let said = client.scaling_said().await?.map(|said| Said::read(&said.said)).unwrap_or_default();
        let mut mind = Mind::new(controller, memory, state.unwrap_or_default(), said);
        loop {
            let outcome = controller.round(&mut mind, office.as_mut()).await;
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            if is_late && outcome != Outcome::Done {
                if let Some(office) = office.take() {
                    office.give_up().await;
                }
                return Err(not_once(controller, mind.hindrance()));
            }
            if outcome == Outcome::OfficeLost {
                time::sleep(arguments.every.min(LOOK_AGAIN)).await;
                break;
            }
            if arguments.once && outcome == Outcome::Done {
                if let Some(office) = office.take() {
                    office.give_up().await;
                }
                return Ok(());
            }
            // The cluster is read within seconds after the start; until then there is nothing to do.
            let pause =
                if outcome == Outcome::Hindered { arguments.every.min(LOOK_AGAIN) } else { arguments.every };
            time::sleep(pause).await;
        }
    }
}

/// The pause after a round in which something was unknown.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Returns the reason why a controller with `--once` has not acted.
fn not_once(controller: &Controller<'_>, hindrance: Option<&str>) -> Failure {
    let why = hindrance.unwrap_or("what is to be done could not be written").to_owned();
    if hindrance.is_none() || controller.last_view.snapshot().is_none() {
        Failure::unreachable(why)
    } else {
        Failure::failed(why)
    }
}

/// Acquires the office. Without a time limit it waits for ZooKeeper and for other holders indefinitely.
async fn take(
    controller: &Controller<'_>,
    name: &str,
    until: Option<Instant>,
) -> Result<(ScalingOffice, Option<Vec<u8>>), Failure> {
    let client = controller.client.with_patience(None);
    let mut held_by = None;
    loop {
        let wait = |holder: &str| {
            tracing::info!("{holder} controls the machines of this cluster; waiting");
            held_by = Some(holder.to_owned());
        };
        let taking = client.take_scaling_office(name, wait);
        let taken = match until {
            Some(until) => time::timeout_at(until, taking).await,
            None => Ok(taking.await),
        };
        let Ok(taken) = taken else {
            return Err(match held_by {
                Some(holder) => Failure::failed(format!("{holder} controls the machines of this cluster")),
                None => Failure::unreachable("ZooKeeper has not answered in time"),
            });
        };
        match taken {
            Ok(taken) => {
                tracing::info!(
                    cluster = client.cluster_name(),
                    "this controller decides about the machines now"
                );
                return Ok(taken);
            }
            Err(error) if error.kind() == ErrorKind::Unreachable => {
                tracing::warn!("{error}");
                time::sleep(LOOK_AGAIN).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns eight hexadecimal digits that distinguish this controller from others.
fn random() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    // Seeded by the operating system.
    let drawn = RandomState::new().hash_one(std::process::id());
    format!("{:08x}", drawn & 0xffff_ffff)
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "a machine".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parsed(line: &[&str]) -> Result<Arguments, String> {
        let line = [&["test"], line].concat();
        Line::try_parse_from(line).map(|line| line.arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn controller_requires_connector_and_maximum() {
        assert!(parsed(&["--explain"]).unwrap().explain);
        let said = parsed(&["--max", "3"]).unwrap_err();
        assert!(said.contains("--connector"), "{said}");
        let said = parsed(&["--connector", "x.json"]).unwrap_err();
        assert!(said.contains("--max"), "{said}");
        let both = ["--connector", "x", "--max", "3", "--job", "1", "--program", "tsp"];
        assert!(parsed(&both).unwrap_err().contains("--program"));
    }

    #[test]
    fn inconsistent_goals_are_refused() {
        let base = ["--connector", "x", "--max", "3"];
        let goals = |more: &[&str]| {
            parsed(&[&base, more].concat()).unwrap().goals().map_err(|error| error.to_string())
        };
        assert_eq!(goals(&["--min", "2"]).unwrap().min, 2);
        let many = parsed(&["--connector", "x", "--max", "2001"]).unwrap().goals().unwrap_err();
        assert!(many.to_string().contains("up to 2000"), "{many}");
        for (more, part) in [
            (&["--min", "4"][..], "--min 4"),
            (&["--budget", "-1"], "--budget"),
            (&["--budget", "NaN"], "--budget"),
            (&["--efficiency", "80"], "--efficiency 80"),
            (&["--then", "suspend"], "--budget"),
        ] {
            let more: Vec<&str> = more.to_vec();
            let line: Vec<String> = more.iter().map(|word| (*word).to_owned()).collect();
            // A negative number looks like an option unless it is joined to its name.
            let line = if line[1].starts_with('-') { vec![format!("{}={}", line[0], line[1])] } else { line };
            let line: Vec<&str> = line.iter().map(String::as_str).collect();
            let said = goals(&line).unwrap_err();
            assert!(said.contains(part), "no {part:?} in {said:?}");
        }
    }

    #[test]
    fn budget_start_in_future_is_refused() {
        let now = unix_ms(SystemTime::now());
        assert!((now..now + 60_000).contains(&past("now").unwrap()));
        assert_eq!(past("2020-01-01T00:00:00Z"), Ok(1_577_836_800_000));
        assert!(past("2999-01-01T00:00:00Z").unwrap_err().contains("in the future"));
        assert!(past("90m").unwrap_err().contains("or now"));
        let base = ["--connector", "x", "--max", "3", "--budget-from", "now"];
        assert!(parsed(&base).unwrap_err().contains("--budget"));
    }

    #[test]
    fn deadline_is_time_or_duration() {
        let now = unix_ms(SystemTime::now());
        let in_two_hours = deadline("2h").unwrap();
        assert!((now + 7_200_000..now + 7_260_000).contains(&in_two_hours));
        assert_eq!(deadline("2999-01-01T00:00:00Z"), Ok(32_472_144_000_000));
        // A restarted controller that is late.
        assert_eq!(deadline("2020-01-01T00:00:00Z"), Ok(1_577_836_800_000));
        for (text, part) in [("0", "90m"), ("six", "90m"), ("", "90m"), ("18:00", "90m")] {
            let said = deadline(text).unwrap_err();
            assert!(said.contains(part), "{text}: {said}");
        }
    }
}
