//! The output of the tasks of a job: numbers. Results are in segments.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use taskwork::Output;
use utoipa::ToSchema;

use crate::{reduce::Reduced, reduction::Reduce, usage::Usage, wire::ErrorKind};

/// The calls that have ended. Each counts once, after its result is durable.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// All calls that have ended, including failed ones.
    pub(crate) ended: u64,
    pub(crate) failed: BTreeMap<ErrorKind, u64>,
    /// The reduced results, if numbers are wanted of them.
    pub(crate) reduced: Option<Box<Reduced>>,
    /// Without the numbers of calls.
    pub(crate) usage: Usage,
    /// Whether a routine has combined the results.
    pub(crate) is_combined: bool,
    /// The first round that has failed, and the reason for which the results are not combined.
    pub(crate) uncombined: Option<(u32, String)>,
}

/// The numbers of calls, as clients see them.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tally)]
pub(crate) struct Counted {
    pub(crate) ended: u64,
    pub(crate) failed: BTreeMap<ErrorKind, u64>,
}

impl Output for Tally {
    fn merge(&mut self, other: Self) {
        self.ended += other.ended;
        for (kind, calls) in other.failed {
            *self.failed.entry(kind).or_default() += calls;
        }
        self.usage.merge(&other.usage);
        self.is_combined |= other.is_combined;
        self.uncombined = self.uncombined.take().into_iter().chain(other.uncombined).min();
        if let Some(other) = other.reduced {
            self.reduced.get_or_insert_default().merge(*other);
        }
    }
}

impl Tally {
    /// Returns the tally of no calls.
    pub(crate) fn of(reduce: &Reduce) -> Self {
        let reduced = (!reduce.is_empty()).then(|| Box::new(Reduced::new(reduce)));
        Self { reduced, ..Self::default() }
    }

    pub(crate) fn count(&mut self, failed: Option<ErrorKind>) {
        self.ended += 1;
        if let Some(kind) = failed {
            *self.failed.entry(kind).or_default() += 1;
        }
    }

    pub(crate) fn counted(&self) -> Counted {
        Counted { ended: self.ended, failed: self.failed.clone() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        groups::{Scalar, Selector},
        reduction::Reduction,
    };

    fn tally() -> impl Strategy<Value = Tally> {
        let kind = prop_oneof![Just(None), Just(Some(ErrorKind::User)), Just(Some(ErrorKind::Crash))];
        vec((kind, any::<i8>(), any::<bool>()), 0..9).prop_map(|calls| {
            let numbers = vec![Reduction::Mean, Reduction::Argmin, Reduction::Count];
            let mut tally = Tally::of(&Reduce { numbers, by: vec![Selector::Position(0)], routine: None });
            for (failed, result, group) in calls {
                tally.count(failed);
                let reason = (u32::from(result.unsigned_abs()), format!("{group}"));
                tally.merge(Tally { uncombined: failed.map(|_| reason), ..Tally::default() });
                tally.usage.merge(&Usage {
                    wall_us: 1,
                    peak_memory_bytes: u64::from(result.unsigned_abs()),
                    ..Usage::default()
                });
                if let (None, Some(reduced)) = (failed, &mut tally.reduced) {
                    reduced.add(&vec![Scalar::Bool(group)], 0, f64::from(result) / 10.0);
                }
            }
            tally
        })
    }

    fn merged(one: &Tally, other: &Tally) -> Tally {
        let mut merged = one.clone();
        merged.merge(other.clone());
        merged
    }

    proptest! {
        #[test]
        fn tally_is_commutative_monoid(a in tally(), b in tally(), c in tally()) {
            prop_assert_eq!(merged(&a, &b), merged(&b, &a));
            prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
            prop_assert_eq!(merged(&a, &Tally::default()), a);
        }
    }
}
