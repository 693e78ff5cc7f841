//! The nodes of a cluster as sorted rows, with their work for a job.

use std::cmp::Ordering;

use taskwork::{
    client::records::{Member, PoolNow},
    view::{JobNow, MemberNow, NodeNow, NodeState, Snapshot},
};

use super::rates::NodeRates;

/// A node: a member of the cluster, or a former member that worked on the displayed job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) state: Standing,
    /// The state of its workers for the job.
    pub(super) pool: Option<PoolNow>,
    /// The share of its workers' time in which they did not search.
    pub(super) idle: Option<f64>,
    /// Units of work in a second.
    pub(super) rate: Option<f64>,
    /// Tasks completed, and tasks received from other nodes.
    pub(super) tasks: Option<u64>,
    pub(super) stolen: Option<u64>,
    /// The memory of its process, in bytes, and the load of its machine.
    pub(super) memory: Option<u64>,
    pub(super) load: Option<f64>,
    /// Its program, and its labels.
    pub(super) program: Option<String>,
    pub(super) labels: String,
}

/// The state of a node with respect to the displayed job. Members come first, then former members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It leads the job.
    Leads,
    /// It works on the job.
    Works,
    /// It is a member, but does not work on the job.
    Member,
    /// It is a member that takes no more work.
    Cordoned,
    /// It is a member that was asked to leave.
    Leaving,
    /// It was lost.
    Lost,
    /// It left.
    Left,
}

/// The sort order of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Order {
    #[default]
    Name,
    State,
    Idle,
    Rate,
    Tasks,
    Memory,
}

impl Standing {
    /// Returns the state in a word.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Leads => "leads",
            Self::Works => "works",
            Self::Member => "member",
            Self::Cordoned => "cordoned",
            Self::Leaving => "leaving",
            Self::Lost => "lost",
            Self::Left => "left",
        }
    }

    /// Returns whether the node is a member.
    pub(super) fn is_member(self) -> bool {
        self < Self::Lost
    }
}

impl Order {
    /// Returns the next order.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Name => Self::State,
            Self::State => Self::Idle,
            Self::Idle => Self::Rate,
            Self::Rate => Self::Tasks,
            Self::Tasks => Self::Memory,
            Self::Memory => Self::Name,
        }
    }

    /// Returns the order in words.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Name => "by name",
            Self::State => "by state",
            Self::Idle => "most idle first",
            Self::Rate => "fastest first",
            Self::Tasks => "most tasks first",
            Self::Memory => "most memory first",
        }
    }

    fn compare(self, a: &Row, b: &Row) -> Ordering {
        // Unknown values come last.
        let most = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        let count = |number: Option<u64>| number.map(|number| number as f64);
        match self {
            Self::Name => Ordering::Equal,
            Self::State => a.state.cmp(&b.state),
            Self::Idle => most(a.idle, b.idle),
            Self::Rate => most(a.rate, b.rate),
            Self::Tasks => most(count(a.tasks), count(b.tasks)),
            Self::Memory => most(count(a.memory), count(b.memory)),
        }
    }
}

/// Returns the rows of the members of the cluster, and of former members that worked on the job. A filter matches parts
/// of names, states, programs and labels.
pub(super) fn rows(
    snapshot: &Snapshot,
    job: Option<&str>,
    rates: &NodeRates,
    order: Order,
    filter: &str,
) -> Vec<Row> {
    let now = job.and_then(|id| snapshot.jobs.get(id));
    let node_of = |name: &str| now.and_then(|now| now.nodes.get(name)).map(|node| &**node);
    let members = snapshot.members.iter().map(|(name, member)| {
        let row = Row { state: standing(job, now, member, node_of(name)), ..row(name, node_of(name), rates) };
        with_member(row, member)
    });
    let gone =
        now.into_iter().flat_map(|now| &now.nodes).filter(|(name, _)| !snapshot.members.contains_key(*name));
    let gone = gone.map(|(name, node)| row(name, Some(&**node), rates));
    let filter = filter.to_lowercase();
    let mut rows: Vec<Row> = members.chain(gone).filter(|row| row.matches(&filter)).collect();
    rows.sort_by(|a, b| {
        let gone_last = b.state.is_member().cmp(&a.state.is_member());
        gone_last.then_with(|| order.compare(a, b)).then_with(|| a.name.cmp(&b.name))
    });
    rows
}

fn standing(job: Option<&str>, now: Option<&JobNow>, member: &MemberNow, node: Option<&NodeNow>) -> Standing {
    if member.draining {
        return Standing::Leaving;
    }
    if member.cordoned {
        return Standing::Cordoned;
    }
    if job.is_some_and(|job| member.leads.iter().any(|led| led == job)) {
        return Standing::Leads;
    }
    let record = now.and_then(|now| now.about.record.as_ref());
    let works = node.zip(record).is_some_and(|(node, record)| {
        !node.report.last && node.report.attempt == record.attempt && record.state.is_running()
    });
    if works { Standing::Works } else { Standing::Member }
}

fn row(name: &str, node: Option<&NodeNow>, rates: &NodeRates) -> Row {
    let report = node.map(|node| &*node.report);
    let process = report.and_then(|report| report.process);
    let idle = report.and_then(|report| {
        let (times, all) = (report.figures.times, report.figures.times.total_ns());
        (all > 0).then(|| 1.0 - times.searching_ns as f64 / all as f64)
    });
    Row {
        name: name.to_owned(),
        state: match node.map(|node| node.state) {
            Some(NodeState::Lost) => Standing::Lost,
            _ => Standing::Left,
        },
        pool: report.and_then(|report| report.pool),
        idle,
        rate: node.and_then(|node| rates.of(name, node)),
        tasks: report.map(|report| report.figures.tasks),
        stolen: report.map(|report| report.figures.stolen_tasks),
        memory: process.and_then(|process| process.resident_bytes),
        load: process.and_then(|process| process.load),
        program: None,
        labels: String::new(),
    }
}

fn with_member(row: Row, now: &MemberNow) -> Row {
    let Some(member) = now.member.as_deref() else { return row };
    let Member { program, program_version, labels, .. } = member;
    Row { program: Some(format!("{program} {program_version}")), labels: labels.to_string(), ..row }
}

impl Row {
    /// Returns whether the name, state, program or labels contain a text in lower case.
    fn matches(&self, filter: &str) -> bool {
        let program = self.program.as_deref().unwrap_or_default();
        let mut texts = [self.name.as_str(), self.state.text(), program, self.labels.as_str()].into_iter();
        filter.is_empty() || texts.any(|text| text.to_lowercase().contains(filter))
    }
}
