//! A tree whose states take time but no processor, so that four nodes are four times as fast as one on a
//! machine with fewer processors. Each process records the number and the times of its visited states in a
//! file, which survives when the process is killed.

use std::{
    collections::HashMap,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use taskwork::{Context, Job, Outcome, Task};
use taskwork_cli::{Failure, Kinds, NoMore, Prepared, Program, Shown};

/// A part of the tree: the states that are not visited yet, the shallowest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Walk {
    open: Vec<State>,
}

/// A state, with its depth and its share of the tree, as far as known before the visit.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct State {
    id: u64,
    depth: u32,
    share: f64,
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
    /// The folder in which each process records the number of its visited states.
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
        Self { open: vec![State { id: 1, depth: 0, share: 1.0 }] }
    }

    /// Visits a state: between one and four children above the given depth. Returns the share of the tree that ends
    /// with it, or `None` if there was no state.
    fn visit(&mut self, depth_max: u32) -> Option<f64> {
        let State { id, depth, share } = self.open.pop()?;
        if depth >= depth_max {
            return Some(share);
        }
        let children = 1 + hash(id) % 4;
        let child =
            |k| State { id: hash(id.wrapping_add(k)), depth: depth + 1, share: share / children as f64 };
        self.open.extend((0..children).map(child));
        Some(0.0)
    }

    /// Returns the number of states of the tree of this depth.
    pub fn states(depth: u32) -> u64 {
        let (mut walk, mut states) = (Self::root(), 0);
        while walk.visit(depth).is_some() {
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
        record(&shape.visits, 0);
        loop {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            if self.open.is_empty() {
                return Outcome::Complete;
            }
            thread::sleep(Duration::from_micros(shape.state_us));
            let done = self.visit(shape.depth);
            *cx.output() += 1;
            cx.worked(1);
            cx.progressed(done.unwrap_or_default());
            record(&shape.visits, 1);
            cx.potential_split(self);
        }
    }

    fn split(&mut self, _: &Shape) -> Option<Self> {
        (self.open.len() > 1).then(|| Self { open: vec![self.open.remove(0)] })
    }
}

/// The work of this process in a job, which it writes to a file.
struct Tally {
    folder: PathBuf,
    file: File,
    part: Part,
}

/// The part of one process in a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The number of states it has visited.
    pub states: u64,
    /// The time when it started its first task, in microseconds of the machine's clock.
    pub first_us: u64,
    /// The time when it last started a task or ended a state.
    pub last_us: u64,
}

static TALLY: Mutex<Option<Tally>> = Mutex::new(None);

/// Returns the time of the machine's clock in microseconds, which all processes on it share.
pub fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// Records that this process is at work, and has visited this many more states.
fn record(folder: &Path, states: u64) {
    let mut kept = TALLY.lock().unwrap_or_else(PoisonError::into_inner);
    let last_us = now_us();
    // The next job has another folder.
    if kept.as_ref().is_none_or(|tally| tally.folder != folder) {
        let file = File::create(folder.join(process::id().to_string()));
        let file = file.expect("the measurement has created the folder");
        let part = Part { states: 0, first_us: last_us, last_us };
        *kept = Some(Tally { folder: folder.to_owned(), file, part });
    }
    if let Some(tally) = &mut *kept {
        tally.part.states += states;
        tally.part.last_us = last_us;
        let written = tally.file.write_all_at(&tally.part.to_bytes(), 0);
        written.expect("some bytes fit on the disk");
    }
}

impl Part {
    const BYTES: usize = 24;

    fn to_bytes(self) -> Vec<u8> {
        [self.states, self.first_us, self.last_us].iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        ensure!(bytes.len() == Self::BYTES, "a process was killed before it could record its work");
        let mut numbers = bytes
            .chunks_exact(8)
            .map(|number| number.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)));
        let mut next = || numbers.next().unwrap_or_default();
        Ok(Self { states: next(), first_us: next(), last_us: next() })
    }
}

/// Returns the parts of all processes in the job with this folder, by process id. A process that has just
/// created its file, and not yet written to it, has no part.
///
/// # Errors
/// If a file cannot be read.
pub fn parts(folder: &Path) -> Result<HashMap<u32, Part>> {
    let mut parts = HashMap::new();
    for file in fs::read_dir(folder).context("no folder of visits")? {
        let path = file?.path();
        let id = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        let bytes = fs::read(&path)?;
        if !bytes.is_empty() {
            parts.insert(id.context("a file that is not of a process")?, Part::from_bytes(&bytes)?);
        }
    }
    Ok(parts)
}

/// Returns the number of states that all processes together have visited in the job with this folder.
///
/// # Errors
/// If a file cannot be read.
pub fn visits(folder: &Path) -> Result<u64> {
    Ok(parts(folder)?.values().map(|part| part.states).sum())
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
            Ok(Shown::new(format!("{} states", report.output), json, report.finished))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_tree() {
        let (mut walk, mut done) = (Walk::root(), 0.0);
        while let Some(share) = walk.visit(9) {
            done += share;
        }
        assert!((done - 1.0_f64).abs() < 1e-9, "{done}");
    }

    #[test]
    fn process_output_is_parsed() {
        let folder = tempfile::tempdir().unwrap();
        let said = Part { states: 258, first_us: 1, last_us: u64::MAX };
        fs::write(folder.path().join("7"), said.to_bytes()).unwrap();
        fs::write(folder.path().join("8"), []).unwrap();
        assert_eq!(parts(folder.path()).unwrap(), HashMap::from([(7, said)]));
        assert_eq!(visits(folder.path()).unwrap(), 258);
        fs::write(folder.path().join("8"), [0; 8]).unwrap();
        assert!(visits(folder.path()).is_err());
    }
}
