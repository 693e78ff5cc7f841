//! Parses the answers of the sources of notices. Pure; invalid input never causes a panic.

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use thiserror::Error;

use super::policy::When;

/// The variable in which Slurm announces the latest end of a job, in seconds since 1970.
pub(super) const SLURM_END: &str = "SLURM_JOB_END_TIME";

/// The announcement that a machine will be taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Going {
    pub(super) when: When,
    pub(super) why: String,
}

/// The error of an answer that cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the answer is not {0}")]
pub(crate) struct Garbled(&'static str);

/// The kinds of Azure's events after which the machine has gone or restarted.
const AZURE_ENDS: [&str; 4] = ["Preempt", "Terminate", "Redeploy", "Reboot"];

/// The maximum length of words from answers in the log.
const WORD_MAX: usize = 40;

/// Parses AWS's `spot/instance-action`, which exists only after a notice.
pub(super) fn aws(body: &str) -> Result<Going, Garbled> {
    #[derive(Deserialize)]
    struct Action {
        action: String,
        #[serde(default)]
        time: String,
    }
    let Action { action, time } =
        serde_json::from_str(body).map_err(|_| Garbled("an instance action of AWS"))?;
    let when = humantime::parse_rfc3339_weak(time.trim()).map_or(When::Unsaid, When::At);
    Ok(Going { when, why: format!("AWS takes the machine back ({})", word(&action)) })
}

/// Parses Google's `instance/preempted`.
pub(super) fn gcp(body: &str) -> Result<Option<Going>, Garbled> {
    match body.trim() {
        "FALSE" => Ok(None),
        "TRUE" => {
            Ok(Some(Going { when: When::Unsaid, why: "Google Cloud takes the machine back".to_owned() }))
        }
        _ => Err(Garbled("TRUE or FALSE")),
    }
}

/// Parses Azure's scheduled events. Returns the earliest event that concerns this machine.
pub(super) fn azure(body: &str, machine: &str) -> Result<Option<Going>, Garbled> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Document {
        events: Vec<Event>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Event {
        #[serde(rename = "EventType")]
        kind: String,
        #[serde(default)]
        resources: Vec<String>,
        #[serde(default)]
        not_before: String,
    }
    let Document { events } =
        serde_json::from_str(body).map_err(|_| Garbled("a document of scheduled events"))?;
    let ends_this = |event: &Event| {
        AZURE_ENDS.contains(&event.kind.as_str())
            && event.resources.iter().any(|resource| resource.eq_ignore_ascii_case(machine))
    };
    let going = events.into_iter().filter(ends_this).map(|event| {
        let when = httpdate::parse_http_date(event.not_before.trim()).map_or(When::Unsaid, When::At);
        Going { when, why: format!("Azure has announced a {} of the machine", word(&event.kind)) }
    });
    // An event without a time has started.
    Ok(going.min_by_key(|going| match going.when {
        When::At(at) => at,
        When::In(_) | When::Unsaid => SystemTime::UNIX_EPOCH,
    }))
}

/// Parses the name of a machine of Azure.
pub(super) fn azure_name(body: &str) -> Result<String, Garbled> {
    let name = body.trim();
    let is_name = !name.is_empty() && name.len() <= 80 && name.chars().all(|c| c.is_ascii_graphic());
    if is_name { Ok(name.to_owned()) } else { Err(Garbled("the name of a machine")) }
}

/// Parses a token of AWS.
pub(super) fn aws_token(body: &str) -> Result<String, Garbled> {
    let token = body.trim();
    let is_token = !token.is_empty() && token.len() <= 1024 && token.chars().all(|c| c.is_ascii_graphic());
    if is_token { Ok(token.to_owned()) } else { Err(Garbled("a token")) }
}

/// Parses the content of a notice file: a number of seconds, a time, or other text.
pub(super) fn file(content: &str) -> When {
    let content = content.trim();
    if let Some(seconds) = content.parse::<f64>().ok().filter(|seconds| (0.0..1e9).contains(seconds)) {
        return When::In(Duration::from_secs_f64(seconds));
    }
    humantime::parse_rfc3339_weak(content).map_or(When::Unsaid, When::At)
}

/// Parses the end of a job of Slurm.
pub(super) fn slurm(end: &str) -> Result<SystemTime, Garbled> {
    let seconds = end.trim().parse().map_err(|_| Garbled("a time in seconds since 1970"))?;
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_secs(seconds))
        .ok_or(Garbled("a time in seconds since 1970"))
}

/// Sanitizes a word for the log.
fn word(text: &str) -> String {
    text.chars().filter(char::is_ascii_graphic).take(WORD_MAX).collect()
}

/// Parses a text in all formats, for the fuzzer.
pub(super) fn check(text: &str) {
    let _ = (aws(text), gcp(text), azure(text, "vm"), azure_name(text), aws_token(text), slurm(text));
    let _ = file(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> When {
        When::At(humantime::parse_rfc3339(text).unwrap())
    }

    #[test]
    fn aws_action_and_time_are_parsed() {
        let going = aws(r#"{"action": "terminate", "time": "2017-09-18T08:22:00Z"}"#).unwrap();
        assert_eq!(going.when, at("2017-09-18T08:22:00Z"));
        assert!(going.why.contains("terminate"), "{going:?}");
        assert_eq!(aws(r#"{"action": "hibernate"}"#).unwrap().when, When::Unsaid);
        assert_eq!(aws(r#"{"action": "stop", "time": "soon"}"#).unwrap().when, When::Unsaid);
        for garbage in ["", "<html>Sign in</html>", "{}", "[]", r#"{"time": "2017-09-18T08:22:00Z"}"#] {
            assert!(aws(garbage).is_err(), "{garbage:?}");
        }
        let noisy = aws(&format!(r#"{{"action": "a\n{}"}}"#, "x".repeat(1000))).unwrap();
        assert!(noisy.why.len() < 100 && !noisy.why.contains('\n'), "{noisy:?}");
    }

    #[test]
    fn google_answer_is_true_or_false() {
        assert_eq!(gcp("FALSE\n"), Ok(None));
        assert_eq!(gcp("TRUE").unwrap().unwrap().when, When::Unsaid);
        for garbage in ["", "true?", "<html>", "1"] {
            assert!(gcp(garbage).is_err(), "{garbage:?}");
        }
    }

    #[test]
    fn azure_earliest_event_of_this_machine_counts() {
        let event = |kind: &str, machine: &str, at: &str| {
            format!(
                r#"{{"EventId": "E", "EventType": "{kind}", "ResourceType": "VirtualMachine",
                    "Resources": ["{machine}"], "EventStatus": "Scheduled", "NotBefore": "{at}",
                    "Description": "", "EventSource": "Platform", "DurationInSeconds": -1}}"#
            )
        };
        let document =
            |events: &[String]| format!(r#"{{"DocumentIncarnation": 2, "Events": [{}]}}"#, events.join(","));
        let (early, late) = ("Mon, 19 Sep 2016 18:29:47 GMT", "Mon, 19 Sep 2016 18:39:47 GMT");
        assert_eq!(azure(&document(&[]), "me"), Ok(None));
        let of_others = [event("Preempt", "you", early), event("Freeze", "me", early)];
        assert_eq!(azure(&document(&of_others), "me"), Ok(None));
        let both = [event("Terminate", "ME", late), event("Preempt", "me", early)];
        let going = azure(&document(&both), "me").unwrap().unwrap();
        assert_eq!(going.when, at("2016-09-19T18:29:47Z"));
        assert!(going.why.contains("Preempt"), "{going:?}");
        let begun = [both[1].clone(), event("Redeploy", "me", "")];
        assert_eq!(azure(&document(&begun), "me").unwrap().unwrap().when, When::Unsaid);
        for garbage in ["", "{}", "null", r#"{"Events": 3}"#, r#"{"Events": [{}]}"#] {
            assert!(azure(garbage, "me").is_err(), "{garbage:?}");
        }
    }

    #[test]
    fn names_and_tokens_are_valid_in_requests() {
        assert_eq!(aws_token("AQAEAF==\n"), Ok("AQAEAF==".to_owned()));
        assert_eq!(azure_name("vm-3"), Ok("vm-3".to_owned()));
        let long = "x".repeat(2000);
        for bad in ["", "a b", "a\r\nHost: b", "é", &long] {
            assert!(aws_token(bad).is_err() && azure_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn file_may_contain_time_left() {
        assert_eq!(file("45\n"), When::In(Duration::from_secs(45)));
        assert_eq!(file("2026-11-21T03:11:54Z"), at("2026-11-21T03:11:54Z"));
        for unsaid in ["", "leave!", "-3", "nan", "1e300", "inf"] {
            assert_eq!(file(unsaid), When::Unsaid, "{unsaid:?}");
        }
    }

    #[test]
    fn slurm_end_is_in_seconds_since_1970() {
        assert_eq!(slurm("1800000000"), Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)));
        for garbage in ["", "Unknown", "-1", "18446744073709551615", "1.5"] {
            assert!(slurm(garbage).is_err(), "{garbage:?}");
        }
    }
}
