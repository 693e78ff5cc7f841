//! The stages of jobs, derived from the records of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use zk::{
    Labels,
    job::{JobRecord, JobState},
    membership::{Lacks, Member},
};

/// The stage of a job, for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
/// wrong guess or clock skew is harmless: a submitter whose record was removed before the submission was
/// complete starts again.
const SUBMISSION_MS_MAX: u64 = 10 * 60 * 1000;

impl Stage {
    /// Returns the name of the stage, for users. Scripts get the serialized name.
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

/// Returns the stage of each job, and the missing requirement if no node takes it. The jobs are in the order of their
/// submission, each with its record if that can be read; the leaders are by job. Cordoned members take no further job.
pub(crate) fn stages<'a>(
    jobs: &[(&'a str, Option<&'a JobRecord>)],
    members: &[&'a Member],
    cordoned: &BTreeSet<String>,
    leaders: &BTreeMap<&'a str, &'a str>,
    at_ms: u64,
) -> Vec<(Stage, Option<String>)> {
    // Equivalent nodes take the same jobs: the one that one of them leads, or else the first.
    let takers: Vec<&Member> =
        members.iter().filter(|member| !cordoned.contains(&member.node)).copied().collect();
    let mut free: BTreeMap<_, &Member> = takers.iter().map(|member| (sort(member), *member)).collect();
    let by_name: BTreeMap<&str, &Member> =
        members.iter().map(|member| (member.node.as_str(), *member)).collect();
    let at_work: BTreeMap<&str, &Member> = jobs
        .iter()
        .filter(|(_, record)| record.is_some_and(|record| record.state.is_running()))
        .filter_map(|(id, _)| Some((*id, *by_name.get(leaders.get(id)?)?)))
        .collect();
    for leader in at_work.values() {
        free.remove(&sort(leader));
    }
    let is_done = |record: Option<&JobRecord>| record.is_some_and(|record| record.state == JobState::Done);
    let open: BTreeSet<&str> =
        jobs.iter().filter(|(_, record)| !is_done(*record)).map(|(id, _)| *id).collect();
    let stage = |(id, record): &(&str, Option<&JobRecord>)| {
        let Some(record) = record else { return (Stage::Unreadable, None) };
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
            _ if record.after.iter().any(|job| open.contains(job.as_str())) => Stage::Waiting,
            _ => {
                let before = free.len();
                free.retain(|_, member| member.takes(record).is_err());
                let is_led = at_work.contains_key(id);
                let has_data = record.shared_from.is_empty()
                    || is_led
                    || members.iter().any(|member| member.may_bring_data(record));
                if !has_data {
                    let missing = format!(
                        "no member has its data: it was with {}, which is gone, and no node works on the job",
                        record.shared_from
                    );
                    return (Stage::NoNodes, Some(missing));
                }
                if free.len() < before || is_led {
                    Stage::Running
                } else {
                    let missing = missing_requirement(members, record);
                    let missing = missing.or_else(|| {
                        let takes = takers.iter().any(|member| member.takes(record).is_ok());
                        (!takes).then(|| "all nodes that take it are cordoned: taskwork uncordon".to_owned())
                    });
                    let stage = if missing.is_some() { Stage::NoNodes } else { Stage::Queued };
                    return (stage, missing);
                }
            }
        };
        (stage, None)
    };
    jobs.iter().map(stage).collect()
}

/// Returns the properties that decide which jobs a node takes.
fn sort(member: &Member) -> (&str, &str, bool, &Labels) {
    (&member.program, &member.program_version, member.workers > 0, &member.labels)
}

/// Returns the missing requirement if no node takes a job.
fn missing_requirement(members: &[&Member], record: &JobRecord) -> Option<String> {
    let JobRecord { program, program_version: version, require, .. } = record;
    let lacks: Option<BTreeSet<Lacks>> = members.iter().map(|member| member.takes(record).err()).collect();
    let lacks = lacks?;
    let labels =
        |lacks: &Lacks| if let Lacks::Labels(missing) = lacks { Some(missing.clone()) } else { None };
    let of_nodes: Vec<Labels> = lacks.iter().filter_map(labels).collect();
    let (runs, without_workers) = (format!("{program} {version}"), lacks.contains(&Lacks::Workers));
    if let Some(brought) = record.brought.as_ref().filter(|_| of_nodes.is_empty()) {
        return Some(missing_agent(members, record, &brought.target));
    }
    if of_nodes.is_empty() {
        let no_node = || format!("no node runs {runs}");
        return Some(if without_workers {
            format!("no node that runs {runs} has workers")
        } else {
            no_node()
        });
    }
    // A label that all nodes lack has to be added; otherwise the combination is missing.
    let lacked = |label: &(&str, &str)| of_nodes.iter().all(|missing| missing.get(label.0) == Some(label.1));
    let nowhere: Vec<String> =
        require.iter().filter(lacked).map(|(name, value)| format!("{name}={value}")).collect();
    let what = if nowhere.is_empty() { format!("all of {require}") } else { nowhere.join(",") };
    let with_workers = if without_workers { " with workers" } else { "" };
    Some(format!("no node{with_workers} that runs {runs} has {what}"))
}

/// Returns the missing requirement of a job whose program no node runs, although it travels with the job.
fn missing_agent(members: &[&Member], record: &JobRecord, target: &str) -> String {
    let JobRecord { program, program_version: version, require, .. } = record;
    let of_target = |member: &&&Member| member.is_agent() && member.program_version == target;
    let agents: Vec<_> = members.iter().filter(of_target).collect();
    let starting = agents.iter().filter(|agent| agent.starts(record).is_ok()).count();
    match (agents.len(), starting) {
        (0, _) => format!(
            "no agent (`taskwork agent`) for {target} starts {program} {version}, which travels with the job"
        ),
        (_, 0) => format!("no agent for {target} has {require}, which the job requires"),
        (_, 1) => format!("1 agent has not started {program} {version} yet, or refuses it: see its log"),
        (_, agents) => {
            format!("{agents} agents have not started {program} {version} yet, or refuse it: see their logs")
        }
    }
}

#[cfg(test)]
mod tests {
    use Stage::{NoNodes, Queued, Running};

    use zk::{job::BroughtProgram, membership::AGENT};

    use super::*;
    use crate::view::fixtures;

    fn member(labels: &str, workers: u32) -> Member {
        Member {
            workers,
            labels: if labels.is_empty() { Labels::default() } else { labels.parse().unwrap() },
            program: "tree".to_owned(),
            ..fixtures::member(&format!("{labels} {workers}"))
        }
    }

    fn job(require: &str) -> JobRecord {
        let mut record = fixtures::record();
        (record.program, record.program_version) = ("tree".to_owned(), "1".to_owned());
        record.require = if require.is_empty() { Labels::default() } else { require.parse().unwrap() };
        record
    }

    #[test]
    fn missing_requirement_names_labels_workers_or_release() {
        let nodes = [member("zone=a", 2), member("gpu=yes,zone=b", 2), member("gpu=yes,ssd=yes,zone=a", 0)];
        let missing = |members: &[Member], require| {
            missing_requirement(&members.iter().collect::<Vec<_>>(), &job(require))
        };
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
    fn job_with_its_program_waits_for_agents() {
        let brought = BroughtProgram {
            object: "1-00".to_owned(),
            target: "x86_64-linux".to_owned(),
            from: "n".to_owned(),
            certificates: String::new(),
            scheme: 0,
            signature: String::new(),
        };
        let job = JobRecord { brought: Some(brought), ..job("zone=a") };
        let agent = |labels: &str, target: &str| Member {
            program: AGENT.to_owned(),
            program_version: target.to_owned(),
            ..member(labels, 0)
        };
        let [here, there] =
            ["agent=yes,zone=a", "agent=yes,zone=b"].map(|labels| agent(labels, "x86_64-linux"));
        let (submitter, other) =
            (agent("zone=a", "x86_64-linux"), agent("agent=yes,zone=a", "aarch64-linux"));
        for (members, says) in [
            (
                vec![],
                "no agent (`taskwork agent`) for x86_64-linux starts tree 1, which travels with the job",
            ),
            (
                vec![&submitter, &other],
                "no agent (`taskwork agent`) for x86_64-linux starts tree 1, which travels with the job",
            ),
            (vec![&there], "no agent for x86_64-linux has zone=a, which the job requires"),
            (vec![&there, &here], "1 agent has not started tree 1 yet, or refuses it: see its log"),
        ] {
            assert_eq!(missing_requirement(&members, &job).as_deref(), Some(says));
        }
        let node = member("zone=a", 1);
        assert_eq!(missing_requirement(&[&node, &here], &job), None);
    }

    #[test]
    fn node_works_on_the_first_job_that_it_takes() {
        let nodes = [member("zone=a", 1), member("zone=a", 1), member("zone=b", 1)];
        let jobs = ["zone=a", "zone=a", "", "zone=b", "zone=c"].map(job);
        let ids: Vec<String> = (0..jobs.len()).map(|number| number.to_string()).collect();
        let jobs: Vec<_> = ids.iter().map(String::as_str).zip(jobs.iter().map(Some)).collect();
        let members: Vec<&Member> = nodes.iter().collect();
        let of = |leaders: &[(&str, &str)]| -> Vec<Stage> {
            let leaders = leaders.iter().copied().collect();
            let told = stages(&jobs, &members, &BTreeSet::new(), &leaders, 0);
            told.into_iter().map(|(stage, _)| stage).collect()
        };
        assert_eq!(of(&[]), [Running, Queued, Running, Queued, NoNodes]);
        // The nodes in zone a had started the second job before the first could run.
        assert_eq!(of(&[("1", &nodes[0].node)]), [Queued, Running, Running, Queued, NoNodes]);
    }

    #[test]
    fn cordoned_node_takes_no_further_job() {
        let nodes = [member("zone=a", 1), member("zone=b", 1)];
        let jobs = ["zone=a", "zone=b"].map(job);
        let jobs: Vec<_> = ["0", "1"].into_iter().zip(jobs.iter().map(Some)).collect();
        let members: Vec<&Member> = nodes.iter().collect();
        let cordoned = BTreeSet::from([nodes[0].node.clone()]);
        let of = |leaders: &[(&str, &str)]| {
            let leaders = leaders.iter().copied().collect();
            stages(&jobs, &members, &cordoned, &leaders, 0)
        };
        let waits = "all nodes that take it are cordoned: taskwork uncordon";
        assert_eq!(of(&[]), [(NoNodes, Some(waits.to_owned())), (Running, None)]);
        let led = of(&[("0", nodes[0].node.as_str())]);
        assert_eq!(led, [(Running, None), (Running, None)], "it keeps its job");
    }
}
