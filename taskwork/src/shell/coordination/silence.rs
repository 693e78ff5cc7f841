//! Tasks that do not check whether they should stop: they keep a node from writing what it holds, from
//! leaving, from the next attempt and from the next job. They are reported, since only the program's author can
//! fix them.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::time;
use zk::figures::Silent;

use super::Coordination;
use crate::shell::clock::unix_ms;

/// The interval of checks whether tasks have stopped that were asked to.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The time after which a task that does not stop is reported.
const SILENT_AFTER: Duration = Duration::from_secs(10);

impl Coordination {
    /// Periodically looks for tasks that have not stopped long after they were asked to.
    pub(super) async fn watch_for_silence(self: Arc<Self>) {
        let (mut asked, mut said) = (None, false);
        loop {
            time::sleep(LOOK_EVERY).await;
            let view = self.pool.view();
            if !view.stopped || view.is_quiet() {
                if std::mem::take(&mut said) {
                    tracing::info!("the tasks have stopped that did not ask whether they are to");
                }
                asked = None;
                self.note_silent(Vec::new());
                continue;
            }
            let (since, since_ms) = *asked.get_or_insert_with(|| (time::Instant::now(), unix_ms()));
            if since.elapsed() >= SILENT_AFTER && !std::mem::replace(&mut said, true) {
                let (tasks, silent_s) = (self.running_tasks().join(", "), since.elapsed().as_secs());
                tracing::warn!(
                    job = %self.job, tasks, silent_s,
                    "a task does not ask whether it is to stop (Context::migrate)"
                );
                self.silence.notify_one();
            }
            if said {
                self.note_silent(self.silent_since(since_ms));
            }
        }
    }

    /// Returns the tasks that run now, as silent since the given time.
    pub(crate) fn silent_since(&self, since_ms: u64) -> Vec<Silent> {
        self.running_tasks().into_iter().map(|task| Silent { task, since_ms }).collect()
    }

    /// Returns the names of the tasks that run now.
    pub(crate) fn running_tasks(&self) -> Vec<String> {
        self.pool.running().iter().map(ToString::to_string).collect()
    }

    pub(crate) fn note_silent(&self, silent: Vec<Silent>) {
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = silent;
    }

    pub(super) fn silent(&self) -> Vec<Silent> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
