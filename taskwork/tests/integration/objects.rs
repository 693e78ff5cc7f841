//! Objects of companions, within one process.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskwork::{
    Context, Hooks, Job, NodeId, Outcome, Task,
    companion::{Companion, CompanionContext, CompanionEvent, FetchError, Objects},
};

/// The time limit of each wait.
const SOON: Duration = Duration::from_secs(30);

/// The number of bytes of each node's object.
const BYTES: usize = 3 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Shared {
    nodes: usize,
}

/// The number of objects that a node has fetched from others.
type Fetched = AtomicUsize;

fn content(node: NodeId) -> Vec<u8> {
    (0..BYTES as u64 / 8).flat_map(|number| (number ^ node.0).to_le_bytes()).collect()
}

/// Offers an object to all others, fetches theirs, and compares them with the expected ones.
async fn exchange(mut cx: CompanionContext, fetched: Arc<Fetched>) -> Result<(), String> {
    let (objects, messenger) = (cx.objects().clone(), cx.messenger().clone());
    let offer = objects.offer(content(cx.node()));
    let name = offer.name().to_string().into_bytes();
    let mut names = BTreeMap::new();
    while let Some(event) = cx.next().await {
        match event {
            CompanionEvent::Joined { node } => {
                let _ = messenger.send(node, name.clone());
            }
            // Its companion starts later.
            CompanionEvent::Refused { to, .. } => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let _ = messenger.send(to, name.clone());
            }
            CompanionEvent::Message { from, bytes } if !names.contains_key(&from) => {
                let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
                let name = text.parse().map_err(|_| "this is no name")?;
                names.insert(from, name);
                match objects.fetch(name, move || vec![from], SOON).await {
                    Ok(bytes) if bytes == content(from) => fetched.fetch_add(1, Relaxed),
                    Ok(_) => return Err("another content has come".to_owned()),
                    Err(FetchError::Over) => break,
                    Err(error) => return Err(error.to_string()),
                };
            }
            _ => {}
        }
    }
    Ok(())
}

/// Completes when each node has fetched the objects of all others.
#[derive(Serialize, Deserialize)]
struct Waits {
    tasks: usize,
}

impl Task for Waits {
    type Shared = Shared;
    type Output = u64;

    const HOOKS: Hooks<Self> = Hooks::<Self>::new().companion(|_| {
        let fetched = Arc::<Fetched>::default();
        Some(Companion::new(Arc::clone(&fetched), |cx| exchange(cx, fetched)))
    });

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        while self.tasks > 1 || cx.companion::<Fetched>().unwrap().load(Relaxed) < cx.shared().nodes - 1 {
            cx.potential_split(self);
            if cx.migrate() {
                return Outcome::Migrate;
            }
            thread::sleep(Duration::from_millis(1));
        }
        *cx.output() += 1;
        Outcome::Complete
    }

    fn split(&mut self, _: &Shared) -> Option<Self> {
        (self.tasks > 1).then(|| {
            self.tasks -= 1;
            Self { tasks: 1 }
        })
    }
}

#[test]
fn nodes_of_one_process_fetch_each_others_objects() {
    let report = Job::new(Waits { tasks: 3 }, Shared { nodes: 3 }).nodes(3).workers(1).run().unwrap();
    assert_eq!(report.output, 3);
}

/// The result of a fetch on a node that is alone.
static ALONE: Mutex<Option<Result<usize, String>>> = Mutex::new(None);

#[derive(Serialize, Deserialize)]
struct Alone;

async fn fetch_alone(objects: Objects, ended: Arc<AtomicUsize>) -> Result<(), String> {
    let offer = objects.offer(vec![7; 10]);
    let fetched = objects.fetch(offer.name(), || vec![NodeId(1)], SOON).await;
    *ALONE.lock().unwrap() = Some(fetched.map(|bytes| bytes.len()).map_err(|error| error.to_string()));
    ended.store(1, Relaxed);
    Ok(())
}

impl Task for Alone {
    type Shared = ();
    type Output = u64;

    const HOOKS: Hooks<Self> = Hooks::<Self>::new().companion(|_| {
        let ended = Arc::<AtomicUsize>::default();
        Some(Companion::new(Arc::clone(&ended), |cx| fetch_alone(cx.objects().clone(), ended)))
    });

    fn search(&mut self, cx: &mut Context<'_, Self>) -> Outcome {
        while cx.companion::<AtomicUsize>().unwrap().load(Relaxed) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        Outcome::Complete
    }

    fn split(&mut self, (): &()) -> Option<Self> {
        None
    }
}

#[test]
fn fetch_of_a_node_without_others_fails() {
    Job::new(Alone, ()).workers(1).run().unwrap();
    let fetched = ALONE.lock().unwrap().take().unwrap();
    assert_eq!(fetched, Err("no known member may have it".to_owned()));
}
