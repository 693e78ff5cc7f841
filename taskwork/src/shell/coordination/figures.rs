//! The node's figures for the job, for observers outside.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use zk::figures::{self, Ledger, NodeFigures, Sight};

use super::Coordination;
use crate::{
    core::LedgerState,
    figures::{Figures, WorkerTimes},
    outlook::Outlook,
    shell::{clock::unix_ms, roster::Roster},
};

/// The time for which a task that has left a node still counts there, where figures are written: longer than
/// the interval of writing.
pub(super) const PUBLIC_WINDOW: Duration = Duration::from_secs(6);
/// The same where all nodes are read at once: longer than a task is in transit.
pub(super) const WINDOW: Duration = Duration::from_millis(200);

/// The interval at which the figures are written, if they have changed.
const EVERY: Duration = Duration::from_secs(2);

impl Coordination {
    /// Returns the node's figures for the job so far.
    pub(crate) fn figures_now(&self) -> Figures {
        let mut figures = *self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = self.pool.figures();
        (figures.worked, figures.tasks, figures.splits) = (pool.worked, pool.tasks, pool.splits);
        (figures.steal_times, figures.done_attos) = (pool.steal_times, pool.done_attos);
        figures.worked_earlier = pool.worked_earlier;
        (figures.open_tasks, figures.times) = (pool.open_tasks, pool.times);
        let mut window = self.outlook.lock().unwrap_or_else(PoisonError::into_inner);
        figures.outlook = window.note(self.pool.outlook());
        figures.retries += self.rebuilds.get();
        figures
    }

    /// Writes the figures periodically.
    pub(super) async fn publish_figures(self: Arc<Self>) {
        if !self.visibility.is_public() {
            return;
        }
        let mut told = (Figures::default(), Vec::new(), None, None);
        loop {
            tokio::time::sleep(EVERY).await;
            // Time passes also where nothing happens.
            let figures = Figures { times: WorkerTimes::default(), ..self.figures_now() };
            let now = (figures, self.silent(), self.ledger_state(), self.sight());
            if now != told {
                self.tell_figures(false).await;
                told = now;
            }
        }
    }

    /// Returns the number of nodes of its release that this one knows, itself included.
    pub(crate) fn members_known(&self) -> usize {
        self.others.look(Roster::others).1 + 1
    }

    /// Returns what the companion shows.
    pub(crate) fn sight(&self) -> Option<Sight> {
        self.companion.as_ref().and_then(|companion| companion.desk.witness.sight())
    }

    fn ledger_state(&self) -> Option<LedgerState> {
        *self.ledger_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Converts a state to the time of day.
    fn dated(&self, state: LedgerState) -> Ledger {
        let LedgerState { written_at, empty, unprotected, bytes } = state;
        let (now, now_ms) = (self.clock.now_ms(), unix_ms());
        let written_ms = written_at.map(|at| now_ms.saturating_sub(now.saturating_sub(at)));
        Ledger { written_ms, empty, unprotected, bytes }
    }

    /// Writes the current figures, in a single try: nothing depends on them.
    pub(crate) async fn tell_figures(&self, last: bool) {
        let mut figures = self.figures_now();
        // A node that has taken no part has no figures.
        if !self.visibility.is_public() || self.takes_part_in.load(Relaxed) == 0 {
            return;
        }
        if last {
            (figures.outlook, figures.open_tasks) = (Outlook::Nothing, Some(0));
        }
        let figures = NodeFigures {
            attempt: self.attempt_seen(),
            figures,
            requests: self.store.requests(),
            timeline: self.timeline.all(),
            silent: self.silent(),
            last,
            ledger: self.ledger_state().filter(|_| !last).map(|state| self.dated(state)),
            sight: self.sight(),
            members_known: u32::try_from(self.others.look(Roster::others).1).ok(),
            at_ms: unix_ms(),
        };
        let node = self.node.to_string();
        match figures::publish(&*self.store, &self.cluster, &self.job.0, &node, &figures).await {
            // The session may have ended with the job, or the job was forgotten.
            Ok(()) | Err(zk::Error::SessionExpired | zk::Error::NoNode { .. }) => {}
            Err(error) => tracing::debug!(%error, "the figures could not be written"),
        }
    }
}
