//! The combination of results by a routine, in rounds of calls: each call combines consecutive results of the round before,
//! until one value is left.
//!
//! ```text
//!   round 0        1              2
//!   calls  ──▶ [[r0 … r999]] ──▶ [[c0 … ]] ──▶ jobs/KEY/reduced.json
//! ```
//!
//! A round starts when all calls of the previous one have durable results. Its manifest is sealed then, so each result counts
//! once and at the same place, whatever is lost or repeated: sums of doubles have the same bits in each run.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use taskwork::{Context, Outcome};

use super::Batch;
use crate::{
    host::Host,
    store::{Results, ResultsError, Store},
    tally::Tally,
};

/// The maximum number of values of one call, and of their bytes if there are more than two.
const VALUES_MAX: usize = 1_000;
const VALUES_BYTES_MAX: u64 = 16 << 20;

/// The part of a task in its job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// It makes calls of the job.
    #[default]
    Calls,
    /// It starts rounds, and waits for each of them: this one is next, with so many results of the previous one.
    Rounds { next: u32, inputs: u64 },
    /// It makes calls of a round, which combine so many results of the previous one.
    Round { number: u32, inputs: u64 },
}

impl Stage {
    /// Returns the round that it starts or makes; `None` before the calls of the job have ended.
    pub(super) fn round(self) -> Option<u32> {
        match self {
            Self::Calls => None,
            Self::Rounds { next, .. } => (next > 0).then_some(next),
            Self::Round { number, .. } => Some(number),
        }
    }

    /// Returns the key of its results.
    pub(super) fn key(self, job: &str) -> String {
        match self {
            Self::Round { number, .. } => round_key(job, number),
            Self::Calls | Self::Rounds { .. } => job.to_owned(),
        }
    }
}

fn round_key(job: &str, round: u32) -> String {
    if round == 0 { job.to_owned() } else { format!("{job}/round-{round}") }
}

/// Returns the name of the value that is left.
pub(crate) fn reduced_name(job: &str) -> String {
    format!("{}/reduced.json", Store::job(job))
}

/// The results of a round, divided among the calls of the next one.
#[derive(Debug)]
pub(crate) struct Partials {
    results: Results,
    parts: Vec<Range<usize>>,
    /// Whether errors are skipped: those of calls are, those of combinations are not.
    skips_errors: bool,
}

impl Partials {
    /// Opens the results that a round combines.
    pub(crate) fn open(store: &Store, job: &str, round: u32, inputs: u64) -> Result<Self, ResultsError> {
        let before = round.saturating_sub(1);
        let folder = Store::job(&round_key(job, before));
        let results = Results::open(store.objects.clone(), &folder, inputs)?;
        let (mut parts, mut start, mut bytes) = (Vec::new(), 0, 0);
        for (at, size) in results.sizes().enumerate() {
            let count = at - start;
            if count >= VALUES_MAX || (count >= 2 && bytes + size > VALUES_BYTES_MAX) {
                parts.push(start..at);
                (start, bytes) = (at, 0);
            }
            bytes += size;
        }
        // Without results, one call returns the neutral element.
        parts.push(start..results.len());
        Ok(Self { results, parts, skips_errors: before == 0 })
    }

    fn part(&self, call: u64) -> Option<Range<usize>> {
        usize::try_from(call).ok().and_then(|part| self.parts.get(part)).cloned()
    }

    /// Returns the approximate size of the argument of a call, in bytes.
    pub(super) fn bytes(&self, call: u64) -> usize {
        let part = self.part(call).unwrap_or_default();
        let bytes = self.results.sizes().skip(part.start).take(part.len()).sum::<u64>();
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Returns the argument of a call: a list of values.
    ///
    /// # Errors
    /// If they cannot be read, or one of them is an error.
    pub(super) fn argument(&self, call: u64) -> Result<Box<RawValue>, String> {
        let values = self.values(self.part(call).ok_or("the round has no such call")?)?;
        RawValue::from_string(format!("[[{}]]", values.join(","))).map_err(|error| error.to_string())
    }

    fn values(&self, part: Range<usize>) -> Result<Vec<String>, String> {
        let mut values = Vec::new();
        for outcome in self.results.outcomes(part).map_err(|error| error.to_string())? {
            match outcome.strip_prefix("\"value\":").and_then(|value| value.strip_suffix('}')) {
                Some(value) => values.push(value.to_owned()),
                None if self.skips_errors => {}
                None => return Err(format!("the combination of results has failed: {{{outcome}")),
            }
        }
        Ok(values)
    }
}

impl Batch {
    /// Starts the next round, or keeps the value that is left.
    ///
    /// # Errors
    /// The reason if the results are not combined.
    pub(super) fn next_round(
        &mut self,
        host: &Host,
        (next, inputs): (u32, u64),
        cx: &mut Context<'_, Self>,
    ) -> Result<Outcome, String> {
        let order = cx.shared();
        let (open, inputs, stage) = if next == 0 {
            (order.calls(), order.len(), Stage::Calls)
        } else {
            let unread = |error| format!("the results to combine cannot be read: {error}");
            let partials = host.partials(&order.key, next, inputs).map_err(unread)?;
            if next > 1 && inputs == 1 {
                let value = partials.values(0..1)?.remove(0);
                let kept = host.store.objects.create(&reduced_name(&order.key), value);
                kept.map_err(|error| format!("the combined result cannot be kept: {error}"))?;
                let tally = Tally { is_combined: true, ..Tally::default() };
                taskwork::Output::merge(cx.output(), tally);
                return Ok(Outcome::Complete);
            }
            let parts = partials.parts.len() as u64;
            ((0..parts).into(), parts, Stage::Round { number: next, inputs })
        };
        self.stage = Stage::Rounds { next: next + 1, inputs };
        cx.spawn(Self { open, stage, ..Self::of(0) });
        Ok(Outcome::Wait)
    }
}
