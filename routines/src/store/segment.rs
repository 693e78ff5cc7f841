//! Segments: files with results of a job.
//!
//! ```text
//! "routines segment 1\n"
//! u64 index, u32 length, JSON of the outcome      for each result, little endian
//! BLAKE3 of everything before
//! ```

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::wire::CallError;

const HEAD: &[u8] = b"routines segment 1\n";

/// The outcome of a call, as it is stored: `{"value": …}` or `{"error": {…}}`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Value(Box<RawValue>),
    Error(CallError),
}

/// A segment in memory, to which results are added.
#[derive(Debug)]
pub(super) struct Draft(Vec<u8>);

impl Draft {
    pub(super) fn new() -> Self {
        Self(HEAD.to_vec())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == HEAD.len()
    }

    /// Returns the size, in bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn add(&mut self, index: u64, outcome: &Outcome) {
        let json = serde_json::to_vec(outcome).expect("texts are valid JSON");
        let length = u32::try_from(json.len()).expect("a frame is smaller");
        self.0.extend(index.to_le_bytes());
        self.0.extend(length.to_le_bytes());
        self.0.extend(json);
    }

    /// Returns the content of the file.
    pub(super) fn seal(mut self) -> Vec<u8> {
        let hash = blake3::hash(&self.0);
        self.0.extend(hash.as_bytes());
        self.0
    }
}

/// The index and the place of each outcome in a segment.
pub(super) type Places = Vec<(u64, Range<u64>)>;

/// Returns the places in the content of a segment; `None` if it is damaged.
pub(super) fn places(content: &[u8]) -> Option<Places> {
    let (before, hash) = content.split_last_chunk::<{ blake3::OUT_LEN }>()?;
    if blake3::hash(before) != *hash {
        return None;
    }
    let mut rest = before.strip_prefix(HEAD)?;
    let mut places = Vec::new();
    while !rest.is_empty() {
        let (index, after) = rest.split_first_chunk::<8>()?;
        let (length, after) = after.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let start = (before.len() - after.len()) as u64;
        rest = after.get(length..)?;
        places.push((u64::from_le_bytes(*index), start..start + length as u64));
    }
    Some(places)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn value(json: &str) -> Outcome {
        Outcome::Value(RawValue::from_string(json.to_owned()).unwrap())
    }

    #[test]
    fn segment_round_trips_and_any_damage_is_noticed() {
        let mut draft = Draft::new();
        draft.add(7, &value(r#"{"a": 1}"#));
        draft.add(3, &value("null"));
        let sealed = draft.seal();
        let found = places(&sealed).unwrap();
        let text = |place: &Range<u64>| {
            let bytes = sealed
                .iter()
                .skip(usize::try_from(place.start).unwrap())
                .take(usize::try_from(place.end - place.start).unwrap());
            String::from_utf8(bytes.copied().collect()).unwrap()
        };
        assert_eq!((found[0].0, &*text(&found[0].1)), (7, r#"{"value":{"a": 1}}"#));
        assert_eq!((found[1].0, &*text(&found[1].1)), (3, r#"{"value":null}"#));
        for at in 0..sealed.len() {
            assert!(places(&sealed[..at]).is_none(), "cut at {at}");
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert!(places(&damaged).is_none(), "damaged at {at}");
        }
    }
}
