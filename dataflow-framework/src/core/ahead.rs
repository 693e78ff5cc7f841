//! The work ahead of a program, from its known calls and the durations of completed ones.
//!
//! Running calls are on average half done. Calls that are assigned ahead of a free worker are ready, not running. A call
//! that a task makes is expected to end before the calls that read the output of that task. Calls of `async` tasks occupy
//! no worker, so they only delay the calls that read their outputs.

use std::{cmp::Reverse, collections::BTreeMap};

use rustc_hash::FxHashMap;
use taskwork::display::{WorkAhead, WorkDemand};

use super::{
    call::{Call, CallState},
    data::Data,
    demand::Demand,
    durations::TaskKey,
};
use crate::{ids::CallId, task::TaskDef};

/// The number of parts of the longest chain.
const SLICES: usize = 32;

/// The least expected duration of a call of a task without completed calls, in nanoseconds: ten seconds. Machines start
/// within seconds, so only much longer calls matter, and the first completed call replaces the guess.
const UNKNOWN_NS: f64 = 1e10;

/// The number of demands that are reported: those of the most calls.
const DEMANDS_MAX: usize = 32;

/// An unfinished call.
struct Open<'a> {
    id: CallId,
    task: &'static TaskDef,
    call: &'a Call,
    /// 0 for a future.
    cores: u64,
}

/// The unfinished calls of a demand, and their total duration in nanoseconds.
#[derive(Default)]
struct OfDemand {
    items: u64,
    ready: u64,
    left: f64,
}

/// Returns the work ahead.
pub(super) fn work_ahead(data: &Data, is_open: bool) -> WorkAhead {
    let open: Vec<Open<'_>> = data.calls.iter().filter_map(|(id, call)| Open::of(id, call)).collect();
    let (durations, workers) = (&data.members.durations, data.members.crew().workers);
    let runs = |open: &&Open<'_>| matches!(open.call.state, CallState::Runs(_));
    let is_ready = |open: &&Open<'_>| open.call.state == CallState::Worker;
    let cores = |open: &Open<'_>| open.cores;
    let assigned: u64 = open.iter().filter(runs).map(cores).sum();
    let running = assigned.min(workers);
    // The expected completed share of an assigned call.
    let done = if assigned > 0 { running as f64 / assigned as f64 / 2.0 } else { 0.0 };
    let rest = |open: &Open<'_>| {
        let ns = durations.expected_ns(open.task) as f64;
        let is_known = durations.of(TaskKey::of(open.task)).is_some();
        let ns = if is_known { ns } else { ns.max(UNKNOWN_NS) };
        if runs(&open) { ns * (1.0 - done) } else { ns }
    };
    let chains = chains_ns(data, &open, rest);
    let longest = chains.values().copied().fold(0.0, f64::max);
    let (mut slices, mut left) = ([0.0; SLICES], 0.0);
    let mut by_task = BTreeMap::<TaskKey, (f64, f64)>::new();
    let mut demands = BTreeMap::<Demand, OfDemand>::new();
    for call in &open {
        let (ns, cores) = (rest(call), call.cores as f64);
        left += ns * cores;
        let (calls, expected) = by_task.entry(TaskKey::of(call.task)).or_default();
        (*calls, *expected) = (*calls + cores, *expected + ns * cores);
        add_slices(&mut slices, longest, longest - chains[&call.id], ns, cores);
        let of_demand = demands.entry(Demand { store: 0, limits: &[], ..call.call.demand() }).or_default();
        of_demand.items += 1;
        of_demand.ready += u64::from(call.call.state == CallState::Worker);
        of_demand.left += ns * cores;
    }
    let variance = by_task.iter().map(|(task, (calls, expected))| match durations.estimate(*task) {
        Some(estimate) => estimate.variance_of(*calls),
        // The guess may be wrong for all calls alike.
        None => expected * expected,
    });
    let mut ahead = WorkAhead::default();
    ahead.left_ns = Some(rounded(left));
    ahead.deviation_ns = rounded(variance.sum::<f64>().sqrt());
    ahead.items = open.len() as u64;
    ahead.ready = open.iter().filter(is_ready).map(cores).sum::<u64>() + assigned - running;
    (ahead.running, ahead.longest_ns) = (running, rounded(longest));
    (ahead.slices_ns, ahead.is_open) = (slices.into_iter().map(rounded).collect(), is_open);
    ahead.demands = shown_demands(data, demands);
    ahead
}

impl<'a> Open<'a> {
    fn of(id: CallId, call: &'a Call) -> Option<Self> {
        let task = call.work.task().filter(|_| call.state != CallState::Done)?;
        Some(Self { id, task, call, cores: u64::from(call.options.cores) })
    }
}

/// Returns the duration of the longest chain that starts with each call, in nanoseconds.
fn chains_ns(data: &Data, open: &[Open<'_>], rest: impl Fn(&Open<'_>) -> f64) -> FxHashMap<CallId, f64> {
    // The calls after a call are visited before it: those of the program from the last to the first one, then those of its
    // tasks, each after its maker.
    let mut order: Vec<&Open<'_>> = open.iter().collect();
    order.sort_by_key(|open| match open.call.within {
        None => (0, Reverse(open.id)),
        Some(within) => (within.depth + 1, Reverse(within.position)),
    });
    let mut chains = FxHashMap::<CallId, f64>::default();
    // The chains after each call.
    let mut behind = FxHashMap::<CallId, f64>::default();
    for call in order {
        let versions = call.call.written(call.id).filter_map(|version| data.versions.get(&version));
        let readers = versions.flat_map(|version| version.readers.iter());
        let after_readers = readers.filter_map(|reader| chains.get(reader)).copied().fold(0.0, f64::max);
        let maker = call.call.within.and_then(|within| behind.get(&within.parent)).copied();
        let after = after_readers.max(maker.unwrap_or(0.0));
        behind.insert(call.id, after);
        chains.insert(call.id, after + rest(call));
    }
    chains
}

/// Adds the work of a call that starts at a time after the start of the longest chain.
fn add_slices(slices: &mut [f64; SLICES], longest: f64, start: f64, ns: f64, cores: f64) {
    let width = longest / SLICES as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index, and none is below 0"
    )]
    let first = if width > 0.0 { (start / width) as usize } else { 0 };
    let mut left = ns;
    for (at, slice) in slices.iter_mut().enumerate().skip(first.min(SLICES - 1)) {
        let until = width * (at + 1) as f64;
        let here = if at + 1 == SLICES { left } else { (until - start - (ns - left)).clamp(0.0, left) };
        *slice += here * cores;
        left -= here;
        if left <= 0.0 {
            break;
        }
    }
}

fn shown_demands(data: &Data, demands: BTreeMap<Demand, OfDemand>) -> Vec<WorkDemand> {
    let mut shown: Vec<WorkDemand> = demands
        .into_iter()
        .map(|(demand, of_demand)| {
            let mut shown = WorkDemand::default();
            (shown.workers, shown.memory_bytes) = (demand.cores, demand.memory);
            shown.labels = demand.needs.iter().map(|label| (*label).to_owned()).collect();
            (shown.items, shown.ready) = (of_demand.items, of_demand.ready);
            shown.left_ns = rounded(of_demand.left);
            shown.has_place = data.members.any_other_than(&[], demand);
            shown
        })
        .filter(|demand| !demand.is_plain())
        .collect();
    shown.sort_by_key(|demand| Reverse(demand.items));
    shown.truncate(DEMANDS_MAX);
    shown
}

/// Rounds an amount of time, which is not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and none is below 0")]
fn rounded(ns: f64) -> u64 {
    ns.round() as u64
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Capacity, Graph, Member, NewCall, Outcome,
            graph_tests::{TASK, assigned, graph_of, new_call, version},
        },
        *,
    };
    use crate::{ids::Argument, options::Options};

    const SECOND: u64 = 1_000_000_000;

    fn call(graph: &mut Graph, id: CallId, reads: &[CallId], options: Options) {
        let arguments = reads.iter().map(|read| Argument::Read(version(*read, 0))).collect();
        graph.call(id, new_call(arguments, 1, options));
    }

    /// Returns a graph of 2 workers, in which a call has taken a second.
    fn graph() -> Graph {
        let mut graph = graph_of([2]);
        call(&mut graph, 0, &[], Options::DEFAULT);
        assert_eq!(assigned(&mut graph), [0]);
        graph.ended(0, Member::HERE, Outcome::Written { bytes: vec![8], ns: Some(SECOND) });
        graph
    }

    #[test]
    fn unfinished_calls_are_work_ahead_with_their_chains() {
        let mut graph = graph();
        // Eight independent calls, and a chain of four.
        (1..=8).for_each(|id| call(&mut graph, id, &[], Options::DEFAULT));
        call(&mut graph, 9, &[], Options::DEFAULT);
        (10..=12).for_each(|id| call(&mut graph, id, &[id - 1], Options::DEFAULT));
        let ahead = graph.work_ahead(true);
        assert_eq!((ahead.left_ns, ahead.items), (Some(12 * SECOND), 12));
        assert_eq!((ahead.ready, ahead.running, ahead.longest_ns), (9, 0, 4 * SECOND));
        // As late as possible, the independent calls are in the last quarter.
        let quarters: Vec<u64> = ahead.slices_ns.chunks(8).map(|part| part.iter().sum()).collect();
        assert_eq!(quarters, [SECOND, SECOND, SECOND, 9 * SECOND]);
        assert!(ahead.is_open && ahead.deviation_ns > SECOND, "one call is a weak evidence");
    }

    #[test]
    fn running_calls_are_half_done_and_calls_assigned_ahead_are_ready() {
        let mut graph = graph();
        (1..=8).for_each(|id| call(&mut graph, id, &[], Options::DEFAULT));
        let assigned = assigned(&mut graph).len() as u64;
        assert!(assigned > 2, "one more than workers is assigned");
        let ahead = graph.work_ahead(false);
        assert_eq!((ahead.ready, ahead.running, ahead.left_ns), (6, 2, Some(7 * SECOND)));
        assert!(!ahead.is_open);
    }

    #[test]
    fn unknown_durations_are_ten_seconds_with_a_large_error() {
        let mut graph = graph_of([1]);
        (0..=8).for_each(|id| call(&mut graph, id, &[], Options::DEFAULT));
        let ahead = graph.work_ahead(false);
        assert_eq!((ahead.left_ns, ahead.ready, ahead.longest_ns), (Some(90 * SECOND), 9, 10 * SECOND));
        assert_eq!((ahead.deviation_ns, ahead.slices_ns.iter().sum::<u64>()), (90 * SECOND, 90 * SECOND));
    }

    #[test]
    fn futures_delay_their_readers_and_occupy_no_worker() {
        let mut graph = graph();
        let future = Options { cores: 0, ..Options::DEFAULT };
        (1..=100).for_each(|id| call(&mut graph, id, &[], future));
        call(&mut graph, 101, &[100], Options::DEFAULT);
        let ahead = graph.work_ahead(false);
        assert_eq!((ahead.left_ns, ahead.ready, ahead.running), (Some(SECOND), 0, 0));
        assert_eq!((ahead.longest_ns, ahead.demands.len()), (2 * SECOND, 0));
    }

    #[test]
    fn demand_without_a_node_has_no_place() {
        let mut graph = graph();
        let options = Options { cores: 2, memory: 8 << 30, needs: &["gpu"], ..Options::DEFAULT };
        call(&mut graph, 1, &[], options);
        let demand = |graph: &mut Graph| graph.work_ahead(false).demands.pop().expect("there is one");
        let seen = demand(&mut graph);
        assert_eq!((seen.workers, seen.memory_bytes, &*seen.labels), (2, 8 << 30, &["gpu".to_owned()][..]));
        assert_eq!((seen.items, seen.ready, seen.left_ns, seen.has_place), (1, 1, 2 * SECOND, false));
        let labels = "gpu=yes".parse().expect("it is a label");
        graph.joined(Member(1), Capacity { labels, ..Capacity::of_workers(2) });
        assert!(demand(&mut graph).has_place);
    }

    #[test]
    fn durations_vary_by_task() {
        static SHORT: TaskDef = TaskDef { name: "short", ..TASK };
        let mut graph = graph();
        graph.call(1, NewCall { task: &SHORT, ..new_call(Vec::new(), 1, Options::DEFAULT) });
        assert_eq!(assigned(&mut graph), [1]);
        graph.ended(1, Member::HERE, Outcome::Written { bytes: vec![8], ns: Some(SECOND / 100) });
        call(&mut graph, 2, &[], Options::DEFAULT);
        graph.call(
            3,
            NewCall { task: &SHORT, ..new_call(vec![Argument::Read(version(2, 0))], 1, Options::DEFAULT) },
        );
        let ahead = graph.work_ahead(false);
        assert_eq!((ahead.left_ns, ahead.longest_ns), (Some(1_010 * SECOND / 1000), 1_010 * SECOND / 1000));
    }
}
