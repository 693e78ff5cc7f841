//! The use of the workers over time: of the whole cluster, and of each member.

use std::collections::BTreeMap;

use super::{
    raw::Raw,
    series::{POINTS_MAX, Point, Series, Spread, TrackedSeries},
};

/// The maximum number of points of a member.
const NODE_POINTS_MAX: usize = POINTS_MAX / 4;

/// The workers over time.
#[derive(Debug, Default)]
pub(super) struct Utilisation {
    pub(super) cluster: TrackedSeries,
    nodes: BTreeMap<String, Series>,
}

impl Utilisation {
    /// Adds the present state. Members that have gone are forgotten.
    pub(super) fn tick(&mut self, seq: u64, at_ms: u64, raw: &Raw) {
        let mut busy: BTreeMap<&str, u32> = BTreeMap::new();
        for job in raw.jobs.values().filter(|job| job.exists && !job.is_over()) {
            for (node, report) in job.at_work(raw) {
                let sum = busy.entry(node).or_default();
                *sum = sum.saturating_add(report.pool.map_or(0, |pool| pool.busy));
            }
        }
        let point = |nodes: u32, workers: u32, busy: u32| Point {
            at_ms,
            nodes: Spread::one(nodes),
            workers: Spread::one(workers),
            busy: Spread::one(busy),
            ..Point::default()
        };
        let (mut nodes, mut workers_of_all, mut busy_of_all) = (0, 0_u32, 0_u32);
        self.nodes.retain(|name, _| raw.members.contains_key(name));
        for (name, joined) in &raw.members {
            // Members without workers have submitted a job.
            let workers = joined.member.as_ref().map_or(0, |member| member.workers);
            if workers == 0 {
                continue;
            }
            let busy = busy.get(name.as_str()).copied().unwrap_or(0).min(workers);
            nodes += 1;
            workers_of_all = workers_of_all.saturating_add(workers);
            busy_of_all = busy_of_all.saturating_add(busy);
            self.nodes.entry(name.clone()).or_default().push(point(1, workers, busy), NODE_POINTS_MAX);
        }
        self.cluster.push(seq, point(nodes, workers_of_all, busy_of_all));
    }

    /// Returns the workers of a member over time.
    pub(super) fn of_node(&self, name: &str) -> Option<&Series> {
        self.nodes.get(name)
    }
}
