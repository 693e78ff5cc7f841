//! The pool under load: each task runs exactly once, no worker sleeps while there is work, and the pool is
//! never idle while a task runs.
//!
//! The rounds are short and differ in the number of workers and the times of interference, drawn from the
//! round's seed.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::{Deserialize, Serialize};

use super::{
    Claim, Crew, Entry, Pool, Work, Workplace, merge,
    testing::{LIMITS, cut, wait_for},
};
use crate::{
    context::Context,
    core::Cut,
    envelope::Envelope,
    holdings::Basis,
    id::{NodeId, TaskId},
    scope::Mark,
    task::{Outcome, Task},
    wire::codec,
};

/// Counts the leaves of a binary tree, heights on a stack, the largest subtree at its bottom.
#[derive(Debug, Serialize, Deserialize)]
struct Leaves {
    open: Vec<u32>,
}

impl Task for Leaves {
    type Shared = ();
    type Output = u64;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        while let Some(&height) = self.open.last() {
            if cx.migrate() {
                return Outcome::Migrate;
            }
            self.open.pop();
            match height {
                0 => *cx.output() += 1,
                _ => self.open.extend([height - 1, height - 1]),
            }
            cx.worked(1);
            cx.potential_split(self);
        }
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        (self.open.len() > 1).then(|| Self { open: vec![self.open.remove(0)] })
    }
}

const HEIGHT: u32 = 12;
const LEAVES: u64 = 1 << HEIGHT;
const STATES: u64 = 2 * LEAVES - 1;

struct Bench {
    pool: Arc<Pool<Leaves>>,
    crew: Crew,
}

impl Bench {
    fn start(workers: usize) -> Self {
        Self::start_on(NodeId(1), workers)
    }

    /// Starts a pool of a node. Pools that exchange tasks belong to different nodes, since the ids of new tasks contain
    /// the node's number.
    fn start_on(node: NodeId, workers: usize) -> Self {
        let (pool, crew) =
            (Arc::new(Pool::new(node, Arc::new(()), workers, LIMITS)), Crew::start(workers).unwrap());
        crew.add(Claim::default(), Arc::clone(&pool) as Arc<dyn Workplace>);
        Self { pool, crew }
    }

    fn put_root(&self) {
        let root = Entry::new(TaskId::ROOT, Leaves { open: vec![HEIGHT] });
        self.pool.put(vec![root.seal().unwrap()], Basis::FIRM, None).unwrap();
    }

    fn wait_for(&self, what: &str, holds: impl Fn(&Pool<Leaves>) -> bool) {
        wait_for(&self.pool, what, holds);
    }

    fn wait_until_idle(&self) {
        self.wait_for("an idle pool", |pool| pool.view().is_idle());
    }

    fn end(self) {
        self.pool.close();
        self.crew.join();
    }
}

#[test]
fn every_state_is_visited_once_and_the_batch_has_only_the_root() {
    for round in 0..50 {
        let bench = Bench::start(1 + round % 4);
        // Thieves that are never served keep the demand high: as many splits as possible.
        bench.pool.set_thieves(round % 3);
        bench.put_root();
        bench.wait_until_idle();
        let mut cut = cut(&bench.pool);
        assert_eq!(cut.toggles.take(9), [TaskId::ROOT], "round {round}");
        assert_eq!(cut.output, codec::encode(&LEAVES).unwrap(), "round {round}");
        assert_eq!(Work::figures(&*bench.pool).worked, STATES, "round {round}");
        bench.end();
    }
}

#[test]
fn tasks_moved_between_two_pools_are_neither_lost_nor_duplicated() {
    for round in 0..40 {
        let mut random = SmallRng::seed_from_u64(round);
        let pair = [1, 2].map(|node| Bench::start_on(NodeId(node), 1 + random.random_range(0..3)));
        pair[0].put_root();
        while !pair.iter().all(|bench| bench.pool.view().is_idle()) {
            let from = random.random_range(0..2);
            let (giver, taker) = (&pair[from].pool, &pair[1 - from].pool);
            giver.set_thieves(1);
            let (_, taken) = giver.take(random.random_range(1..4), random.random_range(1..200)).unwrap();
            taker.put(taken, Basis::FIRM, None).unwrap();
            giver.set_thieves(0);
        }
        let outputs = pair.each_ref().map(|bench| cut(&bench.pool).output);
        assert_eq!(merge::<u64>(&outputs).unwrap(), LEAVES, "round {round}");
        pair.into_iter().for_each(Bench::end);
    }
}

/// The driver reads the pool only when it is notified: a worker that has put its task back must notify it, even if
/// there is a task.
#[test]
fn stopped_pool_notifies_when_quiet() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for round in 0..40 {
        let bench = Bench::start(1 + round % 3);
        bench.put_root();
        bench.wait_for("some work done", |pool| Work::figures(pool).worked > 100);
        bench.pool.stop();
        let quiet = async {
            while !bench.pool.view().is_quiet() {
                bench.pool.changed().await;
            }
        };
        let heard = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(10), quiet).await });
        assert!(heard.is_ok(), "round {round}: no notification: {:?}", bench.pool.view());
        bench.end();
    }
}

#[test]
fn stopped_pool_unloads_every_task() {
    for round in 0..40 {
        let (first, second) = (Bench::start(1 + round % 3), Bench::start_on(NodeId(2), 2));
        first.put_root();
        first.wait_for("some work done", |pool| Work::figures(pool).worked > 100);
        first.pool.stop();
        first.wait_for("a quiet pool", |pool| pool.view().is_quiet());
        let unloaded = first.pool.unload().unwrap().into_iter().map(|(_, task)| task).collect();
        second.pool.put(unloaded, Basis::FIRM, None).unwrap();
        second.wait_until_idle();
        let outputs = [cut(&first.pool).output, cut(&second.pool).output];
        assert_eq!(merge::<u64>(&outputs).unwrap(), LEAVES, "round {round}");
        // The pool can be used again.
        first.pool.discard();
        first.pool.resume();
        first.put_root();
        first.wait_until_idle();
        assert_eq!(cut(&first.pool).output, codec::encode(&LEAVES).unwrap());
        first.end();
        second.end();
    }
}

/// Returns the leaves that a cut accounts for: those in the output, those found by its tasks, and those
/// still open in them.
fn leaves(cut: &Cut) -> u64 {
    let decode = |bytes: &[u8]| codec::decode::<u64>(bytes).unwrap();
    let open = |task: &Envelope| {
        let Leaves { open } = codec::decode(&task.task).unwrap();
        open.iter().map(|height| 1_u64 << height).sum::<u64>() + decode(&task.output)
    };
    decode(&cut.output) + cut.tasks.iter().map(open).sum::<u64>()
}

#[test]
fn every_cut_through_a_working_pool_accounts_for_all_leaves() {
    let mut cuts_with_tasks = 0;
    for round in 0..40 {
        let bench = Bench::start(1 + round % 4);
        bench.pool.set_thieves(round % 3);
        bench.put_root();
        let mut list = BTreeSet::from([Mark::from(TaskId::ROOT)]);
        while !bench.pool.view().is_idle() {
            let mut cut = cut(&bench.pool);
            assert_eq!(leaves(&cut), LEAVES, "round {round}");
            let ids: BTreeSet<TaskId> = cut.tasks.iter().map(|task| task.id).collect();
            assert_eq!(ids.len(), cut.tasks.len(), "round {round}");
            for id in cut.toggles.take(usize::MAX) {
                if !list.remove(&id) {
                    list.insert(id);
                }
            }
            assert!(!list.is_empty() || ids.is_empty(), "round {round}");
            cuts_with_tasks += usize::from(!ids.is_empty());
        }
        assert_eq!(codec::decode::<u64>(&cut(&bench.pool).output).unwrap(), LEAVES);
        bench.end();
    }
    assert!(cuts_with_tasks > 40, "only {cuts_with_tasks} cuts were taken while there was work");
}

#[test]
fn tentative_task_is_in_no_cut_until_firm_and_dropped_when_void() {
    const TENTATIVE: Basis = Basis(7);
    for round in 0..40 {
        let bench = Bench::start(1 + round % 3);
        bench.pool.set_thieves(round % 2);
        let root = Entry::new(TaskId::ROOT, Leaves { open: vec![HEIGHT] });
        bench.pool.put(vec![root.seal().unwrap()], TENTATIVE, None).unwrap();
        bench.wait_for("some work done", |pool| Work::figures(pool).worked > 100);
        let first = cut(&bench.pool);
        assert_eq!((leaves(&first), first.toggles.len()), (0, 0), "round {round}");
        if round % 4 == 0 {
            bench.pool.void(&[TENTATIVE]);
            bench.wait_until_idle();
            assert_eq!(leaves(&cut(&bench.pool)), 0, "round {round}");
        } else {
            bench.pool.begin_cut(&[TENTATIVE]).unwrap();
            bench.wait_for("a cut", |_| match Arc::clone(&bench.pool).ready_cut().unwrap() {
                Some(cut) => {
                    assert_eq!(leaves(&cut), LEAVES, "round {round}");
                    true
                }
                None => false,
            });
        }
        bench.end();
    }
}

/// A task of a given size.
#[derive(Debug, Serialize, Deserialize)]
struct Heavy(String);

impl Task for Heavy {
    type Shared = ();
    type Output = u64;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        *cx.output() += self.0.len() as u64;
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn thief_gets_at_most_its_bytes_and_too_large_tasks_stay() {
    let pool = Arc::new(Pool::<Heavy>::new(NodeId(1), Arc::new(()), 1, LIMITS));
    let sizes = [400, 400, 400, 9_000, 65 << 20, 10, 10, 10, 10, 10, 10, 10];
    for (number, size) in (0..).zip(sizes) {
        pool.put_split(0, Entry::new(TaskId { node: NodeId(1), number }, Heavy("x".repeat(size))));
    }
    let give = |bytes_max| -> Vec<u64> {
        pool.take(16, bytes_max).unwrap().1.iter().map(|envelope| envelope.id.number).collect()
    };
    assert_eq!(give(1_000), [0, 1], "a third would be too much");
    assert_eq!(give(1_000), [2], "so would the next");
    assert_eq!(give(1_000), [3], "larger than the limit, but alone");
    assert_eq!(give(1_000), [5, 6, 7], "half of what is there, less what stays");
    let view = pool.view();
    assert_eq!((view.queued, view.staying, view.spare()), (5, 1, 4));
    assert_eq!((give(1_000).len(), give(1_000).len(), give(1_000).len()), (3, 1, 0));
    assert_eq!((pool.view().queued, pool.view().spare()), (1, 0), "nothing to give: no thief waits for it");
    // The task is done here.
    let crew = Crew::start(1).unwrap();
    crew.add(Claim::default(), Arc::clone(&pool) as Arc<dyn Workplace>);
    wait_for(&pool, "an idle pool", |pool| pool.view().is_idle());
    assert_eq!(pool.view().staying, 0);
    assert_eq!(cut(&pool).output, codec::encode(&(65_u64 << 20)).unwrap());
    pool.close();
    crew.join();
}
