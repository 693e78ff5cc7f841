//! What becomes of tasks that panic, or that nodes are lost with again and again.
//!
//! A node in which a task panics has lost what the task has done since it was last written, and cannot take it
//! back: so it names the task in what it holds, and is lost on purpose. Others continue from there, as after any
//! loss, and the node joins anew. Its other jobs are not harmed: it leaves them before.

use std::sync::PoisonError;

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
    pool::PoolFault,
    scope::Spawned,
    shell::clock::unix_ms,
    wire::codec,
};

/// The maximum length of what is kept of a panic's message, in characters.
const REASON_CHARS_MAX: usize = 500;

impl Coordination {
    /// Ends the work on the job because the program is at fault. After a panic the job goes on without this
    /// node, if the node writes what it holds; otherwise the job fails, because it would only panic again.
    pub(super) async fn break_down(&self, fault: &PoolFault) {
        let PoolFault::Panicked { task, message } = fault else { return self.fail(fault).await };
        if self.ledger_interval_ms == 0 || self.deaths_max == 0 {
            return self.fail(fault).await;
        }
        // The one in which it has panicked.
        let attempt = self.attempt_seen();
        let mut alone = self.alone.subscribe();
        if !*alone.borrow_and_update() {
            tracing::error!(
                %task, message,
                "a task has panicked; this node leaves, when its other jobs have handed on their tasks"
            );
            self.breaking.notify_one();
            // The sender is here.
            let _ = alone.wait_for(|alone| *alone).await;
        }
        let reason: String = message.chars().take(REASON_CHARS_MAX).collect();
        let blame = |held: Vec<u8>| blamed(&held, *task, &reason);
        let (node, paths) = (self.node.to_string(), self.job_paths().attempt(attempt));
        let resigned = self.persist("leaving after a panic", || async {
            match zk::resign(&*self.store, &self.cluster, &paths, &node, &blame).await {
                Ok(resigned) => Ok(resigned),
                Err(CommitError::NotMember | CommitError::AttemptOver) => Ok(true),
                Err(CommitError::Store(error)) => Err(error),
            }
        });
        // Before anybody can claim anything.
        if let Some(resigned) = &self.resigned {
            resigned.lock().unwrap_or_else(PoisonError::into_inner).insert(self.node);
        }
        if resigned.await == Some(false) {
            return self.fail(fault).await;
        }
        tracing::error!(
            %task, message,
            "a task has panicked; this node leaves, and the task is continued from where it was last written"
        );
        self.timeline.note(EventKind::Panicked, format!("task {task}: {reason}"));
        self.tell(Event::Expired).await;
    }

    /// Returns whether the loss of a node says something about its tasks.
    pub(super) fn counts_the_loss_of(&self, node: NodeId) -> bool {
        let resigned = self.resigned.as_ref();
        resigned.is_none_or(|nodes| nodes.lock().unwrap_or_else(PoisonError::into_inner).contains(&node))
    }

    /// Returns condemned tasks as they are set aside: with nothing but what is left of them, since their
    /// children are accounted for in the same transaction. If a task was to wait for what it has spawned, it finds
    /// that complete when it is tried again.
    pub(super) async fn set_aside(&self, condemned: &[Condemned]) -> Result<Vec<SetAside>, CommitError> {
        let mut all = Vec::new();
        for Condemned { task, reason } in condemned {
            let about = AboutTask { deaths: task.deaths, reason: reason.clone(), at_ms: unix_ms() };
            let (scope, children) = (None, Vec::new());
            let spawned = match &task.spawned {
                Spawned::Tasks { scope, .. } => Spawned::Tasks { scope: *scope, tasks: Vec::new() },
                other => other.clone(),
            };
            let envelope = Envelope { scope, children, spawned, deaths: 0, ..task.clone() };
            let envelope = self.encoded(&envelope, task.id).await?;
            all.push(SetAside { task: task.id.to_string(), envelope, about });
        }
        Ok(all)
    }

    /// Fails the job because too many tasks were set aside.
    pub(super) async fn give_up(&self) -> zk::Result<()> {
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
                format!("task {}, after it had failed on {} nodes in a row{said}", task.id, task.deaths);
            tracing::error!(detail, "a task is set aside; the job goes on without it");
            self.timeline.note(EventKind::SetAside, detail);
        }
    }
}

/// Returns these holdings with the blame for the loss of their holder: it is the task that has panicked, or if
/// that has come since, the one that was on trial, if any. `None` if there is more than stands here.
fn blamed(held: &[u8], task: TaskId, reason: &str) -> Option<Vec<u8>> {
    let mut held: Holdings = codec::decode(held).ok()?;
    if held.unprotected {
        return None;
    }
    let reason = reason.to_owned();
    if held.tasks.iter().any(|one| one.id == task) {
        held.suspect = Some(Suspect { task, reason, is_certain: true });
    } else if let Some(suspect) = &mut held.suspect {
        suspect.reason = reason;
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
    fn the_task_that_panicked_is_to_blame_or_the_one_on_trial_from_which_it_may_have_come() {
        let said = |number| Some((number, "why".to_owned()));
        assert_eq!(suspect(blamed(&held(None), id(2), "why")), said(2));
        assert_eq!(suspect(blamed(&held(Some(1)), id(2), "why")), said(2));
        assert_eq!(suspect(blamed(&held(Some(1)), id(7), "why")), said(1));
        assert_eq!(suspect(blamed(&held(None), id(7), "why")), None);
        let unprotected = codec::encode(&Holdings::unprotected()).unwrap();
        assert_eq!(blamed(&unprotected, id(1), "why"), None);
    }
}
