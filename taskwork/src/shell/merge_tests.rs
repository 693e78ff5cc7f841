//! Merging the outputs of nodes runs the program's own code, which may take long or panic. It must not delay
//! anything else.

use std::{
    sync::{Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::{runtime, time};
use zk::MemoryTree;

use super::{
    embedded::{Setup, run_on},
    submit::Root,
};
use crate::{
    config::Limits,
    context::Context,
    local::Shares,
    output::Output,
    report::{JobError, Report, Stopper, variables_of},
    task::{Outcome, Task},
};

/// The maximum duration of each step of a test.
const SOON: Duration = Duration::from_secs(30);

/// The state of the merge: whether it has started, and whether it may complete.
static GATE: (Mutex<(bool, bool)>, Condvar) = (Mutex::new((false, false)), Condvar::new());

/// An output that workers merge immediately, but the leader slowly or with a panic.
#[derive(Debug, Default, Serialize, Deserialize)]
enum Made {
    #[default]
    Nothing,
    Slowly,
    Badly,
}

impl Output for Made {
    fn merge(&mut self, other: Self) {
        if !thread::current().name().is_some_and(|name| name.starts_with("worker-")) {
            match other {
                Self::Nothing => {}
                Self::Slowly => wait_at_the_gate(),
                Self::Badly => panic!("it does not fit"),
            }
        }
        *self = other;
    }
}

fn wait_at_the_gate() {
    let (stands, changed) = &GATE;
    stands.lock().unwrap().0 = true;
    let waited = changed.wait_timeout_while(stands.lock().unwrap(), SOON, |stands| !stands.1).unwrap();
    assert!(!waited.1.timed_out(), "the driver of the node waits for the merge");
}

/// A task that produces an output.
#[derive(Debug, Serialize, Deserialize)]
struct Makes {
    badly: bool,
}

impl Task for Makes {
    type Shared = ();
    type Output = Made;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        *cx.output() = if self.badly { Made::Badly } else { Made::Slowly };
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

fn run(badly: bool, meanwhile: impl Future<Output = ()>) -> Result<Report<Makes>, JobError> {
    let setup = Setup {
        root: Root::new(Makes { badly })?,
        kind: Box::new(Shares::<Makes>::new(&()).unwrap()),
        variables: variables_of::<Makes>,
        nodes: 1,
        workers: 1,
        limits: Limits::default(),
        start_values: Vec::new(),
        stopper: Stopper::default(),
        scale: None,
        progress: None,
        kept: None,
        started: Instant::now(),
    };
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tree = MemoryTree::new();
    runtime
        .block_on(async {
            let run = time::timeout(SOON, run_on(&tree, setup));
            tokio::join!(run, meanwhile).0.expect("the job ends")
        })?
        .decode()
}

#[test]
fn driver_does_not_wait_for_a_merge() {
    // This runs on the node's thread, and only if that does not block.
    let opens_the_gate = async {
        let (stands, changed) = &GATE;
        while !stands.lock().unwrap().0 {
            time::sleep(Duration::from_millis(1)).await;
        }
        stands.lock().unwrap().1 = true;
        changed.notify_all();
    };
    let report = run(false, opens_the_gate).unwrap();
    assert!(report.finished && matches!(report.output, Made::Slowly));
}

#[test]
fn panicking_merge_fails_the_job() {
    let failed = run(true, async {}).unwrap_err().to_string();
    assert!(failed.contains("it does not fit"), "{failed}");
}
