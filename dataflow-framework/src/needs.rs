//! The labels and limits of calls, received from another node, where they are part of the program, or given by its user.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Deserializer};

pub(crate) type Needs = &'static [&'static str];

/// All lists received so far. They are never freed, and each is stored once: their number is bounded by the
/// program.
static TOLD: Mutex<BTreeSet<Needs>> = Mutex::new(BTreeSet::new());

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Needs, D::Error> {
    Vec::<String>::deserialize(deserializer).map(kept)
}

/// Returns a list that is kept until the end of the process.
pub(crate) fn kept(labels: Vec<String>) -> Needs {
    if labels.is_empty() {
        return &[];
    }
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    let known = told.iter().find(|known| known.iter().eq(labels.iter())).copied();
    known.unwrap_or_else(|| {
        let labels = labels.into_iter().map(|label| &*label.leak());
        let new: Needs = labels.collect::<Vec<_>>().leak();
        told.insert(new);
        new
    })
}

/// Returns the name and the number of calls of a limit, such as `licence=2`; `None` if it is invalid.
pub(crate) fn limit(text: &str) -> Option<(&str, i64)> {
    let (name, calls) = text.split_once('=').filter(|(name, _)| !name.is_empty())?;
    let calls = calls.parse().ok().filter(|calls| *calls > 0)?;
    Some((name, calls))
}

/// Refuses a limit that is invalid, or of the same name as another one.
pub(crate) fn check_limits<'a>(limits: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for text in limits {
        let (name, _) = limit(text)
            .ok_or_else(|| format!("{text:?} is no limit: expected NAME=CALLS, such as licence=2"))?;
        if !names.insert(name) {
            return Err(format!("the limit {name} is given twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{
        encoding::{decode, encode},
        options::Options,
    };

    #[test]
    fn labels_received_repeatedly_are_stored_once() {
        let told = || {
            let options = Options { needs: &["blast=2.9", "gpu"], ..Options::DEFAULT };
            decode::<Options>(&encode(&options).expect("it can be encoded")).expect("it was encoded")
        };
        assert_eq!(told().needs, ["blast=2.9", "gpu"]);
        assert!(std::ptr::eq(told().needs, told().needs));
    }
}
