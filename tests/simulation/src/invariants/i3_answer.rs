//! I3: the reported optimum and the reported counts equal the sequential reference's, always. On the way there a variable only
//! ever improves.

use zk::{Op, job::JobState};

use super::{Facts, Invariant, Seen, place, record};
use crate::workload::{Done, Truth};

#[derive(Default)]
pub(super) struct TheRightAnswer {
    shortest: Option<u64>,
    result: Option<Done>,
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
            match at.rest[..] {
                ["vars", _] => self.improve(data)?,
                ["result", _] if at.attempt == Some(facts.latest) => {
                    self.result = taskwork::simulation::decode(data);
                }
                _ => {}
            }
        }
        if ops.iter().filter_map(|op| record(&facts.cluster, op)).any(|it| it.state == JobState::Done) {
            return self.compare(facts.truth);
        }
        Ok(())
    }
}

impl TheRightAnswer {
    fn improve(&mut self, data: &[u8]) -> Result<(), String> {
        let new: u64 = taskwork::simulation::decode(data).ok_or("a variable cannot be read")?;
        match self.shortest.replace(new) {
            Some(old) if old <= new => Err(format!("a variable went from {old} to {new}")),
            _ => Ok(()),
        }
    }

    fn compare(&self, truth: Truth) -> Result<(), String> {
        let right = match truth {
            Truth::Done(done) => self.result == Some(done),
            Truth::Shortest(length) => self.shortest == Some(length),
        };
        if right {
            return Ok(());
        }
        Err(format!("expected {truth:?}, the job says {:?}, shortest {:?}", self.result, self.shortest))
    }
}
