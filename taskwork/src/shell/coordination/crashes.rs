//! Tasks that panic or repeatedly bring down their nodes.
//!
//! When a task panics, its work since the last write is lost and cannot be rolled back. The node therefore
//! names the task in its holdings and resigns. Other nodes continue from there, as after any loss, and the node
//! joins again under another id. Before it resigns, it leaves its other jobs, so they are not affected.

use std::{iter, sync::PoisonError};

use zk::{
    accounting::CommitError,
    figures::EventKind,
    quarantine::{AboutTask, SET_ASIDE_MAX, SetAside},
};

use super::Coordination;
use crate::{
    core::{Condemned, Event},
    envelope::Envelope,
    holdings::{Holdings, Suspect},
    id::{NodeId, TaskId},
    pool::{Lineage, PoolFault},
    scope::Spawned,
    shell::clock::unix_ms,
    wire::codec,
};

/// The maximum length of a recorded panic message, in characters.
const REASON_CHARS_MAX: usize = 500;

impl Coordination {
    /// Stops the work on the job because the program is at fault. After a panic the job continues without this node,
    /// provided that the node writes its holdings; otherwise the job fails, because a new attempt would panic too.
    pub(super) async fn resign_or_fail(&self, fault: &PoolFault) {
        let PoolFault::Panicked { task, lineage, message } = fault else { return self.fail(fault).await };
        if self.ledger_interval_ms == 0 || self.crashes_max == 0 {
            return self.fail(fault).await;
        }
        // The attempt in which the task panicked.
        let attempt = self.attempt_seen();
        let mut alone = self.alone.subscribe();
        if !*alone.borrow_and_update() {
            tracing::error!(
                %task, message,
                "a task has panicked; this node resigns once it has handed over the tasks of its other jobs"
            );
            self.resigning.notify_one();
            // `wait_for` cannot fail: `self` owns the sender.
            let _ = alone.wait_for(|alone| *alone).await;
        }
        let reason: String = message.chars().take(REASON_CHARS_MAX).collect();
        let blame = |held: Vec<u8>| blamed(&held, *task, lineage, &reason);
        let (node, paths) = (self.node.to_string(), self.job_paths().attempt(attempt));
        let resigned = self.persist("leaving after a panic", || async {
            match zk::resign(&*self.store, &self.cluster, &paths, &node, &blame).await {
                Ok(resigned) => Ok(resigned),
                Err(CommitError::NotMember | CommitError::AttemptOver) => Ok(true),
                Err(CommitError::Store(error)) => Err(error),
            }
        });
        // Must be recorded before any other node can claim the holdings.
        if let Some(resigned) = &self.resigned {
            resigned.lock().unwrap_or_else(PoisonError::into_inner).insert(self.node);
        }
        if resigned.await == Some(false) {
            return self.fail(fault).await;
        }
        tracing::error!(
            %task, message,
            "a task has panicked; this node resigns, and the task continues from its last write"
        );
        self.timeline.note(EventKind::Panicked, format!("task {task}: {reason}"));
        self.notify_driver(Event::Expired).await;
    }

    /// Returns whether the loss of a node counts against its tasks.
    pub(super) fn counts_loss_of(&self, node: NodeId) -> bool {
        let resigned = self.resigned.as_ref();
        resigned.is_none_or(|nodes| nodes.lock().unwrap_or_else(PoisonError::into_inner).contains(&node))
    }

    /// Returns condemned tasks in the form in which they are set aside: only their remaining work, since the same
    /// transaction accounts for their children. A task that was to wait for spawned tasks finds them complete when
    /// it is retried.
    pub(super) async fn set_aside(&self, condemned: &[Condemned]) -> Result<Vec<SetAside>, CommitError> {
        let mut all = Vec::new();
        for Condemned { task, reason } in condemned {
            let about = AboutTask { crashes: task.crashes, reason: reason.clone(), at_ms: unix_ms() };
            let (scope, children) = (None, Vec::new());
            let spawned = match &task.spawned {
                Spawned::Tasks { scope, .. } => Spawned::Tasks { scope: *scope, tasks: Vec::new() },
                other => other.clone(),
            };
            let envelope = Envelope { scope, children, spawned, crashes: 0, ..task.clone() };
            let envelope = self.encoded(&envelope, task.id).await?;
            all.push(SetAside { task: task.id.to_string(), envelope, about });
        }
        Ok(all)
    }

    /// Fails the job because too many tasks were set aside.
    pub(super) async fn fail_over_limit(&self) -> zk::Result<()> {
        let reason = format!(
            "{SET_ASIDE_MAX} tasks were set aside, each after it had failed on several nodes in a row: the program \
             is at fault, or the machines are"
        );
        tracing::error!(reason, "the job fails");
        zk::job::fail(&*self.store, &self.cluster, &self.job.0, &reason, unix_ms()).await
    }

    pub(super) fn note_set_aside(&self, condemned: &[Condemned]) {
        for Condemned { task, reason } in condemned {
            let said = if reason.is_empty() { String::new() } else { format!("; it last said: {reason}") };
            let detail =
                format!("task {}, after it had failed on {} nodes in a row{said}", task.id, task.crashes);
            tracing::error!(detail, "a task is set aside; the job continues without it");
            self.timeline.note(EventKind::SetAside, detail);
        }
    }
}

/// Returns the holdings with the task blamed for the loss of their holder: the task that panicked or, if it was
/// not written, its nearest written ancestor. If no ancestor was written either, the task had just arrived, and
/// no held task is to blame. `None` if the holdings are incomplete.
fn blamed(held: &[u8], task: TaskId, lineage: &Lineage, reason: &str) -> Option<Vec<u8>> {
    let mut held: Holdings = codec::decode(held).ok()?;
    if held.unprotected {
        return None;
    }
    let is_held = |id: &TaskId| held.tasks.iter().any(|one| one.id == *id);
    let written = iter::once(task).chain(lineage.tasks()).find(is_held);
    // If the lineage is incomplete, any task may be its origin: the task on trial remains the suspect.
    if written.is_some() || lineage.is_complete() {
        let (task, reason) = (written.unwrap_or(task), reason.to_owned());
        held.suspect = Some(Suspect { task, reason, is_certain: true });
    }
    codec::encode(&held).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{envelope::Blob, id::NodeId};

    fn id(number: u64) -> TaskId {
        TaskId { node: NodeId(1), number }
    }

    fn held(suspect: Option<u64>) -> Vec<u8> {
        let task = |number| Envelope::new(id(number), Blob::default(), Blob::default());
        let suspect =
            suspect.map(|number| Suspect { task: id(number), reason: String::new(), is_certain: false });
        codec::encode(&Holdings { suspect, ..Holdings::of(vec![task(1), task(2)]) }).unwrap()
    }

    fn suspect(held: Option<Vec<u8>>) -> Option<(u64, String)> {
        let held: Holdings = codec::decode(&held.unwrap()).unwrap();
        held.suspect.map(|suspect| (suspect.task.number, suspect.reason))
    }

    #[test]
    fn panic_blames_the_task_or_its_written_ancestor() {
        let said = |number| Some((number, "why".to_owned()));
        let blame =
            |held: &[u8], lineage: &Lineage, number| suspect(blamed(held, id(number), lineage, "why"));
        let came = Lineage::default();
        assert_eq!(blame(&held(None), &came, 2), said(2));
        assert_eq!(blame(&held(Some(1)), &came, 2), said(2), "another one is on trial");
        let split_off = came.of_child(id(2)).of_child(id(5));
        assert_eq!(blame(&held(None), &split_off, 7), said(2));
        assert_eq!(blame(&held(Some(1)), &split_off, 7), said(2), "not the one that is on trial");
        let unprotected = codec::encode(&Holdings::unprotected()).unwrap();
        assert_eq!(blamed(&unprotected, id(1), &came, "why"), None);
    }

    #[test]
    fn panic_of_a_task_in_transit_blames_no_held_task() {
        let came = Lineage::default();
        let blamed = blamed(&held(Some(1)), id(7), &came.of_child(id(6)), "why").unwrap();
        let mut held: Holdings = codec::decode(&blamed).unwrap();
        held.count_loss(3);
        assert!(held.tasks.iter().all(|task| task.crashes == 0), "{held:?}");
    }

    #[test]
    fn suspect_stays_if_the_lineage_of_the_panicked_task_is_incomplete() {
        let long = (100..200).fold(Lineage::default(), |lineage, number| lineage.of_child(id(number)));
        let said = |number| Some((number, String::new()));
        assert_eq!(suspect(blamed(&held(Some(1)), id(7), &long, "why")), said(1));
        assert_eq!(suspect(blamed(&held(None), id(7), &long, "why")), None);
    }
}
