//! A search in one runtime, without a job.

use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use taskwork::Variable as _;

use super::{Best, Counts, result_of};
use crate::{
    call::failed,
    runtime::{Event, Runtime},
    store::Outcome,
    wire::{ErrorKind, Step},
};

/// The maximum time of a wait for events.
const LOOK: Duration = Duration::from_millis(20);

/// Searches to the end, and returns the result of the search.
pub(crate) fn search_alone(runtime: &mut Runtime, argument: &RawValue, limit: Duration) -> Outcome {
    let (mut counts, mut best, end) = (Counts::default(), None, Instant::now() + limit);
    let mut is_sent = false;
    while Instant::now() < end {
        if !is_sent && runtime.exchange().is_loaded() {
            is_sent = true;
            if let Err(error) = runtime.search(argument, None, f64::INFINITY) {
                return failed(ErrorKind::Invalid, error.to_string());
            }
        }
        for event in runtime.poll(LOOK) {
            match event {
                Event::Step(Step::Offered(offer)) => {
                    if best.as_ref().is_none_or(|best| Best::improves(&offer, best)) {
                        best = Some(offer);
                    }
                }
                Event::Step(Step::Complete(new)) => {
                    if let Err(reason) = counts.add(new) {
                        return failed(ErrorKind::Invalid, reason);
                    }
                    let result = RawValue::from_string(result_of(&counts, best.as_ref()));
                    return result
                        .map_or_else(|error| failed(ErrorKind::Invalid, error.to_string()), Outcome::Value);
                }
                Event::Step(Step::Failed(error) | Step::NotLoaded(error)) => return Outcome::Error(error),
                Event::Step(_) => {}
                Event::Broken(reason) => return failed(ErrorKind::Crash, reason),
                Event::Memory(reason) => return failed(ErrorKind::Memory, reason),
            }
        }
    }
    failed(ErrorKind::Timeout, runtime.exceeded(limit))
}
