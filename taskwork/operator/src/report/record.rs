//! Reads a job from the files that `taskwork dashboard --record` wrote, one for each of its starts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::BufReader,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use taskwork::{
    JobId,
    view::{Content, Event, RecordEnd, read_record},
};
use taskwork_cli::Failure;

use super::{
    joining::{Joined, Joining},
    seen::Seen,
};
use crate::table;

/// The maximum number of names in a message.
const NAMED_MAX: usize = 8;

/// Reads a job from a record, or from all records in a folder.
///
/// # Errors
/// If there is no record, none has the job, or the records have different jobs of this id.
pub(crate) fn read(at: &Path, id: &str) -> Result<Seen, Failure> {
    let mut surveys =
        files(at)?.into_iter().map(|file| Survey::of(file, id)).collect::<Result<Vec<_>, _>>()?;
    // By time: the names of the files need not be in order.
    surveys.sort_by_key(|survey| survey.first_ms);
    if surveys.iter().all(|survey| survey.ticks == 0) {
        return Err(Failure::usage(format!(
            "{} holds no tick of a cluster: it is no record, or one that ended before the cluster was read. taskwork \
             dashboard --record DIR writes records",
            at.display()
        )));
    }
    let with: Vec<&Survey> = surveys.iter().filter(|survey| survey.jobs.contains(id)).collect();
    if with.is_empty() {
        return Err(without(at, id, &surveys));
    }
    one_submission(at, id, &with)?;
    let mut joining = Joining::of(id);
    for survey in &with {
        joining.begin_run();
        let name = name(&survey.file);
        let end = read_events(&survey.file, |event| joining.take(&event))?;
        joining.end_run((end == RecordEnd::Cut).then_some(name));
    }
    let Joined { snapshot, observed } = joining.end();
    let source = name(at);
    Ok(Seen::recorded(id, source, snapshot, &observed))
}

/// Returns the records at a path.
fn files(at: &Path) -> Result<Vec<PathBuf>, Failure> {
    let refused = |error| Failure::usage(format!("{} cannot be read: {error}", at.display()));
    if !fs::metadata(at).map_err(refused)?.is_dir() {
        return Ok(vec![at.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(at).map_err(refused)? {
        let file = entry.map_err(refused)?.path();
        if file.extension().is_some_and(|extension| extension == "jsonl") && file.is_file() {
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(Failure::usage(format!(
            "{} holds no record: no file NAME.jsonl, as taskwork dashboard --record DIR writes them",
            at.display()
        )));
    }
    files.sort();
    Ok(files)
}

fn read_events(file: &Path, take: impl FnMut(Event)) -> Result<RecordEnd, Failure> {
    let refused = |why: String| Failure::usage(format!("{}: {why}", file.display()));
    let from = File::open(file).map_err(|error| refused(error.to_string()))?;
    read_record(BufReader::new(from), take).map_err(|error| refused(error.to_string()))
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}

/// Distinguishes jobs of the same id: each cluster counts from 0.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Submission {
    submitted_ms: u64,
    #[serde(default)]
    key: String,
}

/// The jobs and times of a record.
struct Survey {
    file: PathBuf,
    first_ms: Option<u64>,
    ticks: u64,
    jobs: BTreeSet<String>,
    /// The submissions with the wanted id, each with the time at which it was first seen.
    submissions: BTreeMap<Submission, u64>,
}

impl Survey {
    fn of(file: PathBuf, id: &str) -> Result<Self, Failure> {
        let (mut first_ms, mut ticks) = (None, 0);
        let (mut jobs, mut submissions) = (BTreeSet::new(), BTreeMap::new());
        // An incomplete last line is reported by the second pass.
        let _ = read_events(&file, |event| {
            first_ms.get_or_insert(event.at_ms);
            ticks += u64::from(event.content == Content::Tick);
            let Some(job) = event.path.strip_prefix("jobs/").filter(|job| !job.contains('/')) else { return };
            let Content::Data(content) = &event.content else { return };
            if !jobs.contains(job) {
                jobs.insert(job.to_owned());
            }
            if job == id
                && let Ok(submission) = serde_json::from_slice::<Submission>(content)
            {
                submissions.entry(submission).or_insert(event.at_ms);
            }
        })?;
        Ok(Self { file, first_ms, ticks, jobs, submissions })
    }
}

/// Returns the error that no record has a job, with the jobs that they have.
fn without(at: &Path, id: &str, surveys: &[Survey]) -> Failure {
    // Only valid ids are listed: a name in a record may contain anything.
    let all = surveys.iter().flat_map(|survey| &survey.jobs).map(String::as_str);
    let jobs: BTreeSet<&str> = all.filter(|job| job.parse::<JobId>().is_ok()).collect();
    let named: Vec<&str> = jobs.iter().rev().take(NAMED_MAX).copied().collect();
    let there = match (named.is_empty(), jobs.len().saturating_sub(NAMED_MAX)) {
        (true, _) => "it has seen no job at all".to_owned(),
        (false, 0) => format!("it has {}", named.join(", ")),
        (false, more) => format!("it has {} and {more} earlier ones", named.join(", ")),
    };
    Failure::usage(format!("{} has nothing of job {id}: {there}", at.display()))
}

/// Checks that all records are of the same job.
fn one_submission(at: &Path, id: &str, with: &[&Survey]) -> Result<(), Failure> {
    let all: BTreeSet<&Submission> = with.iter().flat_map(|survey| survey.submissions.keys()).collect();
    if all.len() < 2 {
        return Ok(());
    }
    let told: Vec<String> = with
        .iter()
        .flat_map(|survey| survey.submissions.keys().map(|submission| (&survey.file, submission)))
        .take(NAMED_MAX)
        .map(|(file, submission)| {
            format!("\n  {}: submitted at {}", name(file), table::time(submission.submitted_ms))
        })
        .collect();
    let remedy = if with.len() > 1 {
        "Choose the record of one of them: --record FILE"
    } else {
        "The record was merged from those of several clusters, or its cluster was set up again: copy the part of one \
         job to its own file"
    };
    Err(Failure::usage(format!(
        "{} has {} different jobs of the id {id}:{}\n  {remedy}",
        at.display(),
        all.len(),
        told.concat()
    )))
}
