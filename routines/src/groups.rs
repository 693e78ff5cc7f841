//! Groups of calls, by the values of some of their arguments.

use std::{collections::BTreeSet, convert::Infallible, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json, value::RawValue};

use crate::space::Space;

/// The maximum number of groups of a job, and of arguments that select them.
pub(crate) const GROUPS_MAX: u64 = 10_000;
const SELECTORS_MAX: usize = 8;

/// The maximum length of a text in a key, in bytes.
const TEXT_BYTES_MAX: usize = 100;

/// An argument of each call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Selector {
    Position(u64),
    Name(String),
}

/// The values of the selected arguments.
pub(crate) type Key = Vec<Scalar>;

/// A value in a key. Numbers are equal if their doubles are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    /// The bits of a double, in the order of doubles.
    Number(i64),
    Text(String),
}

impl FromStr for Selector {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Position))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position(at) => at.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl Selector {
    /// Parses a name, a position, or a list of them.
    ///
    /// # Errors
    /// The place and the remedy.
    pub(crate) fn parse_all(json: &Value) -> Result<Vec<Self>, String> {
        let list = json.as_array().map_or_else(|| std::slice::from_ref(json), Vec::as_slice);
        let parsed = list.iter().map(|json| match json {
            Value::String(name) => Ok(Self::Name(name.clone())),
            json => json.as_u64().map(Self::Position).ok_or_else(|| {
                format!("`by` has {json}: write the name of an argument, its position, such as 0, or a list of them")
            }),
        });
        parsed.collect()
    }

    /// Checks the selectors of a job.
    ///
    /// # Errors
    /// If there are too many, or one is repeated.
    pub(crate) fn check_all(all: &[Self]) -> Result<(), String> {
        if all.len() > SELECTORS_MAX {
            return Err(format!("`by` has {} arguments: give at most {SELECTORS_MAX}", all.len()));
        }
        let twice = all.iter().enumerate().find(|(at, one)| all[..*at].contains(one));
        twice.map_or(Ok(()), |(_, one)| Err(format!("`by` has {one} twice: remove one")))
    }

    fn value(&self, argument: &Value) -> Result<Scalar, String> {
        let value = match (self, argument) {
            (Self::Name(name), Value::Object(fields)) => fields.get(name),
            (Self::Position(at), Value::Array(values)) => {
                usize::try_from(*at).ok().and_then(|at| values.get(at))
            }
            (Self::Name(_), _) | (Self::Position(_), Value::Object(_)) => None,
            // The only argument.
            (Self::Position(at), value) => (*at == 0).then_some(value),
        };
        let value = value.ok_or_else(|| {
            format!("there is no argument {self}, which `by` requests: give it in each call")
        })?;
        Scalar::of(value).map_err(|reason| format!("{self} {reason}"))
    }
}

impl Scalar {
    fn of(value: &Value) -> Result<Self, String> {
        match value {
            Value::Null => Ok(Self::Null),
            Value::Bool(value) => Ok(Self::Bool(*value)),
            // Zero has one sign.
            Value::Number(number) => {
                Ok(Self::Number(ordered((number.as_f64().unwrap_or_default() + 0.0).to_bits().cast_signed())))
            }
            Value::String(text) if text.len() <= TEXT_BYTES_MAX => Ok(Self::Text(text.clone())),
            Value::String(text) => {
                Err(format!("is a text of {} bytes: `by` takes at most {TEXT_BYTES_MAX}", text.len()))
            }
            _ => Err("is a list or an object: `by` takes null, true, false, numbers and texts".to_owned()),
        }
    }

    fn shown(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => json!(value),
            Self::Number(bits) => {
                let number = f64::from_bits(ordered(*bits).cast_unsigned());
                // An integer has no fraction.
                let text = if number.abs() < 1e15 { number.to_string() } else { String::new() };
                serde_json::from_str(&text).unwrap_or_else(|_| json!(number))
            }
            Self::Text(text) => json!(text),
        }
    }
}

/// Converts the bits of a double to a number with the same order, and back.
fn ordered(bits: i64) -> i64 {
    bits ^ if bits < 0 { i64::MAX } else { 0 }
}

/// Returns the values of a key by their selectors.
pub(crate) fn shown(by: &[Selector], key: &[Scalar]) -> Value {
    let fields = by.iter().zip(key).map(|(by, value)| (by.to_string(), value.shown()));
    Value::Object(fields.collect::<Map<_, _>>())
}

/// Returns the key of a call.
///
/// # Errors
/// The place and the remedy if it has none.
pub(crate) fn key(space: &Space, index: u64, by: &[Selector]) -> Result<Key, String> {
    if by.is_empty() {
        return Ok(Key::new());
    }
    let argument = parsed(&space.argument(index)?)?;
    let values = by.iter().map(|by| by.value(&argument));
    values.collect::<Result<_, _>>().map_err(|reason| format!("argument {index}: {reason}"))
}

/// Returns the number of groups, or a number above the maximum.
///
/// # Errors
/// The place and the remedy of a call without a key.
pub(crate) fn count(space: &Space, by: &[Selector], most: u64) -> Result<u64, String> {
    if space.len() == 0 {
        return Ok(0);
    }
    let Space::Product(axes) = space else {
        return distinct((0..space.len()).map(|index| key(space, index, by)), most);
    };
    by.iter().try_fold(1_u64, |groups, by| {
        let axis = axes.axis(by).ok_or_else(|| {
            format!("there is no axis {by}, which `by` requests: select an axis of the product")
        })?;
        let values = (0..axis.len()).map(|at| {
            let value = Scalar::of(&parsed(&axis.argument(at)?)?);
            value.map_err(|reason| format!("value {at} of the axis {by} {reason}"))
        });
        Ok(groups.saturating_mul(distinct(values, most)?))
    })
}

fn distinct<T: Ord>(values: impl Iterator<Item = Result<T, String>>, most: u64) -> Result<u64, String> {
    let mut found = BTreeSet::new();
    for value in values {
        found.insert(value?);
        if found.len() as u64 > most {
            break;
        }
    }
    Ok(found.len() as u64)
}

fn parsed(json: &RawValue) -> Result<Value, String> {
    serde_json::from_str(json.get()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space;

    fn space(json: &Value) -> Space {
        space::parse(&RawValue::from_string(json.to_string()).unwrap()).unwrap()
    }

    fn by(json: &Value) -> Vec<Selector> {
        Selector::parse_all(json).unwrap()
    }

    #[test]
    fn keys_are_values_of_arguments() {
        let product = json!({ "product": { "alpha": [0.5, 1.0], "seed": { "range": [0, 3] } } });
        for (arguments, selected, index, expected) in [
            (product.clone(), json!("alpha"), 3, json!({ "alpha": 1 })),
            (product, json!(["seed", "alpha"]), 1, json!({ "seed": 1, "alpha": 0.5 })),
            (json!([[1, "x"], [2, null]]), json!(1), 1, json!({ "1": null })),
            (json!([true, -3]), json!(0), 0, json!({ "0": true })),
            (json!({ "range": [-5, 5] }), json!([0]), 0, json!({ "0": -5 })),
        ] {
            let selected = by(&selected);
            let key = key(&space(&arguments), index, &selected).unwrap();
            assert_eq!(shown(&selected, &key), expected, "{arguments}");
        }
        let sorted = [
            Value::Null,
            json!(true),
            json!(-1_000_000_000),
            json!(-0.5),
            json!(0),
            json!(1e-300),
            json!(2),
            json!("a"),
        ];
        let scalars: Vec<Scalar> = sorted.iter().map(|value| Scalar::of(value).unwrap()).collect();
        assert!(scalars.is_sorted(), "{scalars:?}");
        assert_eq!(Scalar::of(&json!(-0.0)), Scalar::of(&json!(0)));
        assert_eq!(scalars.iter().map(Scalar::shown).collect::<Vec<_>>(), sorted);
        assert_eq!(
            ["alpha", "12"].map(|text| text.parse::<Selector>().unwrap()),
            [Selector::Name("alpha".to_owned()), Selector::Position(12)]
        );
    }

    #[test]
    fn groups_are_counted_before_the_job_starts() {
        let product = json!({ "product": { "a": [1, 2, 1.0], "b": [true, "x"], "seed": { "range": [0, 100_000_000] } } });
        let pairs: Vec<_> = (0..100).map(|n| json!([n % 10, n / 50])).collect();
        for (arguments, selected, expected) in [
            (product.clone(), json!(["a", "b"]), 4),
            (product, json!("seed"), 51),
            (json!({ "zip": [{ "range": [0, 40] }, { "range": [0, 40] }] }), json!([0, 1]), 40),
            (json!(pairs), json!([0, 1]), 20),
            (json!({ "product": [[], [[]]] }), json!(1), 0),
        ] {
            assert_eq!(count(&space(&arguments), &by(&selected), 50), Ok(expected), "{arguments}");
        }
    }

    #[test]
    fn calls_without_keys_are_refused_with_place_and_remedy() {
        for (arguments, selected, part) in [
            (json!([{ "a": 1 }, { "b": 1 }]), json!("a"), "argument 1: there is no argument a"),
            (json!([{ "a": [1] }]), json!("a"), "argument 0: a is a list"),
            (json!([["x".repeat(101)]]), json!(0), "101 bytes"),
            (json!([5]), json!(1), "no argument 1"),
            (json!({ "product": { "a": [[1]] } }), json!("a"), "value 0 of the axis a is a list"),
            (json!({ "product": [[1]] }), json!("a"), "no axis a"),
        ] {
            let refused = count(&space(&arguments), &by(&selected), 50).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
        assert!(Selector::parse_all(&json!([1.5])).unwrap_err().contains("`by` has 1.5"));
        let name = || Selector::Name("a".to_owned());
        assert!(Selector::check_all(&[name(), name()]).unwrap_err().contains("a twice"));
        assert!(Selector::check_all(&vec![name(); 9]).unwrap_err().contains("at most 8"));
    }
}
