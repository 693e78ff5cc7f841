//! The transfer, waiting and run times of the calls for which they are measured.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::ids::CallId;

/// The times of a call on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Timing {
    pub(crate) call: CallId,
    /// The number of the worker, from 0: the lowest that was free when the call started.
    pub(crate) worker: u16,
    /// The transfer time of the inputs, in microseconds.
    pub(crate) transfer_us: u64,
    /// The time between the arrival of the inputs and the start, in microseconds.
    pub(crate) wait_us: u64,
    pub(crate) run_us: u64,
    pub(crate) is_well: bool,
}

/// The calls that are timed. Their number is bounded by the graph, which assigns them.
#[derive(Debug, Default)]
pub(super) struct Stopwatch(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    under_way: BTreeMap<CallId, UnderWay>,
    /// The numbers of the workers that run timed calls.
    busy: BTreeSet<u16>,
}

#[derive(Debug, Clone, Copy)]
struct UnderWay {
    assigned: Instant,
    /// The arrival of the last missing input.
    arrived: Option<Instant>,
}

/// A running call that is timed.
#[derive(Debug)]
pub(super) struct Lap {
    call: CallId,
    worker: u16,
    transfer: Duration,
    wait: Duration,
}

impl Stopwatch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn on_assigned(&self, call: CallId, now: Instant) {
        self.lock().under_way.insert(call, UnderWay { assigned: now, arrived: None });
    }

    /// Records the arrival of the last missing input.
    pub(super) fn on_arrived(&self, call: CallId, now: Instant) {
        if let Some(under_way) = self.lock().under_way.get_mut(&call) {
            under_way.arrived = Some(now);
        }
    }

    pub(super) fn start(&self, call: CallId, now: Instant) -> Lap {
        let mut state = self.lock();
        let under_way = state.under_way.remove(&call).unwrap_or(UnderWay { assigned: now, arrived: None });
        let there = under_way.arrived.unwrap_or(under_way.assigned);
        let worker = (0..u16::MAX).find(|worker| !state.busy.contains(worker)).unwrap_or(u16::MAX);
        state.busy.insert(worker);
        Lap { call, worker, transfer: there - under_way.assigned, wait: now - there }
    }

    /// Records the end of a call, and returns its times.
    pub(super) fn stop(&self, lap: &Lap, ns: u64, is_well: bool) -> Timing {
        let Lap { call, worker, transfer, wait } = *lap;
        self.lock().busy.remove(&worker);
        let [transfer_us, wait_us] =
            [transfer, wait].map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        Timing { call, worker, transfer_us, wait_us, run_us: ns / 1_000, is_well }
    }

    /// Removes the calls that have not started.
    pub(super) fn forget(&self) {
        self.lock().under_way.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Stopwatch;

    #[test]
    fn timing_covers_call_from_assignment_to_completion() {
        let (watch, started) = (Stopwatch::default(), Instant::now());
        let at = |ms| started + Duration::from_millis(ms);
        watch.on_assigned(1, at(0));
        watch.on_assigned(2, at(0));
        watch.on_arrived(1, at(5));
        let [one, other] = [1, 2].map(|call| watch.start(call, at(12)));
        let one = watch.stop(&one, 3_000_000, true);
        assert_eq!((one.worker, one.transfer_us, one.wait_us, one.run_us), (0, 5_000, 7_000, 3_000));
        let third = watch.stop(&watch.start(3, at(20)), 0, true);
        assert_eq!((third.worker, third.wait_us), (0, 0), "the first worker is free again");
        let other = watch.stop(&other, 1_000, false);
        assert_eq!((other.worker, other.transfer_us, other.wait_us), (1, 0, 12_000));
    }
}
