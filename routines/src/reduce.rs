//! Reductions: numbers that tasks compute from the results of their calls, so that only these numbers are transferred. They
//! do not depend on the order of the calls.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use taskwork::Output;

use crate::{
    exact_sum::ExactSum,
    groups::{self, Key},
    reduction::{Histogram, Reduce, Reduction},
    wire::{CallError, ErrorKind},
};

/// A result with its index.
type Indexed = (f64, u64);

/// The reduced results of calls. Merged with others, in any order, it is that of the results of all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reduced {
    wanted: Reduce,
    /// The numbers of each group; without groups, those with the empty key.
    groups: BTreeMap<Key, Numbers>,
}

/// The numbers from which the requested ones are computed; others are those of no results.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Numbers {
    count: u64,
    sum: ExactSum,
    /// The smallest and the largest results, the extreme ones first. NaN is none of them.
    least: Vec<Indexed>,
    greatest: Vec<Indexed>,
    /// The counts of a histogram, of each [place](Histogram::place) that is not empty.
    bins: BTreeMap<u64, u64>,
}

impl Reduced {
    /// Returns the numbers of no results.
    pub(crate) fn new(wanted: &Reduce) -> Self {
        Self { wanted: wanted.clone(), ..Self::default() }
    }

    pub(crate) fn add(&mut self, key: &Key, index: u64, result: f64) {
        let numbers = match self.groups.get_mut(key) {
            Some(numbers) => numbers,
            None => self.groups.entry(key.clone()).or_default(),
        };
        numbers.add(&self.wanted.numbers, index, result);
    }

    /// Returns the requested numbers of all results by their names; `None` if they are grouped. Without results, there is
    /// no mean and no extreme.
    pub(crate) fn shown(&self) -> Option<Value> {
        let of_none = Numbers::default();
        let numbers = self.groups.get(&Key::new()).unwrap_or(&of_none);
        self.wanted.by.is_empty().then(|| Value::Object(numbers.shown(&self.wanted.numbers)))
    }

    /// Returns the requested numbers of each group that has results, with its key in `by`, sorted by key; `None` without
    /// groups.
    pub(crate) fn shown_groups(&self) -> Option<Vec<Value>> {
        let Reduce { numbers: wanted, by, .. } = &self.wanted;
        let shown = self.groups.iter().map(|(key, numbers)| {
            let mut shown = numbers.shown(wanted);
            shown.insert("by".to_owned(), groups::shown(by, key));
            Value::Object(shown)
        });
        (!by.is_empty()).then(|| shown.collect())
    }
}

impl Output for Reduced {
    fn merge(&mut self, other: Self) {
        if self.wanted.is_empty() {
            self.wanted = other.wanted;
        }
        for (key, numbers) in other.groups {
            self.groups.entry(key).or_default().merge(&self.wanted.numbers, numbers);
        }
    }
}

impl Numbers {
    fn add(&mut self, wanted: &[Reduction], index: u64, result: f64) {
        self.count += 1;
        if wanted.iter().any(|wanted| matches!(wanted, Reduction::Sum | Reduction::Mean)) {
            self.sum.add(result);
        }
        if let Some(bins) = bins(wanted) {
            *self.bins.entry(bins.place(result)).or_default() += 1;
        }
        if !result.is_nan() {
            self.extend(wanted, [(result, index)], [(result, index)]);
        }
    }

    fn merge(&mut self, wanted: &[Reduction], other: Self) {
        self.count += other.count;
        self.sum.merge(&other.sum);
        for (place, count) in other.bins {
            *self.bins.entry(place).or_default() += count;
        }
        self.extend(wanted, other.least, other.greatest);
    }

    fn extend(
        &mut self,
        wanted: &[Reduction],
        least: impl IntoIterator<Item = Indexed>,
        greatest: impl IntoIterator<Item = Indexed>,
    ) {
        let most = |of: fn(&Reduction) -> u64| wanted.iter().map(of).max().unwrap_or(0);
        let most_least = most(|wanted| match wanted {
            Reduction::Min | Reduction::Argmin => 1,
            Reduction::Bottomk(k) => *k,
            _ => 0,
        });
        let most_greatest = most(|wanted| match wanted {
            Reduction::Max | Reduction::Argmax => 1,
            Reduction::Topk(k) => *k,
            _ => 0,
        });
        least.into_iter().for_each(|result| insert(&mut self.least, most_least, result, f64::lt));
        greatest.into_iter().for_each(|result| insert(&mut self.greatest, most_greatest, result, f64::gt));
    }

    fn shown(&self, wanted: &[Reduction]) -> Map<String, Value> {
        let value = |of: &[Indexed]| of.first().map_or(Value::Null, |(value, _)| number(*value));
        let index = |of: &[Indexed]| of.first().map_or(Value::Null, |(_, index)| json!(index));
        let list = |of: &[Indexed], k: u64| {
            let most = usize::try_from(k).unwrap_or(usize::MAX);
            let shown = of.iter().take(most);
            shown.map(|(value, index)| json!({ "index": index, "value": number(*value) })).collect()
        };
        let shown = wanted.iter().map(|wanted| {
            let value = match wanted {
                Reduction::Sum => number(self.sum.value()),
                Reduction::Mean if self.count == 0 => Value::Null,
                Reduction::Mean => number(self.sum.value() / self.count as f64),
                Reduction::Min => value(&self.least),
                Reduction::Max => value(&self.greatest),
                Reduction::Argmin => index(&self.least),
                Reduction::Argmax => index(&self.greatest),
                Reduction::Count => json!(self.count),
                Reduction::Topk(k) => list(&self.greatest, *k),
                Reduction::Bottomk(k) => list(&self.least, *k),
                Reduction::Histogram(bins) => {
                    bins.shown(|place| self.bins.get(&place).copied().unwrap_or_default())
                }
                // It is no number.
                Reduction::Routine(_) => Value::Null,
            };
            (wanted.name(), value)
        });
        shown.collect()
    }
}

/// Returns the bins of the histogram, if one is requested.
fn bins(wanted: &[Reduction]) -> Option<&Histogram> {
    wanted.iter().find_map(|wanted| match wanted {
        Reduction::Histogram(bins) => Some(bins),
        _ => None,
    })
}

/// Inserts a result into the best ones, of which at most so many are kept. Of equal results, also of zeros of both signs,
/// the first index decides.
fn insert(best: &mut Vec<Indexed>, most: u64, added: Indexed, is_better: fn(&f64, &f64) -> bool) {
    let place = best
        .partition_point(|it| is_better(&it.0, &added.0) || !is_better(&added.0, &it.0) && it.1 < added.1);
    if (place as u64) < most {
        if best.len() as u64 == most {
            best.pop();
        }
        best.insert(place, added);
    }
}

fn number(value: f64) -> Value {
    if value.is_nan() {
        return json!({ "$f": "nan" });
    }
    if value.is_infinite() {
        return json!({ "$f": if value > 0.0 { "inf" } else { "-inf" } });
    }
    json!(value)
}

/// Returns the result of a call as a number.
///
/// # Errors
/// The error of the call if it is none.
pub(crate) fn number_of(result: &str) -> Result<f64, CallError> {
    let found = match serde_json::from_str(result) {
        Ok(Value::Number(number)) => number.as_f64(),
        Ok(Value::Object(fields)) if fields.len() == 1 => {
            let number = |key| fields.get(key)?.as_str()?.parse::<f64>().ok();
            // Words for infinities and NaN are no integers.
            number("$i").filter(|number| number.is_finite()).or_else(|| number("$f"))
        }
        _ => None,
    };
    found.ok_or_else(|| {
        let shown: String = result.chars().take(100).collect();
        let reason =
            format!("the result {shown} is no number: return one, or submit the job without `reduce`");
        CallError::new(ErrorKind::Invalid, reason)
    })
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact numbers are expected")]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::groups::{GROUPS_MAX, Scalar, Selector};

    const ALL: [Reduction; 10] = [
        Reduction::Sum,
        Reduction::Mean,
        Reduction::Min,
        Reduction::Max,
        Reduction::Argmin,
        Reduction::Argmax,
        Reduction::Count,
        Reduction::Topk(3),
        Reduction::Bottomk(2),
        Reduction::Histogram(Histogram { from: -2.0, to: 4.0, bins: 3 }),
    ];

    fn all() -> Reduce {
        Reduce { numbers: ALL.to_vec(), ..Reduce::default() }
    }

    fn reduced(results: &[(u64, f64)]) -> Reduced {
        let mut reduced = Reduced::new(&all());
        for (index, result) in results {
            reduced.add(&Key::new(), *index, *result);
        }
        reduced
    }

    /// Reduces results in two groups.
    fn grouped(results: &[(u64, f64)]) -> Reduced {
        let mut reduced = Reduced::new(&Reduce { by: vec![Selector::Position(0)], ..all() });
        for (index, result) in results {
            reduced.add(&vec![Scalar::Bool(index % 3 == 0)], *index, *result);
        }
        reduced
    }

    #[test]
    fn reductions_of_known_results() {
        let shown = reduced(&[(2, -1.5), (0, 4.0), (7, 4.0), (5, -1.5)]).shown().unwrap();
        let expected = json!({
            "sum": 5.0, "mean": 1.25, "min": -1.5, "max": 4.0, "argmin": 2, "argmax": 0, "count": 4,
            "topk": [{ "index": 0, "value": 4.0 }, { "index": 7, "value": 4.0 }, { "index": 2, "value": -1.5 }],
            "bottomk": [{ "index": 2, "value": -1.5 }, { "index": 5, "value": -1.5 }],
            "histogram": { "from": -2.0, "to": 4.0, "counts": [2, 0, 2], "under": 0, "over": 0, "nan": 0 },
        });
        assert_eq!(shown, expected);
        let none = json!({
            "sum": 0.0, "mean": null, "min": null, "max": null, "argmin": null, "argmax": null, "count": 0,
            "topk": [], "bottomk": [],
            "histogram": { "from": -2.0, "to": 4.0, "counts": [0, 0, 0], "under": 0, "over": 0, "nan": 0 },
        });
        assert_eq!(reduced(&[]).shown(), Some(none));
        let shown = reduced(&[(0, f64::NAN), (1, f64::NEG_INFINITY)]).shown().unwrap();
        assert_eq!((&shown["sum"], &shown["min"]), (&json!({ "$f": "nan" }), &json!({ "$f": "-inf" })));
        assert_eq!(
            (&shown["argmax"], &shown["histogram"]["nan"], &shown["histogram"]["under"]),
            (&json!(1), &json!(1), &json!(1))
        );
        let mut merged = Reduced::default();
        merged.merge(reduced(&[(3, 0.5)]));
        assert_eq!(merged, reduced(&[(3, 0.5)]), "the output of a task without calls changes nothing");
    }

    #[test]
    fn numbers_of_all_kinds_are_results() {
        for (json, number) in [
            ("3", 3.0),
            ("-2.5e3", -2500.0),
            (r#"{"$i": "18446744073709551616"}"#, 18_446_744_073_709_551_616.0),
            (r#"{"$f":"-inf"}"#, f64::NEG_INFINITY),
        ] {
            assert_eq!(number_of(json).unwrap(), number);
        }
        assert!(number_of(r#"{"$f":"nan"}"#).unwrap().is_nan());
        let huge = format!(r#"{{"$i":"1{}"}}"#, "0".repeat(309));
        for json in ["null", "true", "\"3\"", "[3]", "{}", r#"{"$i":"x"}"#, r#"{"$i":"nan"}"#, &*huge] {
            let error = number_of(json).unwrap_err();
            assert!(error.kind == ErrorKind::Invalid && error.message.contains("is no number"), "{json}");
        }
    }

    #[test]
    fn output_with_most_groups_is_bounded() {
        let words = vec![Reduction::Mean, Reduction::Min, Reduction::Argmax, Reduction::Count];
        let mut reduced =
            Reduced::new(&Reduce { numbers: words, by: vec![Selector::Position(0)], routine: None });
        for index in 0..5 * GROUPS_MAX {
            let group = i64::try_from(index % GROUPS_MAX).unwrap();
            reduced.add(&vec![Scalar::Number(group << 40)], index, index as f64 * -0.1);
        }
        let encoded = bincode::serde::encode_to_vec(&reduced, bincode::config::standard()).unwrap();
        assert!(encoded.len() < 100 * usize::try_from(GROUPS_MAX).unwrap(), "{} bytes", encoded.len());
    }

    proptest! {
        #[test]
        fn result_is_the_double_that_its_routine_has_returned(result in any::<f64>().prop_filter("finite", |it| it.is_finite())) {
            // The shortest text that stands for this double, as Python writes it.
            prop_assert_eq!(number_of(&format!("{result:?}")).unwrap().to_bits(), result.to_bits());
        }

        #[test]
        fn reduction_is_independent_of_order_and_grouping(
            (results, cuts) in vec(any::<f64>(), 0..40)
                .prop_map(|results| (0..).zip(results).collect::<Vec<(u64, f64)>>())
                .prop_shuffle()
                .prop_flat_map(|results| { let most = results.len(); (Just(results), vec(0..=most, 0..5)) })
        ) {
            let mut sorted = results.clone();
            sorted.sort_by_key(|(index, _)| *index);
            let mut cuts = [&[0, results.len()], &cuts[..]].concat();
            cuts.sort_unstable();
            let merge = |mut one: Reduced, other: &Reduced| { one.merge(other.clone()); one };
            let shown = |reduced: &Reduced| format!("{:?} {:?}", reduced.shown(), reduced.shown_groups());
            for reduce in [reduced, grouped] {
                let parts: Vec<Reduced> = cuts.windows(2).map(|cut| reduce(&results[cut[0]..cut[1]])).collect();
                let forward = parts.iter().fold(reduce(&[]), merge);
                let backward = parts.iter().rev().fold(Reduced::default(), merge);
                prop_assert_eq!(shown(&forward), shown(&reduce(&sorted)));
                prop_assert_eq!(shown(&backward), shown(&reduce(&sorted)));
            }
        }
    }
}
