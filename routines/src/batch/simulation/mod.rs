//! Batches on simulated nodes in virtual time: runtimes crash, hang and answer twice, nodes leave and are lost, and tasks are
//! split and moved. The ledger has the tasks of a node, with their tallies, as of its last cut.
//!
//! Checked after each write to the ledger:
//!
//! - R-I1: an index is durable before it leaves its task.
//! - R-I2: at the end, the segments have each index, and as many as the tally.
//! - R-I4: an index is in one task, or counts once in the tallies.
//!
//! Runtimes check that a call continues from a state of its own. If nodes only leave, no step after the first state is
//! repeated.

mod platform;

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use rand::Rng as _;
use taskwork::Output as _;

use self::platform::{Segments, Shared, Virtual, World};
use super::{Batch, Encoded, Live, status::Counts};
use crate::{
    groups::{self, Selector},
    order::Order,
    package::Package,
    ranges::Ranges,
    reduce::Reduced,
    reduction::{Reduce, Reduction},
    runtime::Installed,
    space::Space,
    tally::Tally,
    testing::{fixture, package},
};

const SEEDS: u64 = 3_000;

/// The number of turns after which the job counts as stuck.
const TURNS_MAX: u32 = 200_000;

/// The time that a leaving node waits for its calls, in milliseconds.
const LEAVING_MS: u64 = 100;

const NODES: usize = 3;

const GROUPS: u64 = 3;

type Task = (Batch<Virtual>, Tally);

struct Node {
    tasks: Vec<Task>,
    /// The tally of tasks that have completed here.
    completed: Tally,
    segments: Rc<Segments>,
    counts: Arc<Counts>,
    leaves_at: Option<u64>,
    /// The last cut.
    written: Written,
}

#[derive(Default)]
struct Written {
    tasks: Vec<(Vec<u8>, Tally)>,
    completed: Tally,
}

struct Cluster {
    world: Shared,
    order: Order,
    installed: Arc<Installed>,
    nodes: Vec<Node>,
    /// The tally of lost and departed nodes.
    committed: Tally,
    /// Whether the ledger has changed since the last check.
    is_written: bool,
}

fn merge(tally: &mut Tally, other: &Tally) {
    tally.merge(other.clone());
}

impl Cluster {
    fn new(seed: u64, package: &Package) -> Self {
        let world = World::new(seed);
        let calls = world.borrow().calls();
        // A runtime returns the index, and every third call is in the same group.
        let space = Space::List((0..calls).map(|index| format!("[{index},{}]", index % GROUPS)).collect());
        let by = vec![Selector::Position(1)];
        let reduce =
            Reduce { numbers: vec![Reduction::Sum, Reduction::Count, Reduction::Topk(2)], by, routine: None };
        let order = Order::new(package.digest.clone(), String::new(), space, reduce);
        let nodes = (0..NODES).map(|_| Node::new(&world)).collect();
        let installed = Arc::new(Installed::new(package.clone()));
        let committed = Tally::default();
        let mut cluster = Self { world, order, installed, nodes, committed, is_written: false };
        cluster.nodes[0].tasks.push((Batch::of(calls), Tally::default()));
        cluster.cut(0);
        cluster
    }

    fn random(&self, below: usize) -> usize {
        self.world.borrow_mut().random.random_range(0..below)
    }

    /// Returns another node that stays, if there is one.
    fn other(&self, node: usize) -> Option<usize> {
        let other = (node + 1 + self.random(NODES - 1)) % NODES;
        self.nodes[other].leaves_at.is_none().then_some(other)
    }

    fn is_over(&self) -> bool {
        self.nodes.iter().all(|node| node.tasks.is_empty() && node.written.tasks.is_empty())
    }

    /// Runs the job. Returns the violated invariant.
    fn run(&mut self) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            self.world.borrow_mut().pass();
            let node = self.random(NODES);
            match self.random(100) {
                0..=3 => self.cut(node),
                4..=6 => self.steal(node),
                7 => self.leave(node),
                8 if !self.world.borrow().is_gentle => self.lose(node),
                9..=12 => self.nodes[node].segments.sync(),
                _ => self.work(node)?,
            }
            self.move_departed(node);
            self.world.borrow_mut().broken.take().map_or(Ok(()), Err)?;
            if std::mem::take(&mut self.is_written) {
                self.check()?;
                if self.is_over() {
                    return self.check_end();
                }
            }
        }
        Err("the job is stuck".to_owned())
    }

    /// Lets a task work as between two requests to it.
    fn work(&mut self, node: usize) -> Result<(), String> {
        let count = self.nodes[node].tasks.len();
        if count == 0 {
            return Ok(());
        }
        let place = self.random(count);
        let Node { tasks, completed, segments, counts, .. } = &mut self.nodes[node];
        let (mut batch, mut tally) = tasks.swap_remove(place);
        let mut live = batch.live.take().unwrap_or_else(|| {
            let installed = Arc::clone(&self.installed);
            let (world, segments) = (Rc::clone(&self.world), Rc::clone(segments));
            Box::new(Live::new(Virtual::new(world, installed, segments), Arc::clone(counts)))
        });
        live.settled(&mut batch).iter().for_each(|settled| merge(&mut tally, settled));
        live.advance(&mut batch, &self.order)?;
        if batch.open.is_empty() && live.is_done() {
            merge(completed, &tally);
            return Ok(());
        }
        live.wait(&mut batch, &self.order, std::time::Duration::ZERO)?;
        batch.live = Some(live);
        tasks.push((batch, tally));
        Ok(())
    }

    /// Writes the tasks of a node.
    fn cut(&mut self, node: usize) {
        let Node { tasks, completed, written, .. } = &mut self.nodes[node];
        let encoded = tasks.iter().map(|(batch, tally)| (serde_json::to_vec(batch).unwrap(), tally.clone()));
        *written = Written { tasks: encoded.collect(), completed: completed.clone() };
        self.is_written = true;
    }

    /// Splits tasks of a node for another one.
    fn steal(&mut self, from: usize) {
        let Some(to) = self.other(from) else { return };
        let parts: Vec<_> = self.nodes[from].tasks.iter_mut().filter_map(|(batch, _)| batch.give()).collect();
        self.nodes[to].tasks.extend(parts.into_iter().map(|part| (part, Tally::default())));
        self.cut(from);
        self.cut(to);
    }

    /// Asks a node to leave, unless another one is leaving.
    fn leave(&mut self, node: usize) {
        if self.nodes.iter().all(|node| node.leaves_at.is_none()) {
            self.nodes[node].counts.set_leaving();
            self.nodes[node].leaves_at = Some(self.world.borrow().now_ms + LEAVING_MS);
        }
    }

    /// Replaces a node that leaves, if its calls have stopped or its time is up.
    fn move_departed(&mut self, node: usize) {
        let Some(leaves_at) = self.nodes[node].leaves_at else { return };
        let has_frames = self.nodes[node]
            .tasks
            .iter()
            .any(|(batch, _)| batch.live.as_ref().is_some_and(|live| live.has_frame()));
        let is_late = self.world.borrow().now_ms >= leaves_at && !self.world.borrow().is_gentle;
        if has_frames && !is_late {
            return;
        }
        if self.world.borrow().is_gentle {
            self.nodes[node].segments.sync();
        }
        for (batch, tally) in &mut self.nodes[node].tasks {
            let Some(mut live) = batch.live.take() else { continue };
            live.settled(batch).iter().for_each(|settled| merge(tally, settled));
            batch.live = Some(live);
        }
        self.cut(node);
        self.replace(node);
    }

    /// Replaces a lost node. Its unwritten results may be written later, or never.
    fn lose(&mut self, node: usize) {
        if self.random(2) == 0 {
            self.nodes[node].segments.lose();
        }
        self.replace(node);
    }

    /// Replaces a node by a new one, and gives its written tasks to another one.
    fn replace(&mut self, node: usize) {
        let to = (node + 1 + self.random(NODES - 1)) % NODES;
        let Node { written, segments, .. } = std::mem::replace(&mut self.nodes[node], Node::new(&self.world));
        // As after a node was wrongly considered lost.
        self.world.borrow_mut().late.push(segments);
        self.is_written = true;
        merge(&mut self.committed, &written.completed);
        for (encoded, tally) in written.tasks {
            let batch = serde_json::from_slice(&encoded).unwrap();
            self.nodes[to].tasks.push((batch, tally.clone()));
            self.nodes[to].written.tasks.push((encoded, tally));
        }
    }

    fn check(&self) -> Result<(), String> {
        let (mut open, mut tally) = (Ranges::default(), self.committed.clone());
        for written in self.nodes.iter().map(|node| &node.written) {
            merge(&mut tally, &written.completed);
            for (encoded, its) in &written.tasks {
                merge(&mut tally, its);
                let task: Encoded = serde_json::from_slice(encoded).unwrap();
                let before = open.len();
                open.extend(&task.open);
                if open.len() != before + task.open.len() {
                    return Err(format!("R-I4: two tasks have a call: {task:?}"));
                }
            }
        }
        let calls = self.order.space.len();
        let world = self.world.borrow();
        if let Some(index) =
            (0..calls).find(|&index| !open.contains(index) && !world.durable.contains(&index))
        {
            return Err(format!("R-I1: call {index} has left its task without a durable result"));
        }
        if tally.ended != calls - open.len() {
            return Err(format!("R-I4: {} of {calls} calls count, but {} are open", tally.ended, open.len()));
        }
        let failed: u64 = tally.failed.values().sum();
        let found = tally.reduced.and_then(|reduced| reduced.shown_groups()).unwrap_or_default();
        let count: u64 = found.iter().filter_map(|group| group["count"].as_u64()).sum();
        let mut expected = Reduced::new(&self.order.reduce);
        for index in (0..calls).filter(|index| !open.contains(*index)) {
            let key = groups::key(&self.order.space, index, &self.order.reduce.by)?;
            expected.add(&key, index, index as f64);
        }
        let expected = expected.shown_groups().unwrap_or_default();
        if count != tally.ended - failed || failed == 0 && found != expected {
            return Err(format!("R-I4: the groups are {found:?}, not {expected:?}; {failed} calls failed"));
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), String> {
        let world = self.world.borrow();
        // The manifest takes the first result of each index.
        let manifest: BTreeSet<u64> = world.durable.iter().copied().collect();
        let (found, calls) = (manifest.len() as u64, self.order.space.len());
        if found != calls {
            return Err(format!("R-I2: the segments have {found} calls, the tally {calls}"));
        }
        let repeated = world.steps.iter().find(|((_, step), times)| *step > 0 && **times > 1);
        if world.is_gentle
            && let Some((step, times)) = repeated
        {
            return Err(format!("step {step:?} was repeated {times} times although nodes only leave"));
        }
        Ok(())
    }
}

impl Node {
    fn new(world: &Shared) -> Self {
        let (segments, counts) = (Segments::new(world), Arc::default());
        let (tasks, completed, written) = (Vec::new(), Tally::default(), Written::default());
        Self { tasks, completed, segments, counts, leaves_at: None, written }
    }
}

#[test]
fn batches_keep_invariants_in_3000_seeds() {
    let package = package(&fixture().folder, "", "run", "timeout = 1\ncheckpoint = 0.1");
    let mut covered = BTreeMap::<&str, u64>::new();
    for seed in 0..SEEDS {
        let mut cluster = Cluster::new(seed, &package);
        if let Err(violated) = cluster.run() {
            panic!("seed {seed}: {violated}");
        }
        for (event, times) in &cluster.world.borrow().events {
            *covered.entry(event).or_default() += times;
        }
    }
    for event in ["crash", "hang", "second answer", "state", "stop", "continued", "late segment"] {
        assert!(covered.get(event).is_some_and(|&times| times >= SEEDS / 10), "{event}: {covered:?}");
    }
}
