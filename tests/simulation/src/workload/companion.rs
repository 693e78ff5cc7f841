//! The companions of the simulated jobs: they greet each other and answer. A greeted companion fetches an object of
//! the other one. Asked to rescue their data, they take some time although they have none. Some read nothing for a while, and some never report that they
//! have rescued everything.

use std::{cell::RefCell, time::Duration};

use taskwork::{
    NodeId,
    companion::{CompanionContext, CompanionEvent, FetchError, Fetching, ObjectHasher},
};
use tokio::time;

/// A step of a companion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Begins {
        /// Whether it fulfils every request at once.
        willing: bool,
    },
    /// It sends a message with this content.
    Sends {
        to: NodeId,
        content: u64,
    },
    /// It has received a message with this content.
    Hears {
        from: NodeId,
        content: u64,
    },
    /// It has fetched the object of another companion.
    Fetches {
        from: NodeId,
        /// Whether its content is the offered one.
        is_right: bool,
    },
    Rescues,
    Ends,
}

/// Receives the steps of the companions on a node for a job.
pub(crate) type Observer = Box<dyn Fn(NodeId, &str, Step)>;

thread_local! {
    static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
}

/// Reports the steps of the companions on this thread to `observer`, until the next call.
pub(crate) fn observe(observer: Option<Observer>) {
    OBSERVER.set(observer);
}

/// Records the end of a companion for any reason.
struct Note {
    node: NodeId,
    job: String,
}

impl Note {
    fn of(&self, step: Step) {
        OBSERVER.with_borrow(|observer| {
            if let Some(observer) = observer {
                observer(self.node, &self.job, step);
            }
        });
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        self.of(Step::Ends);
    }
}

/// Returns the content of a node's object: empty, or of up to four chunks.
fn object(node: NodeId) -> Vec<u8> {
    let bytes = [0, 1_000, 70_000, 200_000][usize::try_from(node.0 % 4).unwrap_or_default()];
    (0_u64..).flat_map(|number| (number ^ node.0).to_le_bytes()).take(bytes).collect()
}

/// The maximum time without a byte of a fetched object, in milliseconds.
const PATIENCE_MS: u64 = 2_000;

/// The number of answers to a greeting.
const ANSWERS: u64 = 3;

/// The time for which an unwilling companion reads nothing, in milliseconds.
const DEAF_MS: u64 = 400;

/// Waits for the end of a fetch; forever if there is none.
async fn fetched(
    fetching: &mut Option<(NodeId, Fetching<Vec<u8>>)>,
) -> (NodeId, Result<Vec<u8>, FetchError>) {
    match fetching {
        Some((from, fetching)) => (*from, fetching.await),
        None => std::future::pending().await,
    }
}

/// Runs a companion to its end.
pub(super) async fn run(mut cx: CompanionContext) -> Result<(), String> {
    let (node, job) = (cx.node(), cx.job().to_string());
    let note = Note { node, job };
    let mood = node.0 % 8;
    let willing = mood > 1;
    note.of(Step::Begins { willing });
    let messenger = cx.messenger().clone();
    // The lowest bits count the answers.
    let send = |to: NodeId, content: u64| {
        note.of(Step::Sends { to, content });
        // The receiver may be gone, which needs no handling.
        let _ = messenger.send(to, content.to_le_bytes().to_vec());
    };
    let _offer = cx.objects().offer(object(node));
    let (mut greetings, mut kept) = (0, Vec::new());
    // At most one fetch at a time.
    let mut fetching = None;
    loop {
        let event = tokio::select! {
            biased;
            event = cx.next() => match event {
                Some(event) => event,
                None => break,
            },
            (from, fetched) = fetched(&mut fetching) => {
                fetching = None;
                // The owner may be gone.
                if let Ok(fetched) = fetched {
                    note.of(Step::Fetches { from, is_right: fetched == object(from) });
                }
                continue;
            }
        };
        match event {
            CompanionEvent::Joined { node } => {
                greetings += 1;
                send(node, (greetings << 8) | ANSWERS);
            }
            CompanionEvent::Message { from, bytes } => {
                let content = bytes.try_into().map(u64::from_le_bytes).map_err(|_| "a garbled message")?;
                note.of(Step::Hears { from, content });
                if content & 0xff > 0 {
                    send(from, content - 1);
                }
                if content & 0xff == ANSWERS && fetching.is_none() {
                    // The name is known here, since all companions can compute all objects.
                    let mut hasher = ObjectHasher::new();
                    hasher.add(&object(from));
                    let name = hasher.name();
                    let patience = Duration::from_millis(PATIENCE_MS);
                    fetching = Some((from, cx.objects().fetch(name, move || vec![from], patience)));
                }
            }
            CompanionEvent::Rescue(rescue) => {
                note.of(Step::Rescues);
                if willing {
                    time::sleep(Duration::from_millis(node.0 % 50)).await;
                } else {
                    kept.push(rescue);
                }
            }
            _ => {}
        }
        if mood == 0 {
            time::sleep(Duration::from_millis(DEAF_MS)).await;
        }
    }
    Ok(())
}
