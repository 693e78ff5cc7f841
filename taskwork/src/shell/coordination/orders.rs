//! What the core has decided to write: enrolment, transactions, the failure of the job.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use tokio::sync::mpsc;
use zk::{
    accounting::{self, CommitError},
    figures::What,
};

use super::{Coordination, RETRY_PAUSE};
use crate::{
    core::{Event, Transaction, TransactionKind, TransactionResult},
    envelope::Envelope,
    id::{Attempt, NodeId, TaskId},
    pool::PoolFault,
    shell::clock::unix_ms,
    wire::{codec, parcel::Parcel},
};

/// Something to be written into the tree.
#[derive(Debug)]
pub(crate) enum Order {
    /// Write the node into an attempt.
    Enrol { attempt: Attempt },
    /// Try a transaction once.
    Transact { attempt: Attempt, transaction: Transaction },
    /// Post a letter.
    Post { to: NodeId, parcel: Parcel },
    /// The program is at fault: the job has failed.
    Fail(PoolFault),
}

/// How many orders can wait. The core gives at most two an attempt; besides, there are letters.
pub(crate) const ORDERS_MAX: usize = 64;

impl Coordination {
    /// Performs orders one after another, in the order given.
    pub(super) async fn perform_orders(self: Arc<Self>, mut orders: mpsc::Receiver<Order>) {
        while let Some(order) = orders.recv().await {
            match order {
                Order::Enrol { attempt } => self.enrol(attempt).await,
                Order::Transact { attempt, transaction } => {
                    let txn = transaction.txn;
                    let result = self.transact(attempt, transaction).await;
                    self.tell(Event::Transacted { txn, result }).await;
                }
                Order::Post { to, parcel } => self.post(to, &parcel).await,
                Order::Fail(fault) => self.fail(&fault).await,
            }
        }
    }

    async fn enrol(&self, attempt: Attempt) {
        let (node, paths) = (self.node.to_string(), self.job_paths().attempt(attempt.0));
        loop {
            let enrolled = async {
                self.load_variables().await?;
                accounting::enrol(&*self.store, &self.cluster, &paths, &node).await
            };
            match enrolled.await {
                Ok(()) => {
                    self.takes_part(attempt);
                    return self.tell(Event::Enrolled { attempt }).await;
                }
                Err(CommitError::NotMember | CommitError::Store(zk::Error::SessionExpired)) => {
                    return self.tell(Event::Expired).await;
                }
                Err(CommitError::AttemptOver) => return,
                Err(CommitError::Store(error)) => {
                    tracing::debug!(%attempt, %error, "enrolling is tried again");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    fn takes_part(&self, attempt: Attempt) {
        if self.takes_part_in.swap(attempt.0, Relaxed) != attempt.0 {
            tracing::info!(%attempt, "the node takes part");
            self.moments.note(What::TakesPart, format!("in attempt {attempt}"));
        }
    }

    async fn transact(&self, attempt: Attempt, transaction: Transaction) -> TransactionResult {
        let outcome = match &transaction.kind {
            TransactionKind::Claim { task, enrol } => self.claim(attempt, &transaction, *task, *enrol).await,
            TransactionKind::Commit { toggles, output, park, leave } => {
                let commit = accounting::Transaction {
                    node: self.node.to_string(),
                    txn: self.txn(transaction.txn),
                    settled: transaction.settled.map(|txn| self.txn(txn)),
                    toggles: toggles.iter().map(TaskId::to_string).collect(),
                    output: output.clone(),
                    park: self.encode(park).await,
                    leave: *leave,
                };
                self.commit(attempt, &commit).await
            }
        };
        match outcome {
            Ok(result) => result,
            Err(CommitError::NotMember | CommitError::Store(zk::Error::SessionExpired)) => {
                TransactionResult::NotMember
            }
            Err(CommitError::AttemptOver) => TransactionResult::AttemptOver,
            Err(CommitError::Store(error)) if error.is_transient() => {
                tracing::debug!(txn = transaction.txn, %error, "a transaction is tried again");
                TransactionResult::Unknown
            }
            // What is refused for good, such as an output that no znode can hold, would be refused for ever.
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
        task: TaskId,
        enrol: bool,
    ) -> Result<TransactionResult, CommitError> {
        if enrol {
            self.load_variables().await?;
        }
        let claim = accounting::Claim {
            node: self.node.to_string(),
            txn: self.txn(transaction.txn),
            settled: transaction.settled.map(|txn| self.txn(txn)),
            task: task.to_string(),
            enrol,
        };
        let paths = self.job_paths().attempt(attempt.0);
        let Some(bytes) = accounting::claim(&*self.store, &self.cluster, &paths, &claim).await? else {
            return Ok(TransactionResult::TooLate);
        };
        if enrol {
            self.takes_part(attempt);
        }
        match codec::decode(&bytes) {
            Ok(envelope) => Ok(TransactionResult::Claimed(envelope)),
            Err(error) => {
                self.fail(&PoolFault::Unreadable { task, reason: error.to_string() }).await;
                Ok(TransactionResult::Unreadable)
            }
        }
    }

    async fn commit(
        &self,
        attempt: Attempt,
        transaction: &accounting::Transaction,
    ) -> Result<TransactionResult, CommitError> {
        self.flush_variables().await?;
        let paths = self.job_paths().attempt(attempt.0);
        let committed = accounting::commit(&*self.store, &self.cluster, &paths, transaction).await?;
        self.rebuilds.add(u64::from(committed.rebuilds));
        Ok(TransactionResult::Committed)
    }

    /// Tasks to be parked, as they stand in their znodes, each with its name.
    async fn encode(&self, tasks: &[Envelope]) -> Vec<(String, Vec<u8>)> {
        let mut encoded = Vec::new();
        for envelope in tasks {
            match codec::encode(envelope) {
                Ok(bytes) => encoded.push((envelope.id.to_string(), bytes)),
                Err(error) => {
                    let reason = error.to_string();
                    self.fail(&PoolFault::Unsendable { task: envelope.id, reason }).await;
                }
            }
        }
        encoded
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
