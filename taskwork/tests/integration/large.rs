//! Jobs with tasks of the maximum size, and larger ones.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use taskwork::{Context, Job, JobError, Outcome, Report, Task, Variable, Variables};

const MIB: usize = 1 << 20;

/// The number of loads that were done.
struct Done;

impl Variable for Done {
    type Value = u64;
    const NAME: &'static str = "done";
    fn improves(new: &u64, old: &u64) -> bool {
        new > old
    }
}

/// A task that splits off loads, one after another, and waits until all of them are done. A single worker
/// cannot do them itself.
#[derive(Debug, Serialize, Deserialize)]
enum Haul {
    /// Splits off loads of the remaining sizes, in bytes, from the last to the first.
    Sender { left: Vec<usize>, loads: u64, waits: bool },
    /// A load and its position.
    Load { place: u64, ballast: String },
}

impl Haul {
    fn sender(sizes: &[usize], waits: bool) -> Self {
        Self::Sender { left: sizes.to_vec(), loads: 0, waits }
    }
}

impl Task for Haul {
    type Shared = ();
    /// The number of bytes in completed loads.
    type Output = u64;

    fn variables(declare: &mut Variables) {
        declare.declare::<Done>();
    }

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        if let Self::Load { place, ballast } = self {
            assert!(ballast.bytes().all(|byte| byte == b'x'));
            *cx.output() += ballast.len() as u64;
            cx.set_var::<Done>(*place);
            return Outcome::Complete;
        }
        loop {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            cx.potential_split(self);
            let Self::Sender { left, loads, waits } = &*self else { return Outcome::Complete };
            // One load after another, so that "done" counts all of them.
            if left.is_empty() && (!waits || cx.get_var::<Done>().is_some_and(|done| done == loads)) {
                return Outcome::Complete;
            }
            thread::yield_now();
        }
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        let Self::Sender { left, loads, .. } = self else { return None };
        let size = left.pop()?;
        *loads += 1;
        Some(Self::Load { place: *loads, ballast: "x".repeat(size) })
    }
}

/// The time after which the job hangs and is stopped.
const HANGS_AFTER: Duration = Duration::from_secs(60);

fn run(root: Haul, nodes: usize) -> Result<Report<Haul>, JobError> {
    let job = Job::new(root, ()).nodes(nodes).workers(1);
    let (stopper, started) = (job.stopper(), Instant::now());
    job.on_progress(Duration::from_millis(100), move |_| {
        if started.elapsed() > HANGS_AFTER {
            stopper.stop();
        }
    })
    .run()
}

#[test]
fn tasks_of_forty_mebibytes_are_stolen() {
    let sizes = [MIB, 40 * MIB, 1, 40 * MIB];
    let report = run(Haul::sender(&sizes, true), 2).unwrap();
    assert!(report.finished, "the job hangs");
    assert_eq!(report.output, sizes.iter().sum::<usize>() as u64);
    assert_eq!(report.figures.stolen_tasks, sizes.len() as u64);
}

#[test]
fn task_too_large_to_be_sent_runs_on_its_node() {
    let sizes = [MIB, 70 * MIB, MIB];
    let report = run(Haul::sender(&sizes, false), 2).unwrap();
    assert!(report.finished, "the job hangs");
    assert_eq!(report.output, sizes.iter().sum::<usize>() as u64);
}

/// A task that becomes too large to be sent, and then waits for the request to stop.
#[derive(Debug, Serialize, Deserialize)]
struct Swells(String);

impl Task for Swells {
    type Shared = ();
    type Output = u64;

    fn variables(declare: &mut Variables) {
        declare.declare::<Done>();
    }

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        self.0 = "x".repeat(70 * MIB);
        cx.set_var::<Done>(1);
        while !cx.migrate() {
            thread::yield_now();
        }
        Outcome::Migrate
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

fn says_size_and_limit(reason: &str) {
    let mut words = reason.split_whitespace();
    let bytes = words.by_ref().find_map(|word| word.parse::<usize>().ok());
    assert!(bytes.is_some_and(|bytes| (70 * MIB..71 * MIB).contains(&bytes)), "{reason}");
    let limit = words.find_map(|word| word.parse::<usize>().ok());
    assert!(limit.is_some_and(|limit| (63 * MIB..=64 * MIB).contains(&limit)), "{reason}");
    assert!(reason.contains("bytes are more than the limit of"), "{reason}");
}

#[test]
fn leaving_node_with_task_too_large_to_be_sent_fails_the_job_with_a_reason() {
    let mut job = Job::new(Swells(String::new()), ()).nodes(2).workers(1);
    let (scaler, stopper, started) = (job.scaler(), job.stopper(), Instant::now());
    let job = job.on_progress(Duration::from_millis(20), move |progress| {
        if progress.var::<Done>().is_some() {
            scaler.scale_to(0);
        }
        if started.elapsed() > HANGS_AFTER {
            stopper.stop();
        }
    });
    match job.run() {
        Err(JobError::Failed { reason }) => {
            assert!(reason.starts_with("task ") && reason.contains(" cannot be sent: "), "{reason}");
            says_size_and_limit(&reason);
        }
        other => panic!("expected a failed job, got {other:?}"),
    }
}

#[test]
fn root_too_large_to_be_sent_is_refused() {
    let root = Haul::Load { place: 1, ballast: "x".repeat(70 * MIB) };
    let refused = run(root, 2).unwrap_err();
    says_size_and_limit(&refused.to_string());
}
