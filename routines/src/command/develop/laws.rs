//! The laws of reducers, tested on random samples of the values in their examples.

use std::{sync::Arc, time::Instant};

use rand::{Rng as _, seq::SliceRandom as _};
use serde_json::{Value, json, value::RawValue};

use super::{EXAMPLE_MAX, is_close};
use crate::{call::CallHere, host::Host, runtime::Installed, store::Outcome, tenant::Tenant};

/// The number of samples, and the maximum number of values in each of their two parts.
const SAMPLES: u32 = 20;
const VALUES_MAX: usize = 4;

/// A broken law, and its remedy.
type Broken = (String, &'static str);

/// Checks that a reducer is associative and commutative, and that its result without values is neutral.
pub(super) fn check(host: &'static Host, installed: &Arc<Installed>) -> Result<(), Broken> {
    let mut random = rand::rng();
    let mut values = samples(installed);
    if values.len() < 3 {
        let message = "a reducer has no examples with three values from which its laws are tested";
        return Err((message.to_owned(), "add an [[example]] with argument = [[VALUE, VALUE, VALUE]]"));
    }
    let combine = |values: &[Value]| combined(host, installed, values);
    let neutral = combine(&[])?;
    for _ in 0..SAMPLES {
        let mut part = || -> Vec<Value> {
            let count = random.random_range(1..=VALUES_MAX);
            (0..count).map(|_| values[random.random_range(0..values.len())].clone()).collect()
        };
        let (one, other) = (part(), part());
        let all = [one.clone(), other.clone()].concat();
        let whole = combine(&all)?;
        let of_parts = combine(&[combine(&one)?, combine(&other)?])?;
        let mut shuffled = all.clone();
        shuffled.shuffle(&mut random);
        let of_shuffled = combine(&shuffled)?;
        let of_neutral = combine(&[vec![neutral.clone()], all.clone()].concat())?;
        for (law, found, how) in [
            ("associative", of_parts, format!("the results of {} and {}", json!(one), json!(other))),
            ("commutative", of_shuffled, json!(shuffled).to_string()),
            ("neutral without values", of_neutral, format!("{neutral} and {}", json!(all))),
        ] {
            if !is_close(&whole, &found) {
                let message =
                    format!("it is not {law}: of {} it makes {whole}, of {how} {found}", json!(all));
                return Err((message, "correct the code, or remove `reducer`"));
            }
        }
        values.push(whole);
    }
    Ok(())
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
