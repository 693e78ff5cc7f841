//! The results of a job that is over: a sealed list of the results that count.
//!
//! Several segments may contain the same index, after a node was lost or was wrongly considered lost. The first reader
//! decides by the manifest, which is created once: the first segment in the order of the names counts. Segments that
//! appear later never count.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, ErrorKind},
    ops::Range,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    create_new,
    segment::{self, Places, SegmentError},
};
use crate::ranges::Ranges;

const MANIFEST: &str = "manifest.json";

const SEGMENT: &str = ".seg";

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
    folder: PathBuf,
    segments: Vec<String>,
    /// The index, the segment and the place of each result.
    places: Vec<(u64, u32, Range<u64>)>,
}

/// The reasons for which results cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum ResultsError {
    #[error("{}: {error}", .path.display())]
    Segment { path: PathBuf, error: SegmentError },
    #[error("the manifest {} is damaged: {error}", .path.display())]
    Manifest { path: PathBuf, error: serde_json::Error },
    #[error("the segments contain {found} results, but {expected} calls have ended")]
    Count { found: u64, expected: u64 },
    #[error("the segment {name} does not contain result {index}, although the manifest counts it")]
    Missing { name: String, index: u64 },
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl Results {
    /// Reads the results of a job that is over. The first call seals the manifest, if so many calls have a result.
    pub(crate) fn open(folder: &Path, expected: u64) -> Result<Self, ResultsError> {
        let path = folder.join(MANIFEST);
        let failed = |error| ResultsError::Io { path: path.clone(), error };
        let text = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let manifest = choose(folder, expected)?;
                let text = serde_json::to_vec(&manifest).map_err(|error| failed(error.into()))?;
                fs::create_dir_all(folder).map_err(failed)?;
                // Another reader may have been faster.
                create_new(&path, &text).map_err(failed)?;
                fs::read(&path).map_err(failed)?
            }
            read => read.map_err(failed)?,
        };
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|error| ResultsError::Manifest { path: path.clone(), error })?;
        let results = Self::chosen(folder, manifest.segments)?;
        let found = results.places.len() as u64;
        if found != expected || manifest.count != expected {
            return Err(ResultsError::Count { found, expected });
        }
        Ok(results)
    }

    /// Finds the chosen results in their segments.
    fn chosen(folder: &Path, segments: Vec<Chosen>) -> Result<Self, ResultsError> {
        let (mut places, mut names) = (Vec::new(), Vec::new());
        for (number, Chosen { name, indices }) in (0_u32..).zip(segments) {
            let mut left = indices;
            for (index, place) in read(&folder.join(&name))? {
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
        Ok(Self { folder: folder.to_owned(), segments: names, places })
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the outcomes with an index from `from`, at most so many and so many bytes, but at least one: each as a
    /// line of JSON with its index.
    pub(crate) fn lines(&self, from: u64, most: usize, bytes_max: usize) -> Result<Vec<Line>, ResultsError> {
        let start = self.places.partition_point(|(index, ..)| *index < from);
        let (mut lines, mut files, mut bytes) = (Vec::new(), BTreeMap::new(), 0);
        for (index, segment, place) in self.places[start..].iter().take(most) {
            let path = self.folder.join(&self.segments[*segment as usize]);
            let failed = |error| ResultsError::Io { path: path.clone(), error };
            let file = match files.get(segment) {
                Some(file) => file,
                None => files.entry(segment).or_insert(File::open(&path).map_err(failed)?),
            };
            let mut outcome = vec![0; usize::try_from(place.end - place.start).unwrap_or(0)];
            file.read_exact_at(&mut outcome, place.start).map_err(failed)?;
            let outcome = String::from_utf8(outcome)
                .map_err(|_| ResultsError::Segment { path: path.clone(), error: SegmentError::Damaged })?;
            // The outcome is an object with one field.
            let json = format!("{{\"index\":{index},{}", outcome.trim_start_matches('{'));
            bytes += json.len();
            lines.push(Line { index: *index, json });
            if bytes >= bytes_max {
                break;
            }
        }
        Ok(lines)
    }
}

/// An outcome with its index, as JSON.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) index: u64,
    pub(crate) json: String,
}

/// Chooses the results that count among all segments.
fn choose(folder: &Path, expected: u64) -> Result<Manifest, ResultsError> {
    let (mut found, mut segments) = (Ranges::default(), Vec::new());
    for name in names(folder)? {
        let mut indices = Ranges::default();
        for (index, _) in read(&folder.join(&name))? {
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

fn read(path: &Path) -> Result<Places, ResultsError> {
    segment::read(path).map_err(|error| ResultsError::Segment { path: path.to_owned(), error })
}

/// Returns the names of all segments, sorted.
fn names(folder: &Path) -> Result<Vec<String>, ResultsError> {
    let failed = |error| ResultsError::Io { path: folder.to_owned(), error };
    let entries = match fs::read_dir(folder) {
        // No node has written a result.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        names.extend(name.to_str().filter(|name| name.ends_with(SEGMENT)).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;
    use crate::store::{
        segment::{Draft, tests::value},
        write_durably,
    };

    fn write(folder: &Path, name: &str, results: &[(u64, &str)]) {
        let mut draft = Draft::new();
        for (index, json) in results {
            draft.add(*index, &value(json));
        }
        write_durably(&folder.join(name), &draft.seal()).unwrap();
    }

    fn lines(results: &Results) -> Vec<String> {
        results.lines(0, usize::MAX, usize::MAX).unwrap().into_iter().map(|line| line.json).collect()
    }

    #[test]
    fn index_in_several_segments_counts_once_and_permanently() {
        let folder = tempdir().unwrap();
        write(folder.path(), "b-0.seg", &[(1, "\"b\""), (2, "\"b\"")]);
        write(folder.path(), "c-0.seg", &[(1, "\"c\""), (0, "\"c\"")]);
        assert!(matches!(Results::open(folder.path(), 4), Err(ResultsError::Count { found: 3, .. })));
        let sealed = lines(&Results::open(folder.path(), 3).unwrap());
        let expected =
            [r#"{"index":0,"value":"c"}"#, r#"{"index":1,"value":"b"}"#, r#"{"index":2,"value":"b"}"#];
        assert_eq!(sealed, expected);
        // A node that was considered lost still writes.
        write(folder.path(), "a-0.seg", &[(0, "\"a\""), (1, "\"a\""), (3, "\"a\"")]);
        assert_eq!(lines(&Results::open(folder.path(), 3).unwrap()), expected);
    }

    #[test]
    fn pages_are_limited_by_lines_and_bytes() {
        let folder = tempdir().unwrap();
        write(folder.path(), "a-0.seg", &[(5, "5"), (0, "0"), (9, "9")]);
        let results = Results::open(folder.path(), 3).unwrap();
        let page = |from, most, bytes| {
            let lines = results.lines(from, most, bytes).unwrap();
            lines.iter().map(|line| line.index).collect::<Vec<_>>()
        };
        assert_eq!(page(0, 2, usize::MAX), [0, 5]);
        assert_eq!(page(1, 9, 1), [5]);
        assert_eq!(page(6, 9, usize::MAX), [9]);
        assert_eq!(page(10, 9, usize::MAX), [0; 0]);
        assert_eq!(results.len(), 3);
    }

    #[test]
    fn damaged_files_are_reported() {
        let folder = tempdir().unwrap();
        write(folder.path(), "a-0.seg", &[(0, "0")]);
        Results::open(folder.path(), 1).unwrap();
        fs::write(folder.path().join("a-0.seg"), "x").unwrap();
        assert!(matches!(Results::open(folder.path(), 1), Err(ResultsError::Segment { .. })));
        write(folder.path(), "a-0.seg", &[(1, "1")]);
        assert!(matches!(Results::open(folder.path(), 1), Err(ResultsError::Missing { index: 0, .. })));
        fs::write(folder.path().join(MANIFEST), "{}").unwrap();
        assert!(matches!(Results::open(folder.path(), 1), Err(ResultsError::Manifest { .. })));
    }
}
