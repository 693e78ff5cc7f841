use std::sync::OnceLock;

use super::*;

/// A pool with a task that runs until it is asked to stop.
#[derive(Default)]
struct Fake {
    tasks: AtomicUsize,
    inside: AtomicUsize,
    slots: AtomicUsize,
    ends: Mutex<bool>,
    told: Condvar,
    post: OnceLock<Post>,
}

impl Fake {
    fn end(&self) {
        *self.ends.lock().unwrap() = true;
        self.told.notify_all();
    }
}

impl Workplace for Fake {
    fn waiting(&self) -> usize {
        self.tasks.load(Relaxed)
    }

    fn allot(&self, slots: usize, _: bool) {
        self.slots.store(slots, Relaxed);
    }

    fn recall(&self, _: usize, _: bool) {}

    fn welcome(&self, _: usize) {}

    fn stint(self: Arc<Self>, _: usize) -> Stint {
        self.tasks.store(0, Relaxed);
        self.inside.fetch_add(1, Relaxed);
        let ends = self.ends.lock().unwrap();
        drop(self.told.wait_while(ends, |ends| !*ends).unwrap());
        self.inside.fetch_sub(1, Relaxed);
        Stint::Over
    }

    fn enlist(&self, post: Post) {
        self.post.set(post).unwrap();
    }

    fn set_claim(&self, claim: Claim) {
        self.post.get().unwrap().set_claim(claim);
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < give_up, "waited in vain: {what}");
        thread::yield_now();
    }
}

#[test]
fn worker_returning_late_from_a_closed_pool_is_available_again() {
    let crew = Crew::start(1).unwrap();
    let [first, second] = [(); 2].map(|()| Arc::<Fake>::default());
    first.tasks.store(1, Relaxed);
    let mut workers = crew.add(Claim::default(), Arc::clone(&first) as Arc<dyn Workplace>);
    wait_until("the worker is in the first pool", || first.inside.load(Relaxed) == 1);
    crew.add(Claim::default(), Arc::clone(&second) as Arc<dyn Workplace>);
    first.post.get().unwrap().leave();
    assert_eq!((second.slots.load(Relaxed), crew.available()), (0, 0), "the worker may never come back");
    assert!(workers.back.try_recv() == Err(mpsc::error::TryRecvError::Empty), "it is still there");
    first.end();
    wait_until("the worker is in the second pool", || second.inside.load(Relaxed) == 1);
    assert_eq!((second.slots.load(Relaxed), crew.available()), (1, 1));
    assert!(workers.back.blocking_recv().is_none());
    second.end();
    second.post.get().unwrap().leave();
    crew.join();
}
