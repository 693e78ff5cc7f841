//! Errors of a program: a task that panics, and one that is too large. The worker continues, no written cut
//! lacks the task, and a task that can be divided is handed over in parts.

use std::sync::{
    Arc, Condvar, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    Claim, Crew, Entry, Lineage, Pool, PoolFault, Work, Workplace,
    testing::{LIMITS, PATIENCE, wait_for},
};
use crate::{
    context::Context,
    envelope::{Envelope, TASK_BYTES_MAX},
    holdings::Basis,
    hooks::Hooks,
    id::{NodeId, TaskId},
    task::{Outcome, Task},
    wire::codec,
};

fn start<T: Task<Shared = ()>>(root: T) -> (Arc<Pool<T>>, Crew) {
    let pool = Arc::new(Pool::new(NodeId(1), Arc::new(()), 1, LIMITS));
    let crew = Crew::start(1).unwrap();
    crew.add(Claim::default(), Arc::clone(&pool) as Arc<dyn Workplace>);
    pool.put(vec![Entry::new(TaskId::ROOT, root).seal().unwrap()], Basis::FIRM, None).unwrap();
    (pool, crew)
}

fn fault<T: Task>(pool: &Pool<T>) -> PoolFault {
    wait_for(pool, "the fault", |pool| pool.fault().is_some());
    pool.fault().unwrap()
}

fn end<T: Task>(pool: &Pool<T>, crew: Crew) {
    pool.close();
    // Fails if a worker's thread has panicked.
    crew.join();
}

/// A gate that a task passes when the test has opened it.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    const fn new() -> Self {
        Self { state: Mutex::new((false, false)), changed: Condvar::new() }
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(state, PATIENCE, |state| !state.1).unwrap();
        assert!(!waited.1.timed_out(), "the gate stays shut");
    }

    fn wait_for_the_task(&self) {
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(state, PATIENCE, |state| !state.0).unwrap();
        assert!(!waited.1.timed_out(), "the task does not begin");
    }

    fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

/// A task that panics behind a gate.
#[derive(Debug, Serialize, Deserialize)]
struct Bad;

static GATE: Gate = Gate::new();

impl Task for Bad {
    type Shared = ();
    type Output = ();

    fn search(&mut self, _: &mut Context<'_, Self>) -> Outcome {
        GATE.pass();
        panic!("on purpose")
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn task_that_panics_is_a_fault_and_no_cut_lacks_it() {
    let (pool, workers) = start(Bad);
    GATE.wait_for_the_task();
    pool.begin_cut(&[]).unwrap();
    GATE.open();
    let fault = fault(&pool);
    assert!(matches!(fault, PoolFault::Panicked { task: TaskId::ROOT, .. }), "{fault}");
    assert!(fault.to_string().contains("on purpose"), "{fault}");
    // The worker continues, and passes its point of the cut.
    wait_for(&pool, "an idle pool", |pool| pool.view().is_idle());
    assert!(Arc::clone(&pool).ready_cut().unwrap().is_none(), "what was written before stands");
    assert!(pool.begin_cut(&[]).is_err());
    assert!(Arc::clone(&pool).ready_cut().unwrap().is_none());
    end(&pool, workers);
}

/// A task that is split once, with a child that panics.
#[derive(Debug, Serialize, Deserialize)]
struct Parent {
    is_child: bool,
}

impl Task for Parent {
    type Shared = ();
    type Output = ();

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        assert!(!self.is_child, "on purpose");
        cx.spawn_sibling(Self { is_child: true });
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn panic_fault_contains_the_lineage_of_the_task() {
    let (pool, workers) = start(Parent { is_child: false });
    let fault = fault(&pool);
    let PoolFault::Panicked { task, lineage, .. } = &fault else { panic!("{fault}") };
    assert_ne!(*task, TaskId::ROOT);
    assert_eq!(lineage.tasks().collect::<Vec<_>>(), [TaskId::ROOT]);
    end(&pool, workers);
}

/// A task that panics when it is decoded, or when its outlook is read.
#[derive(Debug, Serialize)]
struct Unreadable {
    at_outlook: bool,
}

impl<'de> Deserialize<'de> for Unreadable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (at_outlook,) = <(bool,)>::deserialize(deserializer)?;
        assert!(at_outlook, "it cannot be read");
        Ok(Self { at_outlook })
    }
}

impl Task for Unreadable {
    type Shared = ();
    type Output = ();
    const HOOKS: Hooks<Self> = Hooks::<Self>::new().outlook(|_| panic!("there is no outlook"));

    fn search(&mut self, _: &mut Context<'_, Self>) -> Outcome {
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn panic_at_the_arrival_of_a_task_is_its_fault() {
    for (at_outlook, said) in [(false, "it cannot be read"), (true, "there is no outlook")] {
        let pool = Pool::<Unreadable>::new(NodeId(1), Arc::new(()), 1, LIMITS);
        let task = codec::encode(&Unreadable { at_outlook }).unwrap().into();
        let (output, children) = (codec::encode(&()).unwrap().into(), Vec::new());
        let envelope = Envelope { children, ..Envelope::new(TaskId::ROOT, output, task) };
        let fault = pool.put(vec![envelope], Basis::FIRM, None).unwrap_err();
        let message = said.to_owned();
        assert_eq!(fault, PoolFault::Panicked { task: TaskId::ROOT, lineage: Lineage::default(), message });
        assert_eq!(pool.fault(), Some(fault), "no cut is finished any more");
    }
}

/// A task that can be decoded, and panics when it is encoded later.
#[derive(Debug, Deserialize)]
struct Unencodable;

static PANICS: AtomicBool = AtomicBool::new(false);

impl Serialize for Unencodable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(!PANICS.load(Relaxed), "it cannot be encoded");
        serializer.serialize_unit_struct("Unencodable")
    }
}

impl Task for Unencodable {
    type Shared = ();
    type Output = ();

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        PANICS.store(true, Relaxed);
        while !cx.migrate() {
            std::thread::yield_now();
        }
        Outcome::Migrate
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn task_that_panics_while_encoded_for_a_cut_ends_no_worker() {
    let (pool, workers) = start(Unencodable);
    wait_for(&pool, "the task to start", |_| PANICS.load(Relaxed));
    pool.begin_cut(&[]).unwrap();
    let fault = fault(&pool);
    assert!(fault.to_string().contains("it cannot be encoded"), "{fault}");
    end(&pool, workers);
    // A panic on the driver's thread does not end it either.
    for _ in 0..2 {
        let entry = Entry::new(TaskId::ROOT, Unencodable);
        pool.put_split(0, entry);
    }
    assert!(matches!(pool.take(9, 99), Err(PoolFault::Panicked { .. })));
    assert!(matches!(pool.unload(), Err(PoolFault::Panicked { .. })));
}

/// A task of several parts.
#[derive(Debug, Serialize, Deserialize)]
struct Parts(Vec<String>);

impl Task for Parts {
    type Shared = ();
    type Output = u64;

    fn search(&mut self, _: &mut Context<'_, Self>) -> Outcome {
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        (self.0.len() > 1).then(|| Self(self.0.split_off(self.0.len() / 2)))
    }
}

#[test]
fn task_too_large_is_unloaded_in_parts_if_it_can_be_split() {
    let pool = Pool::<Parts>::new(NodeId(1), Arc::new(()), 1, LIMITS).numbered(Arc::new(AtomicU64::new(7)));
    let part = "x".repeat(20 << 20);
    pool.put_split(0, Entry::new(TaskId::ROOT, Parts(vec![part.clone(); 4])));
    let unloaded = pool.unload().unwrap();
    let mut parts = 0;
    let mut children = Vec::new();
    for (_, envelope) in &unloaded {
        assert!(envelope.bytes() <= TASK_BYTES_MAX, "{} bytes", envelope.bytes());
        parts += codec::decode::<Parts>(&envelope.task).unwrap().0.len();
        children.extend(&envelope.children);
    }
    let mut ids: Vec<TaskId> =
        unloaded.iter().map(|(_, envelope)| envelope.id).filter(|&id| id != TaskId::ROOT).collect();
    ids.sort();
    children.sort();
    assert_eq!((parts, &ids), (4, &children), "every part is there once, and every child has a parent");
    assert_eq!(ids.first().map(|id| id.number), Some(7), "numbers continue from earlier jobs");
    // A too large task that cannot be split is an error of the program.
    pool.put_split(0, Entry::new(TaskId::ROOT, Parts(vec![part.repeat(4)])));
    assert!(matches!(pool.unload(), Err(PoolFault::Unsendable { .. })));
}
