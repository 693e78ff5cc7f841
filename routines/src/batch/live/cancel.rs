//! Single calls that a user cancels: they end with an error, and the others continue.
//!
//! The store has an object for each of them, and a variable of the job has their number. It grows after an object was written,
//! so a node that sees a larger number finds all objects that it counts.

use std::time::Duration;

use serde_json::Value;
use taskwork::{Variable, lowlevel::Suggested};

use super::{
    super::{combine::Stage, platform::CallRuntime as _},
    Batch, Live, Platform,
};
use crate::{
    order::Order,
    store::Outcome,
    wire::{CallError, ErrorKind},
};

/// The pause after a failed access to the store.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The number of cancelled calls of a job.
#[derive(Debug)]
pub(crate) struct Cancelled;

impl Variable for Cancelled {
    type Value = u64;
    const NAME: &'static str = "cancelled";

    fn improves(new: &u64, old: &u64) -> bool {
        new > old
    }
}

/// Returns the number of cancelled calls that a gateway reports.
pub(in crate::batch) fn suggested(_: &Order, number: Value) -> Result<Suggested, String> {
    let number: u64 =
        serde_json::from_value(number).map_err(|_| "expected the number of cancelled calls".to_owned())?;
    Ok(Suggested::of::<Cancelled>(number, format!("{number} cancelled calls")))
}

impl<P: Platform> Live<P> {
    /// Reads which calls are cancelled, if there are more than before.
    pub(in crate::batch) fn read_cancelled(&mut self, number: u64) {
        let is_known = number <= self.cancelled_number;
        if is_known || self.cancelled_failed_at.is_some_and(|at| self.since(at) < RETRY_PAUSE) {
            return;
        }
        match self.platform.cancelled() {
            Ok(cancelled) => {
                (self.cancelled, self.cancelled_number, self.cancelled_failed_at) = (cancelled, number, None);
            }
            Err(error) => {
                tracing::warn!(%error, "the cancelled calls cannot be read; this is tried again");
                self.cancelled_failed_at = Some(self.platform.now());
            }
        }
    }

    /// Ends the cancelled calls that are open or run here. A runtime with one of them is stopped.
    pub(super) fn end_cancelled(&mut self, batch: &mut Batch<P>, order: &Order) {
        if self.cancelled.is_empty() || batch.stage != Stage::Calls {
            return;
        }
        if let (Some(_), Some(runtime)) = (&self.frame, &self.runtime) {
            let running = runtime.exchange().unanswered().clone();
            if self.cancelled.indices().any(|index| running.contains(index)) {
                self.measure();
                batch.open.extend(&running);
                (self.runtime, self.frame) = (None, None);
            }
        }
        let open: Vec<u64> = self.cancelled.indices().filter(|&index| batch.open.remove(index)).collect();
        if open.is_empty() {
            return;
        }
        let error = CallError::new(ErrorKind::Cancelled, "the call was cancelled");
        let outcomes: Vec<_> = open.into_iter().map(|index| (index, Outcome::Error(error.clone()))).collect();
        self.put(batch, order, &outcomes);
    }
}
