//! The companion of a job on this node: its thread and its outgoing messages.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Relaxed, Release},
        },
    },
    thread,
};

use tokio::{runtime, time::Duration};
use tracing::{Instrument as _, Span};

use super::{
    dispatch::Dispatch,
    latch::Latch,
    transport::{Carrier, bulk::Bulk},
};
use crate::{
    companion::{CompanionContext, Desk, Exchange, Journal, Means, NotSent, Objects, Outbox, Run, Stage},
    id::{JobId, NodeId},
    pool::Places,
    wire::packet::{Note, NoteContent},
};

/// The maximum time to wait for a companion after the node has finished the job.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of companions in this process that still run although their jobs are over. At this limit no
/// further companion is started.
const LEFT_BEHIND_MAX: usize = 16;

/// The number of companions that still run although their jobs are over.
static LEFT_BEHIND: AtomicUsize = AtomicUsize::new(0);

/// A started companion.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) desk: Arc<Desk>,
    pub(crate) places: Arc<Places>,
    end: Arc<End>,
}

#[derive(Debug, Default)]
struct End {
    is_reached: Latch,
    is_left_behind: AtomicBool,
    outcome: Mutex<Option<String>>,
}

impl Host {
    pub(crate) fn start(
        (run, stage): (Run, Stage),
        job: &JobId,
        (node, means, places): (NodeId, Means, Arc<Places>),
        (desk, journal): (Arc<Desk>, Journal),
        (dispatch, bulk): (Option<&Dispatch>, Option<&Bulk>),
    ) -> Self {
        let outbox = Arc::new(ToNodes {
            job: job.number(),
            node,
            desk: Arc::clone(&desk),
            carrier: dispatch.map(Dispatch::carrier),
            sent: AtomicU64::new(0),
        });
        let exchange = bulk.map(|bulk| Arc::new(bulk.downgrade()) as Arc<dyn Exchange>);
        let objects = Objects::new(Arc::clone(&desk), exchange);
        let context =
            CompanionContext::new(job.clone(), (node, means), Arc::clone(&desk), outbox, journal, objects);
        let host = Self { desk, places, end: Arc::default() };
        let (end, its_desk, its_places) =
            (Arc::clone(&host.end), Arc::clone(&host.desk), Arc::clone(&host.places));
        let over = move |outcome: Result<(), String>| {
            its_desk.end();
            its_places.close();
            *end.outcome.lock().unwrap_or_else(PoisonError::into_inner) = outcome.err();
            end.is_reached.set();
            if end.is_left_behind.swap(false, AcqRel) {
                LEFT_BEHIND.fetch_sub(1, Relaxed);
            }
        };
        let span = tracing::info_span!("job", %job, %node);
        let left_behind = LEFT_BEHIND.load(Relaxed);
        if left_behind >= LEFT_BEHIND_MAX {
            over(Err(format!("{left_behind} companions of earlier jobs on this node are still running")));
            return host;
        }
        match stage {
            Stage::Thread => {
                let its_over = over.clone();
                let running =
                    thread::Builder::new().name(format!("companion {}", job.number())).spawn(move || {
                        its_over(run_here(run, context, span));
                    });
                if let Err(error) = running {
                    over(Err(format!("the thread could not be started: {error}")));
                }
            }
            Stage::Here => {
                tokio::spawn(async move {
                    let running = tokio::spawn(async move { run(context).await }.instrument(span));
                    over(running.await.unwrap_or_else(|error| Err(error.to_string())));
                });
            }
        }
        host
    }

    /// Counts the companion as left behind: the node no longer waits for it.
    pub(crate) fn leave_behind(&self) {
        LEFT_BEHIND.fetch_add(1, Relaxed);
        self.end.is_left_behind.store(true, Release);
    }

    /// Waits until the companion has ended; returns the reason if it has failed.
    ///
    /// # Cancellation safety
    /// Dropping the future has no effect.
    pub(crate) async fn ended(&self) -> Option<String> {
        self.end.is_reached.wait().await;
        self.end.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The node may have panicked.
        self.desk.end();
        self.places.close();
    }
}

fn run_here(run: Run, context: CompanionContext, span: Span) -> Result<(), String> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("the runtime could not be started: {error}"))?;
    let running = AssertUnwindSafe(|| runtime.block_on(async { run(context).await }.instrument(span)));
    let outcome = catch_unwind(running).unwrap_or_else(|panic| Err(panicked(&*panic)));
    // Work that the companion still runs on other threads is not awaited, even after a panic.
    runtime.shutdown_background();
    outcome
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("without a message"))
}

/// The outgoing messages of a companion.
struct ToNodes {
    job: u64,
    node: NodeId,
    desk: Arc<Desk>,
    /// `None` for a node that will never have a peer.
    carrier: Option<Weak<Box<dyn Carrier>>>,
    sent: AtomicU64,
}

impl Outbox for ToNodes {
    fn send(&self, to: NodeId, bytes: Vec<u8>) -> Result<u64, NotSent> {
        if self.desk.is_over() {
            return Err(NotSent::Over);
        }
        let number = self.sent.fetch_add(1, Relaxed);
        if to == self.node {
            if let Err(why) = self.desk.message(to, bytes) {
                self.desk.refused(to, number, why);
            }
            return Ok(number);
        }
        let carrier = self.carrier.as_ref().ok_or(NotSent::Unknown)?.upgrade().ok_or(NotSent::Over)?;
        let note = Note { job: self.job, number, content: NoteContent::Message(bytes.into()) };
        let size = note.content.bytes();
        let payload = note.payload().map_err(|_| NotSent::TooLarge { bytes: size })?;
        carrier.send_note(to, payload).map(|()| number)
    }
}
