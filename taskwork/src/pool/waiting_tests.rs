//! Tasks that spawn others and wait for them: each is called again when all of them are complete and not before,
//! even if tasks are interrupted, split, moved to another pool or continued from a cut.

mod trials;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Instant,
};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::{Deserialize, Serialize};

use super::{
    Claim, Crew, Entry, Pool, PoolFault, PoolLimits, Work, Workplace, merge,
    testing::{LIMITS, PATIENCE, cut, ready_cut, wait_for},
};
use crate::{
    context::Context,
    core::Cut,
    envelope::Envelope,
    holdings::Basis,
    id::{NodeId, TaskId},
    output::Output,
    scope::{self, Mark, Scope},
    task::{Outcome, Task},
    wire::codec,
};

/// The number of units in each leaf.
const UNITS: u64 = 4;

/// A vertex of a complete tree: it spawns its children and usually waits for them. Each leaf has units, which
/// are done one by one, and can be split off.
#[derive(Debug, Serialize, Deserialize)]
struct Fork {
    /// Its position: that of the root is 1, those of its children are 2 and 3, and so on.
    place: u64,
    height: u32,
    /// The number of children, and the number of children that were spawned.
    fan: u64,
    spawned: u64,
    waits: bool,
    units: Vec<u64>,
}

impl Fork {
    fn new(place: u64, height: u32, fan: u64) -> Self {
        let units = if height == 0 { (place * UNITS..(place + 1) * UNITS).collect() } else { Vec::new() };
        Self { place, height, fan, spawned: 0, waits: false, units }
    }

    /// Returns the units below this vertex.
    fn below(&self) -> impl Iterator<Item = u64> {
        let leaves = self.fan.pow(self.height);
        // The first child of the vertex at `place` is at `place * fan`.
        let first = self.place * leaves;
        first * UNITS..(first + leaves) * UNITS
    }
}

/// The completed units, as seen by the tasks.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Board {
    #[serde(skip)]
    done: Mutex<BTreeSet<u64>>,
    #[serde(skip)]
    too_early: AtomicBool,
    #[serde(skip)]
    waits: AtomicU32,
    /// The number of units after which no further one is done; 0 for no limit.
    #[serde(skip)]
    units_max: usize,
}

impl Board {
    fn is_held(&self) -> bool {
        self.units_max > 0 && self.done.lock().unwrap().len() >= self.units_max
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Done(Vec<u64>);

impl Output for Done {
    fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

impl Task for Fork {
    type Shared = Board;
    type Output = Done;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        if self.waits {
            let done = cx.shared().done.lock().unwrap();
            if !self.below().all(|unit| done.contains(&unit)) {
                cx.shared().too_early.store(true, Relaxed);
            }
            return Outcome::Complete;
        }
        while self.height > 0 && self.spawned < self.fan {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            let child = Self::new(self.place * self.fan + self.spawned, self.height - 1, self.fan);
            // Some units belong to the task that waits for this one.
            if self.place % 5 == 4 {
                cx.spawn_sibling(child);
            } else {
                cx.spawn(child);
            }
            self.spawned += 1;
        }
        while let Some(&unit) = self.units.last() {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            if cx.shared().is_held() {
                std::thread::yield_now();
                continue;
            }
            cx.shared().done.lock().unwrap().insert(unit);
            cx.output().0.push(unit);
            cx.worked(1);
            self.units.pop();
            cx.potential_split(self);
        }
        if self.height == 0 || self.place % 5 > 2 {
            return Outcome::Complete;
        }
        self.waits = true;
        cx.shared().waits.fetch_add(1, Relaxed);
        Outcome::Wait
    }

    fn split(&mut self, _: &Board) -> Option<Self> {
        (self.units.len() > 1).then(|| Self { units: vec![self.units.remove(0)], ..Self::new(0, 0, 0) })
    }
}

struct Bench {
    pool: Arc<Pool<Fork>>,
    crew: Crew,
    /// The names in the global task list after the commits here.
    list: BTreeSet<Mark>,
}

impl Bench {
    fn start(node: u64, workers: usize, board: &Arc<Board>) -> Self {
        let pool = Arc::new(Pool::new(NodeId(node), Arc::clone(board), workers, LIMITS));
        let crew = Crew::start(workers).unwrap();
        crew.add(Claim::default(), Arc::clone(&pool) as Arc<dyn Workplace>);
        Self { pool, crew, list: BTreeSet::new() }
    }

    fn put_root(&mut self, root: Fork) {
        self.list.insert(Mark::from(TaskId::ROOT));
        self.pool.put(vec![Entry::new(TaskId::ROOT, root).seal().unwrap()], Basis::FIRM, None).unwrap();
    }

    /// Takes a cut, and applies its toggles to the list.
    fn cut(&self, list: &mut BTreeSet<Mark>) -> Cut {
        let mut cut = cut(&self.pool);
        for mark in cut.toggles.take(usize::MAX) {
            if !list.remove(&mark) {
                list.insert(mark);
            }
        }
        cut
    }

    fn is_idle(&self) -> bool {
        let view = self.pool.view();
        view.is_idle() && view.waiting == 0
    }

    fn wait_for(&self, what: &str, holds: impl Fn(&Pool<Fork>) -> bool) {
        wait_for(&self.pool, what, holds);
    }

    fn output(&self) -> Vec<u8> {
        self.cut(&mut BTreeSet::new()).output
    }

    fn end(self) {
        self.pool.close();
        self.crew.join();
    }
}

/// Continues the tasks with a scope that is complete according to the list.
fn wake(bench: &Bench, list: &BTreeSet<Mark>) {
    let names: Vec<String> = list.iter().map(Mark::to_string).collect();
    bench.pool.wake(&scope::complete(&bench.pool.awaited_scopes(), &names));
}

fn units(outputs: &[Vec<u8>]) -> Vec<u64> {
    let mut all = merge::<Done>(outputs).unwrap().0;
    all.sort_unstable();
    all
}

fn assert_right(board: &Board, outputs: &[Vec<u8>], root: &Fork, what: &str) {
    assert!(!board.too_early.load(Relaxed), "{what}: a task continued too early");
    assert_eq!(units(outputs), root.below().collect::<Vec<_>>(), "{what}");
}

#[test]
fn task_continues_when_all_its_spawned_tasks_are_complete() {
    for round in 0..40 {
        let (board, fan) = (Arc::new(Board::default()), 2 + round as u64 % 4);
        let mut bench = Bench::start(1, 1 + round % 4, &board);
        bench.pool.set_thieves(round % 3);
        bench.put_root(Fork::new(1, 3, fan));
        bench.wait_for("the end", |pool| pool.view().is_idle() && pool.view().waiting == 0);
        let mut list = std::mem::take(&mut bench.list);
        let cut = bench.cut(&mut list);
        assert_eq!((list.len(), cut.tasks.len()), (0, 0), "round {round}: {list:?}");
        assert_right(&board, &[cut.output], &Fork::new(1, 3, fan), &format!("round {round}"));
        assert!(board.waits.load(Relaxed) > 1, "round {round}");
        bench.end();
    }
}

#[test]
fn every_cut_continued_elsewhere_leads_to_the_same_result() {
    let mut waiting_in_cuts = 0;
    for round in 0..60 {
        let what = format!("round {round}");
        let board = Arc::new(Board { units_max: 1 + 7 * round, ..Board::default() });
        let mut first = Bench::start(1, 1 + round % 4, &board);
        first.pool.set_thieves(round % 3);
        first.put_root(Fork::new(1, 5, 3));
        first.wait_for("some units done", |_| board.is_held());
        let mut list = std::mem::take(&mut first.list);
        let mut cut = first.cut(&mut list);
        // Each round starts after some progress of the pool.
        for _ in 0..round % 5 {
            cut = first.cut(&mut list);
        }
        first.end();
        // The node is lost now, with its work since the cut.
        let again = Arc::new(Board::default());
        let before = codec::decode::<Done>(&cut.output).unwrap().0;
        let so_far = cut.tasks.iter().flat_map(|task| codec::decode::<Done>(&task.output).unwrap().0);
        again.done.lock().unwrap().extend(before.into_iter().chain(so_far));
        waiting_in_cuts += cut.tasks.iter().filter(|task| task.spawned.awaited().is_some()).count();
        let second = Bench::start(2, 2, &again);
        second.pool.put(cut.tasks, Basis::FIRM, None).unwrap();
        let give_up = Instant::now() + PATIENCE;
        while !list.is_empty() {
            assert!(Instant::now() < give_up, "{what}: waited in vain: {:?}, {list:?}", second.pool.view());
            second.cut(&mut list);
            wake(&second, &list);
        }
        assert!(second.is_idle(), "{what}: {:?}", second.pool.view());
        assert_right(&again, &[cut.output, second.output()], &Fork::new(1, 5, 3), &what);
        second.end();
    }
    assert!(waiting_in_cuts > 60, "only {waiting_in_cuts} waiting tasks were in cuts");
}

#[test]
fn awaited_tasks_that_move_between_pools_end_the_wait() {
    for round in 0..40 {
        let mut random = SmallRng::seed_from_u64(round);
        let board = Arc::new(Board::default());
        let mut pair = [1, 2].map(|node| Bench::start(node, 1 + random.random_range(0..3), &board));
        pair[0].put_root(Fork::new(1, 4, 3));
        let mut list = std::mem::take(&mut pair[0].list);
        let give_up = Instant::now() + PATIENCE;
        while !list.is_empty() {
            assert!(Instant::now() < give_up, "round {round}: waited in vain: {list:?}");
            let from = random.random_range(0..2);
            let (giver, taker) = (&pair[from], &pair[1 - from]);
            if random.random_range(0..8) == 0 {
                // The waiting tasks move, too.
                giver.pool.stop();
                giver.wait_for("a quiet pool", |pool| pool.view().is_quiet());
                let unloaded = giver.pool.unload().unwrap().into_iter().map(|(_, task)| task).collect();
                assert!(giver.is_idle(), "round {round}");
                // Uncommitted completions wake no task, so the giver commits first.
                giver.cut(&mut list);
                taker.pool.put(unloaded, Basis::FIRM, None).unwrap();
                giver.pool.resume();
            } else {
                giver.pool.set_thieves(1);
                let (_, taken) = giver.pool.take(random.random_range(1..4), 10_000).unwrap();
                giver.cut(&mut list);
                taker.pool.put(taken, Basis::FIRM, None).unwrap();
                giver.pool.set_thieves(0);
            }
            for bench in &pair {
                bench.cut(&mut list);
                wake(bench, &list);
            }
        }
        assert!(pair.iter().all(Bench::is_idle), "round {round}");
        let outputs = pair.each_ref().map(Bench::output);
        assert_right(&board, &outputs, &Fork::new(1, 4, 3), &format!("round {round}"));
        pair.into_iter().for_each(Bench::end);
    }
}

#[test]
fn tentative_waiting_task_is_in_no_cut_and_dropped_when_void() {
    const TENTATIVE: Basis = Basis(7);
    for round in 0..20 {
        let board = Arc::new(Board::default());
        let bench = Bench::start(1, 1 + round % 3, &board);
        let root = Entry::new(TaskId::ROOT, Fork::new(1, 5, 3));
        bench.pool.put(vec![root.seal().unwrap()], TENTATIVE, None).unwrap();
        bench.wait_for("some work done", |_| board.waits.load(Relaxed) > 2);
        let mut list = BTreeSet::new();
        let first = bench.cut(&mut list);
        assert_eq!((first.tasks.len(), list.len()), (0, 0), "round {round}");
        bench.pool.void(&[TENTATIVE]);
        bench.wait_for("an empty pool", |pool| pool.view().is_idle());
        assert!(bench.is_idle(), "round {round}: {:?}", bench.pool.view());
        let last = bench.cut(&mut list);
        assert_eq!((last.tasks.len(), list.len(), units(&[last.output]).len()), (0, 0, 0), "round {round}");
        bench.end();
    }
}

/// A task that spawns many empty tasks, then waits for them.
#[derive(Debug, Serialize, Deserialize)]
struct Wide {
    left: u32,
    polls: bool,
}

impl Task for Wide {
    type Shared = ();
    type Output = u64;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let has_spawned = self.left > 0;
        while self.left > 0 {
            if self.polls && cx.migrate() {
                return Outcome::Migrate;
            }
            self.left -= 1;
            cx.spawn(Self { left: 0, polls: false });
        }
        *cx.output() += 1;
        if has_spawned { Outcome::Wait } else { Outcome::Complete }
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

/// Runs a task to completion in a pool with one worker, and returns the pool.
pub(super) fn run<T: Task<Shared = ()>>(root: T) -> (Arc<Pool<T>>, Crew) {
    let pool = Arc::new(Pool::new(NodeId(1), Arc::new(()), 1, LIMITS));
    let crew = Crew::start(1).unwrap();
    crew.add(Claim::default(), Arc::clone(&pool) as Arc<dyn Workplace>);
    pool.put(vec![Entry::new(TaskId::ROOT, root).seal().unwrap()], Basis::FIRM, None).unwrap();
    (pool, crew)
}

#[test]
fn spawner_of_many_tasks_lets_them_run_first() {
    let (pool, crew) = run(Wide { left: 50_000, polls: true });
    wait_for(&pool, "the end", |pool| {
        assert_eq!(pool.fault(), None);
        let view = pool.view();
        // One more for each worker.
        assert!(view.queued + view.waiting <= LIMITS.spawned_tasks_max + 2, "{view:?}");
        view.is_idle() && view.waiting == 0
    });
    assert!(Work::figures(&*pool).tasks > 50_000, "each counts");
    pool.close();
    crew.join();
}

#[test]
fn spawner_that_does_not_poll_fails_the_job_with_the_limit() {
    let (pool, crew) = run(Wide { left: 50_000, polls: false });
    wait_for(&pool, "the fault", |pool| pool.fault().is_some());
    let fault = pool.fault().unwrap();
    assert!(matches!(fault, PoolFault::TooManySpawned { task: TaskId::ROOT, max: 1_000 }), "{fault}");
    let said = fault.to_string();
    assert!(said.contains("1000 tasks (spawned_tasks_max)") && said.contains("migrate()"), "{said}");
    pool.close();
    crew.join();
}

/// A task that waits without any event to wait for.
#[derive(Debug, Serialize, Deserialize)]
struct Idler;

impl Task for Idler {
    type Shared = ();
    type Output = ();

    fn search(&mut self, _: &mut Context<'_, Self>) -> Outcome {
        Outcome::Wait
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn wait_without_an_event_fails_the_job() {
    let (pool, crew) = run(Idler);
    wait_for(&pool, "the fault", |pool| pool.fault().is_some());
    assert_eq!(pool.fault(), Some(PoolFault::WaitsForNothing { task: TaskId::ROOT }));
    pool.close();
    crew.join();
}

#[test]
fn spawner_is_not_complete_in_a_cut_before_its_spawned_tasks() {
    let pool = Arc::new(Pool::<Fork>::new(NodeId(1), Arc::default(), 2, LIMITS));
    let next = |worker| pool.queue.next(worker, &pool.signals, || {}, &|_| None).unwrap();
    // It does not wait itself, and is in a scope that another task waits for.
    let spawner = Fork::new(3, 1, 1);
    let outer = Some(Scope(pool.new_id()));
    let entry = Entry { scope: outer, ..Entry::new(TaskId::ROOT, spawner) };
    pool.put(vec![entry.seal().unwrap()], Basis::FIRM, None).unwrap();
    let searched = pool.search(next(0), 0);
    pool.begin_cut(&[]).unwrap();
    pool.run(next(1), 1);
    assert!(pool.conclude(searched, 0).is_none());
    // It is called again immediately, after the cut.
    let again = next(0);
    let cut = ready_cut(&pool);
    let waits = cut.tasks.iter().filter(|task| task.spawned.awaited().is_some()).count();
    assert_eq!((cut.tasks.len(), waits), (2, 1), "what was spawned, and the spawner that waits for it");
    pool.run(again, 0);
    let view = pool.queue.view();
    assert_eq!((view.queued, view.waiting), (0, 0), "everything is complete");
}
