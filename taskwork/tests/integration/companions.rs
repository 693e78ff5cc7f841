//! Companions, within one process.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use taskwork::{
    Context, Hooks, Job, NodeId, Outcome, Output, Task,
    companion::{Companion, CompanionContext, CompanionEvent, Messenger, NotSent, Refusal},
};

/// The behaviour of a job's companions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Manner {
    /// Store the numbers that tasks send, share them, and hand them over before they leave.
    Keeps,
    /// As `Keeps`, and one node leaves before the last number is counted.
    Leaves,
    Panics,
    Fails,
    /// Send as much as they can to nodes that read nothing.
    Floods,
    /// Read nothing, and exit at any time.
    Sleeps,
}

#[derive(Debug, Serialize, Deserialize)]
struct Shared {
    manner: Manner,
    /// The number of nodes that must have exchanged messages before a task is done.
    nodes: usize,
    /// The number of the test.
    test: u64,
}

/// The part of a companion that tasks access.
#[derive(Default)]
struct Store {
    /// The nodes from which messages have come.
    heard: Mutex<BTreeSet<NodeId>>,
    messenger: Mutex<Option<Messenger>>,
}

/// The final state of a companion.
#[derive(Debug, Default, Clone)]
struct Seen {
    kept: BTreeSet<u64>,
    rescued: BTreeSet<u64>,
    refused: usize,
    not_sent: usize,
}

/// The nodes with a number in their companion, by the number of the test.
static KEEPERS: Mutex<BTreeMap<u64, BTreeSet<NodeId>>> = Mutex::new(BTreeMap::new());

/// The final states of the companions of each job, by the number of the test.
static SEEN: Mutex<BTreeMap<u64, Vec<Seen>>> = Mutex::new(BTreeMap::new());

fn seen(test: u64) -> Vec<Seen> {
    SEEN.lock().unwrap().get(&test).cloned().unwrap_or_default()
}

/// The answer to a complete rescue.
const TAKEN: &[u8] = b"taken";

async fn keep(mut cx: CompanionContext, store: Arc<Store>, test: u64) -> Result<Seen, String> {
    *store.messenger.lock().unwrap() = Some(cx.messenger().clone());
    let (mut others, mut seen, mut under_way) = (BTreeSet::new(), Seen::default(), None);
    while let Some(event) = cx.next().await {
        match event {
            CompanionEvent::Joined { node } => {
                others.insert(node);
                cx.messenger().send(node, Vec::new()).map_err(|error| error.to_string())?;
            }
            CompanionEvent::Left { node } => drop(others.remove(&node)),
            // Its companion may start later, so messages are repeated.
            CompanionEvent::Refused { to, .. } => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let _ = cx.messenger().send(to, Vec::new());
            }
            CompanionEvent::Message { from, bytes } if bytes == TAKEN => {
                store.heard.lock().unwrap().insert(from);
                under_way = None;
            }
            CompanionEvent::Message { from, bytes } => {
                store.heard.lock().unwrap().insert(from);
                let numbers =
                    bytes.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap()));
                seen.kept.extend(numbers);
                if !seen.kept.is_empty() {
                    KEEPERS.lock().unwrap().entry(test).or_default().insert(cx.node());
                }
                if bytes.len() > 8 {
                    cx.messenger().send(from, TAKEN.to_vec()).map_err(|error| error.to_string())?;
                }
            }
            CompanionEvent::Rescue(rescue) => {
                let all = seen.kept.iter().flat_map(|number| number.to_le_bytes()).collect();
                let heir = others.first().ok_or("no other node is left")?;
                cx.messenger().send(*heir, all).map_err(|error| error.to_string())?;
                seen.rescued.clone_from(&seen.kept);
                under_way = Some(rescue);
            }
            CompanionEvent::Attempt { number } => assert_eq!(number, 1),
            other => panic!("unexpected event: {other:?}"),
        }
    }
    drop(under_way);
    Ok(seen)
}

/// Sends to a node without a pause, until a message is refused.
async fn flood(mut cx: CompanionContext, to: NodeId) -> Seen {
    let mut seen = Seen::default();
    while seen.refused == 0 {
        seen.not_sent += usize::from(cx.messenger().send(to, vec![1; 20_000]) == Err(NotSent::Full));
        tokio::select! {
            biased;
            Some(event) = cx.next() => {
                seen.refused += usize::from(matches!(event, CompanionEvent::Refused { why: Refusal::Full, .. }));
            }
            () = tokio::task::yield_now() => {}
        }
    }
    seen
}

/// Returns the first other node.
async fn first_other(cx: &mut CompanionContext) -> NodeId {
    loop {
        if let Some(CompanionEvent::Joined { node }) = cx.next().await {
            return node;
        }
    }
}

async fn run(
    mut cx: CompanionContext,
    &Shared { manner, test, .. }: &Shared,
    store: Arc<Store>,
) -> Result<Seen, String> {
    match manner {
        Manner::Keeps | Manner::Leaves => keep(cx, store, test).await,
        Manner::Panics => panic!("no shelf"),
        Manner::Fails => Err("no room".to_owned()),
        Manner::Floods => {
            let other = first_other(&mut cx).await;
            // One of the two companions reads nothing.
            if cx.node() < other {
                std::future::pending::<()>().await;
            }
            Ok(flood(cx, other).await)
        }
        Manner::Sleeps => std::future::pending().await,
    }
}

fn companion(shared: &Arc<Shared>) -> Companion {
    let (store, shared) = (Arc::new(Store::default()), Arc::clone(shared));
    Companion::new(Arc::clone(&store), move |cx| async move {
        let seen = run(cx, &shared, store).await?;
        SEEN.lock().unwrap().entry(shared.test).or_default().push(seen);
        Ok(())
    })
}

/// Counts up to a number.
#[derive(Debug, Serialize, Deserialize)]
struct Count {
    from: u64,
    to: u64,
    pause_us: u64,
}

/// The nodes on which numbers were counted, and the messages seen there.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Counted {
    sum: u64,
    by: BTreeMap<NodeId, u64>,
}

impl Output for Counted {
    fn merge(&mut self, other: Self) {
        self.sum += other.sum;
        for (node, count) in other.by {
            *self.by.entry(node).or_default() += count;
        }
    }
}

impl Task for Count {
    type Shared = Shared;
    type Output = Counted;
    const HOOKS: Hooks<Self> = Hooks::<Self>::new().companion(|shared| Some(companion(shared)));

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        let store = cx.companion::<Store>().expect("there is one on each node");
        assert!(cx.companion::<String>().is_none(), "it is of another type");
        while self.from < self.to {
            assert!(BEGAN.elapsed() < PATIENCE, "a number waits for too long");
            if cx.migrate() {
                return Outcome::Migrate;
            }
            cx.potential_split(self);
            let nodes = cx.shared().nodes;
            // Its own companion, and all others.
            let knows_all = || store.heard.lock().unwrap().len() + 1 >= nodes;
            let is_ready = match cx.shared().manner {
                Manner::Keeps => knows_all(),
                Manner::Leaves => {
                    knows_all() && (self.from + 1 < LEAVES_TO || !seen(cx.shared().test).is_empty())
                }
                // The last number waits for the flood.
                Manner::Floods => self.from < 3_000 || !seen(cx.shared().test).is_empty(),
                _ => true,
            };
            if is_ready {
                if let Some(messenger) = &*store.messenger.lock().unwrap() {
                    messenger.send(cx.node(), self.from.to_le_bytes().to_vec()).expect("its own companion");
                }
                let node = cx.node();
                let done = cx.output();
                done.sum += self.from;
                *done.by.entry(node).or_default() += 1;
                self.from += 1;
            }
            std::thread::sleep(Duration::from_micros(self.pause_us));
        }
        Outcome::Complete
    }

    fn split(&mut self, _: &Shared) -> Option<Self> {
        let middle = u64::midpoint(self.from, self.to);
        (self.to - self.from > 1).then(|| Self {
            from: middle,
            to: std::mem::replace(&mut self.to, middle),
            ..*self
        })
    }
}

/// When the first of the tests started to count, and its time limit.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
const PATIENCE: Duration = Duration::from_secs(120);

/// The number up to which is counted when a node leaves.
const LEAVES_TO: u64 = 4_000;

fn job(manner: Manner, nodes: usize, to: u64, test: u64) -> Job<Count> {
    Job::new(Count { from: 0, to, pause_us: 200 }, Shared { manner, nodes, test })
}

#[test]
fn companions_of_all_nodes_hear_of_each_other() {
    let report = job(Manner::Keeps, 3, 2_000, 1).nodes(3).workers(1).run().unwrap();
    assert_eq!(report.output.sum, 1_999_000);
    assert_eq!(
        report.output.by.len(),
        3,
        "every node has heard of the others, so it has counted: {report:?}"
    );
    assert_eq!(seen(1).len(), 3, "all have ended with the job");
}

#[test]
fn single_node_has_a_companion() {
    let report = job(Manner::Keeps, 1, 100, 2).run().unwrap();
    assert_eq!(report.output.sum, 4_950);
    assert_eq!(seen(2).len(), 1);
}

#[test]
fn companion_panic_or_error_fails_the_job_with_its_reason() {
    for (manner, expected) in [(Manner::Panics, "it panicked: no shelf"), (Manner::Fails, "no room")] {
        let error = job(manner, 1, 1 << 30, 3).nodes(2).workers(1).run().unwrap_err().to_string();
        assert!(error.contains("the companion of the job on node") && error.contains(expected), "{error}");
    }
}

#[test]
fn companion_that_does_not_exit_is_abandoned() {
    let report = job(Manner::Sleeps, 1, 100, 4).nodes(2).workers(1).run().unwrap();
    assert_eq!(report.output.sum, 4_950);
    assert!(seen(4).is_empty());
}

#[test]
fn sender_to_a_companion_that_reads_nothing_gets_refusals() {
    let report = job(Manner::Floods, 1, 3_001, 5).nodes(2).workers(1).run().unwrap();
    assert_eq!(report.output.sum, 4_501_500);
    let [flooding] = &seen(5)[..] else { panic!("the other one has not ended") };
    assert!(flooding.refused > 0, "{flooding:?}");
}

#[test]
fn leaving_node_lets_its_companion_rescue_its_data() {
    let mut local = job(Manner::Leaves, 2, LEAVES_TO, 6).nodes(2).workers(1);
    let (scaler, is_scaled) = (local.scaler(), Arc::new(AtomicBool::new(false)));
    let its = Arc::clone(&is_scaled);
    local = local.on_progress(Duration::from_millis(10), move |_| {
        // A companion that keeps nothing has nothing to rescue.
        let keepers = KEEPERS.lock().unwrap().get(&6).map_or(0, BTreeSet::len);
        if keepers == 2 && !its.swap(true, Relaxed) {
            scaler.scale_to(1);
        }
    });
    let report = local.run().unwrap();
    assert_eq!(report.output.sum, 7_998_000);
    let seen = seen(6);
    let (left, stayed): (Vec<_>, Vec<_>) = seen.iter().partition(|seen| !seen.rescued.is_empty());
    let ([left], [stayed]) = (&left[..], &stayed[..]) else { panic!("one has left: {seen:?}") };
    assert!(left.rescued.is_subset(&stayed.kept), "the other one has everything that was rescued");
}
