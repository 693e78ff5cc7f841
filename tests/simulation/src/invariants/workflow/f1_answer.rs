//! F1: the values that the program reads and returns equal those of the sequential run, however often it
//! restarts: otherwise a cluster would compute another result than the program. The job of a program that fails has
//! failed.

use std::collections::BTreeMap;

use dataflow_framework::{Returned, simulation::result};
use zk::{Op, job::JobState};

use super::{Step, step};
use crate::{
    invariants::{Facts, Invariant, Seen, place, record},
    workload::{Shape, workflow::FAILURE},
};

/// The encoded results of jobs, by their names.
#[derive(Default)]
pub(in crate::invariants) struct AsSequential(BTreeMap<String, Vec<u8>>);

impl Invariant for AsSequential {
    fn name(&self) -> &'static str {
        "F1 (as the sequential run)"
    }

    fn see(&mut self, facts: &Facts, _: u64, seen: &Seen<'_>) -> Result<(), String> {
        if let Some((node, Step::Reads { number, expected, read })) = step(seen)
            && read != expected
        {
            return Err(format!(
                "the program on {node} reads {read:016x}, and should read {expected:016x}, as number {number}"
            ));
        }
        let Seen::Wrote { ops, .. } = seen else { return Ok(()) };
        for op in *ops {
            let (Op::Create { path, data, .. } | Op::Set { path, data, .. }) = op else { continue };
            let Some(at) = place(&facts.cluster, path) else { continue };
            let latest = facts.job(at.job).map(|job| job.latest);
            if let ["result", chunk] = at.rest[..]
                && at.attempt == latest
            {
                let said = self.0.entry(at.job.to_owned()).or_default();
                if chunk.bytes().all(|digit| digit == b'0') {
                    said.clear();
                }
                said.extend(data);
            }
        }
        let ended = ops.iter().filter_map(|op| record(&facts.cluster, op));
        for (job, state) in ended.map(|(job, record)| (job, record.state)) {
            if !matches!(state, JobState::Done | JobState::Failed) {
                continue;
            }
            if let Some(Shape::Workflow(recipe)) = facts.job(job).map(|job| &job.shape) {
                let said = self.0.get(job).and_then(|said| taskwork::simulation::decode::<Returned>(said));
                let returned = match said.and_then(result) {
                    Some(Err(reason))
                        if recipe.fails() && state == JobState::Failed && reason.contains(FAILURE) =>
                    {
                        continue;
                    }
                    Some(other) if recipe.fails() => {
                        let reason = other.err();
                        return Err(format!("the program should fail, but its job is {state:?}: {reason:?}"));
                    }
                    Some(Ok(bytes)) => taskwork::simulation::decode::<Vec<Option<u64>>>(&bytes),
                    Some(Err(reason)) => return Err(format!("the program has failed: {reason}")),
                    // It has failed because of the runtime, which other invariants check.
                    None if state == JobState::Failed => continue,
                    None => None,
                };
                if returned != Some(recipe.expected()) {
                    return Err(format!("expected {:?}, the job returned {returned:?}", recipe.expected()));
                }
            }
        }
        Ok(())
    }
}
