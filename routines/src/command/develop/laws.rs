//! The laws of reducers, tested on random samples of the values in their examples.

use std::{sync::Arc, time::Instant};

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng, seq::SliceRandom as _};
use serde_json::{Value, json, value::RawValue};

use super::{EXAMPLE_MAX, is_close};
use crate::{call::CallHere, host::Host, runtime::Installed, store::Outcome, tenant::Tenant};

/// The number of samples, and the maximum number of values in each of their two parts.
const SAMPLES: u32 = 20;
const VALUES_MAX: usize = 4;

/// The number of different values from which the samples are chosen, at least.
const DIFFERENT_MIN: usize = 3;

/// Each check of a reducer has the same samples, so that it has the same outcome.
const SEED: u64 = 0;

const LAWS: [&str; 3] = ["associative", "commutative", "neutral without values"];

/// A broken law, and its remedy.
type Broken = (String, &'static str);

/// Checks that a reducer is associative and commutative, and that its result without values is neutral.
pub(super) fn check(host: &'static Host, installed: &Arc<Installed>) -> Result<(), Broken> {
    check_laws(&samples(installed), &|values| combined(host, installed, values))
}

/// Checks the laws on samples of values. The broken one that is the first in the list is returned, since one defect of the
/// code often breaks several.
fn check_laws(values: &[Value], combine: &dyn Fn(&[Value]) -> Result<Value, Broken>) -> Result<(), Broken> {
    let is_new = |&at: &usize| !values[..at].iter().any(|earlier| is_close(earlier, &values[at], 0.0));
    if (0..values.len()).filter(is_new).take(DIFFERENT_MIN).count() < DIFFERENT_MIN {
        let message = "a reducer has no examples with three different values from which its laws are tested";
        return Err((message.to_owned(), "add an [[example]] with argument = [[VALUE, VALUE, VALUE]]"));
    }
    let mut random = SmallRng::seed_from_u64(SEED);
    let mut broken = [const { None }; LAWS.len()];
    let neutral = combine(&[])?;
    for _ in 0..SAMPLES {
        let mut part = || -> Vec<Value> {
            let count = random.random_range(1..=VALUES_MAX);
            (0..count).map(|_| values[random.random_range(0..values.len())].clone()).collect()
        };
        let (one, other) = (part(), part());
        let all = [one.clone(), other.clone()].concat();
        let whole = combine(&all)?;
        let of_one = combine(&one)?;
        let of_parts = combine(&[of_one.clone(), combine(&other)?])?;
        let of_mixed = combine(&[vec![of_one], other.clone()].concat())?;
        let mut shuffled = all.clone();
        shuffled.shuffle(&mut random);
        let of_shuffled = combine(&shuffled)?;
        let of_neutral = combine(&[vec![neutral.clone()], all.clone()].concat())?;
        let largest = all.iter().map(magnitude).fold(0.0, f64::max);
        let (one, other) = (json!(one), json!(other));
        for (law, found, how) in [
            (0, of_parts, format!("the results of {one} and {other}")),
            (0, of_mixed, format!("the result of {one} and the values {other}")),
            (1, of_shuffled, json!(shuffled).to_string()),
            (2, of_neutral, format!("{neutral} and {}", json!(all))),
        ] {
            if !is_close(&whole, &found, largest) {
                let describe = || {
                    let (law, all) = (LAWS[law], json!(all));
                    format!("it is not {law}: of {all} it makes {whole}, of {how} {found}")
                };
                broken[law].get_or_insert_with(describe);
            }
        }
    }
    let first = broken.into_iter().flatten().next();
    first.map_or(Ok(()), |message| Err((message, "correct the code, or remove `reducer`")))
}

/// Returns the largest number in a value, without its sign.
fn magnitude(value: &Value) -> f64 {
    match value {
        Value::Number(number) => number.as_f64().map_or(0.0, f64::abs),
        Value::Array(list) => list.iter().map(magnitude).fold(0.0, f64::max),
        Value::Object(fields) => fields.values().map(magnitude).fold(0.0, f64::max),
        Value::Null | Value::Bool(_) | Value::String(_) => 0.0,
    }
}

/// Returns the values in the lists of the examples.
fn samples(installed: &Installed) -> Vec<Value> {
    let arguments = installed.package.description.example.iter().map(|example| &example.get_ref().argument);
    let lists = arguments.filter_map(|argument| match argument {
        Value::Array(list) => list.first()?.as_array(),
        Value::Object(fields) => fields.values().find_map(Value::as_array),
        _ => None,
    });
    lists.flatten().cloned().collect()
}

fn combined(host: &'static Host, installed: &Arc<Installed>, values: &[Value]) -> Result<Value, Broken> {
    let failed = |reason: String| {
        let message = format!("the reducer fails for {}: {reason}", json!(values));
        (message, "a reducer takes a list of any length, also of its own results: correct the code")
    };
    let argument = RawValue::from_string(json!([values]).to_string());
    let argument = argument.map_err(|error| failed(error.to_string()))?;
    let deadline = Instant::now() + EXAMPLE_MAX;
    let call = CallHere::new(host, Arc::clone(installed), argument, 0, Some(EXAMPLE_MAX), Tenant::default());
    match call.run(&|| Instant::now() >= deadline) {
        Outcome::Value(value) => serde_json::from_str(value.get()).map_err(|error| failed(error.to_string())),
        Outcome::Error(error) => Err(failed(error.message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a reducer of numbers; null is its result without values.
    fn check_numbers(values: &[f64], reduce: impl Fn(&[f64]) -> Option<f64>) -> Result<(), String> {
        let values: Vec<Value> = values.iter().map(|&value| json!(value)).collect();
        let combine = |values: &[Value]| {
            let numbers: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
            Ok(json!(reduce(&numbers)))
        };
        check_laws(&values, &combine).map_err(|(message, _)| message)
    }

    fn mean(numbers: &[f64]) -> Option<f64> {
        (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
    }

    #[test]
    fn reducer_with_several_broken_laws_breaks_the_first() {
        let message = check_numbers(&[1.0, 2.5, 10.0, -7.0], mean).unwrap_err();
        assert!(message.contains("not associative"), "{message}");
        // Its result without values is 1, so it breaks that law in each sample, and associativity, too.
        let more = check_numbers(&[1.0, 2.0, 3.0], |numbers| Some(numbers.iter().sum::<f64>() + 1.0));
        assert!(more.unwrap_err().contains("not associative"));
        let last = check_numbers(&[1.0, 2.0, 3.0], |numbers| numbers.last().copied());
        assert!(last.unwrap_err().contains("not commutative"));
        // A second null is not neutral.
        let nulls = check_laws(&[json!(1), json!(2), json!(3)], &|values| {
            let has_null = values.iter().any(Value::is_null);
            let all = values.iter().filter_map(Value::as_i64).max();
            Ok(if has_null { json!(0) } else { json!(all) })
        });
        assert!(nulls.unwrap_err().0.contains("not neutral without values"));
    }

    #[test]
    fn rounding_and_large_results_break_no_law() {
        let sum = |numbers: &[f64]| Some(numbers.iter().sum());
        assert_eq!(check_numbers(&[0.1, 0.2, -0.3], sum), Ok(()));
        let product = |numbers: &[f64]| {
            let product = numbers.iter().product::<f64>();
            assert!(product.is_finite(), "of {numbers:?}");
            Some(product)
        };
        assert_eq!(check_numbers(&[1e3, 2.5e3, 1e6, -7e6], product), Ok(()));
    }

    #[test]
    fn equal_values_are_no_samples() {
        for values in [&[2.0; 5][..], &[1.0, 2.0, 1.0, 2.0]] {
            let message = check_numbers(values, mean).unwrap_err();
            assert!(message.contains("three different values"), "{message}");
        }
    }
}
