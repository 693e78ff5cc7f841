//! The outcome of a call: its output is stored, or its failure is reported.

use super::{attempt::Written, executor::Executor, messages::News};
use crate::{
    core::{Assignment, Cause, Outcome, Step, Unfit},
    failure::{Failed, Failure, Reason, Trouble},
    ids::{Execution, VersionId},
    invocation::Put,
    value::Value,
};

/// The maximum size of an output that is written to the journal, in bytes.
const DURABLE_BYTES_MAX: u64 = 64 << 10;

/// Returns the encoded output, if it is small.
fn encoded(written: &[Put]) -> Option<Vec<Vec<u8>>> {
    let values: Option<Vec<&Value>> = written.iter().map(Put::value).collect();
    let values =
        values.filter(|values| values.iter().map(|value| value.size()).sum::<u64>() <= DURABLE_BYTES_MAX)?;
    values.into_iter().map(|value| value.part(0, usize::MAX).ok().map(|(_, bytes)| bytes)).collect()
}

/// The failure of a run-once call that has made calls.
const CALLS_TASKS: &str = "it is `effect` or `nondeterministic`, so it must not run again, but its task makes calls, which may. \
     Give the option to the called tasks that need it instead";

/// The failure of a cached call that has made calls.
pub(crate) const CACHED_CALLS: &str = "it is `cached`, but its task makes calls, whose code would not count. Give the option \
     to the called tasks instead";

impl Executor {
    /// Stores the output of a call, and returns its outcome. It has run for the time `ns`, or its output is from the cache.
    pub(super) fn outcome(
        &self,
        assignment: &Assignment,
        nest: Option<Execution>,
        written: Result<Written, Failed>,
        ns: Option<u64>,
    ) -> Outcome {
        let Assignment { call, work, mark, .. } = *assignment;
        let put = |written: Vec<Put>, may_differ: bool| -> Result<Vec<u64>, Failed> {
            let (mut kept, mut handed_on) = (Vec::new(), Vec::new());
            let bytes = (0..).zip(written).map(|(slot, put)| {
                let value = match put {
                    Put::Value(value) => value,
                    Put::HandedOn(version) => {
                        handed_on.push((slot, version));
                        return 0;
                    }
                };
                let bytes = if self.has_sizes() { value.size() } else { 0 };
                let version = VersionId { call, slot };
                if !may_differ {
                    self.keep(version, value, mark, bytes, false);
                    kept.push(version);
                } else if self.keep_own(version, value, mark, bytes) {
                    kept.push(version);
                }
                bytes
            });
            let bytes: Vec<_> = bytes.collect();
            let relieved = self.store.relieve().inspect_err(|_| {
                for version in kept {
                    drop(self.store.forget(version));
                }
            });
            relieved.map_err(|failed| {
                let reason = format!("its output cannot be stored: {}", failed.reason);
                Failed { reason, ..failed }
            })?;
            if let (Some(execution), Some(report)) = (nest.filter(|_| !handed_on.is_empty()), self.report()) {
                report.tell(News::Step(execution, Step::HandOn(handed_on)));
            }
            Ok(bytes)
        };
        let outcome = written.and_then(|written| {
            Ok(match written {
                Written::ByTask(_) if assignment.manner.once_token.is_some() && nest.is_some() => {
                    return Err(Failed::of_runtime(CALLS_TASKS));
                }
                Written::ByTask(_) if assignment.manner.is_cached && nest.is_some() => {
                    return Err(Failed::of_runtime(CACHED_CALLS));
                }
                Written::ByTask(written) if assignment.manner.once_token.is_some() && self.has_peers => {
                    let (by, values) = (self.number_execution(), encoded(&written));
                    Outcome::Durable { bytes: put(written, true)?, ns: ns.unwrap_or(0), by, values }
                }
                Written::ByTask(written) => Outcome::Written { bytes: put(written, false)?, ns },
                Written::Defaults(written, reason) => Outcome::Ignored { bytes: put(written, true)?, reason },
            })
        });
        outcome.unwrap_or_else(|failed| match failed.trouble {
            Trouble::Task => Outcome::Failed(Failure::new(work.name(), call, failed)),
            _ => self.unfit(assignment, failed),
        })
    }

    /// Returns the outcome of a call that cannot run here, for a reason that may not apply to other nodes.
    pub(super) fn unfit(&self, assignment: &Assignment, failed: Failed) -> Outcome {
        let Failed { reason, kind, trouble } = failed;
        let reason = Reason { kind, text: self.here(&reason) };
        if !self.has_peers {
            return Outcome::Failed(Failure::new(assignment.work.name(), assignment.call, reason));
        }
        let cause = match trouble {
            Trouble::Version(version) => {
                self.forget_rest(version, &reason.text);
                drop(self.forget(version));
                Cause::Damaged(version)
            }
            Trouble::Store(bytes) => Cause::Store(bytes),
            Trouble::Task | Trouble::Node | Trouble::Content => Cause::Member,
        };
        let (_, unchanged) = self.give_back(assignment);
        Outcome::Unfit(Unfit { reason, unchanged, cause })
    }
}
