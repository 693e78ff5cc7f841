//! The names of jobs of routines, from which any gateway finds the results of a job and the job of a repeated request.

use crate::tenant::Tenant;

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
    /// That of the arguments as they were requested: names of resources do not stand for their contents.
    pub(crate) digest: &'a str,
    pub(crate) tenant: Tenant,
}

impl<'a> Name<'a> {
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let mut parts = name.split(' ');
        let (routine, key, calls, digest) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_key = key.len() == KEY_DIGITS && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        let calls = if calls == SEARCH { None } else { Some(calls.parse().ok()?) };
        let tenant = parts.next().map_or_else(|| Some(Tenant::default()), Tenant::parse)?;
        (is_key && parts.next().is_none()).then_some(Self { routine, key, calls, digest, tenant })
    }

    /// Returns whether a request for a routine, with arguments of this digest, is for this job. `now` is the present version
    /// of the routine: a routine without version may have a later one by now.
    pub(crate) fn is_of(&self, routine: &str, now: &str, digest: &str) -> bool {
        let is_version = || self.routine.split_once('@').is_some_and(|(name, _)| name == routine);
        self.digest == digest && (self.routine == now || is_version())
    }
}

/// Returns the name of a job.
pub(crate) fn job_name(
    key: &str,
    calls: Option<u64>,
    digest: &str,
    routine: &str,
    tenant: &Tenant,
) -> String {
    let calls = calls.map_or_else(|| SEARCH.to_owned(), |calls| calls.to_string());
    let name = format!("{routine} {key} {calls} {digest}");
    if tenant.is_default() { name } else { format!("{name} {tenant}") }
}

/// Returns the key of a job from that of a user, and the number of earlier jobs with that.
pub(crate) fn key_of(tenant: &Tenant, key: &str, number: u32) -> String {
    if tenant.is_default() {
        return derived("routines 2026 idempotency key", key, number);
    }
    derived("routines 2026 idempotency key of a tenant", &format!("{tenant} {key}"), number)
}

/// Returns the key of a job that repeats the failed calls of one with this key, and the number of earlier such jobs.
pub(crate) fn rerun_key_of(key: &str, number: u32) -> String {
    derived("routines 2026 rerun", key, number)
}

fn derived(context: &str, key: &str, number: u32) -> String {
    let key = blake3::derive_key(context, format!("{key} {number}").as_bytes());
    let mut digits = blake3::Hash::from_bytes(key).to_hex().to_string();
    digits.truncate(KEY_DIGITS);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        groups::Selector,
        order::Work,
        reduction::{Reduce, Reduction},
        space::Space,
    };

    #[test]
    fn job_name_contains_what_gateways_need() {
        let calls = |from, to| Work::Calls { space: Space::Range { from, to }, reduce: Reduce::default() };
        let (nobody, anna) = (Tenant::default(), Tenant::parse("anna").unwrap());
        let of = |tenant: &Tenant, work: &Work, routine: &str| {
            job_name(&key_of(tenant, "mine", 0), work.calls(), &work.digest(), routine, tenant)
        };
        let named = |work: &Work, routine: &str| of(&nobody, work, routine);
        let work = calls(3, 10);
        let name = named(&work, "pi@1");
        let parsed = Name::parse(&name).unwrap();
        assert_eq!(
            (parsed.routine, parsed.key, parsed.calls),
            ("pi@1", &*key_of(&nobody, "mine", 0), Some(7))
        );
        let others = of(&anna, &work, "pi@1");
        let its = Name::parse(&others).unwrap();
        assert!(parsed.tenant == nobody && its.tenant == anna && its.key != parsed.key, "{others}");
        let search = named(&Work::Search("[8]".to_owned()), "queens@1");
        assert_eq!(Name::parse(&search).unwrap().calls, None);
        let key = |key, number| key_of(&nobody, key, number);
        assert!(key("mine", 0) != key("yours", 0) && key("mine", 0) != key("mine", 1));
        assert!(parsed.is_of("pi", "pi@2", &work.digest()) && parsed.is_of("pi@1", "pi@1", &work.digest()));
        assert!(!parsed.is_of("pi@2", "pi@2", &work.digest()));
        let reduced = |by| {
            let reduce = Reduce { numbers: vec![Reduction::Sum], by, routine: None };
            Work::Calls { space: Space::Range { from: 3, to: 10 }, reduce }
        };
        // As many calls with other arguments, and the same calls with another result.
        for other in [calls(4, 11), reduced(Vec::new())] {
            assert!(!parsed.is_of("pi", "pi@1", &other.digest()), "{other:?}");
        }
        assert_ne!(reduced(Vec::new()).digest(), reduced(vec![Selector::Position(0)]).digest());
        for wrong in
            ["", "pi@1", "pi@1 key 7", "a night's work", &format!("{name} -"), &format!("{others} more")]
        {
            assert!(Name::parse(wrong).is_none(), "{wrong}");
        }
    }
}
