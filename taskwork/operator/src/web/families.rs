//! The metrics of a cluster. Unknown values have no sample; they are never 0.

use std::{cmp::Reverse, collections::BTreeMap};

use taskwork::{
    report::Figures,
    view::{JobAbout, MomentKind, NodeState, Snapshot, Stage},
};

use taskwork_cli::web::family::{Family, HANDLING, JOB, Kind, Labels, Value, build_info};

use super::costs;
use crate::json::{STAGES, name_of};

/// The number of the most recent finished jobs with metrics; all open jobs have metrics, up to [`JOBS_MAX`].
const OVER_MAX: usize = 20;
/// The maximum number of jobs with metrics: running jobs first, then finished ones, then waiting ones, the most recent
/// of each first.
const JOBS_MAX: usize = 200;
/// The number of lost nodes with a metric: the most recent ones.
const LOST_MAX: usize = 20;
/// The collected metric families of a cluster.
#[derive(Debug, Default)]
struct Families(Vec<Family>);

impl Families {
    fn add(
        &mut self,
        kind: Kind,
        name: &'static str,
        help: &'static str,
        samples: impl IntoIterator<Item = (Labels, Value)>,
    ) {
        let samples = samples.into_iter().collect();
        self.0.push(Family { name, help, kind, samples });
    }

    /// Adds a number with a sample for each job that has it.
    fn of_jobs<'a, N: Into<Option<f64>>>(
        &mut self,
        (kind, name, help): (Kind, &'static str, &'static str),
        jobs: &[(&'a str, &'a JobAbout)],
        number: impl Fn(&JobAbout) -> N,
    ) {
        let sample = |(id, job): &(&str, &JobAbout)| Some((of_job(id), Value::Number(number(job).into()?)));
        let samples: Vec<_> = jobs.iter().filter_map(sample).collect();
        self.add(kind, name, help, samples);
    }
}

fn of_job(id: &str) -> Labels {
    vec![(JOB, id.to_owned())]
}

fn one(number: f64) -> [(Labels, Value); 1] {
    [(Vec::new(), Value::Number(number))]
}

/// Returns the metrics of a cluster.
pub(super) fn of_cluster(snapshot: &Snapshot) -> Vec<Family> {
    let mut families = Families(vec![build_info()]);
    members(snapshot, &mut families);
    lost_nodes(snapshot, &mut families);
    // Each stage has a sample, even if it is 0.
    let mut states: BTreeMap<Stage, u64> = STAGES.into_iter().map(|stage| (stage, 0)).collect();
    for job in snapshot.jobs.values() {
        *states.entry(job.about.stage).or_default() += 1;
    }
    let states = states.into_iter();
    let states = states.map(|(stage, jobs)| (vec![("state", name_of(stage))], Value::Number(jobs as f64)));
    families.add(Kind::Gauge, "jobs", "Jobs, by their states.", states);
    let records = snapshot.jobs.values().filter_map(|job| job.about.record.as_ref());
    let bytes = records.fold(0u64, |sum, record| sum.saturating_add(record.result_bytes));
    families.add(Kind::Gauge, "result_bytes", "Results of jobs in ZooKeeper, in bytes.", one(bytes as f64));
    let all = || snapshot.jobs.iter().rev().map(|(id, job)| (id.as_str(), &*job.about));
    let is_running = |job: &JobAbout| job.stage == Stage::Running;
    let running = all().filter(|(_, job)| is_running(job));
    let over = all().filter(|(_, job)| !job.stage.is_open()).take(OVER_MAX);
    let waiting = all().filter(|(_, job)| job.stage.is_open() && !is_running(job));
    let jobs: Vec<_> = running.chain(over).chain(waiting).take(JOBS_MAX).collect();
    descriptions(snapshot, &jobs, &mut families);
    progress(&jobs, &mut families);
    // Unreported values are not 0.
    families.0.extend(costs::of_cluster(snapshot, &jobs));
    let reported: Vec<_> = jobs.into_iter().filter(|(_, job)| job.reported).collect();
    work(&reported, &mut families);
    zookeeper(&reported, &mut families);
    observation(snapshot, &mut families);
    families.0
}

fn members(snapshot: &Snapshot, families: &mut Families) {
    let mut programs: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for member in snapshot.members.values().filter_map(|member| member.member.as_ref()) {
        let (nodes, workers) = programs.entry((&member.program, &member.program_version)).or_default();
        *nodes += 1;
        *workers += u64::from(member.workers);
    }
    let each = |number: fn(&(u64, u64)) -> u64| {
        let sample = |((program, version), counts): (&(&str, &str), &(u64, u64))| {
            let labels = vec![("program", (*program).to_owned()), ("version", (*version).to_owned())];
            (labels, Value::Number(number(counts) as f64))
        };
        programs.iter().map(sample).collect::<Vec<_>>()
    };
    families.add(Kind::Gauge, "members", "Nodes that are members of the cluster.", each(|counts| counts.0));
    families.add(Kind::Gauge, "workers", "Workers of these nodes.", each(|counts| counts.1));
    let cordoned = snapshot.members.values().filter(|member| member.cordoned).count();
    let help = "Members that are cordoned and take no more work.";
    families.add(Kind::Gauge, "cordoned_members", help, one(cordoned as f64));
}

fn lost_nodes(snapshot: &Snapshot, families: &mut Families) {
    let lost = snapshot.moments.iter().filter(|moment| moment.what == MomentKind::Lost);
    let lost: BTreeMap<&str, (u64, &str)> = lost
        .map(|moment| {
            let host = moment.member.as_ref().map_or("", |member| member.host.as_str());
            (moment.name.as_str(), (moment.at_ms, host))
        })
        .collect();
    let mut lost: Vec<_> = lost.into_iter().collect();
    lost.sort_by_key(|(_, (at_ms, _))| Reverse(*at_ms));
    let samples = lost.into_iter().take(LOST_MAX).map(|(node, (at_ms, host))| {
        let labels = vec![("node", node.to_owned()), ("host", host.to_owned())];
        (labels, Value::Number(at_ms as f64 / 1e3))
    });
    let help = "Times at which nodes were lost during the observation, in seconds since 1970.";
    families.add(Kind::Gauge, "node_lost_timestamp_seconds", help, samples);
}

/// Adds the names of jobs, and the numbers of their unprotected nodes.
fn descriptions(snapshot: &Snapshot, jobs: &[(&str, &JobAbout)], families: &mut Families) {
    let infos = jobs.iter().filter_map(|(id, job)| {
        let record = job.record.as_ref()?;
        let mut labels = of_job(id);
        labels.extend([
            ("name", record.name.clone()),
            ("program", record.program.clone()),
            ("version", record.program_version.clone()),
            ("submitter", record.submitter.clone()),
            ("state", name_of(job.stage)),
        ]);
        Some((labels, Value::Number(1.0)))
    });
    families.add(Kind::Gauge, "job_info", "The names and the state of a job. Always 1.", infos);
    let help = "The time at which a job ended, in seconds since 1970.";
    families.of_jobs((Kind::Gauge, "job_finished_timestamp_seconds", help), jobs, |job| {
        Some(job.record.as_ref()?.finished_ms? as f64 / 1e3)
    });
    let unprotected =
        jobs.iter().filter(|(_, job)| job.reported && job.stage.is_open()).filter_map(|(id, _)| {
            let nodes = snapshot.jobs.get(*id)?.nodes.values();
            let has_more = |ledger: taskwork::client::records::Ledger| ledger.unprotected;
            let nodes = nodes
                .filter(|node| node.state == NodeState::Member && node.report.ledger.is_some_and(has_more));
            Some((of_job(id), Value::Number(nodes.count() as f64)))
        });
    let help = "Nodes that hold more than they write: if one is lost, the job starts a new attempt.";
    families.add(Kind::Gauge, "job_unprotected_nodes", help, unprotected);
}

fn progress(jobs: &[(&str, &JobAbout)], families: &mut Families) {
    use Kind::Gauge;
    let count = |number: Option<u32>| number.map(f64::from);
    families
        .of_jobs((Gauge, "job_share", "Share of the whole that is done, from 0 to 1."), jobs, |j| j.share);
    families.of_jobs((Gauge, "job_best", "The best known solution."), jobs, |j| j.best);
    let bound = (Gauge, "job_bound", "Bound on the solutions that can still be found.");
    families.of_jobs(bound, jobs, |j| j.bound);
    let gap = (Gauge, "job_gap", "Distance of the best from the bound, as a share of the best.");
    families.of_jobs(gap, jobs, |j| j.gap);
    let eta = (
        Gauge,
        "job_eta_seconds",
        "Estimated time to the end, at the average rate: half of the jobs end earlier.",
    );
    families.of_jobs(eta, jobs, |j| j.eta.map(|eta| eta.likely_seconds));
    let least = (Gauge, "job_eta_least_seconds", "Time before which one of ten jobs ends.");
    families.of_jobs(least, jobs, |j| j.eta.map(|eta| eta.least_seconds));
    let most = (Gauge, "job_eta_most_seconds", "Time after which one of ten jobs ends.");
    families.of_jobs(most, jobs, |j| j.eta.map(|eta| eta.most_seconds));
    let open = (Gauge, "job_open_tasks", "Tasks that run, are queued, wait or are parked.");
    families.of_jobs(open, jobs, |j| j.open_tasks.map(|open| open as f64));
    let parked = (Gauge, "job_parked_tasks", "Parked tasks, which no node holds.");
    families.of_jobs(parked, jobs, |j| count(j.parked_tasks));
    let attempts = (Gauge, "job_attempts", "The present attempt, from 1.");
    families.of_jobs(attempts, jobs, |j| j.record.as_ref().map(|record| f64::from(record.attempt)));
    let nodes = (Gauge, "job_nodes", "Nodes at work.");
    let has_none = |job: &JobAbout| job.record.is_some() && job.stage != Stage::Running;
    families.of_jobs(nodes, jobs, |j| (j.reported || has_none(j)).then(|| f64::from(j.nodes_at_work)));
    let workers = (Gauge, "job_workers", "Workers of the nodes at work.");
    families.of_jobs(workers, jobs, |j| j.pool.map(|pool| f64::from(pool.workers)));
    let busy = (Gauge, "job_busy_workers", "Workers that have a task.");
    families.of_jobs(busy, jobs, |j| j.pool.map(|pool| f64::from(pool.busy)));
    let hungry = (Gauge, "job_hungry_workers", "Workers without a task for which none is queued.");
    families.of_jobs(hungry, jobs, |j| j.pool.map(|pool| f64::from(pool.hungry)));
    let queued = (Gauge, "job_queued_tasks", "Tasks in the pools that wait for a worker.");
    families.of_jobs(queued, jobs, |j| j.pool.map(|pool| f64::from(pool.queued)));
}

fn work(jobs: &[(&str, &JobAbout)], families: &mut Families) {
    let mut count = |name, help, number: fn(&Figures) -> f64| {
        families.of_jobs((Kind::Counter, name, help), jobs, |job| number(&job.figures));
    };
    count("work_units", "Units of work done, as the program counts them.", |f| f.worked as f64);
    count("tasks", "Tasks completed.", |f| f.tasks as f64);
    count("steal_requests", "Requests for tasks to other nodes.", |f| f.requests as f64);
    count("steals", "Grants of tasks in answer to a request.", |f| f.steals as f64);
    count("stolen_tasks", "Tasks received from other nodes.", |f| f.stolen_tasks as f64);
    let busy = "Time in which workers ran the program's code.";
    count("busy_seconds", busy, |f| f.times.searching_ns as f64 / 1e9);
    count("handling_seconds", HANDLING, |f| f.times.handling_ns as f64 / 1e9);
    count("idle_seconds", "Time of workers without a task.", |f| f.times.idle_ns() as f64 / 1e9);
    let times = jobs.iter().map(|(id, job)| (of_job(id), Value::Times(job.figures.steal_times)));
    let help = "Times from a request to the start of a stolen task. The sum is an estimate.";
    families.add(Kind::Histogram, "steal_seconds", help, times.collect::<Vec<_>>());
}

fn zookeeper(jobs: &[(&str, &JobAbout)], families: &mut Families) {
    let of_kind = |id: &str, kind: &str| vec![(JOB, id.to_owned()), ("kind", kind.to_owned())];
    let requests = jobs.iter().flat_map(|(id, job)| {
        let requests = job.requests;
        let kinds = [
            ("read", requests.reads),
            ("write", requests.writes),
            ("multi", requests.multis),
            ("failed_multi", requests.failed_multis),
        ];
        kinds.map(|(kind, number)| (of_kind(id, kind), Value::Number(number as f64)))
    });
    families.add(
        Kind::Counter,
        "zk_requests",
        "Requests of nodes to ZooKeeper.",
        requests.collect::<Vec<_>>(),
    );
    let times = jobs.iter().flat_map(|(id, job)| {
        let kinds = [("read", job.latencies.reads), ("write", job.latencies.writes)];
        kinds.map(|(kind, times)| (of_kind(id, kind), Value::Times(times)))
    });
    let help = "Times of these requests. The sum is an estimate.";
    families.add(Kind::Histogram, "zk_request_seconds", help, times.collect::<Vec<_>>());
    let transactions = (Kind::Counter, "zk_transactions", "Coordination transactions committed.");
    families.of_jobs(transactions, jobs, |job| job.figures.transactions as f64);
    let retries = (Kind::Counter, "zk_retries", "Retries of coordination transactions.");
    families.of_jobs(retries, jobs, |job| job.figures.retries as f64);
}

fn observation(snapshot: &Snapshot, families: &mut Families) {
    use Kind::{Counter, Gauge};
    let cluster = &snapshot.cluster;
    let joined = "Nodes that joined during the observation, and those present at its start.";
    families.add(Counter, "nodes_joined", joined, one(cluster.nodes_joined as f64));
    let left = "Nodes that left their jobs cleanly.";
    families.add(Counter, "nodes_left", left, one(cluster.nodes_left as f64));
    families.add(Counter, "nodes_lost", "Nodes that were lost.", one(cluster.nodes_lost as f64));
    let lag = cluster.silent_since_ms.map_or(0, |since| cluster.at_ms.saturating_sub(since));
    let help =
        "Time since ZooKeeper last answered the observer if it does not; all other metrics are as old.";
    families.add(Gauge, "observer_lag_seconds", help, one(lag as f64 / 1e3));
    families.add(Counter, "observer_events", "Changes that were observed.", one(cluster.events as f64));
    let outages = "Outages of ZooKeeper seen by the observer.";
    families.add(Counter, "observer_outages", outages, one(cluster.outages as f64));
    let warnings = "Znodes that cannot be read.";
    families.add(Gauge, "unreadable_znodes", warnings, one(snapshot.warnings.len() as f64));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use taskwork::view::{Content, Event, View};

    use super::*;

    fn put(view: &mut View, path: &str, content: &Json) {
        view.apply(&Event::of(1, path, Content::Data(content.to_string().into_bytes())));
    }

    fn put_job(view: &mut View, number: u32, state: &str) {
        let record = json!({
            "format": 2, "program": "tree", "program_version": "1", "kind": "tree", "name": "", "submitter": "a",
            "state": state, "attempt": 1, "attempts_max": 3, "root": "", "shared_chunks": 0,
            "submitted_ms": number, "finished_ms": null, "reason": null, "lost": [], "result_bytes": 1_000,
        });
        put(view, &format!("jobs/j-{number:010}"), &record);
    }

    fn put_member(view: &mut View) {
        let member = json!({
            "format": 2, "node": "n1", "address": "127.0.0.1:7", "fingerprint": "", "workers": 2,
            "program": "tree", "program_version": "1", "started_ms": 1,
        });
        put(view, "members/n1", &member);
    }

    /// The metrics of a view.
    struct Gathered(Vec<Family>);

    impl Gathered {
        fn of(mut view: View) -> Self {
            view.apply(&Event::tick(2));
            Self(of_cluster(&view.snapshot()))
        }

        fn samples(&self, name: &str) -> &[(Labels, Value)] {
            &self.0.iter().find(|family| family.name == name).unwrap().samples
        }

        /// Returns the values of a label.
        fn labels(&self, name: &str, label: &str) -> Vec<&str> {
            let labels = self.samples(name).iter().flat_map(|(labels, _)| labels);
            labels.filter(|(name, _)| *name == label).map(|(_, value)| value.as_str()).collect()
        }
    }

    const OF_REPORTS: [&str; 10] = [
        "work_units",
        "tasks",
        "steals",
        "busy_seconds",
        "handling_seconds",
        "idle_seconds",
        "steal_seconds",
        "zk_requests",
        "zk_request_seconds",
        "zk_transactions",
    ];

    #[test]
    fn unknown_values_have_no_sample() {
        let mut view = View::default();
        view.apply(&Event::of(1, "jobs/j-0000000001", Content::Data(b"garbage".to_vec())));
        let found = Gathered::of(view);
        for name in
            ["job_share", "job_gap", "job_best", "job_bound", "job_eta_seconds", "job_workers", "job_nodes"]
        {
            assert!(found.samples(name).is_empty(), "{name}");
        }
        for name in OF_REPORTS {
            assert!(found.samples(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn unreported_values_are_not_zero() {
        let mut view = View::default();
        put_member(&mut view);
        put_job(&mut view, 1, "running");
        put_job(&mut view, 2, "suspended");
        let report = json!({
            "format": 2, "attempt": 1, "last": false, "at_ms": 9, "figures": { "tasks": 2 },
            "requests": { "reads": 1, "writes": 2, "multis": 3, "failed_multis": 4 },
        });
        put(&mut view, "jobs/j-0000000002/figures/n1", &report);
        let found = Gathered::of(view);
        for name in OF_REPORTS {
            let jobs = found.labels(name, JOB);
            assert!(!jobs.is_empty() && jobs.iter().all(|job| *job == "j-0000000002"), "{name}: {jobs:?}");
        }
        assert_eq!(found.labels("job_attempts", JOB).len(), 2);
        assert_eq!(found.labels("job_nodes", JOB), ["j-0000000002"]);
    }

    #[test]
    fn each_stage_has_sample_with_api_name() {
        let mut view = View::default();
        put_job(&mut view, 1, "running");
        let found = Gathered::of(view);
        let states = found.labels("jobs", "state");
        assert_eq!(states.len(), STAGES.len());
        let number = |state: &str| {
            let (_, value) = &found.samples("jobs")[states.iter().position(|it| *it == state).unwrap()];
            if let Value::Number(number) = value { *number } else { f64::NAN }
        };
        assert_eq!((number("no_nodes"), number("waiting"), number("unreadable")), (1.0, 0.0, 0.0));
    }

    #[test]
    fn results_of_all_jobs_are_summed() {
        let mut view = View::default();
        for number in 1..=3 {
            put_job(&mut view, number, "done");
        }
        let found = Gathered::of(view);
        let [(_, Value::Number(bytes))] = found.samples("result_bytes") else { panic!("one sample") };
        assert_eq!(bytes.to_string(), "3000");
    }

    #[test]
    fn job_and_lost_node_are_named() {
        let mut view = View::default();
        put_job(&mut view, 1, "running");
        let mut member = json!({
            "format": 2, "node": "n1", "address": "127.0.0.1:7", "fingerprint": "", "workers": 2, "host": "gpu-17",
            "program": "tree", "program_version": "1", "started_ms": 1,
        });
        put(&mut view, "members/n1", &member);
        member["node"] = json!("n2");
        put(&mut view, "members/n2", &member);
        let enrolled = "jobs/j-0000000001/attempts/1/outputs/n1";
        view.apply(&Event::of(1, enrolled, Content::Data(Vec::new())));
        view.apply(&Event::tick(1_000));
        view.apply(&Event::of(2_000, "members/n1", Content::Gone));
        // Whether a node was lost is decided at the second tick.
        for at_ms in [2_100, 2_300] {
            view.apply(&Event::tick(at_ms));
        }
        let found = Gathered::of(view);
        let infos = ["name", "program", "submitter", "state"]
            .map(|label| found.labels("job_info", label)[0].to_owned());
        assert_eq!(infos, ["", "tree", "a", "running"]);
        assert_eq!(found.labels("node_lost_timestamp_seconds", "node"), ["n1"]);
        assert_eq!(found.labels("node_lost_timestamp_seconds", "host"), ["gpu-17"]);
        assert_eq!(found.labels("build_info", "version"), [env!("CARGO_PKG_VERSION")]);
    }

    #[test]
    fn unprotected_nodes_of_open_jobs_are_counted() {
        let mut view = View::default();
        put_member(&mut view);
        put_job(&mut view, 1, "running");
        let report = json!({
            "format": 2, "attempt": 1, "last": false, "at_ms": 9, "figures": {}, "ledger": { "unprotected": true },
            "requests": { "reads": 1, "writes": 2, "multis": 3, "failed_multis": 4 },
        });
        for node in ["n1", "n2"] {
            put(&mut view, &format!("jobs/j-0000000001/figures/{node}"), &report);
        }
        let found = Gathered::of(view);
        let [(_, Value::Number(nodes))] = found.samples("job_unprotected_nodes") else {
            panic!("one sample")
        };
        assert_eq!(nodes.to_string(), "1", "n2 is no member");
    }

    #[test]
    fn family_names_are_unique_and_jobs_are_bounded() {
        let mut view = View::default();
        for number in 0..1_000 {
            put_job(&mut view, number, "done");
        }
        let found = Gathered::of(view);
        let mut names: Vec<_> = found.0.iter().map(|family| family.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), found.0.len());
        assert_eq!(found.samples("job_attempts").len(), OVER_MAX);
    }

    #[test]
    fn running_jobs_have_metrics_regardless_of_waiting_ones() {
        let mut view = View::default();
        put_member(&mut view);
        for number in 0..250 {
            put_job(&mut view, number, "running");
        }
        for number in 250..280 {
            put_job(&mut view, number, "done");
        }
        let found = Gathered::of(view);
        let jobs = found.labels("job_attempts", JOB);
        assert_eq!(jobs.len(), JOBS_MAX);
        assert_eq!((jobs[0], jobs[1]), ("j-0000000000", "j-0000000279"), "it runs, and is the oldest");
        assert_eq!(jobs[1 + OVER_MAX], "j-0000000249");
    }
}
