//! Tests of the places of workers for companions.

use std::thread;

use super::*;
use crate::pool::crew::Crew;

const SOON: Duration = Duration::from_secs(60);

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < SOON, "not in time: {what}");
        thread::yield_now();
    }
}

fn open(crew: &Crew, claim: Claim) -> Arc<Places> {
    let places = crew.places(claim, false);
    Arc::clone(&places).open(Box::new(|| {}));
    places
}

/// A pool with a number of tasks, which end when all of them run.
#[derive(Default)]
struct Tasks {
    waiting: AtomicUsize,
    ran: AtomicUsize,
    post: OnceLock<Post>,
}

impl Workplace for Tasks {
    fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }
    fn allot(&self, _: usize, _: bool) {}
    fn recall(&self, _: usize, _: bool) {}
    fn welcome(&self, _: usize) {}
    fn stint(self: Arc<Self>, _: usize) -> Stint {
        let take = |waiting: usize| waiting.checked_sub(1);
        if self.waiting.fetch_update(Relaxed, Relaxed, take).is_ok() {
            self.ran.fetch_add(1, Relaxed);
            wait_until("all tasks run", || self.waiting.load(Relaxed) == 0);
        }
        Stint::Over
    }
    fn enlist(&self, post: Post) {
        let _ = self.post.set(post);
    }
    fn set_claim(&self, _: Claim) {}
}

fn add_job(crew: &Crew) -> Arc<Tasks> {
    let pool = Arc::new(Tasks::default());
    drop(crew.add(Claim::default(), Arc::clone(&pool) as Arc<dyn Workplace>));
    pool
}

/// Ends the jobs of a crew, and waits for its threads.
fn end(crew: Crew, places: &[Arc<Places>], pools: &[Arc<Tasks>]) {
    for places in places {
        places.close();
    }
    for pool in pools {
        pool.post.get().unwrap().leave();
    }
    let out = crew.out();
    drop(crew);
    wait_until("all threads exit", || out() == 0);
}

#[test]
fn workers_of_one_job_wait_in_its_places() {
    let crew = Crew::start(3).unwrap();
    let (pool, places) = (add_job(&crew), open(&crew, Claim::default()));
    wait_until("all workers come", || places.limit() == 3);
    let time = places.workers().1;
    wait_until("their time is counted", || places.workers().1 > time);
    end(crew, &[places], &[pool]);
}

#[test]
fn places_of_several_jobs_are_given_for_work_and_returned_after_it() {
    let crew = Crew::start(2).unwrap();
    let pools = [add_job(&crew), add_job(&crew)];
    let places = [open(&crew, Claim::default()), open(&crew, Claim::default())];
    assert_eq!(places[0].limit() + places[1].limit(), 0, "there is no work");
    places[0].set_waiting(5);
    wait_until("all workers come", || places[0].limit() == 2);
    places[0].set_used(2);
    places[0].set_waiting(0);
    places[1].set_waiting(1);
    wait_until("one worker is recalled", || {
        // The crew does this periodically.
        places[1].post.get().unwrap().offer(true);
        places[0].limit() == 1
    });
    assert_eq!(places[0].workers().0, 2, "their places are used");
    places[0].set_used(0);
    wait_until("one worker goes to the other job", || places[1].limit() > 0);
    for place in &places {
        place.set_waiting(0);
        wait_until("all return", || place.limit() == 0);
    }
    end(crew, &places, &pools);
}

#[test]
fn unused_places_are_returned_although_another_one_changes() {
    let crew = Crew::start(3).unwrap();
    let pools = [add_job(&crew), add_job(&crew)];
    let places = open(&crew, Claim::default());
    places.set_waiting(9);
    wait_until("all workers come", || places.limit() == 3);
    places.set_waiting(0);
    wait_until("all but one return", || {
        places.set_used(1);
        places.set_used(0);
        places.set_used(1);
        places.limit() == 1
    });
    end(crew, &[places], &pools);
}

#[test]
fn recalled_place_is_returned_after_its_piece_of_work() {
    let crew = Crew::start(2).unwrap();
    let pools = [add_job(&crew), add_job(&crew)];
    let first = open(&crew, Claim::default());
    first.set_waiting(9);
    wait_until("all workers come", || first.limit() == 2);
    first.set_used(2);
    let urgent = open(&crew, Claim { priority: 1, ..Claim::default() });
    urgent.set_waiting(1);
    // The call balances the crew.
    wait_until("one is recalled", || first.limit() == 1);
    assert_eq!((first.workers().0, urgent.limit()), (2, 0), "its thread still computes");
    first.set_used(1);
    wait_until("it goes to the urgent job", || urgent.limit() == 1);
    end(crew, &[first, urgent], &pools);
}

#[test]
fn tasks_of_the_same_job_get_unused_workers_and_a_share_of_used_ones() {
    const WORKERS: usize = 4;
    let crew = Crew::start(WORKERS).unwrap();
    let (pool, places) = (add_job(&crew), open(&crew, Claim::default()));
    wait_until("all workers come", || places.limit() == WORKERS);
    for (used, tasks) in [(0, WORKERS), (WORKERS, WORKERS / 2)] {
        places.set_used(used);
        pool.ran.store(0, Relaxed);
        pool.waiting.store(tasks, Relaxed);
        wait_until("the tasks run at the same time", || {
            // The crew does this periodically.
            pool.post.get().unwrap().offer(true);
            pool.ran.load(Relaxed) == tasks
        });
        wait_until("the workers come back", || places.limit() == WORKERS);
    }
    end(crew, &[places], &[pool]);
}

#[test]
fn places_closed_before_they_are_opened_get_no_workers() {
    let crew = Crew::start(1).unwrap();
    let pool = add_job(&crew);
    let places = crew.places(Claim::default(), false);
    places.close();
    Arc::clone(&places).open(Box::new(|| {}));
    assert!(places.post.get().is_none());
    end(crew, &[places], &[pool]);
}
