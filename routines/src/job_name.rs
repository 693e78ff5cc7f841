//! The names of jobs of routines, from which any gateway finds the results of a job and the job of a repeated request.

use crate::order::Work;

/// The number of hexadecimal digits of a key.
const KEY_DIGITS: usize = 32;

/// The part of the name of a search, instead of the number of calls.
const SEARCH: &str = "search";

/// The parts of a job's name, from which any gateway finds its results.
pub(crate) struct Name<'a> {
    pub(crate) routine: &'a str,
    pub(crate) key: &'a str,
    /// The number of calls; `None` if the job is a search.
    pub(crate) calls: Option<u64>,
}

impl<'a> Name<'a> {
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let mut parts = name.split(' ');
        let (routine, key, calls, _arguments) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_key = key.len() == KEY_DIGITS && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        let calls = if calls == SEARCH { None } else { Some(calls.parse().ok()?) };
        (is_key && parts.next().is_none()).then_some(Self { routine, key, calls })
    }
}

/// Returns the name of a job.
pub(crate) fn job_name(key: &str, work: &Work, routine: &str) -> String {
    let calls = work.calls().map_or_else(|| SEARCH.to_owned(), |calls| calls.to_string());
    format!("{routine} {key} {calls} {}", work.digest())
}

/// Returns whether a job has the name that a request gives it. A routine without version may have a later one by now.
pub(crate) fn is_same_job(name: &str, wanted: &str, routine: &str) -> bool {
    let (Some((of, rest)), Some((now, wanted))) = (name.split_once(' '), wanted.split_once(' ')) else {
        return false;
    };
    let is_version = || of.split_once('@').is_some_and(|(name, _)| name == routine);
    rest == wanted && (of == now || is_version())
}

/// Returns the key of a job from that of a user.
pub(crate) fn key_of(key: &str) -> String {
    let key = blake3::derive_key("routines 2026 idempotency key", key.as_bytes());
    let mut digits = blake3::Hash::from_bytes(key).to_hex().to_string();
    digits.truncate(KEY_DIGITS);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{reduce::Reduction, space::Space};

    #[test]
    fn job_name_contains_what_gateways_need() {
        let calls = |from, to| Work::Calls { space: Space::Range { from, to }, reduce: Vec::new() };
        let (key, work) = (key_of("mine"), calls(3, 10));
        let name = job_name(&key, &work, "pi@1");
        let parsed = Name::parse(&name).unwrap();
        assert_eq!((parsed.routine, parsed.key, parsed.calls), ("pi@1", &*key, Some(7)));
        let search = job_name(&key, &Work::Search("[8]".to_owned()), "queens@1");
        assert_eq!(Name::parse(&search).unwrap().calls, None);
        assert_ne!(key_of("mine"), key_of("yours"));
        let others = job_name(&key, &calls(4, 11), "pi@1");
        assert_ne!(others, name, "as many calls with other arguments");
        let reduced = Work::Calls { space: Space::Range { from: 3, to: 10 }, reduce: vec![Reduction::Sum] };
        assert_ne!(job_name(&key, &reduced, "pi@1"), name, "the same calls with another result");
        let later = job_name(&key, &work, "pi@2");
        assert!(is_same_job(&name, &later, "pi") && is_same_job(&name, &name, "pi@1"));
        assert!(!is_same_job(&name, &later, "pi@2") && !is_same_job(&name, &others, "pi"));
        for wrong in ["", "pi@1", "pi@1 key 7", "a night's work", &format!("{name} more")] {
            assert!(Name::parse(wrong).is_none(), "{wrong}");
        }
    }
}
