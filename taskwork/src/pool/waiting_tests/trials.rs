//! Tasks that wait one crash short of the limit, and are tried alone.

use super::*;

/// A task that is woken immediately, and then complete.
#[derive(Debug, Serialize, Deserialize)]
struct Woken(bool);

impl Task for Woken {
    type Shared = ();
    type Output = u64;

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        if std::mem::replace(&mut self.0, true) {
            *cx.output() += 1;
            return Outcome::Complete;
        }
        cx.waker().wake();
        Outcome::Wait
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

/// Its trial may have ended while it waited: then no task would be blamed if it killed the node now.
#[test]
fn woken_task_short_of_the_limit_waits_for_its_trial() {
    for (crashes, is_tried) in [(0, false), (1, false), (2, true)] {
        let pool = Arc::new(Pool::<Woken>::new(NodeId(1), Arc::default(), 1, LIMITS));
        let crew = Crew::start(1).unwrap();
        crew.add(Claim::default(), Arc::clone(&pool) as Arc<dyn Workplace>);
        let task = Entry::new(TaskId::ROOT, Woken(false)).seal().unwrap();
        pool.put(vec![Envelope { crashes, ..task }], Basis::FIRM, None).unwrap();
        if is_tried {
            // It is woken immediately, and no worker takes it.
            let is_untried = |pool: &Pool<Woken>| pool.view().untried.is_some() && pool.view().is_idle();
            wait_for(&pool, "the wake-up", is_untried);
            pool.begin_cut(&[]).unwrap();
            let cut = Arc::clone(&pool).ready_cut().unwrap().unwrap();
            assert_eq!((cut.tasks.len(), cut.untried.len()), (1, 1));
            assert!(is_untried(&pool), "it waits as before");
            pool.begin_trial(TaskId::ROOT);
        }
        wait_for(&pool, "the end", |pool| pool.view().batch_ids > 0);
        assert_eq!(pool.view().waiting, 0);
        pool.close();
        crew.join();
    }
}

/// Returns a pool without workers, with a task that is one crash short of the limit.
fn with_last_chance<T: Task<Shared: Default>>(entry: &Entry<T>, limits: PoolLimits) -> Arc<Pool<T>> {
    let pool = Arc::new(Pool::<T>::new(NodeId(1), Arc::default(), 1, limits));
    let task = Envelope { crashes: limits.crashes_max - 1, ..entry.seal().unwrap() };
    pool.put(vec![task], Basis::FIRM, None).unwrap();
    pool
}

#[test]
fn untried_task_is_in_the_cut_of_a_node_without_ledger() {
    let limits = PoolLimits { ledger: false, ..LIMITS };
    let pool = with_last_chance(&Entry::new(TaskId::ROOT, Woken(false)), limits);
    pool.run(pool.queue.next(0, &pool.signals, || {}, &|_| None).unwrap(), 0);
    pool.begin_cut(&[]).unwrap();
    let cut = Arc::clone(&pool).ready_cut().unwrap().unwrap();
    assert!(cut.unprotected && cut.tasks.is_empty());
    assert_eq!(cut.untried, BTreeSet::from([TaskId::ROOT]), "otherwise it would never be named");
}

#[test]
fn task_complete_after_its_wait_needs_no_trial() {
    // It does not wait itself, and is in a scope that another task waits for.
    let outer = Some(Scope(TaskId { number: 99, ..TaskId::ROOT }));
    let spawner = Entry { scope: outer, ..Entry::new(TaskId::ROOT, Fork::new(3, 1, 2)) };
    let pool = with_last_chance(&spawner, LIMITS);
    let (mut runs, mut waited) = (0, false);
    while pool.view().queued > 0 {
        pool.run(pool.queue.next(0, &pool.signals, || {}, &|_| None).unwrap(), 0);
        let view = pool.view();
        assert_eq!(view.untried, None, "nothing of it is left to be done");
        (runs, waited) = (runs + 1, waited || view.waiting > 0);
    }
    assert_eq!((runs >= 3, waited, pool.view().waiting), (true, true, 0), "{runs} runs");
}
