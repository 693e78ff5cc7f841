//! Reductions: numbers that tasks compute from the results of their calls, so that only these numbers are transferred. They
//! do not depend on the order of the calls.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use taskwork::Output;
use utoipa::ToSchema;

use crate::{exact_sum::ExactSum, wire::CallError, wire::ErrorKind};

/// A number that is computed from all results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reduction {
    /// The exact sum, rounded once.
    Sum,
    /// The sum divided by the count.
    Mean,
    Min,
    Max,
    /// The first index of the minimum.
    Argmin,
    /// The first index of the maximum.
    Argmax,
    Count,
}

/// The reduced results of calls. Merged with others, in any order, it is that of the results of all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reduced {
    /// The requested numbers.
    wanted: Vec<Reduction>,
    count: u64,
    sum: ExactSum,
    /// The extreme results with their first indices. NaN is none of them.
    least: Option<(f64, u64)>,
    greatest: Option<(f64, u64)>,
}

impl Reduced {
    /// Returns the numbers of no results.
    pub(crate) fn new(wanted: &[Reduction]) -> Self {
        Self { wanted: wanted.to_vec(), ..Self::default() }
    }

    pub(crate) fn add(&mut self, index: u64, result: f64) {
        self.count += 1;
        self.sum.add(result);
        if !result.is_nan() {
            self.extend(Some((result, index)), Some((result, index)));
        }
    }

    fn extend(&mut self, least: Option<(f64, u64)>, greatest: Option<(f64, u64)>) {
        type Extreme = Option<(f64, u64)>;
        // Of equal results, also of zeros of both signs, the first index decides.
        let merged = |one: Extreme, other: Extreme, is_better: fn(&f64, &f64) -> bool| match (one, other) {
            (Some(one), Some(other)) => {
                let is_equal = !is_better(&other.0, &one.0);
                let is_first = is_better(&one.0, &other.0) || is_equal && one.1 < other.1;
                Some(if is_first { one } else { other })
            }
            (one, other) => one.or(other),
        };
        self.least = merged(self.least, least, f64::lt);
        self.greatest = merged(self.greatest, greatest, f64::gt);
    }

    /// Returns the requested numbers by their names. Without results, there is no mean and no extreme.
    pub(crate) fn shown(&self) -> Value {
        let extreme = |of: Option<(f64, u64)>| of.map_or(Value::Null, |(value, _)| number(value));
        let place = |of: Option<(f64, u64)>| of.map_or(Value::Null, |(_, index)| json!(index));
        let shown = self.wanted.iter().map(|wanted| {
            let value = match wanted {
                Reduction::Sum => number(self.sum.value()),
                Reduction::Mean if self.count == 0 => Value::Null,
                Reduction::Mean => number(self.sum.value() / self.count as f64),
                Reduction::Min => extreme(self.least),
                Reduction::Max => extreme(self.greatest),
                Reduction::Argmin => place(self.least),
                Reduction::Argmax => place(self.greatest),
                Reduction::Count => json!(self.count),
            };
            (format!("{wanted:?}").to_lowercase(), value)
        });
        Value::Object(shown.collect::<Map<_, _>>())
    }
}

impl Output for Reduced {
    fn merge(&mut self, other: Self) {
        if self.wanted.is_empty() {
            self.wanted = other.wanted;
        }
        self.count += other.count;
        self.sum.merge(&other.sum);
        self.extend(other.least, other.greatest);
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

    const ALL: [Reduction; 7] = [
        Reduction::Sum,
        Reduction::Mean,
        Reduction::Min,
        Reduction::Max,
        Reduction::Argmin,
        Reduction::Argmax,
        Reduction::Count,
    ];

    fn reduced(results: &[(u64, f64)]) -> Reduced {
        let mut reduced = Reduced::new(&ALL);
        for (index, result) in results {
            reduced.add(*index, *result);
        }
        reduced
    }

    #[test]
    fn reductions_of_known_results() {
        let shown = reduced(&[(2, -1.5), (0, 4.0), (7, 4.0), (5, -1.5)]).shown();
        let expected = json!({
            "sum": 5.0, "mean": 1.25, "min": -1.5, "max": 4.0, "argmin": 2, "argmax": 0, "count": 4
        });
        assert_eq!(shown, expected);
        let none = json!({
            "sum": 0.0, "mean": null, "min": null, "max": null, "argmin": null, "argmax": null, "count": 0
        });
        assert_eq!(reduced(&[]).shown(), none);
        let shown = reduced(&[(0, f64::NAN), (1, f64::NEG_INFINITY)]).shown();
        assert_eq!((&shown["sum"], &shown["min"]), (&json!({ "$f": "nan" }), &json!({ "$f": "-inf" })));
        assert_eq!(shown["argmax"], 1);
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

    proptest! {
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
            let parts: Vec<Reduced> = cuts.windows(2).map(|cut| reduced(&results[cut[0]..cut[1]])).collect();
            let merge = |mut one: Reduced, other: &Reduced| { one.merge(other.clone()); one };
            let forward = parts.iter().fold(Reduced::new(&ALL), merge);
            let backward = parts.iter().rev().fold(Reduced::new(&ALL), merge);
            prop_assert_eq!(forward.shown().to_string(), reduced(&sorted).shown().to_string());
            prop_assert_eq!(backward.shown().to_string(), reduced(&sorted).shown().to_string());
        }
    }
}
