//! Performs the writes requested by the core: enrolment, transactions, the failure of the job.

use std::{
    collections::VecDeque,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use serde::Serialize;

use tokio::sync::mpsc;
use zk::{
    AttemptPaths,
    accounting::{self, CommitError},
    figures::EventKind,
    quarantine,
};

use super::{
    Coordination,
    continued::{LastWritten, continued},
};
use crate::{
    config::LEDGER_BYTES_MAX,
    core::{Event, Flush, Gift, Transaction, TransactionKind, TransactionResult},
    holdings::{Holdings, Source, Transit},
    id::{Attempt, NodeId, TaskId},
    pool::PoolFault,
    scope::Mark,
    shell::clock::unix_ms,
    wire::{
        codec::{self, DecodeError, EncodeError},
        parcel::Parcel,
    },
};

// A flush contains more than the holdings.
const _: () = assert!(LEDGER_BYTES_MAX + (4 << 20) <= zk::CHUNKED_BYTES_MAX);

/// A write to the tree.
#[derive(Debug)]
pub(crate) enum Order {
    /// Enrol the node in an attempt.
    Enrol { attempt: Attempt },
    /// Try a transaction once.
    Transact { attempt: Attempt, transaction: Transaction },
    /// Post a letter.
    Post { to: NodeId, parcel: Parcel },
    /// Fail the job because of a fault of the program.
    Fail(PoolFault),
}

/// The capacity of the channel of orders. The receiver takes them immediately.
pub(crate) const ORDERS_MAX: usize = 64;

/// The maximum number of letters waiting to be posted. Posting a large one is slow.
const POSTS_MAX: usize = 32;

/// Orders that wait for the previous one. None is lost, and there are few: orders for an earlier attempt are
/// obsolete, the core requests one enrolment and one transaction of an attempt at a time, and a job fails once.
#[derive(Debug, Default)]
struct Waiting(VecDeque<Order>);

impl Waiting {
    fn push(&mut self, order: Order) {
        if let Some(attempt) = order.attempt() {
            self.0.retain(|waits| waits.attempt().is_none_or(|its| its >= attempt));
        } else if self.0.iter().any(|waits| matches!(waits, Order::Fail(_))) {
            return;
        }
        self.0.push_back(order);
    }
}

impl Order {
    fn attempt(&self) -> Option<Attempt> {
        match self {
            Self::Enrol { attempt } | Self::Transact { attempt, .. } => Some(*attempt),
            Self::Post { .. } | Self::Fail(_) => None,
        }
    }
}

/// Performs orders one by one, in the given order; returns when the channel is closed. The sender does not wait:
/// orders are received while another one is performed, however long that takes. Letters are posted separately.
async fn in_turn<F: Future<Output = ()>>(
    mut orders: mpsc::Receiver<Order>,
    post: impl Fn(NodeId, Parcel),
    perform: impl Fn(Order) -> F,
) {
    let take = |waiting: &mut Waiting, order| match order {
        Order::Post { to, parcel } => post(to, parcel),
        order => waiting.push(order),
    };
    let mut waiting = Waiting::default();
    loop {
        let Some(order) = waiting.0.pop_front() else {
            let Some(order) = orders.recv().await else { return };
            take(&mut waiting, order);
            continue;
        };
        let performed = perform(order);
        tokio::pin!(performed);
        loop {
            tokio::select! {
                biased;
                () = &mut performed => break,
                Some(order) = orders.recv() => take(&mut waiting, order),
            }
        }
    }
}

impl Coordination {
    /// Performs orders one by one, in the given order.
    pub(super) async fn perform_orders(self: Arc<Self>, orders: mpsc::Receiver<Order>) {
        let (letters_in, letters) = mpsc::channel(POSTS_MAX);
        let post = move |to: NodeId, parcel| {
            // A dropped letter that matters is sent again: the core repeats unanswered messages.
            if letters_in.try_send((to, parcel)).is_err() {
                tracing::debug!(%to, "too many letters wait to be posted; one was dropped");
            }
        };
        tokio::join!(in_turn(orders, post, |order| self.perform(order)), self.post_letters(letters));
    }

    async fn perform(&self, order: Order) {
        match order {
            Order::Enrol { attempt } => self.enrol(attempt).await,
            Order::Transact { attempt, transaction } => {
                let txn = transaction.txn;
                let result = self.transact(attempt, transaction).await;
                self.notify_driver(Event::Transacted { txn, result }).await;
            }
            Order::Post { to, parcel } => self.post(to, &parcel).await,
            Order::Fail(fault) => self.resign_or_fail(&fault).await,
        }
    }

    async fn enrol(&self, attempt: Attempt) {
        let (node, paths) = (self.node.to_string(), self.job_paths().attempt(attempt.0));
        let mut retry = self.retry();
        loop {
            let enrolled = async {
                self.load_variables().await?;
                accounting::enrol(&*self.store, &self.cluster, &paths, &node, &self.nothing_held()?).await
            };
            match enrolled.await {
                Ok(()) => {
                    self.record_part(attempt);
                    return self.notify_driver(Event::Enrolled { attempt }).await;
                }
                Err(CommitError::NotMember) => return self.notify_driver(Event::Expired).await,
                Err(CommitError::AttemptOver) => return,
                Err(CommitError::Store(error)) => {
                    if !retry.again(&*self.store, "enrolling", &error).await {
                        return self.notify_driver(Event::Expired).await;
                    }
                }
            }
        }
    }

    fn record_part(&self, attempt: Attempt) {
        if self.takes_part_in.swap(attempt.0, Relaxed) != attempt.0 {
            tracing::info!(%attempt, "the node takes part");
            self.timeline.note(EventKind::TakesPart, format!("in attempt {attempt}"));
            self.enrolled.notify_one();
        }
    }

    async fn transact(&self, attempt: Attempt, transaction: Transaction) -> TransactionResult {
        let outcome = match &transaction.kind {
            TransactionKind::Claim { source, enrol } => {
                self.claim(attempt, &transaction, *source, *enrol).await
            }
            TransactionKind::Flush(flush) => self.flush(attempt, &transaction, flush).await,
        };
        match outcome {
            Ok(result) => result,
            // An error of persistence ends every session.
            Err(
                CommitError::NotMember
                | CommitError::Store(zk::Error::SessionExpired | zk::Error::NotKept { .. }),
            ) => TransactionResult::NotMember,
            Err(CommitError::AttemptOver) => TransactionResult::AttemptOver,
            Err(CommitError::Store(error)) if error.is_transient() => {
                tracing::debug!(txn = transaction.txn, %error, "a transaction is tried again");
                TransactionResult::Unknown
            }
            // A permanent refusal, such as of an output too large for a znode, would recur at every try.
            Err(CommitError::Store(error)) => {
                self.fail(&PoolFault::Unrecordable { reason: error.to_string() }).await;
                TransactionResult::Unrecordable
            }
        }
    }

    async fn claim(
        &self,
        attempt: Attempt,
        transaction: &Transaction,
        source: Source,
        enrol: bool,
    ) -> Result<TransactionResult, CommitError> {
        if enrol {
            self.load_variables().await?;
        }
        let claim = accounting::Claim {
            node: self.node.to_string(),
            txn: self.txn(transaction.txn),
            settled: transaction.settled.map(|txn| self.txn(txn)),
            source: self.source(source),
            transit: Transit::claim(self.node, transaction.txn).to_string(),
            enrol: enrol.then(|| self.nothing_held()).transpose()?,
        };
        let paths = self.job_paths().attempt(attempt.0);
        let lost = self.lost_with(&paths, source).await?;
        let (unreadable, resigned) = (Mutex::new(None), AtomicBool::new(false));
        let adopt = |content: Vec<u8>| match adopted(source, &content) {
            Ok(holdings) if holdings.unprotected => None,
            Ok(mut holdings) => {
                resigned.store(holdings.suspect.as_ref().is_some_and(|it| it.is_certain), Relaxed);
                if lost.is_some_and(|node| self.counts_loss_of(node)) {
                    holdings.count_loss(self.crashes_max);
                }
                codec::encode(&holdings).ok()
            }
            Err(error) => {
                *unreadable.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                // Claim it nevertheless: otherwise every node would retry it permanently.
                Some(content)
            }
        };
        let written_before = self.written_before(&paths, source).await;
        let claiming = accounting::claim(&*self.store, &self.cluster, &paths, &claim, &adopt);
        let Some(bytes) = claiming.await? else { return Ok(TransactionResult::TooLate) };
        if enrol {
            self.record_part(attempt);
        }
        let unreadable = unreadable.into_inner().unwrap_or_else(PoisonError::into_inner);
        let last_written = if resigned.into_inner() {
            LastWritten::BeforePanic
        } else {
            written_before.map_or(LastWritten::Unknown, LastWritten::MsAgo)
        };
        match codec::decode::<Holdings>(&bytes) {
            Ok(holdings) if unreadable.is_none() => {
                let is_continued = lost.is_some() || source.lost_at(self.node).is_none();
                let detail = continued(self.node, source, &holdings, last_written);
                if let Some(detail) = detail.filter(|_| is_continued) {
                    tracing::info!(detail, "the node continues what a lost node had written");
                    self.timeline.note(EventKind::Continues, detail);
                }
                Ok(TransactionResult::Claimed(holdings))
            }
            other => {
                let reason = unreadable.or(other.err().map(|error| error.to_string()));
                let reason = reason.unwrap_or_default();
                let task = if let Source::Parked(task) = source { task } else { TaskId::ROOT };
                self.fail(&PoolFault::Unreadable { task, reason }).await;
                Ok(TransactionResult::Unreadable)
            }
        }
    }

    /// Returns the source of a claim in terms of znodes, with the node that must be gone.
    fn source(&self, source: Source) -> accounting::Source {
        match source {
            Source::Parked(task) => accounting::Source::Parked(task.to_string()),
            Source::Held(node) => accounting::Source::Held(node.to_string()),
            Source::Transit(transit) => {
                let Transit { from, to, .. } = transit;
                let owner = if to == self.node { from } else { to };
                accounting::Source::Transit { name: transit.to_string(), gone: Some(owner.to_string()) }
            }
            Source::Returned(transit) => {
                accounting::Source::Transit { name: transit.to_string(), gone: None }
            }
        }
    }

    /// Returns the lost node that may have worked on the claimed tasks. A node that has left cleanly or was never
    /// enrolled has not started the tasks in transit to it. Retries return the same node: it is gone permanently.
    async fn lost_with(&self, paths: &AttemptPaths, source: Source) -> Result<Option<NodeId>, CommitError> {
        let Some(node) = source.lost_at(self.node) else { return Ok(None) };
        let had_nothing = accounting::left_cleanly(&*self.store, paths, &node.to_string()).await?;
        Ok((!had_nothing).then_some(node))
    }

    /// Returns the encoded holdings of a node that has just been enrolled.
    fn nothing_held(&self) -> Result<Vec<u8>, CommitError> {
        let writes = self.ledger_interval_ms > 0;
        let held = if writes { Holdings::default() } else { Holdings::unprotected() };
        codec::encode(&held).map_err(|error| CommitError::Store(unwritable(&error)))
    }

    async fn flush(
        &self,
        attempt: Attempt,
        transaction: &Transaction,
        flush: &Flush,
    ) -> Result<TransactionResult, CommitError> {
        self.flush_variables().await?;
        let Flush { toggles, output, held, give, take, park, condemned, leave } = flush;
        let mut parked = Vec::new();
        for envelope in park {
            parked.push((envelope.id.to_string(), self.encoded(envelope, envelope.id).await?));
        }
        let mut given = Vec::new();
        for Gift { grant, to, tasks } in give {
            let task = tasks.first().map_or(TaskId::ROOT, |task| task.id);
            let name = Transit::grant(self.node, *grant, *to).to_string();
            given.push((name, self.encoded(&Holdings::of(tasks.clone()), task).await?));
        }
        let transaction = accounting::Transaction {
            node: self.node.to_string(),
            txn: self.txn(transaction.txn),
            settled: transaction.settled.map(|txn| self.txn(txn)),
            toggles: toggles.iter().map(Mark::to_string).collect(),
            output: output.clone(),
            held: self.encoded(held, TaskId::ROOT).await?,
            give: given,
            take: take.iter().map(Transit::to_string).collect(),
            park: parked,
            set_aside: self.set_aside(condemned).await?,
            leave: *leave,
        };
        let paths = self.job_paths().attempt(attempt.0);
        let committed = accounting::commit(&*self.store, &self.cluster, &paths, &transaction).await?;
        self.rebuilds.add(u64::from(committed.rebuilds));
        self.note_set_aside(condemned);
        if !condemned.is_empty() && quarantine::is_full(&*self.store, &paths).await? {
            self.fail_over_limit().await?;
        }
        if held.unprotected && self.ledger_interval_ms > 0 && !self.unprotected_logged.swap(true, Relaxed) {
            tracing::warn!(
                "this node holds more than it can write, or a task that is too large: if the node is lost in this \
                 state, the job starts again"
            );
        }
        Ok(TransactionResult::Committed)
    }

    pub(super) async fn encoded<V: Serialize>(
        &self,
        value: &V,
        task: TaskId,
    ) -> Result<Vec<u8>, CommitError> {
        match codec::encode(value) {
            Ok(bytes) => Ok(bytes),
            Err(error) => {
                self.fail(&PoolFault::Unsendable { task, reason: error.to_string() }).await;
                // Without this part, the rest of the transaction must not be committed.
                Err(CommitError::AttemptOver)
            }
        }
    }

    fn txn(&self, number: u64) -> String {
        format!("{}-{number}", self.node)
    }

    pub(super) async fn fail(&self, fault: &PoolFault) {
        let reason = fault.to_string();
        tracing::error!(reason, "the program is at fault; the job fails");
        let failing = || zk::job::fail(&*self.store, &self.cluster, &self.job.0, &reason, unix_ms());
        self.persist("failing the job", failing).await;
    }
}

/// Decodes the claimed content.
fn adopted(source: Source, content: &[u8]) -> Result<Holdings, DecodeError> {
    match source {
        Source::Parked(_) => Ok(Holdings::of(vec![codec::decode(content)?])),
        Source::Transit(_) | Source::Returned(_) | Source::Held(_) => codec::decode(content),
    }
}

fn unwritable(error: &EncodeError) -> zk::Error {
    zk::Error::Garbled { path: String::new(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, time::Duration};

    use tokio::{sync::Notify, task, time};

    use super::*;
    use crate::core::Message;

    fn transact(attempt: u32, txn: u64) -> Order {
        let kind = TransactionKind::Claim { source: Source::Parked(TaskId::ROOT), enrol: false };
        Order::Transact { attempt: Attempt(attempt), transaction: Transaction { txn, settled: None, kind } }
    }

    fn letter(attempt: u32) -> Order {
        let message = Message::Ack { grant: 1 };
        let parcel = Parcel { job: 1, attempt: Attempt(attempt), message, riders: Vec::new() };
        Order::Post { to: NodeId(1), parcel }
    }

    fn fail() -> Order {
        Order::Fail(PoolFault::Unmergeable { message: String::new() })
    }

    #[tokio::test]
    async fn slow_order_delays_no_letter_and_loses_no_order() {
        let (orders, taken) = mpsc::channel(ORDERS_MAX);
        let (may_end, performed, posted) = (Notify::new(), RefCell::new(Vec::new()), RefCell::new(0));
        let (may_end, performed, posted) = (&may_end, &performed, &posted);
        let performing = in_turn(
            taken,
            |_, _| *posted.borrow_mut() += 1,
            |order| async move {
                performed.borrow_mut().push(format!("{order:?}"));
                may_end.notified().await;
            },
        );
        let last = 500;
        let ordering = async {
            for attempt in 1..=last {
                // Like the driver, which does not wait.
                for order in
                    [Order::Enrol { attempt: Attempt(attempt) }, transact(attempt, 7), letter(attempt)]
                {
                    orders.try_send(order).expect("there is room");
                }
                task::yield_now().await;
            }
            for order in [fail(), fail()] {
                orders.try_send(order).expect("there is room");
            }
            task::yield_now().await;
            assert_eq!((performed.borrow().len(), *posted.borrow()), (1, last), "the first is not done");
            drop(orders);
            while performed.borrow().len() < 4 {
                may_end.notify_one();
                task::yield_now().await;
            }
            may_end.notify_one();
        };
        let both = async { tokio::join!(performing, ordering) };
        time::timeout(Duration::from_secs(60), both).await.expect("all are performed");
        let [first, enrol] = [1, last].map(|attempt| Order::Enrol { attempt: Attempt(attempt) });
        let expected = [first, enrol, transact(last, 7), fail()].map(|order| format!("{order:?}"));
        assert_eq!(*performed.borrow(), expected);
    }
}
