//! The node's figures for the job, for external observers.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
    time::Duration,
};

use zk::{
    figures::{self, Best, Ledger, NodeFigures, PoolNow, Sense, Status},
    job::{self, JobState},
};

use super::Coordination;
use crate::{
    companion::Load,
    core::{LedgerState, PoolView},
    figures::{Figures, WorkerTimes},
    id::NodeId,
    shell::{clock::unix_ms, roster::Roster},
    variable::Score,
};

/// The number of publishing intervals for which a task that has left a node still counts there, if figures are
/// published.
const PUBLIC_WINDOW_INTERVALS: u32 = 3;
/// The same period for a job within one process, where all nodes are read at once: longer than a transfer takes.
pub(super) const WINDOW: Duration = Duration::from_millis(200);

/// The interval at which changed figures are written, in a cluster of up to [`MEMBERS`] nodes. It is longer in
/// larger clusters, which bounds the number of reads of an observer per second.
const EVERY: Duration = Duration::from_secs(2);
/// The number of members per [`EVERY`] of the interval.
const MEMBERS: usize = 250;

/// The first figures are written after this fraction of the interval, so that observers soon see the node.
const FIRST_PART: u32 = 8;

/// The maximum number of unreachable nodes in the figures.
const CUT_OFF_MAX: usize = 16;

/// The maximum size of the variables in a report, in bytes of their JSON.
const VARIABLES_BYTES_MAX: usize = 64 << 10;

/// Returns the interval at which figures are written in a cluster with this number of members.
fn interval(members: usize) -> Duration {
    EVERY * u32::try_from(members.div_ceil(MEMBERS).max(1)).unwrap_or(u32::MAX)
}

/// Returns the time for which a task that has left a node still counts there, in a small cluster.
pub(super) fn public_window() -> Duration {
    EVERY * PUBLIC_WINDOW_INTERVALS
}

impl Coordination {
    pub(crate) fn figures_now(&self) -> Figures {
        let mut figures = *self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = self.pool.figures();
        (figures.worked, figures.tasks, figures.splits) = (pool.worked, pool.tasks, pool.splits);
        (figures.steal_times, figures.done_attos) = (pool.steal_times, pool.done_attos);
        (figures.worked_earlier, figures.left_open) = (pool.worked_earlier, pool.left_open);
        (figures.open_tasks, figures.times) = (pool.open_tasks, pool.times);
        let load = self.load();
        figures.worked = figures.worked.saturating_add(load.ended);
        figures.tasks = figures.tasks.saturating_add(load.ended);
        figures.open_tasks = figures.open_tasks.map(|open| open + (load.busy + load.queued) as u64);
        let (_, here_ns) = self.places();
        figures.times.add_companion(load.busy_ns, here_ns);
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
        let mut published = None;
        loop {
            let every = interval(self.members_known());
            self.outlook
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .set_length(every * PUBLIC_WINDOW_INTERVALS);
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = self.enrolled.notified() => tokio::time::sleep(every / FIRST_PART).await,
            }
            // The times grow even if nothing happens, so they do not count as a change.
            let figures = Figures { times: WorkerTimes::default(), ..self.figures_now() };
            let now = Some((
                self.attempt_seen(),
                figures,
                self.silent(),
                self.cut_off(),
                self.ledger_state(),
                self.status(),
            ));
            // The duration of a long call grows, too.
            let is_news = now != published || self.load().busy > 0;
            if self.has_figures() && is_news {
                self.publish_figures_once(false).await;
                published = now;
            }
        }
    }

    /// Returns the number of known nodes of this node's release, including itself.
    pub(crate) fn members_known(&self) -> usize {
        self.others.look(Roster::others).1 + 1
    }

    /// Returns whether the node has figures: it has taken part in the job, or could not because it was cut off.
    fn has_figures(&self) -> bool {
        let has_worked = self.takes_part_in.load(Relaxed) != 0 || self.load() != Load::default();
        has_worked || self.cut_off.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns the first nodes that cannot be reached over the network.
    fn cut_off(&self) -> Vec<String> {
        let nodes = self.cut_off.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.iter().flatten().take(CUT_OFF_MAX).map(NodeId::to_string).collect()
    }

    /// Returns the companion's own work.
    fn load(&self) -> Load {
        self.companion.as_ref().map(|companion| companion.desk.provider.load()).unwrap_or_default()
    }

    /// Returns the number of workers that lend their places to the companion, and their total time.
    fn places(&self) -> (usize, u64) {
        self.companion.as_ref().map(|companion| companion.places.workers()).unwrap_or_default()
    }

    /// Returns the job status provided by the companion.
    pub(crate) fn status(&self) -> Option<Status> {
        self.companion.as_ref().and_then(|companion| companion.desk.provider.status())
    }

    fn ledger_state(&self) -> Option<LedgerState> {
        *self.ledger_state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Converts the node's clock to the time of day.
    fn dated(&self, state: LedgerState) -> Ledger {
        let LedgerState { written_at, empty, unprotected, bytes } = state;
        let (now, now_ms) = (self.clock.now_ms(), unix_ms());
        let written_ms = written_at.map(|at| now_ms.saturating_sub(now.saturating_sub(at)));
        Ledger { written_ms, empty, unprotected, bytes }
    }

    pub(crate) fn report(&self, last: bool) -> NodeFigures<Figures> {
        let mut figures = self.figures_now();
        if last {
            figures.open_tasks = Some(0);
        }
        NodeFigures {
            attempt: self.attempt_seen(),
            host: self.probe.place().0,
            figures,
            requests: self.store.requests(),
            latencies: Some(self.store.latencies()),
            pool: (!last).then(|| pool_now(self.pool.view(), self.load(), self.places().0)),
            best: self.pool.variables().score().map(best),
            givers: Some(self.givers.lock().unwrap_or_else(PoisonError::into_inner).most()),
            process: Some(self.probe.process()),
            timeline: self.timeline.all(),
            silent: self.silent(),
            cut_off: self.cut_off(),
            last,
            ledger: self.ledger_state().filter(|_| !last).map(|state| self.dated(state)),
            status: self.status(),
            variables: None,
            members_known: u32::try_from(self.members_known() - 1).ok(),
            at_ms: unix_ms(),
        }
    }

    /// Returns the variables of a job that was stopped, if this node has led it: the result of a completed job contains
    /// them.
    async fn variables_of_stopped_job(&self) -> Option<serde_json::Value> {
        if !self.has_led.load(Relaxed) {
            return None;
        }
        let (record, _) = job::read(&*self.store, &self.cluster, &self.job.0).await.ok()?;
        let is_stopped = matches!(record.state, JobState::Suspended | JobState::Cancelled | JobState::Failed);
        is_stopped
            .then(|| self.shown_variables())
            .filter(|shown| shown.to_string().len() <= VARIABLES_BYTES_MAX)
    }

    /// Writes the current figures in a single try: only the result of a stopped job depends on them.
    pub(crate) async fn publish_figures_once(&self, last: bool) {
        if !self.visibility.is_public() || !self.has_figures() {
            return;
        }
        let (node, mut figures) = (self.node.to_string(), self.report(last));
        if last {
            figures.variables = self.variables_of_stopped_job().await;
        }
        match figures::publish(&*self.store, &self.cluster, &self.job.0, &node, &figures).await {
            // The session may have ended with the job, or the job was forgotten.
            Ok(()) | Err(zk::Error::SessionExpired | zk::Error::NoNode { .. }) => {}
            Err(error) => tracing::debug!(%error, "the figures could not be written"),
        }
    }
}

/// Returns the load of a node: of its workers, and of the companion's threads in the places of some workers.
fn pool_now(view: PoolView, load: Load, places: usize) -> PoolNow {
    let PoolView { workers, idle, queued, waiting, .. } = view;
    let busy = workers.saturating_sub(idle) + load.busy;
    let (workers, queued) = (workers.max(places).max(busy), queued + load.queued);
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    PoolNow {
        workers: number(workers),
        busy: number(busy),
        queued: number(queued),
        waiting: number(waiting),
        hungry: number((workers - busy).saturating_sub(queued)),
    }
}

fn best((name, score): (&'static str, Score)) -> Best {
    let (value, sense) = match score {
        Score::Cost(value) => (value, Sense::Min),
        Score::Profit(value) => (value, Sense::Max),
    };
    Best { value, sense, name: name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_large_clusters_are_written_less_often() {
        let seconds = |members| interval(members).as_secs();
        assert_eq!([1, 250, 251, 1_000, 1_001].map(seconds), [2, 2, 4, 8, 10]);
    }

    #[test]
    fn first_figures_are_written_within_a_second_for_up_to_a_thousand_members() {
        let first = |members| interval(members) / FIRST_PART;
        assert_eq!([1, 1_000].map(first), [Duration::from_millis(250), Duration::from_secs(1)]);
    }

    #[test]
    fn workers_with_a_queued_task_are_not_hungry() {
        let view = PoolView { workers: 4, idle: 3, queued: 1, ..PoolView::default() };
        let now = pool_now(view, Load::default(), 0);
        assert_eq!(now, PoolNow { workers: 4, busy: 1, queued: 1, waiting: 0, hungry: 2 });
    }

    #[test]
    fn companion_work_counts_as_work_of_workers() {
        let view = PoolView { workers: 4, idle: 4, ..PoolView::default() };
        let load = |busy, queued| Load { busy, queued, ..Load::default() };
        assert_eq!(
            pool_now(view, load(2, 1), 0),
            PoolNow { workers: 4, busy: 2, queued: 1, waiting: 0, hungry: 1 }
        );
        assert_eq!(pool_now(view, load(5, 0), 4).workers, 5, "while a call takes its place back");
        let view = PoolView { workers: 1, idle: 1, ..view };
        assert_eq!(
            pool_now(view, load(2, 0), 4),
            PoolNow { workers: 4, busy: 2, queued: 0, waiting: 0, hungry: 2 },
            "workers wait in the places"
        );
    }
}
