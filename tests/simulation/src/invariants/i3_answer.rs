//! I3: the reported optimum and the reported counts always equal those of the sequential reference. During
//! the job, a variable only ever improves.

use std::collections::BTreeMap;

use zk::{Op, job::JobState};

use super::{Facts, Invariant, Seen, place, record};
use crate::workload::{Done, Truth};

#[derive(Default)]
pub(super) struct TheRightAnswer(BTreeMap<String, Said>);

/// The values that a job has published so far.
#[derive(Default)]
struct Said {
    shortest: Option<u64>,
    /// The encoded result.
    result: Vec<u8>,
}

impl Invariant for TheRightAnswer {
    fn name(&self) -> &'static str {
        "I3 (answer)"
    }

    fn see(&mut self, facts: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Wrote { ops, .. } = seen else { return Ok(()) };
        for op in *ops {
            let (Op::Create { path, data, .. } | Op::Set { path, data, .. }) = op else { continue };
            let Some(at) = place(&facts.cluster, path) else { continue };
            let latest = facts.job(at.job).map(|job| job.latest);
            let said = self.0.entry(at.job.to_owned()).or_default();
            match at.rest[..] {
                ["vars", _] => said.improve(data)?,
                ["result", chunk] if at.attempt == latest => {
                    if chunk.bytes().all(|digit| digit == b'0') {
                        said.result.clear();
                    }
                    said.result.extend(data);
                }
                _ => {}
            }
        }
        for (job, _) in ops
            .iter()
            .filter_map(|op| record(&facts.cluster, op))
            .filter(|(_, record)| matches!(record.state, JobState::Done | JobState::Incomplete))
        {
            if let (Some(said), Some(facts)) = (self.0.get(job), facts.job(job)) {
                let (set_aside, missing) = facts.durable.set_aside(facts.latest);
                match facts.truth {
                    Truth::Done(whole) => said.compare(Truth::Done(whole.without(missing)))?,
                    Truth::Shortest(_) if set_aside > 0 => {}
                    truth @ Truth::Shortest(_) => said.compare(truth)?,
                    // See F1.
                    Truth::Returned => {}
                }
            }
        }
        Ok(())
    }
}

impl Said {
    fn improve(&mut self, data: &[u8]) -> Result<(), String> {
        let new: u64 = taskwork::simulation::decode(data).ok_or("a variable cannot be read")?;
        match self.shortest.replace(new) {
            Some(old) if old <= new => Err(format!("a variable went from {old} to {new}")),
            _ => Ok(()),
        }
    }

    fn compare(&self, truth: Truth) -> Result<(), String> {
        let result = taskwork::simulation::decode::<Done>(&self.result);
        let right = match truth {
            Truth::Done(done) => result == Some(done),
            Truth::Shortest(length) => self.shortest == Some(length),
            Truth::Returned => true,
        };
        if right {
            return Ok(());
        }
        Err(format!("expected {truth:?}, the job returned {result:?}, shortest {:?}", self.shortest))
    }
}
