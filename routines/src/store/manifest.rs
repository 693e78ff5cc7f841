//! The results of a job that is over: a sealed list of the results that count.
//!
//! Several segments may contain the same index, after a node was lost or was wrongly considered lost. The first reader
//! decides by the manifest, which is created once: the first segment in the order of the names counts. Segments that
//! appear later never count.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    ops::Range,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    Objects,
    segment::{self, Places},
};
use crate::ranges::Ranges;

/// The name of the manifest in the folder of its job.
pub(crate) const MANIFEST: &str = "manifest.json";

const SEGMENT: &str = ".seg";

/// The number of results that are read at a time, and of their bytes.
pub(crate) const PART: usize = 10_000;
pub(crate) const PART_BYTES: usize = 1 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    count: u64,
    segments: Vec<Chosen>,
}

/// A segment, and its results that count.
#[derive(Debug, Serialize, Deserialize)]
struct Chosen {
    name: String,
    indices: Ranges,
}

/// The results of a job, sorted by index.
#[derive(Debug)]
pub(crate) struct Results {
    objects: Objects,
    /// Their names with their folder.
    segments: Vec<String>,
    /// The index, the segment and the place of each result.
    places: Vec<(u64, u32, Range<u64>)>,
}

/// The reasons for which results cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum ResultsError {
    #[error("the segment {name} is damaged")]
    Segment { name: String },
    #[error("the manifest {name} is damaged: {error}")]
    Manifest { name: String, error: serde_json::Error },
    #[error("the segments contain {found} results, but {expected} calls have ended")]
    Count { found: u64, expected: u64 },
    #[error("the segment {name} does not contain result {index}, although the manifest counts it")]
    Missing { name: String, index: u64 },
    #[error("{name}: {error}")]
    Io { name: String, error: io::Error },
}

impl Results {
    /// Reads the results of a job that is over. The first call seals the manifest, if so many calls have a result.
    pub(crate) fn open(objects: Objects, folder: &str, expected: u64) -> Result<Self, ResultsError> {
        let name = format!("{folder}/{MANIFEST}");
        let failed = |error| ResultsError::Io { name: name.clone(), error };
        let text = match objects.get(&name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let manifest = choose(&objects, folder, expected)?;
                let text = serde_json::to_vec(&manifest).map_err(|error| failed(error.into()))?;
                // Another reader may have been faster. If the answer is lost, the next call reads this manifest.
                objects.create(&name, text).map_err(failed)?;
                objects.get(&name).map_err(failed)?
            }
            read => read.map_err(failed)?,
        };
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|error| ResultsError::Manifest { name: name.clone(), error })?;
        let results = Self::chosen(objects, folder, manifest.segments)?;
        let found = results.places.len() as u64;
        if found != expected || manifest.count != expected {
            return Err(ResultsError::Count { found, expected });
        }
        Ok(results)
    }

    /// Finds the chosen results in their segments.
    fn chosen(objects: Objects, folder: &str, segments: Vec<Chosen>) -> Result<Self, ResultsError> {
        let (mut places, mut names) = (Vec::new(), Vec::new());
        for (number, Chosen { name, indices }) in (0_u32..).zip(segments) {
            let (name, mut left) = (format!("{folder}/{name}"), indices);
            for (index, place) in read(&objects, &name)? {
                if left.remove(index) {
                    places.push((index, number, place));
                }
            }
            if let Some(index) = left.first() {
                return Err(ResultsError::Missing { name, index });
            }
            names.push(name);
        }
        places.sort_unstable_by_key(|(index, ..)| *index);
        Ok(Self { objects, segments: names, places })
    }

    /// Returns the indices of the failed calls.
    pub(crate) fn failed(&self) -> Result<Ranges, ResultsError> {
        let (mut failed, mut from) = (Ranges::default(), 0);
        loop {
            let lines = self.lines(from, PART, PART_BYTES)?;
            let Some(last) = lines.last() else { return Ok(failed) };
            from = last.index + 1;
            let is_error =
                |line: &&Line| line.json.split_once(',').is_some_and(|(_, it)| it.starts_with("\"error\""));
            lines.iter().filter(is_error).for_each(|line| failed.insert(line.index..line.index + 1));
        }
    }

    /// Returns the sizes of the outcomes in bytes, sorted by index.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u64> + '_ {
        self.places.iter().map(|(.., place)| place.end - place.start)
    }

    /// Returns outcomes by their places in the order of indices, each as the fields of an object in JSON with its end.
    pub(crate) fn outcomes(&self, places: Range<usize>) -> Result<Vec<String>, ResultsError> {
        let mut outcomes = Vec::new();
        while let Some((index, ..)) = self.places[..places.end].get(places.start + outcomes.len()) {
            let most = places.len() - outcomes.len();
            for Line { index, json } in self.lines(*index, most, PART_BYTES)? {
                let head = format!("{{\"index\":{index},");
                outcomes.push(json.strip_prefix(&head).unwrap_or(&json).to_owned());
            }
        }
        Ok(outcomes)
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the outcomes with an index from `from`, at most so many and so many bytes, but at least one: each as a
    /// line of JSON with its index.
    pub(crate) fn lines(&self, from: u64, most: usize, bytes_max: usize) -> Result<Vec<Line>, ResultsError> {
        let start = self.places.partition_point(|(index, ..)| *index < from);
        let (mut chosen, mut ranges, mut bytes) = (Vec::new(), BTreeMap::<_, Vec<_>>::new(), 0);
        for (index, segment, place) in self.places[start..].iter().take(most) {
            chosen.push((*index, *segment));
            ranges.entry(*segment).or_default().push(place.clone());
            bytes += place.end - place.start;
            if bytes >= bytes_max as u64 {
                break;
            }
        }
        // One access for each segment.
        let mut contents = BTreeMap::new();
        for (segment, ranges) in ranges {
            let name = &self.segments[segment as usize];
            let read = self.objects.get_ranges(name, ranges);
            let read = read.map_err(|error| ResultsError::Io { name: name.clone(), error })?;
            contents.insert(segment, read.into_iter());
        }
        let line = |(index, segment)| {
            let content = contents.get_mut(&segment).and_then(Iterator::next).unwrap_or_default();
            // The outcome is an object with one field.
            let fields = std::str::from_utf8(&content).ok().and_then(|outcome| outcome.strip_prefix('{'));
            let name = || self.segments[segment as usize].clone();
            let fields = fields.ok_or_else(|| ResultsError::Segment { name: name() })?;
            Ok(Line { index, json: format!("{{\"index\":{index},{fields}") })
        };
        chosen.into_iter().map(line).collect()
    }
}

/// An outcome with its index, as JSON.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) index: u64,
    pub(crate) json: String,
}

/// Chooses the results that count among all segments.
fn choose(objects: &Objects, folder: &str, expected: u64) -> Result<Manifest, ResultsError> {
    let (mut found, mut segments) = (Ranges::default(), Vec::new());
    let failed = |error| ResultsError::Io { name: folder.to_owned(), error };
    for name in objects.list(folder).map_err(failed)?.into_iter().filter(|name| name.ends_with(SEGMENT)) {
        let mut indices = Ranges::default();
        for (index, _) in read(objects, &format!("{folder}/{name}"))? {
            if !found.contains(index) {
                indices.insert(index..index + 1);
                found.insert(index..index + 1);
            }
        }
        segments.push(Chosen { name, indices });
    }
    if found.len() != expected {
        return Err(ResultsError::Count { found: found.len(), expected });
    }
    segments.retain(|segment| !segment.indices.is_empty());
    Ok(Manifest { count: expected, segments })
}

fn read(objects: &Objects, name: &str) -> Result<Places, ResultsError> {
    let content = objects.get(name).map_err(|error| ResultsError::Io { name: name.to_owned(), error })?;
    segment::places(&content).ok_or_else(|| ResultsError::Segment { name: name.to_owned() })
}
