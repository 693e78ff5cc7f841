//! Requests for jobs, as JSON.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{
    groups::Selector,
    order::Work,
    reduction::{Reduce, Reduction},
    space,
    wire::check_value,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobRequest {
    /// `NAME@VERSION`, or a digest.
    pub(crate) routine: String,
    /// A list of values, or another space.
    arguments: Option<Box<RawValue>>,
    /// The numbers to compute from the results.
    #[serde(default)]
    reduce: Vec<Value>,
    /// The arguments that select groups: calls with equal values of them are reduced together.
    by: Option<Value>,
    /// The argument of a search.
    argument: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallRequest {
    argument: Box<RawValue>,
}

impl JobRequest {
    /// # Errors
    /// The reason for which it is refused.
    pub(crate) fn parse(json: &[u8]) -> Result<(String, Work), String> {
        let Self { routine, arguments, argument, reduce, by } =
            serde_json::from_slice(json).map_err(|error| {
                format!("the body is not {{\"routine\": \"NAME@VERSION\", \"arguments\": [...]}}: {error}")
            })?;
        let by = by.map_or(Ok(Vec::new()), |by| Selector::parse_all(&by))?;
        let reduce = Reduce::new(Reduction::parse_all(&reduce)?, by)?;
        let work = match (arguments, argument) {
            (Some(arguments), None) => Work::Calls { space: space::parse(&arguments)?, reduce },
            (None, Some(_)) if !reduce.is_empty() => {
                return Err("a search has an `argument`, but no `reduce`: remove it".to_owned());
            }
            (None, Some(argument)) => search(&argument)?,
            _ => return Err("give either `arguments` of calls or the `argument` of a search".to_owned()),
        };
        Ok((routine, work))
    }
}

/// Parses the argument of a search.
///
/// # Errors
/// The reason for which it is refused.
pub(crate) fn search(argument: &RawValue) -> Result<Work, String> {
    check_value(argument.get()).map_err(|error| format!("the argument is invalid: {error}"))?;
    Ok(Work::Search(argument.get().to_owned()))
}

/// Parses the request for one call.
///
/// # Errors
/// The reason for which it is refused.
pub(crate) fn single(json: &[u8]) -> Result<String, String> {
    let CallRequest { argument } = serde_json::from_slice(json)
        .map_err(|error| format!("the body is not {{\"argument\": VALUE}}: {error}"))?;
    check_value(argument.get()).map_err(|error| format!("the argument is invalid: {error}"))?;
    Ok(argument.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Space;

    fn parse(arguments: &str) -> Result<Space, String> {
        let body = format!(r#"{{"routine":"pi@1","arguments":{arguments}}}"#);
        JobRequest::parse(body.as_bytes()).map(|(routine, work)| {
            assert_eq!(routine, "pi@1");
            let Work::Calls { space, .. } = work else { panic!("{work:?}") };
            space
        })
    }

    #[test]
    fn arguments_are_a_list_or_a_range() {
        let texts = |texts: &[&str]| Space::List(texts.iter().map(|&text| text.to_owned()).collect());
        assert_eq!(
            parse(r#"[1, [2, "x"], {"a": {"$i": "1"}}]"#),
            Ok(texts(&["1", r#"[2, "x"]"#, r#"{"a": {"$i": "1"}}"#]))
        );
        assert_eq!(parse("[]"), Ok(texts(&[])));
        assert_eq!(parse(r#"{"range": [-5, 5]}"#), Ok(Space::Range { from: -5, to: 5 }));
    }

    #[test]
    fn request_is_for_calls_or_a_search() {
        let parse = |more: &str| JobRequest::parse(format!(r#"{{"routine":"q@1"{more}}}"#).as_bytes());
        let search = parse(r#","argument":[12]"#).unwrap();
        assert_eq!(search, ("q@1".to_owned(), Work::Search("[12]".to_owned())));
        for wrong in [
            "",
            r#","argument":1,"reduce":["sum"]"#,
            r#","argument":1,"arguments":[1]"#,
            r#","argument":18446744073709551616"#,
        ] {
            assert!(parse(wrong).unwrap_err().contains("argument"), "{wrong}");
        }
    }

    #[test]
    fn invalid_arguments_are_refused_with_reason() {
        let deep = format!("[{}1{}]", "[".repeat(101), "]".repeat(101));
        for (arguments, reason) in [
            ("[NaN]", "line 1"),
            ("[18446744073709551616]", "2^53"),
            (r#"["\ud800"]"#, "surrogate"),
            (&*deep, "100 deep"),
            (r#"{"range": [5, 4]}"#, "[5, 4]"),
            (r#"{"range": [0, 9007199254740993]}"#, "2^53"),
            (r#"{"range": [0, 18446744073709551616]}"#, "range"),
            (r#"{"range": [0, 1000000000000000000]}"#, "2^53"),
            (r#"{"range": [0, 2000000000]}"#, "at most"),
            (r#"{"range": [0, 1], "step": 2}"#, "one of the fields"),
            ("7", "range"),
        ] {
            let refused = parse(arguments).unwrap_err();
            assert!(refused.contains(reason), "{arguments}: {refused}");
        }
        assert!(single(br#"{"argument":[NaN]}"#).is_err() && single(br#"{"argument":1e999}"#).is_err());
        for body in ["", "{}", "[]", r#"{"routine":"pi@1"}"#, r#"{"routine":1,"arguments":[]}"#] {
            assert!(JobRequest::parse(body.as_bytes()).is_err(), "{body}");
        }
        assert!(JobRequest::parse(&[0xff]).is_err());
    }
}
