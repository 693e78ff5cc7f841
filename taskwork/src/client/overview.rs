//! A cluster at one moment: its members, its leaders, its jobs and their stages.

use std::collections::{BTreeMap, BTreeSet};

use zk::{
    ClusterPaths, Labels, Store, election,
    figures::{self, Ledger, NodeFigures},
    job::{self, JobRecord, JobState},
    membership::{self, Lacks, Member},
};

use crate::{
    figures::Figures,
    shell::{clock::unix_ms, shared::is_there},
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
    /// The jobs in the order of their submission.
    pub jobs: Vec<JobEntry>,
    /// The time of reading, in milliseconds since 1970 by this machine's clock.
    pub at_ms: u64,
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
    /// What is missing if no node takes it.
    pub missing: Option<String>,
}

/// The stage of a job, as an operator sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// Its data is being written.
    Submitting,
    /// Its submission was not completed, and its submitter is gone.
    Abandoned,
    /// Nodes work on it.
    Running,
    /// All nodes that take it work on earlier jobs.
    Queued,
    /// It waits until other jobs are done.
    Waiting,
    /// No node takes it: none runs its release, or has the labels that it requires.
    NoNodes,
    /// It was suspended by an operator.
    Suspended,
    /// It has a result.
    Done,
    /// It has a result without some of its tasks, which were set aside.
    Incomplete,
    /// It has failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its record cannot be read.
    Unreadable,
}

/// The time after which the submitter of an incomplete submission is considered gone, in milliseconds. A
/// wrong guess, or clocks that differ, do no harm: a submitter whose record was removed before the submission
/// was complete starts again.
const SUBMISSION_MS_MAX: u64 = 10 * 60 * 1000;

/// What a node has reported about a job.
struct Report<'a> {
    job: &'a str,
    is_open: bool,
    node: String,
    said: NodeFigures<Figures>,
}

/// The number of most recent jobs that are examined although they may be over: their tasks may still occupy
/// threads.
const LAST_JOBS: usize = 3;

impl Stage {
    /// Returns the stage in a word or two, for people and scripts.
    pub fn text(self) -> &'static str {
        match self {
            Self::Submitting => "submitting",
            Self::Abandoned => "abandoned",
            Self::Running => "running",
            Self::Queued => "queued",
            Self::Waiting => "waits for jobs",
            Self::NoNodes => "waits for nodes",
            Self::Suspended => "suspended",
            Self::Done => "done",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Unreadable => "unreadable",
        }
    }

    /// Returns whether the job may still produce output.
    pub fn is_open(self) -> bool {
        self < Self::Done
    }
}

impl Overview {
    pub(crate) async fn read(store: &dyn Store, cluster: &ClusterPaths) -> zk::Result<Self> {
        let members = membership::list(store, cluster).await?;
        let leaders = election::leaders(store, cluster).await?;
        let draining = store.children(&cluster.drains()).await?;
        let jobs = job::list(store, cluster).await?;
        let at_ms = unix_ms();
        let jobs = entries(jobs, &members, &leaders, at_ms);
        Ok(Self { members, leaders, draining, jobs, at_ms })
    }

    /// Returns the task of each node that did not stop long after it was asked to, with its job.
    pub(crate) async fn unstoppable(
        &self,
        store: &dyn Store,
        cluster: &ClusterPaths,
    ) -> zk::Result<BTreeMap<String, String>> {
        let reports = self.reports(store, cluster).await?.into_iter();
        let task = |report: Report<'_>| {
            let silent = report.said.silent.first()?;
            Some((report.node, format!("task {} of job {}", silent.task, report.job)))
        };
        Ok(reports.filter_map(task).collect())
    }

    /// Returns what each node writes that holds more than that, with its job.
    pub(crate) async fn unprotected(
        &self,
        store: &dyn Store,
        cluster: &ClusterPaths,
    ) -> zk::Result<BTreeMap<String, (String, Ledger)>> {
        let reports = self.reports(store, cluster).await?.into_iter();
        let ledger = |report: Report<'_>| {
            let ledger = report.said.ledger.filter(|ledger| ledger.unprotected)?;
            Some((report.node, (report.job.to_owned(), ledger)))
        };
        Ok(reports.filter(|report| report.is_open).filter_map(ledger).collect())
    }

    /// Returns the latest reports of all members about jobs that they may work on.
    async fn reports(&self, store: &dyn Store, cluster: &ClusterPaths) -> zk::Result<Vec<Report<'_>>> {
        let mut reports = Vec::new();
        let last = self.jobs.len().saturating_sub(LAST_JOBS);
        for (place, JobEntry { id, record, .. }) in self.jobs.iter().enumerate() {
            let is_open = record.as_ref().is_some_and(|record| !record.state.is_over());
            if place < last && !is_open {
                continue;
            }
            for (node, said) in figures::read::<Figures>(store, cluster, id).await? {
                if !said.last && self.members.iter().any(|member| member.node == node) {
                    reports.push(Report { job: id, is_open, node, said });
                }
            }
        }
        Ok(reports)
    }

    /// Returns the entry of a job.
    pub fn job(&self, id: &str) -> Option<&JobEntry> {
        self.jobs.iter().find(|job| job.id == id)
    }

    /// Returns whether a node is the leader of a job.
    pub fn leads(&self, node: &str) -> bool {
        self.leaders.iter().any(|(_, leader)| leader == node)
    }

    /// Returns whether a node was asked to leave.
    pub fn drains(&self, node: &str) -> bool {
        self.draining.iter().any(|draining| draining == node)
    }
}

/// Returns the jobs with their stages, in the order of submission.
fn entries(
    jobs: Vec<(String, zk::Result<JobRecord>)>,
    members: &[Member],
    leaders: &[(String, String)],
    at_ms: u64,
) -> Vec<JobEntry> {
    // Nodes of one sort take the same jobs: the one that a node of them leads, or else the first.
    let mut free: BTreeMap<_, &Member> = members.iter().map(|member| (sort(member), member)).collect();
    let leader_of = |job: &str| {
        let (_, node) = leaders.iter().find(|(led, _)| led == job)?;
        members.iter().find(|member| member.node == *node)
    };
    let at_work: BTreeMap<&str, &Member> = jobs
        .iter()
        .filter(|(_, record)| is_running(record))
        .filter_map(|(id, _)| Some((id.as_str(), leader_of(id)?)))
        .collect();
    for leader in at_work.values() {
        free.remove(&sort(leader));
    }
    let at_work: BTreeSet<String> = at_work.into_keys().map(str::to_owned).collect();
    let open: BTreeSet<String> =
        jobs.iter().filter(|(_, record)| !is_done(record)).map(|(id, _)| id.clone()).collect();
    let entry = |(id, record): (String, zk::Result<JobRecord>)| {
        let Ok(record) = record else {
            return JobEntry { id, stage: Stage::Unreadable, record: None, missing: None };
        };
        let mut missing = None;
        let stage = match record.state {
            JobState::Submitting if at_ms.saturating_sub(record.submitted_ms) > SUBMISSION_MS_MAX => {
                Stage::Abandoned
            }
            JobState::Submitting => Stage::Submitting,
            JobState::Suspended => Stage::Suspended,
            JobState::Done => Stage::Done,
            JobState::Incomplete => Stage::Incomplete,
            JobState::Failed => Stage::Failed,
            JobState::Cancelled => Stage::Cancelled,
            _ if record.after.iter().any(|job| open.contains(job)) => Stage::Waiting,
            _ => {
                let before = free.len();
                free.retain(|_, member| member.takes(&record).is_err());
                let has_data =
                    record.shared_from.is_empty() || at_work.contains(&id) || is_there(members, &record);
                if !has_data {
                    missing = Some(format!(
                        "no member has its data: it was with {}, which is gone, and no node works on the job",
                        record.shared_from
                    ));
                    Stage::NoNodes
                } else if free.len() < before || at_work.contains(&id) {
                    Stage::Running
                } else {
                    missing = what_is_missing(members, &record);
                    if missing.is_some() { Stage::NoNodes } else { Stage::Queued }
                }
            }
        };
        JobEntry { id, stage, record: Some(record), missing }
    };
    jobs.into_iter().map(entry).collect()
}

fn is_running(record: &zk::Result<JobRecord>) -> bool {
    record.as_ref().is_ok_and(|record| record.state.is_running())
}

fn is_done(record: &zk::Result<JobRecord>) -> bool {
    record.as_ref().is_ok_and(|record| record.state == JobState::Done)
}

/// Returns what decides about the jobs that a node takes.
fn sort(member: &Member) -> (&str, &str, bool, &Labels) {
    (&member.program, &member.program_version, member.workers > 0, &member.labels)
}

/// Returns what is missing if no node takes a job.
pub(crate) fn what_is_missing(members: &[Member], record: &JobRecord) -> Option<String> {
    let JobRecord { program, program_version: version, require, .. } = record;
    let lacks: Option<BTreeSet<Lacks>> = members.iter().map(|member| member.takes(record).err()).collect();
    let lacks = lacks?;
    let labels =
        |lacks: &Lacks| if let Lacks::Labels(missing) = lacks { Some(missing.clone()) } else { None };
    let of_nodes: Vec<Labels> = lacks.iter().filter_map(labels).collect();
    let (runs, without_workers) = (format!("{program} {version}"), lacks.contains(&Lacks::Workers));
    if of_nodes.is_empty() {
        let no_node = || format!("no node runs {runs}");
        return Some(if without_workers {
            format!("no node that runs {runs} has workers")
        } else {
            no_node()
        });
    }
    // What every one of them lacks is what has to be added; otherwise it is the combination.
    let lacked = |label: &(&str, &str)| of_nodes.iter().all(|missing| missing.get(label.0) == Some(label.1));
    let nowhere: Vec<String> =
        require.iter().filter(lacked).map(|(name, value)| format!("{name}={value}")).collect();
    let what = if nowhere.is_empty() { format!("all of {require}") } else { nowhere.join(",") };
    let with_workers = if without_workers { " with workers" } else { "" };
    Some(format!("no node{with_workers} that runs {runs} has {what}"))
}

#[cfg(test)]
mod tests {
    use Stage::{NoNodes, Queued, Running};

    use super::*;

    fn member(labels: &str, workers: u32) -> Member {
        Member {
            node: format!("{labels} {workers}"),
            address: None,
            fingerprint: String::new(),
            workers,
            memory_bytes: 0,
            labels: if labels.is_empty() { Labels::default() } else { labels.parse().unwrap() },
            program: "tree".to_owned(),
            program_version: "1".to_owned(),
            started_ms: 0,
        }
    }

    fn job(require: &str) -> JobRecord {
        let mut record = crate::client::jobs::tests::record();
        (record.program, record.program_version) = ("tree".to_owned(), "1".to_owned());
        record.require = if require.is_empty() { Labels::default() } else { require.parse().unwrap() };
        record
    }

    #[test]
    fn what_is_missing_is_said() {
        let nodes = [member("zone=a", 2), member("gpu=yes,zone=b", 2), member("gpu=yes,ssd=yes,zone=a", 0)];
        let missing = |members: &[Member], require| what_is_missing(members, &job(require));
        assert_eq!(missing(&nodes, ""), None);
        assert_eq!(missing(&nodes, "zone=a"), None);
        for (members, require, says) in [
            (&nodes[..], "ssd=yes,zone=a", "no node with workers that runs tree 1 has ssd=yes"),
            (&nodes[..2], "gpu=yes,zone=a", "no node that runs tree 1 has all of gpu=yes,zone=a"),
            (&nodes[2..], "zone=a", "no node that runs tree 1 has workers"),
            (&[], "", "no node runs tree 1"),
        ] {
            assert_eq!(missing(members, require).as_deref(), Some(says));
        }
    }

    #[test]
    fn each_node_works_on_the_first_job_that_it_takes() {
        let nodes = [member("zone=a", 1), member("zone=a", 1), member("zone=b", 1)];
        let jobs = ["zone=a", "zone=a", "", "zone=b", "zone=c"].map(job);
        let jobs = jobs.into_iter().enumerate().map(|(number, record)| (number.to_string(), Ok(record)));
        let jobs: Vec<_> = jobs.collect();
        let stages = |leaders: &[(String, String)]| -> Vec<Stage> {
            entries(jobs.clone(), &nodes, leaders, 0).iter().map(|entry| entry.stage).collect()
        };
        assert_eq!(stages(&[]), [Running, Queued, Running, Queued, NoNodes]);
        // Those in zone a had begun the second before the first could run.
        let leads = |job: &str, node: &Member| (job.to_owned(), node.node.clone());
        assert_eq!(stages(&[leads("1", &nodes[0])]), [Queued, Running, Running, Queued, NoNodes]);
    }
}
