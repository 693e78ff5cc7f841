//! The state of a cluster for all presentations of it: the command line, metrics, records, web pages.
//!
//! ```text
//! ZooKeeper ──one session, one watch──▶ observer ──events──▶ View ──▶ snapshots, changes, metrics
//!                                                    ▲
//!                                          record ───┘   (replayed: the same view)
//! ```
//!
//! A [`View`] has no clock and does no I/O: an [`Event`] states the change of a znode that an observer has seen, and
//! its time. The same events result in the same view, so a record of them can be replayed. The order of events of
//! different znodes between two [ticks](Content::Tick) does not matter, and the displayed state changes only at ticks.
//!
//! All state is bounded. The history of a job has a fixed number of [points](Series); the nodes of jobs that were over
//! long ago are forgotten. Arbitrary content of a znode results in a warning at worst. Unknown values are absent,
//! never shown as 0.

mod completion;
mod cost;
mod event;
mod frozen;
mod place;
mod raw;
mod record;
mod series;
mod snapshot;
mod stage;
mod sums;
mod tick;
mod tracked;
mod utilisation;
mod warnings;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

pub use self::{
    completion::{Remainder, SHARE_MIN},
    cost::{Costs, CostsAbout, CostsDelta, JobCost, Money, Spent},
    event::{Content, Event},
    frozen::Frozen,
    record::{RecordEnd, Recorder, ReplayError, read_record, replay},
    series::{POINTS_MAX, Point, Series, SeriesDelta, Spread},
    snapshot::{
        ClusterNow, Delta, Eta, JobAbout, JobDelta, JobNow, MOMENTS_MAX, MemberNow, Moment, MomentKind,
        NodeNow, NodeState, PoolSum, Snapshot,
    },
    stage::Stage,
    tracked::Changes,
};
use self::{cost::CostCount, raw::Raw, series::TrackedSeries, tracked::Tracked, utilisation::Utilisation};
pub(crate) use self::{
    place::{Place, Wanted, counted_folder},
    stage::stages,
};

/// The state of a cluster according to its znodes.
#[derive(Debug, Default)]
pub struct View {
    raw: Raw,
    seq: u64,
    /// Whether everything that existed at the start has been read, and whether that is shown.
    is_whole: bool,
    is_whole_shown: bool,
    /// The current state, and the one shown since the last tick.
    cluster: ClusterNow,
    cluster_shown: ClusterNow,
    members: Tracked<Frozen<MemberNow>>,
    jobs: BTreeMap<String, Shown>,
    /// The job of which nothing is forgotten, if any.
    kept: Option<String>,
    /// Removed jobs, each with the tick of its removal.
    jobs_gone: VecDeque<(u64, String)>,
    /// The last tick whose removed jobs were forgotten.
    jobs_forgotten: u64,
    moments: VecDeque<Moment>,
    /// The starts and ends of outages since the last tick.
    outage_moments: Vec<(u64, MomentKind, String)>,
    /// The end of the last outage, in milliseconds since 1970.
    back_ms: u64,
    /// The warnings, and the tick at which they last changed.
    warnings: (u64, BTreeMap<String, String>),
    costs: CostCount,
    utilisation: Utilisation,
}

/// The name in the events of outages.
const SERVERS: &str = "ZooKeeper";

/// The displayed state of a job.
#[derive(Debug, Default)]
struct Shown {
    about: (u64, Frozen<JobAbout>),
    /// The ticks at which two parts of `about` last changed.
    record_at: u64,
    display_at: u64,
    nodes: Tracked<Frozen<NodeNow>>,
    series: TrackedSeries,
}

impl Shown {
    fn job(&self) -> JobNow {
        JobNow { about: self.about.1.clone(), nodes: self.nodes.all(), series: self.series.series.clone() }
    }

    /// Sets the job's summary.
    fn set_about(&mut self, tick: u64, about: JobAbout) {
        let (since, known) = &self.about;
        if *since > 0 && **known == about {
            return;
        }
        if *since == 0 || known.record != about.record {
            self.record_at = tick;
        }
        if *since == 0 || known.display != about.display {
            self.display_at = tick;
        }
        self.about = (tick, Frozen::new(about));
    }

    /// Returns the changes after a tick, except for the nodes.
    fn since(&self, tick: u64) -> JobDelta {
        let (changed, about) = &self.about;
        let without = || Frozen::new(JobAbout { record: None, display: None, ..(**about).clone() });
        JobDelta {
            about: (*changed > tick).then(without),
            record: (self.record_at > tick).then(|| about.record.clone()),
            display: (self.display_at > tick).then(|| about.display.clone()),
            series: self.series.since(tick),
            ..JobDelta::default()
        }
    }
}

impl View {
    /// Creates a view that forgets nothing of a job, even long after the job is over.
    pub fn keeping(job: Option<String>) -> Self {
        Self { kept: job, ..Self::default() }
    }

    /// Applies an event of an observer. The displayed state changes only at a [tick](Content::Tick).
    pub fn apply(&mut self, event: &Event) {
        self.cluster.events += 1;
        match &event.content {
            Content::Tick => self.tick(event.at_ms),
            Content::Lost if self.cluster.silent_since_ms.is_none() => {
                self.cluster.outages += 1;
                self.cluster.silent_since_ms = Some(event.at_ms);
                self.outage_moments.push((event.at_ms, MomentKind::ServersAway, SERVERS.to_owned()));
            }
            Content::Lost => {}
            Content::Found => {
                self.is_whole = true;
                if self.cluster.silent_since_ms.take().is_some() {
                    self.back_ms = event.at_ms;
                    self.outage_moments.push((event.at_ms, MomentKind::ServersBack, SERVERS.to_owned()));
                }
            }
            content @ (Content::Data(_) | Content::Children(_) | Content::Gone) => {
                self.raw.take(event.at_ms, &event.path, content);
            }
        }
    }

    /// Returns the cluster as of the last tick.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            seq: self.seq,
            cluster: self.cluster_shown.clone(),
            members: self.members.all(),
            jobs: self.jobs.iter().map(|(id, shown)| (id.clone(), shown.job())).collect(),
            moments: self.moments.iter().cloned().collect(),
            warnings: self.warnings.1.clone(),
            costs: self.costs.shown(),
            workers: self.utilisation.cluster.series.clone(),
        }
    }

    /// Returns the number of the last tick.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns a job as of the last tick; `None` if no job has this id.
    pub fn job(&self, id: &str) -> Option<JobNow> {
        self.jobs.get(id).map(Shown::job)
    }

    /// Returns a job as a whole as of the last tick; `None` if no job has this id.
    pub fn about(&self, id: &str) -> Option<Frozen<JobAbout>> {
        self.jobs.get(id).map(|job| job.about.1.clone())
    }

    /// Returns a member as of the last tick; `None` if no member has this name.
    pub fn member(&self, name: &str) -> Option<Frozen<MemberNow>> {
        self.members.get(name).cloned()
    }

    /// Returns the workers of a member over time: [`Point::workers`] and [`Point::busy`].
    pub fn workers_of(&self, name: &str) -> Option<&Series> {
        self.utilisation.of_node(name)
    }

    /// Returns the latest events, in the order of observation.
    pub fn moments(&self) -> impl Iterator<Item = &Moment> {
        self.moments.iter()
    }

    /// Returns the start of the current outage of ZooKeeper, if there is one.
    pub fn silent_since_ms(&self) -> Option<u64> {
        self.cluster.silent_since_ms
    }

    /// Returns the changes since a tick, given by the `seq` of a snapshot or another delta; `None` if they are no
    /// longer known, so that another snapshot is needed.
    pub fn delta_since(&self, seq: u64) -> Option<Delta> {
        if seq > self.seq || seq < self.jobs_forgotten {
            return None;
        }
        let mut jobs = BTreeMap::new();
        for (id, shown) in &self.jobs {
            let delta = JobDelta { nodes: shown.nodes.since(seq)?, ..shown.since(seq) };
            if delta.about.is_some() || !delta.nodes.is_empty() || delta.series.is_some() {
                jobs.insert(id.clone(), delta);
            }
        }
        let jobs_gone = self.jobs_gone.iter().filter(|(at, _)| *at > seq).map(|(_, id)| id.clone()).collect();
        Some(Delta {
            since: seq,
            seq: self.seq,
            cluster: self.cluster_shown.clone(),
            members: self.members.since(seq)?,
            jobs_gone,
            jobs,
            moments: self.moments.iter().filter(|moment| moment.seq > seq).cloned().collect(),
            warnings: (self.warnings.0 > seq).then(|| self.warnings.1.clone()),
            workers: self.utilisation.cluster.since(seq),
            costs: if self.costs.has_changed(seq) { Some(self.costs.since(seq)?) } else { None },
        })
    }
}
