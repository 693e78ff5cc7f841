//! A task for scenarios: counts the states of a tree whose shape is determined by a hash, and finds the
//! largest hash. The count is known from a sequential loop; the duration of a state can be chosen.

use std::{
    env,
    path::PathBuf,
    process::{self, ExitCode},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use taskwork::{
    Context, Hooks, Job, Limits, Node, Outcome, Release, Task, Variable, Variables, client::Connect,
    companion::Companion,
};
use taskwork_cli::{Failure, Kinds, NoMore, Prepared, Program, ProgressDisplay, Shown};

use crate::{
    gate::Gate,
    greetings::{self, Greetings},
};

/// A part of the tree: the states that are not visited yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tree {
    open: Vec<(u64, u32)>,
    /// The state whose children were spawned, while the task waits for them.
    awaited: Option<(u64, u32)>,
}

/// The shape of the tree.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Shape {
    /// The depth of the tree.
    pub depth: u32,
    /// The number of extra hashes computed at each state, to consume time.
    pub spin: u32,
    /// The time for which the first state below the root blocks without checking for requests, in
    /// milliseconds. If there is a gate, it ends when that is open.
    pub silent_ms: u64,
    /// Whether tasks spawn the children of some states and wait for them.
    pub forks: bool,
    /// Whether a state is deadly.
    pub deadly: Option<Deadly>,
    /// Whether each node has a companion, which logs its events.
    pub companion: bool,
    /// The gate at which a state waits, so that the job cannot end before the gate is open.
    pub gate: Option<Gate>,
    /// Data that every node needs to have.
    pub ballast: Ballast,
}

/// Data of any size, which every search reads. A string, because it is encoded and decoded as a whole, and
/// not byte by byte.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Ballast {
    bytes: usize,
    text: String,
}

/// The repeated content of a ballast; its length is a prime, so that it does not align with pieces.
const BALLAST: &str = "the data of a job that is too large for the servers";

impl Ballast {
    /// Creates a ballast of this many bytes.
    pub fn new(bytes: usize) -> Self {
        let mut text = BALLAST.repeat(bytes.div_ceil(BALLAST.len()));
        text.truncate(bytes);
        Self { bytes, text }
    }

    /// Checks its size, and samples of its content.
    fn check(&self) {
        assert_eq!(self.text.len(), self.bytes, "the data has another size");
        for at in (0..self.bytes).step_by((self.bytes / 8).max(1)) {
            let expected = BALLAST.as_bytes()[at % BALLAST.len()];
            assert_eq!(self.text.as_bytes()[at], expected, "the data is another one at {at}");
        }
    }
}

/// A state that no process survives: the leftmost of a level.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Deadly {
    /// The level.
    pub depth: u32,
    /// The state is deadly as long as this file exists.
    pub file: PathBuf,
    /// Whether it aborts the process; otherwise it panics.
    pub aborts: bool,
}

impl Deadly {
    /// Visits a state, which may be this one.
    fn visit(&self, state: u64, depth: u32) {
        if depth != self.depth || state != leftmost(depth) || !self.file.exists() {
            return;
        }
        if self.aborts {
            process::abort();
        }
        panic!("state {state:x} is deadly");
    }
}

/// The largest hash of a state.
#[derive(Debug)]
pub struct Largest;

impl Variable for Largest {
    type Value = u64;
    const NAME: &'static str = "largest";
    fn improves(new: &u64, old: &u64) -> bool {
        new > old
    }
}

fn hash(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The number of states visited between two checks for requests.
const STATES_BETWEEN: u64 = 64;

/// The level of the state that waits at a gate.
const GATE_DEPTH: u32 = 6;

/// The message of a state that starts to block without checking whether to stop.
pub const SILENT: &str = "a state blocks";

/// The pause between two checks for requests while the gate is closed: the other states are visited slowly,
/// so that on a fast machine nodes are still working when a fault is injected, and joining nodes still get
/// tasks. A tree of 18 levels, of 7,651,314 states, keeps four workers busy for at least 149 seconds.
const GATE_PAUSE: Duration = Duration::from_millis(5);

/// Returns the leftmost state of a level.
fn leftmost(depth: u32) -> u64 {
    (0..depth).fold(1, |state, _| hash(state))
}

impl Shape {
    /// Returns whether there is no gate, or it is open.
    fn is_gate_open(&self) -> bool {
        let is_open = |gate: &Gate| gate.is_open_at(0).expect("a test removes no gate");
        self.gate.as_ref().is_none_or(is_open)
    }

    /// Logs [`SILENT`], and blocks without checking whether to stop.
    fn be_silent(&self) {
        tracing::info!("{SILENT}");
        let silent = Duration::from_millis(self.silent_ms);
        if self.gate.is_none() {
            return thread::sleep(silent);
        }
        let end = Instant::now() + silent;
        while Instant::now() < end && !self.is_gate_open() {
            thread::sleep(GATE_PAUSE);
        }
    }
}

impl Tree {
    fn of(open: Vec<(u64, u32)>) -> Self {
        Self { open, awaited: None }
    }

    /// Returns the whole tree.
    pub fn root() -> Self {
        Self::of(vec![(1, 0)])
    }

    /// Removes the next open state: the last one, unless it waits at a closed gate.
    fn next(&mut self, is_open: bool) -> Option<(u64, u32)> {
        if is_open {
            return self.open.pop();
        }
        let waits = (leftmost(GATE_DEPTH), GATE_DEPTH);
        let at = self.open.iter().rposition(|state| *state != waits)?;
        Some(self.open.remove(at))
    }

    fn visit(&mut self, (state, depth): (u64, u32), shape: &Shape) {
        let mut spun = state;
        for _ in 0..shape.spin {
            spun = std::hint::black_box(hash(spun));
        }
        if let Some(deadly) = &shape.deadly {
            deadly.visit(state, depth);
        }
        if shape.silent_ms > 0 && (state, depth) == (hash(1), 1) {
            shape.be_silent();
        }
        if depth < shape.depth {
            let children = 1 + hash(state) % 4;
            self.open.extend((0..children).map(|k| (hash(state.wrapping_add(k)), depth + 1)));
        }
    }

    /// Returns the number of states and the largest hash, by a sequential loop.
    pub fn sequential(depth: u32) -> (u64, u64) {
        Self::root().count(depth)
    }

    fn count(mut self, depth: u32) -> (u64, u64) {
        let shape = Shape { depth, ..Shape::default() };
        let (mut count, mut largest) = (0, 0);
        while let Some((state, depth)) = self.open.pop() {
            self.visit((state, depth), &shape);
            count += 1;
            largest = largest.max(state);
        }
        (count, largest)
    }

    /// Spawns the children of a state that was just visited, which are the last open states.
    fn fork(&mut self, cx: &mut Context<'_, Self>, state: (u64, u32), children: usize) {
        for child in self.open.split_off(self.open.len() - children) {
            cx.spawn(Self::of(vec![child]));
        }
        self.awaited = Some(state);
    }

    /// Checks that all awaited tasks are complete: then their largest hash is known.
    fn join(&mut self, cx: &mut Context<'_, Self>) {
        let Some(state) = self.awaited.take() else { return };
        let depth = cx.shared().depth;
        if state.1 + SMALL_DEPTH >= depth {
            let (_, largest) = Self::of(vec![state]).count(depth);
            let known = cx.get_var::<Largest>().copied();
            assert!(known >= Some(largest), "state {state:?} was waited for, and is not complete");
        }
    }
}

/// The depth of a subtree that is small enough to be counted again.
const SMALL_DEPTH: u32 = 6;

impl Task for Tree {
    type Shared = Shape;
    type Output = u64;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new().companion(|shape| {
        shape.companion.then(|| {
            let greetings = Arc::new(Greetings::default());
            Companion::new(Arc::clone(&greetings), |cx| greetings::run(cx, greetings))
        })
    });

    fn variables(declare: &mut Variables) {
        declare.declare::<Largest>();
    }

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let shape = cx.shared();
        shape.ballast.check();
        self.join(cx);
        let mut is_open = shape.is_gate_open();
        loop {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            if !is_open {
                thread::sleep(GATE_PAUSE);
                is_open = shape.is_gate_open();
            }
            let (mut visited, mut waits) = (0, false);
            while visited < STATES_BETWEEN
                && !waits
                && let Some((state, depth)) = self.next(is_open)
            {
                let others = self.open.len();
                self.visit((state, depth), shape);
                visited += 1;
                waits = shape.forks && depth % 4 == 3 && self.open.len() > others;
                if waits {
                    self.fork(cx, (state, depth), self.open.len() - others);
                }
                if cx.get_var::<Largest>().is_none_or(|largest| state > *largest) {
                    cx.set_var::<Largest>(state);
                }
            }
            *cx.output() += visited;
            cx.worked(visited);
            if waits {
                return Outcome::Wait;
            }
            if self.open.is_empty() {
                return Outcome::Complete;
            }
            cx.potential_split(self);
        }
    }

    fn split(&mut self, _: &Shape) -> Option<Self> {
        (self.open.len() > 1).then(|| Self::of(vec![self.open.remove(0)]))
    }
}

/// The arguments of the program `tree`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The depth of the tree.
    depth: u32,
    /// The number of extra hashes computed at each state, to consume time.
    #[arg(long, default_value_t = 0)]
    spin: u32,
    /// The time for which the first state below the root blocks without checking for requests, in
    /// milliseconds. If there is a gate, it ends when that is open.
    #[arg(long, default_value_t = 0)]
    silent_ms: u64,
    /// Tasks spawn the children of some states and wait for them.
    #[arg(long)]
    forks: bool,
    /// As long as this file exists, a state panics.
    #[arg(long, value_name = "FILE")]
    deadly: Option<PathBuf>,
    /// That state aborts the process instead.
    #[arg(long, requires = "deadly")]
    aborts: bool,
    /// Each node has a companion.
    #[arg(long)]
    companion: bool,
    /// A file with a number: while it is 0, a state waits.
    #[arg(long, value_name = "FILE")]
    gate: Option<Gate>,
    /// The size of data for each node, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 0)]
    ballast: usize,
}

/// The level of the deadly state.
pub const DEADLY_DEPTH: u32 = 7;

/// The program `tree`.
#[derive(Debug)]
pub struct TreeProgram;

impl Program for TreeProgram {
    const NAME: &'static str = "tree";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str = "Counts the states of a tree whose shape is decided by a hash";
    type Arguments = Arguments;
    type More = NoMore;

    fn kinds(kinds: &mut Kinds) {
        kinds.add::<Tree>("tree");
    }

    fn prepare(arguments: Arguments) -> Result<Prepared, Failure> {
        let Arguments { depth, spin, silent_ms, forks, deadly, aborts, companion, gate, ballast } = arguments;
        if gate.is_some() && depth < GATE_DEPTH && silent_ms == 0 {
            return Err(Failure::usage(format!("no state waits at a gate above level {GATE_DEPTH}")));
        }
        let ballast = Ballast::new(ballast << 20);
        let deadly = deadly.map(|file| Deadly { depth: DEADLY_DEPTH, file, aborts });
        let shape = Shape { depth, spin, silent_ms, forks, deadly, companion, gate, ballast };
        let job = Job::new(Tree::root(), shape);
        let display = if companion { greetings::progress_display() } else { ProgressDisplay::default() };
        Ok(Prepared::watched("tree", job, display, |report| {
            let largest = report.var::<Largest>().map(|largest| *largest);
            let json = serde_json::json!({
                "states": report.output, "largest": largest, "finished": report.finished, "figures": report.figures,
            });
            let text = format!("{} states, the largest {largest:?}", report.output);
            Ok(Shown::new(text, json, report.finished))
        }))
    }
}

/// The command that runs a node of one worker that never writes its holdings, for which `node` has no option.
/// It is of the same build as other nodes, so they work on the same jobs.
pub const UNPROTECTED_NODE: &str = "unprotected-node";

/// The session timeout of an unprotected node. Longer than the pauses of a busy machine, since the end of its
/// session costs an attempt.
const UNPROTECTED_SESSION: Duration = Duration::from_secs(8);

/// Runs an unprotected node until it is killed.
pub fn unprotected_node() -> ExitCode {
    match serve_unprotected() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve_unprotected() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_target(false).init();
    let mut connect = Connect::new(env::var("TASKWORK_ZK").context("TASKWORK_ZK is not set")?);
    connect.session_timeout = UNPROTECTED_SESSION;
    let release = Release::this_build(TreeProgram::NAME, TreeProgram::VERSION)?;
    let (mut kinds, mut limits) = (Kinds::default(), Limits::default());
    TreeProgram::kinds(&mut kinds);
    limits.ledger_interval_ms = 0;
    let node = Node::builder_at(connect, "default", release)?.kinds(kinds).limits(limits).workers(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Ok(node.serve()?.ended().await?) })
}
