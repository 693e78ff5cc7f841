//! Queries of a job that do not need its program, and messages to its nodes.

use std::time::Duration;

use rand::Rng as _;
use tokio::time;
use zk::{
    Requests,
    figures::{Ledger, NodeFigures},
    job::{self, JobRecord, JobWatch},
    question, suggestion,
};

use super::{Client, ClientError, Overview, Stage};
use crate::{
    display::{Document, JobDisplay, document_of, request_of},
    figures::{Figures, sum},
    id::JobId,
    report::SetAside,
    shell::observe::{self, Scope},
    view::{Frozen, JobNow, NodeNow, NodeState, Snapshot},
};

/// Everything about a job at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JobDetails {
    /// The job's stage.
    pub stage: Stage,
    /// The job's record.
    pub record: JobRecord,
    /// The work of each node for it, in the order of the nodes' names.
    pub nodes: Vec<NodeWork>,
    /// The number of tasks in the global task list; `None` once the job is over.
    pub open_tasks: Option<u32>,
    /// The number of parked tasks; `None` once the job is over.
    pub parked_tasks: Option<u32>,
    /// The failed tasks without which the job continues.
    pub set_aside: Vec<SetAside>,
    /// The node that leads the job, if any.
    pub leader: Option<String>,
    /// The missing requirement, if no node takes the job.
    pub missing: Option<String>,
    /// The share that is done, from 0 to 1; `None` if the program does not report it.
    pub share: Option<f64>,
    /// The best value that its nodes know, as a number ([`Variable::score`](crate::Variable::score)).
    pub best: Option<f64>,
    /// The bound: nothing better than this can be found.
    pub bound: Option<f64>,
    /// The distance of the best from the bound, as a share of the best.
    pub gap: Option<f64>,
    /// The number of workers of the nodes at work, and of those with a task; `None` if no node reports them.
    pub workers: Option<(u32, u32)>,
    /// The display that its companion provides, if any.
    pub display: Option<JobDisplay>,
}

/// The work of a node for a job.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeWork {
    /// The name of the node.
    pub node: String,
    /// Whether the node is a member, has left or was lost.
    pub state: NodeState,
    /// The figures that the node has published.
    pub published: NodeFigures<Figures>,
}

/// A job's answer to a suggestion.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// Whether it was adopted.
    pub taken: bool,
    /// The explanation by the job's program.
    pub answer: String,
}

impl JobDetails {
    /// Returns the sums over all nodes, and their requests to ZooKeeper.
    pub fn sums(&self) -> (Figures, Requests) {
        let mut requests = Requests::default();
        for work in &self.nodes {
            requests += work.published.requests;
        }
        (sum(self.nodes.iter().map(|work| &work.published)), requests)
    }

    /// Returns the nodes that currently work on the job.
    pub fn at_work(&self) -> impl Iterator<Item = &NodeWork> {
        let running = self.stage == Stage::Running;
        let works = |work: &&NodeWork| {
            work.state == NodeState::Member
                && !work.published.last
                && work.published.attempt == self.record.attempt
        };
        self.nodes.iter().filter(move |_| running).filter(works)
    }

    /// Returns the longest time since the last flush of a node at work, as of its last report, in milliseconds: if
    /// the node were lost, its work of that time would be, too. `None` if no node reports it.
    pub fn unwritten_ms(&self) -> Option<u64> {
        self.at_work().filter_map(|work| work.published.unwritten_ms()).max()
    }

    /// Returns the nodes at work that hold more than they can write, with their ledgers: the loss of one of them starts
    /// a new attempt.
    pub fn unprotected(&self) -> impl Iterator<Item = (&str, Ledger)> {
        let ledgers = self.at_work().filter_map(|work| Some((work.node.as_str(), work.published.ledger?)));
        ledgers.filter(|(_, ledger)| ledger.unprotected)
    }
}

impl Client {
    /// Returns the cluster's current members, leaders and jobs.
    ///
    /// # Errors
    /// If there is no such cluster, or ZooKeeper was unavailable for too long.
    pub async fn overview(&self) -> Result<Overview, ClientError> {
        self.overview_of(Scope::Records).await
    }

    /// Returns the same, with the nodes' reports about unfinished jobs and the latest ones; it takes longer.
    ///
    /// # Errors
    /// As [`overview`](Self::overview).
    pub async fn overview_with_reports(&self) -> Result<Overview, ClientError> {
        self.overview_of(Scope::Current).await
    }

    async fn overview_of(&self, scope: Scope) -> Result<Overview, ClientError> {
        self.check_cluster().await?;
        let scope = || scope.clone();
        self.ask(|store| async move { Overview::read(&*store, self.cluster(), scope()).await }).await
    }

    /// Returns everything about a job.
    ///
    /// # Errors
    /// If there is no such job or cluster, or ZooKeeper was unavailable for too long.
    pub async fn job(&self, job: &JobId) -> Result<JobDetails, ClientError> {
        let mut snapshot = self.look_at(job).await?;
        let JobNow { about, nodes, .. } = snapshot.jobs.remove(&job.0).ok_or_else(|| self.no_job(job))?;
        let Some(record) = about.record.as_deref().cloned() else {
            // Reading the record again returns the error.
            return Err(self.record(job).await.err().unwrap_or_else(|| self.no_job(job)));
        };
        let work = |(node, now): (String, Frozen<NodeNow>)| NodeWork {
            node,
            state: now.state,
            published: (*now.report).clone(),
        };
        let set_aside = |(task, (crashes, reason)): (&String, &(u32, String))| SetAside {
            task: task.clone(),
            crashes: *crashes,
            reason: reason.clone(),
        };
        Ok(JobDetails {
            stage: about.stage,
            record,
            nodes: nodes.into_iter().map(work).collect(),
            open_tasks: about.listed_tasks,
            parked_tasks: about.parked_tasks,
            set_aside: about.set_aside.iter().map(set_aside).collect(),
            leader: about.leader.clone(),
            missing: about.missing.clone(),
            share: about.share,
            best: about.best,
            bound: about.bound,
            gap: about.gap,
            workers: about.pool.map(|pool| (pool.workers, pool.busy)),
            display: about.display.as_deref().cloned(),
        })
    }

    /// Returns the current state of the cluster, with all reports about a job. ZooKeeper has no history: an
    /// [observer](Client::observer) records it while it happens.
    ///
    /// # Errors
    /// If there is no such job or cluster, or ZooKeeper was unavailable for too long.
    pub async fn look_at(&self, job: &JobId) -> Result<Snapshot, ClientError> {
        self.check_cluster().await?;
        let scope = || Scope::Job(job.0.clone());
        let look = self.ask(|store| async move { observe::look(&*store, self.cluster(), scope()).await });
        let snapshot = look.await?;
        if snapshot.jobs.contains_key(&job.0) { Ok(snapshot) } else { Err(self.no_job(job)) }
    }

    /// Returns the record of a job.
    ///
    /// # Errors
    /// If there is no such job, or ZooKeeper was unavailable for too long.
    pub async fn record(&self, job: &JobId) -> Result<JobRecord, ClientError> {
        let read = self.ask(|store| async move {
            match job::read(&*store, self.cluster(), &job.0).await {
                Ok((record, _)) => Ok(Some(record)),
                Err(zk::Error::NoNode { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        });
        read.await?.ok_or_else(|| self.no_job(job))
    }

    /// Waits until a job is over, and returns its final record.
    ///
    /// # Errors
    /// If there is no such job, it is [forgotten](ClientError::Forgotten) during the wait, or ZooKeeper was
    /// unavailable for too long.
    pub async fn wait(&self, job: &JobId) -> Result<JobRecord, ClientError> {
        // A job that never existed is a mistake of the caller.
        let key = &self.record(job).await?.key;
        let over = self.ask(|store| async move {
            let mut watch = JobWatch::open(store, self.cluster(), &job.0).await?;
            loop {
                match watch.next().await {
                    // ZooKeeper was replaced by an empty one, in which another job has the same id.
                    Ok(record) if record.key != *key => return Ok(None),
                    Ok(record) if record.state.is_over() => return Ok(Some(record)),
                    Ok(_) => {}
                    Err(zk::Error::NoNode { .. }) => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        });
        self.attended(over).await?.ok_or_else(|| ClientError::Forgotten { job: job.clone() })
    }

    /// Passes a suggestion, such as a solution, to a job that is not over, and waits for the answer of a node
    /// that works on it. The suggestion stays with the job even if the caller stops waiting.
    ///
    /// # Errors
    /// If there is no such job, it is over, no node has answered in time, or ZooKeeper was unavailable for
    /// too long.
    pub async fn inject(
        &self,
        job: &JobId,
        said: serde_json::Value,
        timeout: Duration,
    ) -> Result<Answer, ClientError> {
        let record = self.record(job).await?;
        if record.state.is_over() {
            return Err(not_that(job, &record, "suggestions are accepted only until it is over"));
        }
        // The key identifies the suggestion when the request is repeated.
        let (key, said) = (&format!("{:032x}", rand::rng().random::<u128>()), &said);
        let suggested = self.ask(|store| async move {
            suggestion::suggest(&*store, self.cluster(), &job.0, key, said.clone()).await
        });
        let suggested = &suggested.await?;
        let answered = self.ask(|store| async move {
            suggestion::answered(&*store, self.cluster(), &job.0, suggested).await
        });
        if let Ok(answer) = time::timeout(timeout, answered).await {
            let answer = answer?;
            return Ok(Answer { taken: answer.taken, answer: answer.said });
        }
        let record = self.record(job).await?;
        if record.state.is_over() {
            return Err(not_that(job, &record, "it was over before the suggestion was considered"));
        }
        let waited = timeout.as_secs_f64();
        let reason = format!(
            "no node has answered within {waited} s; the suggestion stays with job {job} until one works on it"
        );
        Err(ClientError::TimedOut { reason })
    }

    /// Requests a document from the companions of a running job, such as one that its [display](JobDetails::display)
    /// offers. A request for a name that it does not offer may wait until the timeout.
    ///
    /// # Errors
    /// If there is no such job, it is over or does not provide the document, no node has answered in time, or ZooKeeper
    /// was unavailable for too long.
    pub async fn document(
        &self,
        job: &JobId,
        name: &str,
        argument: Option<&str>,
        timeout: Duration,
    ) -> Result<Document, ClientError> {
        let record = self.record(job).await?;
        if record.state.is_over() {
            return Err(not_that(job, &record, "only a running job can be asked"));
        }
        // The key identifies the question when the request is repeated.
        let (key, asked) = (&format!("{:032x}", rand::rng().random::<u128>()), &request_of(name, argument));
        let request = self.ask(|store| async move {
            question::ask(&*store, self.cluster(), &job.0, key, asked.clone()).await
        });
        let request = &request.await?;
        let answered = self
            .ask(|store| async move { question::answered(&*store, self.cluster(), &job.0, request).await });
        if let Ok(answer) = time::timeout(timeout, answered).await {
            let refused = |reason| ClientError::Invalid {
                reason: format!("job {job} does not provide {name}: {reason}"),
            };
            return document_of(&answer?).map_err(refused);
        }
        self.ask(|store| async move {
            question::withdraw(&*store, self.cluster(), &job.0, request).await;
            Ok::<_, zk::Error>(())
        })
        .await?;
        let waited = timeout.as_secs_f64();
        let reason = format!("no node that works on job {job} has answered within {waited} s");
        Err(ClientError::TimedOut { reason })
    }

    pub(super) fn no_job(&self, job: &JobId) -> ClientError {
        ClientError::NoJob { cluster: self.cluster_name().to_owned(), job: job.clone() }
    }
}

pub(super) fn not_that(job: &JobId, record: &JobRecord, requirement: &str) -> ClientError {
    ClientError::WrongState { job: job.clone(), reason: format!("is {}: {requirement}", word(record.state)) }
}

pub(super) fn word(state: job::JobState) -> String {
    format!("{state:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::fixtures::record;

    fn work(node: &str, state: NodeState, ledger: Option<Ledger>) -> NodeWork {
        let published = NodeFigures { attempt: 2, ledger, at_ms: 10_000, ..NodeFigures::default() };
        NodeWork { node: node.to_owned(), state, published }
    }

    fn written(ms: u64) -> Ledger {
        Ledger { written_ms: Some(ms), ..Ledger::default() }
    }

    #[test]
    fn unwritten_work_is_reported_only_for_nodes_at_work_on_a_running_job() {
        let unprotected = Ledger { unprotected: true, bytes: Some(7), ..Ledger::default() };
        let mut earlier = work("e", NodeState::Member, Some(written(1)));
        earlier.published.attempt = 1;
        let mut told_last = work("f", NodeState::Member, Some(written(1)));
        told_last.published.last = true;
        let nodes = vec![
            work("a", NodeState::Member, Some(written(9_600))),
            work("b", NodeState::Member, Some(written(8_800))),
            work("c", NodeState::Lost, Some(written(1))),
            work("d", NodeState::Member, Some(Ledger { empty: true, ..written(1) })),
            earlier,
            told_last,
            work("g", NodeState::Member, Some(Ledger { written_ms: Some(1), ..unprotected })),
            work("h", NodeState::Member, None),
        ];
        let mut job = JobDetails {
            stage: Stage::Running,
            record: record(),
            nodes,
            open_tasks: None,
            parked_tasks: None,
            set_aside: Vec::new(),
            leader: None,
            missing: None,
            share: None,
            best: None,
            bound: None,
            gap: None,
            workers: None,
            display: None,
        };
        assert_eq!(job.unwritten_ms(), Some(1_200));
        let named: Vec<&str> = job.unprotected().map(|(node, _)| node).collect();
        assert_eq!(named, ["g"]);
        job.stage = Stage::Done;
        assert_eq!((job.unwritten_ms(), job.unprotected().count()), (None, 0));
    }
}
