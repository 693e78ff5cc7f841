//! A tree whose states take time but no processor, so that four nodes are four times as fast as one on a
//! machine with fewer processors. Each process says in a file how many states it has visited: the file
//! survives the process, whenever that is killed.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use taskwork::{Context, Job, Outcome, Task};
use taskwork_cli::{Failure, Kinds, NoMore, Prepared, Program, Shown};

/// A part of the tree: the states that are still to be visited, the shallowest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Walk {
    open: Vec<(u64, u32)>,
}

/// The job's arguments.
#[derive(Debug, Clone, Serialize, Deserialize, clap::Args)]
pub struct Shape {
    /// The depth of the tree.
    #[arg(long)]
    depth: u32,
    /// The duration of a state, in microseconds.
    #[arg(long)]
    state_us: u64,
    /// The folder in which each process says how many states it has visited.
    #[arg(long)]
    visits: PathBuf,
}

/// Mixes the bits of a number (the finaliser of splitmix64).
fn hash(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Walk {
    fn root() -> Self {
        Self { open: vec![(1, 0)] }
    }

    /// Visits a state: between one and four children above the given depth. Returns whether there was one.
    fn visit(&mut self, depth_max: u32) -> bool {
        let Some((state, depth)) = self.open.pop() else { return false };
        if depth < depth_max {
            let children = 1 + hash(state) % 4;
            self.open.extend((0..children).map(|k| (hash(state.wrapping_add(k)), depth + 1)));
        }
        true
    }

    /// Returns the number of states of the tree of this depth.
    pub fn states(depth: u32) -> u64 {
        let (mut walk, mut states) = (Self::root(), 0);
        while walk.visit(depth) {
            states += 1;
        }
        states
    }
}

impl Task for Walk {
    type Shared = Shape;
    type Output = u64;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let shape = cx.shared();
        loop {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            if self.open.is_empty() {
                return Outcome::Complete;
            }
            thread::sleep(Duration::from_micros(shape.state_us));
            self.visit(shape.depth);
            *cx.output() += 1;
            cx.worked(1);
            tell(&shape.visits);
            cx.potential_split(self);
        }
    }

    fn split(&mut self, _: &Shape) -> Option<Self> {
        (self.open.len() > 1).then(|| Self { open: vec![self.open.remove(0)] })
    }
}

/// The number of states that this process has visited in a job, which it writes to a file.
struct Tally {
    folder: PathBuf,
    file: File,
    states: u64,
}

static TALLY: Mutex<Option<Tally>> = Mutex::new(None);

/// Says that this process has visited one more state.
fn tell(folder: &Path) {
    let mut kept = TALLY.lock().unwrap_or_else(PoisonError::into_inner);
    // The next job has another folder.
    if kept.as_ref().is_none_or(|tally| tally.folder != folder) {
        let file = File::create(folder.join(process::id().to_string()));
        let file = file.expect("the measurement has created the folder");
        *kept = Some(Tally { folder: folder.to_owned(), file, states: 0 });
    }
    if let Some(tally) = &mut *kept {
        tally.states += 1;
        let written = tally.file.write_all_at(&tally.states.to_le_bytes(), 0);
        written.expect("eight bytes fit on the disk");
    }
}

/// Returns the number of states that all processes together have visited in the job with this folder.
///
/// # Errors
/// If a file cannot be read.
pub fn visits(folder: &Path) -> Result<u64> {
    let mut states = 0;
    for file in fs::read_dir(folder).context("no folder of visits")? {
        let bytes = fs::read(file?.path())?;
        ensure!(bytes.len() == 8, "a process was killed before it could say what it had done");
        states += u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    Ok(states)
}

/// The program `walk`.
#[derive(Debug)]
pub struct WalkProgram;

impl Program for WalkProgram {
    const NAME: &'static str = "walk";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Visits a tree whose states only take time";
    type Arguments = Shape;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<Walk>("walk");
    }

    fn prepare(shape: Shape) -> Result<Prepared, Failure> {
        Ok(Prepared::new("walk", Job::new(Walk::root(), shape), |report| {
            let seconds = report.elapsed.as_secs_f64();
            let json = serde_json::json!({ "states": report.output, "seconds": seconds });
            Ok(Shown { text: format!("{} states", report.output), json, complete: report.finished })
        }))
    }
}
