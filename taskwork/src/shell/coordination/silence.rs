//! Tasks that do not check whether they should stop. They keep a node from writing its holdings, leaving, and
//! starting the next attempt or job. They are reported, since only the program's author can fix them.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::time;
use zk::figures::Silent;

use super::Coordination;
use crate::{id::TaskId, shell::clock::unix_ms};

/// The interval between two checks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The time after which a task that does not react is reported.
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// Requests to tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Stop,
    /// To be written, for the cut with this number.
    Written(u64),
}

impl Coordination {
    /// Periodically looks for tasks that have ignored a request to stop or to be written for too long.
    pub(super) async fn watch_for_silence(self: Arc<Self>) {
        let mut asked: Option<(Asked, time::Instant, u64)> = None;
        let (mut stop_logged, mut write_logged) = (false, false);
        loop {
            time::sleep(LOOK_EVERY).await;
            let Some((what, tasks)) = self.pending_request() else {
                if std::mem::take(&mut stop_logged) | std::mem::take(&mut write_logged) {
                    tracing::info!("the tasks that did not react have reacted now");
                }
                asked = None;
                self.note_silent(Vec::new());
                continue;
            };
            // A further cut is a new request.
            asked = asked.filter(|(before, ..)| *before == what);
            let (_, since, since_ms) = *asked.get_or_insert_with(|| (what, time::Instant::now(), unix_ms()));
            if since.elapsed() < SILENT_AFTER {
                self.note_silent(Vec::new());
                continue;
            }
            self.note_silent(silent(&tasks, since_ms));
            let (names, silent_s) = (names(&tasks).join(", "), since.elapsed().as_secs());
            if what == Asked::Stop && !std::mem::replace(&mut stop_logged, true) {
                tracing::warn!(
                    job = %self.job, tasks = names, silent_s,
                    "a task does not check whether it should stop (Context::migrate)"
                );
                self.silence.notify_one();
            } else if what != Asked::Stop && !std::mem::replace(&mut write_logged, true) {
                tracing::warn!(
                    job = %self.job, tasks = names, silent_s,
                    "a task does not check whether it should be written (Context::migrate): until it does, this node \
                     cannot write its holdings"
                );
            }
        }
    }

    /// Returns the current request and the tasks that have not complied yet, if there are any.
    fn pending_request(&self) -> Option<(Asked, Vec<TaskId>)> {
        let view = self.pool.view();
        if view.stopped {
            return (!view.is_quiet()).then(|| (Asked::Stop, self.pool.running()));
        }
        let (cut, tasks) = self.pool.awaited();
        (!tasks.is_empty()).then_some((Asked::Written(cut), tasks))
    }

    /// Returns the tasks that run now, as silent since the given time.
    pub(crate) fn silent_since(&self, since_ms: u64) -> Vec<Silent> {
        silent(&self.pool.running(), since_ms)
    }

    pub(crate) fn running_tasks(&self) -> Vec<String> {
        names(&self.pool.running())
    }

    pub(crate) fn note_silent(&self, silent: Vec<Silent>) {
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = silent;
    }

    pub(super) fn silent(&self) -> Vec<Silent> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn silent(tasks: &[TaskId], since_ms: u64) -> Vec<Silent> {
    names(tasks).into_iter().map(|task| Silent { task, since_ms }).collect()
}

fn names(tasks: &[TaskId]) -> Vec<String> {
    tasks.iter().map(TaskId::to_string).collect()
}
