//! The contents of a cluster's znodes, as last read. Each znode is stored separately, so the order of events of
//! different znodes does not matter.

use std::collections::{BTreeMap, BTreeSet};

use zk::{
    figures::{self, NodeFigures, Status},
    job::{self, JobRecord},
    membership::{self, Member},
    quarantine::{self, AboutTask},
};

use super::{
    event::Content,
    frozen::Frozen,
    place::{Part, Place},
    warnings::Warnings,
};
use crate::{display::JobDisplay, figures::Figures};

/// A node's report about a job.
pub(super) type Report = NodeFigures<Figures>;

/// The maximum number of members that are kept; beyond that, those with the first names.
const MEMBERS_MAX: usize = 16_384;
/// The maximum number of nodes of a job that are kept, likewise.
const NODES_OF_JOB_MAX: usize = 16_384;
/// The maximum number of jobs that are kept; beyond that, the latest ones.
pub(super) const JOBS_MAX: usize = 20_000;
/// The maximum number of attempts of a job that are kept: the latest ones.
const ATTEMPTS_MAX: usize = 2;
/// The maximum number of candidates for the leadership of a job that are kept.
const CANDIDATES_MAX: usize = 16_384;
/// The maximum number of tasks that were set aside and are kept.
const SET_ASIDE_MAX: usize = quarantine::SET_ASIDE_MAX;
/// The maximum size of the stored displays of a job, in bytes of their JSON.
const DISPLAYS_BYTES_MAX: usize = 4 << 20;
/// The maximum number of events in the report of a node.
const EVENTS_MAX: usize = 64;
/// The maximum number of unstoppable tasks in the report of a node.
const SILENT_MAX: usize = 16;
/// The maximum length of a text in a report, in characters.
const TEXT_CHARS_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Raw {
    pub(super) members: BTreeMap<String, Joined>,
    /// Members that have gone, and are not classified yet.
    pub(super) departed: BTreeMap<String, Departed>,
    /// Members that have appeared since the last tick, with the time.
    pub(super) arrived: BTreeMap<String, u64>,
    /// The candidates for the leadership of each job.
    pub(super) candidates: BTreeMap<String, BTreeSet<(u64, String)>>,
    pub(super) draining: BTreeSet<String>,
    pub(super) cordoned: BTreeSet<String>,
    pub(super) jobs: BTreeMap<String, RawJob>,
    pub(super) warnings: Warnings,
}

#[derive(Debug, Default)]
pub(super) struct Joined {
    pub(super) since_ms: u64,
    /// `None` if it cannot be read.
    pub(super) member: Option<Frozen<Member>>,
}

#[derive(Debug)]
pub(super) struct Departed {
    pub(super) at_ms: u64,
    /// The number of ticks since then.
    pub(super) ticks: u32,
    pub(super) member: Option<Frozen<Member>>,
}

#[derive(Debug, Default)]
pub(super) struct RawJob {
    /// Whether its znode is there.
    pub(super) exists: bool,
    /// `None` if it cannot be read.
    pub(super) record: Option<Frozen<JobRecord>>,
    pub(super) reports: BTreeMap<String, Frozen<Report>>,
    pub(super) attempts: BTreeMap<u32, RawAttempt>,
    /// The displays that companions provide, by rank and node, each with its size. Those of the highest rank are shown.
    pub(super) displays: BTreeMap<(u64, String), (usize, Frozen<JobDisplay>)>,
    /// Whether any part has changed since the last tick.
    pub(super) dirty: bool,
    /// Whether its nodes' reports are forgotten, because it was over long ago.
    pub(super) forgotten: bool,
}

#[derive(Debug, Default)]
pub(super) struct RawAttempt {
    /// The number of entries in the global task list.
    pub(super) listed: Option<u32>,
    /// Whether the list has the placeholder that keeps it from being empty.
    pub(super) open: bool,
    pub(super) parked: Option<u32>,
    pub(super) enrolled: BTreeSet<String>,
    pub(super) left: BTreeSet<String>,
    pub(super) set_aside: BTreeMap<String, AboutTask>,
}

impl Raw {
    /// Applies a change of a znode. Returns whether a view reads that znode.
    pub(super) fn take(&mut self, at_ms: u64, path: &str, content: &Content) -> bool {
        let Some(place) = Place::of(path) else { return false };
        self.warnings.clear(path);
        match (place, content) {
            (Place::Member { node }, content) => self.member(at_ms, path, node, content),
            (Place::Candidate { job, node, number }, Content::Gone) => {
                if let Some(candidates) = self.candidates.get_mut(job) {
                    candidates.remove(&(number, node.to_owned()));
                    if candidates.is_empty() {
                        self.candidates.remove(job);
                    }
                }
            }
            (Place::Candidate { job, node, number }, _) => {
                let candidates = self.candidates.entry(job.to_owned()).or_default();
                candidates.insert((number, node.to_owned()));
                if candidates.len() > CANDIDATES_MAX {
                    candidates.pop_last();
                }
            }
            (Place::Drain { node }, content) => toggle(&mut self.draining, node, content, MEMBERS_MAX),
            (Place::Cordon { node }, content) => toggle(&mut self.cordoned, node, content, MEMBERS_MAX),
            (Place::Job { job } | Place::Figures { job, .. } | Place::OfAttempt { job, .. }, content) => {
                if *content == Content::Gone && !self.jobs.contains_key(job) {
                    return true;
                }
                let known = self.jobs.entry(job.to_owned()).or_default();
                known.dirty = true;
                let taken = known.take(path, place, content);
                if let Err(error) = taken {
                    self.warnings.set(path, &error.to_string());
                }
                if known.is_empty() {
                    self.jobs.remove(job);
                }
            }
        }
        true
    }

    fn member(&mut self, at_ms: u64, path: &str, node: &str, content: &Content) {
        let Content::Data(bytes) = content else {
            if *content == Content::Gone
                && let Some(Joined { member, .. }) = self.members.remove(node)
            {
                self.arrived.remove(node);
                if self.departed.len() < MEMBERS_MAX {
                    self.departed.insert(node.to_owned(), Departed { at_ms, ticks: 0, member });
                }
            }
            return;
        };
        let decoded = membership::decode(path, bytes).map_err(|error| error.to_string());
        let decoded = decoded.and_then(|mut member| {
            shorten(&mut member.host);
            if member.node == node { Ok(member) } else { Err(format!("it names itself {:?}", member.node)) }
        });
        let member = match decoded {
            Ok(member) => Some(Frozen::new(member)),
            Err(error) => {
                self.warnings.set(path, &error);
                None
            }
        };
        let is_new = !self.members.contains_key(node);
        let joined = self.members.entry(node.to_owned()).or_default();
        if is_new {
            joined.since_ms = at_ms;
            self.arrived.insert(node.to_owned(), at_ms);
        }
        joined.member = member;
        if self.members.len() > MEMBERS_MAX
            && let Some((last, _)) = self.members.pop_last()
        {
            self.arrived.remove(&last);
        }
    }

    /// Returns the node that leads each job.
    pub(super) fn leaders<'a>(&'a self) -> BTreeMap<&'a str, &'a str> {
        let leader = |(job, candidates): (&'a String, &'a BTreeSet<(u64, String)>)| {
            candidates.first().map(|(_, node)| (job.as_str(), node.as_str()))
        };
        self.candidates.iter().filter_map(leader).collect()
    }
}

impl RawJob {
    fn take(&mut self, path: &str, place: Place<'_>, content: &Content) -> zk::Result<()> {
        match (place, content) {
            (Place::Job { .. }, Content::Data(bytes)) => {
                self.exists = true;
                self.record = None;
                self.record = Some(Frozen::new(job::decode(path, bytes)?));
            }
            (Place::Job { .. }, _) => (self.exists, self.record, self.forgotten) = (false, None, false),
            (Place::Figures { node, .. }, Content::Data(bytes)) => {
                let mut report = figures::decode::<Figures>(path, bytes)?;
                self.displays.retain(|(_, by), _| by != node);
                bound(&mut report);
                let status = report.status.take();
                let bytes = status.as_ref().map_or(0, |status| status.content.to_string().len());
                if let Some((rank, display)) = status.and_then(read_status) {
                    self.displays.insert((rank, node.to_owned()), (bytes, Frozen::new(display)));
                    while self.displays.values().map(|(size, _)| size).sum::<usize>() > DISPLAYS_BYTES_MAX {
                        self.displays.pop_first();
                    }
                }
                self.reports.insert(node.to_owned(), Frozen::new(report));
                if self.reports.len() > NODES_OF_JOB_MAX {
                    self.reports.pop_last();
                }
            }
            (Place::Figures { node, .. }, _) => {
                self.reports.remove(node);
                self.displays.retain(|(_, by), _| by != node);
            }
            (Place::OfAttempt { attempt, part, .. }, content) => {
                if *content == Content::Gone && !self.attempts.contains_key(&attempt) {
                    return Ok(());
                }
                let of = self.attempts.entry(attempt).or_default();
                let taken = of.take(path, part, content);
                if of.is_empty() {
                    self.attempts.remove(&attempt);
                }
                if self.attempts.len() > ATTEMPTS_MAX {
                    self.attempts.pop_first();
                }
                taken?;
            }
            (
                Place::Member { .. } | Place::Candidate { .. } | Place::Drain { .. } | Place::Cordon { .. },
                _,
            ) => {}
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        !self.exists && self.reports.is_empty() && self.attempts.is_empty()
    }

    pub(super) fn attempt(&self) -> Option<&RawAttempt> {
        self.attempts.get(&self.record.as_ref()?.attempt)
    }

    pub(super) fn is_over(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.state.is_over())
    }

    /// Forgets its nodes' reports, because it was over long ago. They cannot be summed up again.
    pub(super) fn forget_nodes(&mut self) {
        self.forgotten = true;
        self.reports.clear();
        self.displays.clear();
        for attempt in self.attempts.values_mut() {
            attempt.enrolled.clear();
            attempt.left.clear();
        }
    }
}

impl RawAttempt {
    fn take(&mut self, path: &str, part: Part<'_>, content: &Content) -> zk::Result<()> {
        let children = if let Content::Children(children) = content { Some(*children) } else { None };
        match part {
            Part::List => self.listed = children,
            Part::Parked => self.parked = children,
            Part::Open => self.open = *content != Content::Gone,
            Part::Output { node } => toggle(&mut self.enrolled, node, content, NODES_OF_JOB_MAX),
            Part::Left { node } => toggle(&mut self.left, node, content, NODES_OF_JOB_MAX),
            Part::SetAside { task } => {
                self.set_aside.remove(task);
                if let Content::Data(bytes) = content {
                    let mut about = quarantine::decode(path, bytes)?;
                    shorten(&mut about.reason);
                    self.set_aside.insert(task.to_owned(), about);
                    if self.set_aside.len() > SET_ASIDE_MAX {
                        self.set_aside.pop_last();
                    }
                }
            }
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        let Self { listed, open, parked, enrolled, left, set_aside } = self;
        listed.is_none()
            && parked.is_none()
            && !open
            && enrolled.is_empty()
            && left.is_empty()
            && set_aside.is_empty()
    }

    /// Returns the number of tasks that are not complete.
    pub(super) fn listed_tasks(&self) -> Option<u32> {
        self.listed.map(|listed| listed.saturating_sub(u32::from(self.open)))
    }
}

fn toggle(names: &mut BTreeSet<String>, name: &str, content: &Content, max: usize) {
    if *content == Content::Gone {
        names.remove(name);
        return;
    }
    names.insert(name.to_owned());
    if names.len() > max {
        names.pop_last();
    }
}

/// Returns the rank and the display of a status; `None` if it contains no display.
fn read_status(Status { rank, content }: Status) -> Option<(u64, JobDisplay)> {
    Some((rank, JobDisplay::read(&content)?))
}

/// Bounds the size of a report.
fn bound(report: &mut Report) {
    report.timeline.truncate(EVENTS_MAX);
    for event in &mut report.timeline {
        shorten(&mut event.detail);
    }
    report.silent.truncate(SILENT_MAX);
    for silent in &mut report.silent {
        shorten(&mut silent.task);
    }
    if let Some(best) = &mut report.best {
        shorten(&mut best.name);
    }
    if let Some(givers) = &mut report.givers {
        givers.most.truncate(figures::GIVERS_MAX);
        for giver in &mut givers.most {
            shorten(&mut giver.node);
        }
    }
    report.variables = None;
    shorten(&mut report.host);
}

fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
        text.truncate(end);
    }
}
