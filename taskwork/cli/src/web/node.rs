//! The metrics of one node.

use taskwork::{JobId, client::records::NodeFigures, node::Health, report::Figures};

use super::family::{Family, HANDLING, JOB, Kind, Labels, Value, build_info};

/// Returns the metrics of a node.
pub fn of_node(health: &Health) -> Vec<Family> {
    let mut families = vec![build_info()];
    let mut add = |kind, name, help, samples: Vec<(Labels, Value)>| {
        families.push(Family { name, help, kind, samples });
    };
    let is_so = |it: bool| vec![(Vec::new(), Value::Number(f64::from(u8::from(it))))];
    add(Kind::Gauge, "node_is_member", "Whether the node is a member.", is_so(health.node.is_some()));
    add(Kind::Gauge, "node_is_connected", "Whether ZooKeeper answers the node.", is_so(health.is_connected));
    let process = health.jobs.values().next().and_then(|report| report.process);
    let number = |number: Option<f64>| number.map(|n| (Vec::new(), Value::Number(n))).into_iter().collect();
    #[allow(clippy::cast_precision_loss, reason = "the precision suffices for display")]
    let resident = process.and_then(|process| process.resident_bytes).map(|bytes| bytes as f64);
    add(Kind::Gauge, "node_resident_bytes", "Memory of the node's process.", number(resident));
    let each = |value: &dyn Fn(&NodeFigures<Figures>) -> Option<Value>| {
        let jobs = health.jobs.iter();
        let of_job = |(job, report): (&JobId, &NodeFigures<Figures>)| {
            Some((vec![(JOB, job.to_string())], value(report)?))
        };
        jobs.filter_map(of_job).collect::<Vec<_>>()
    };
    let pool = |number: fn(&taskwork::client::records::PoolNow) -> u32| {
        each(&move |report| Some(Value::Number(f64::from(number(report.pool.as_ref()?)))))
    };
    add(Kind::Gauge, "job_workers", "Workers that may work on the job.", pool(|pool| pool.workers));
    add(Kind::Gauge, "job_busy_workers", "Workers that have a task.", pool(|pool| pool.busy));
    add(Kind::Gauge, "job_queued_tasks", "Tasks that wait for a worker.", pool(|pool| pool.queued));
    let figures =
        |number: fn(&Figures) -> f64| each(&move |report| Some(Value::Number(number(&report.figures))));
    let count = Kind::Counter;
    add(count, "work_units", "Units of work done, as the program counts them.", figures(|f| f.worked as f64));
    add(count, "tasks", "Tasks completed.", figures(|f| f.tasks as f64));
    add(count, "steal_requests", "Requests for tasks to other nodes.", figures(|f| f.requests as f64));
    add(count, "steals", "Grants of tasks in answer to a request.", figures(|f| f.steals as f64));
    let searching = figures(|f| f.times.searching_ns as f64 / 1e9);
    add(count, "busy_seconds", "Time in which workers ran the program's code.", searching);
    let handling = figures(|f| f.times.handling_ns as f64 / 1e9);
    add(count, "handling_seconds", HANDLING, handling);
    let idle = figures(|f| f.times.idle_ns() as f64 / 1e9);
    add(count, "idle_seconds", "Time of workers without a task.", idle);
    add(count, "zk_retries", "Coordination transactions repeated.", figures(|f| f.retries as f64));
    let help = "Times from a request to the start of a stolen task. The sum is an estimate.";
    let times = each(&|report| Some(Value::Times(report.figures.steal_times)));
    add(Kind::Histogram, "steal_seconds", help, times);
    families
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_without_job_reports_only_membership() {
        let families = of_node(&Health::default());
        let samples = |name: &str| &families.iter().find(|family| family.name == name).unwrap().samples;
        assert!(matches!(samples("node_is_member")[..], [(_, Value::Number(0.0))]));
        assert!(samples("job_workers").is_empty() && samples("node_resident_bytes").is_empty());
        assert!(samples("handling_seconds").is_empty());
    }
}
