//! A cluster at one moment: its members, its leaders, its jobs and their stages.

use std::collections::BTreeMap;

use zk::{
    ClusterPaths, Store,
    figures::{Ledger, NodeFigures},
    job::JobRecord,
    membership::Member,
};

use crate::{
    figures::Figures,
    shell::observe::{self, Scope},
    view::{JobCost, NodeState, Snapshot, Stage},
};

/// A cluster at one moment.
#[derive(Debug)]
#[non_exhaustive]
pub struct Overview {
    /// The members.
    pub members: Vec<Member>,
    /// The jobs that have a leader, each with the name of the leader's node.
    pub leaders: Vec<(String, String)>,
    /// The names of nodes that were asked to leave.
    pub draining: Vec<String>,
    /// The names of cordoned nodes.
    pub cordoned: Vec<String>,
    /// The jobs in the order of their submission.
    pub jobs: Vec<JobEntry>,
    /// The time of reading, in milliseconds since 1970 by this machine's clock.
    pub at_ms: u64,
    snapshot: Snapshot,
}

/// A job in an [`Overview`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JobEntry {
    /// Its id.
    pub id: String,
    /// Its stage.
    pub stage: Stage,
    /// Its record; `None` if it cannot be read.
    pub record: Option<JobRecord>,
    /// The missing requirement, if no node takes the job.
    pub missing: Option<String>,
    /// Its cost, by the reports and the present prices of its nodes; `None` if no report was read.
    pub cost: Option<JobCost>,
}

impl Overview {
    /// Reads the records of all jobs, and the nodes' reports about those in `scope`.
    pub(crate) async fn read(store: &dyn Store, cluster: &ClusterPaths, scope: Scope) -> zk::Result<Self> {
        Ok(Self::of(observe::look(store, cluster, scope).await?))
    }

    fn of(snapshot: Snapshot) -> Self {
        let members = || snapshot.members.iter();
        let entry = |(id, job): (&String, &crate::view::JobNow)| JobEntry {
            id: id.clone(),
            stage: job.about.stage,
            record: job.about.record.as_deref().cloned(),
            missing: job.about.missing.clone(),
            cost: job.about.cost.clone(),
        };
        let leader =
            |(id, job): (&String, &crate::view::JobNow)| Some((id.clone(), job.about.leader.clone()?));
        Self {
            members: members().filter_map(|(_, now)| now.member.as_deref().cloned()).collect(),
            leaders: snapshot.jobs.iter().filter_map(leader).collect(),
            draining: members().filter(|(_, now)| now.draining).map(|(name, _)| name.clone()).collect(),
            cordoned: members().filter(|(_, now)| now.cordoned).map(|(name, _)| name.clone()).collect(),
            jobs: snapshot.jobs.iter().map(entry).collect(),
            at_ms: snapshot.cluster.at_ms,
            snapshot,
        }
    }

    /// Returns the tasks that were asked to stop and have not, by node, with their jobs.
    pub fn unstoppable_tasks(&self) -> BTreeMap<String, String> {
        let task = |(job, node, said): (&str, &str, &NodeFigures<Figures>)| {
            let silent = said.silent.first()?;
            Some((node.to_owned(), format!("task {} of job {job}", silent.task)))
        };
        self.reports().filter_map(task).collect()
    }

    /// Returns the nodes that hold more than they can write, with the job and the ledger: the loss of one of them
    /// starts a new attempt at the job.
    pub fn unprotected_nodes(&self) -> BTreeMap<String, (String, Ledger)> {
        let is_open = |job: &str| {
            let record = self.job(job).and_then(|job| job.record.as_ref());
            record.is_some_and(|record| !record.state.is_over())
        };
        let ledger = |(job, node, said): (&str, &str, &NodeFigures<Figures>)| {
            let ledger = said.ledger.filter(|ledger| ledger.unprotected)?;
            Some((node.to_owned(), (job.to_owned(), ledger)))
        };
        self.reports().filter(|(job, ..)| is_open(job)).filter_map(ledger).collect()
    }

    /// Returns the latest reports of all members about jobs that they work on, each with the job and the node.
    pub fn reports(&self) -> impl Iterator<Item = (&str, &str, &NodeFigures<Figures>)> {
        let reports =
            self.snapshot.jobs.iter().flat_map(|(id, job)| {
                job.nodes.iter().map(move |(node, now)| (id.as_str(), node.as_str(), now))
            });
        let works = |(_, node, now): &(&str, &str, &crate::view::Frozen<crate::view::NodeNow>)| {
            !now.report.last && now.state != NodeState::Left && self.snapshot.members.contains_key(*node)
        };
        reports.filter(works).map(|(job, node, now)| (job, node, &*now.report))
    }

    /// Returns the entry of a job.
    pub fn job(&self, id: &str) -> Option<&JobEntry> {
        self.jobs.iter().find(|job| job.id == id)
    }

    /// Returns whether a node is the leader of a job.
    pub fn leads(&self, node: &str) -> bool {
        self.leaders.iter().any(|(_, leader)| leader == node)
    }

    /// Returns whether a node is cordoned.
    pub fn is_cordoned(&self, node: &str) -> bool {
        self.cordoned.iter().any(|cordoned| cordoned == node)
    }

    /// Returns whether a node was asked to leave.
    pub fn drains(&self, node: &str) -> bool {
        self.draining.iter().any(|draining| draining == node)
    }
}
