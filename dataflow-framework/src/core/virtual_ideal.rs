//! Reference schedules of programs for clusters in virtual time, with which the schedules of the graph are
//! compared.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use super::virtual_program::{Program, Step};
use crate::ids::{Argument, CallId, VersionId};

/// The calls of a program, with their dependencies.
struct Calls {
    ids: Vec<CallId>,
    /// The duration of each call.
    ns: Vec<u64>,
    needed_by: Vec<Vec<usize>>,
    /// The number of dependencies of each call.
    needs: Vec<usize>,
}

impl Calls {
    fn of(program: &Program) -> Self {
        let ids: Vec<_> = program.loads.keys().copied().collect();
        let index: BTreeMap<_, _> = ids.iter().copied().zip(0..).collect();
        let ns = program.loads.values().map(|load| load.ns).collect();
        let (mut needed_by, mut needs) = (vec![Vec::new(); ids.len()], vec![0; ids.len()]);
        for step in &program.steps {
            let Step::Call(call, arguments) = step else { continue };
            let read = arguments.iter().flat_map(Argument::versions);
            for need in read.filter_map(|version| index.get(&version.call)) {
                needed_by[*need].push(index[call]);
                needs[index[call]] += 1;
            }
        }
        Self { ids, ns, needed_by, needs }
    }

    /// Runs the calls on a number of workers without any other cost: of the ready calls the one with the
    /// greatest key runs first. `rank` receives the call, and the number of calls that became ready before it.
    /// Reports the worker and call of each start, and returns the total time.
    fn run<K: Ord>(
        &self,
        workers: u32,
        rank: impl Fn(usize, usize) -> K,
        mut begins: impl FnMut(usize, u32),
    ) -> u64 {
        let mut needs = self.needs.clone();
        let mut ready = BinaryHeap::new();
        for call in (0..needs.len()).filter(|call| needs[*call] == 0) {
            ready.push((rank(call, ready.len()), call));
        }
        let mut seen = ready.len();
        let mut free: BTreeSet<_> = (0..workers).collect();
        let mut running = BTreeSet::new();
        let mut now = 0;
        loop {
            while let Some(worker) = free.pop_first() {
                let Some((_, call)) = ready.pop() else {
                    free.insert(worker);
                    break;
                };
                begins(call, worker);
                running.insert((now + self.ns[call], call, worker));
            }
            let Some((ended, ..)) = running.first() else { return now };
            now = *ended;
            // All calls that end at the same time do so before others start.
            while let Some((_, call, worker)) = running.first().filter(|(at, ..)| *at == now).copied() {
                running.pop_first();
                free.insert(worker);
                for next in &self.needed_by[call] {
                    needs[*next] -= 1;
                    if needs[*next] == 0 {
                        ready.push((rank(*next, seen), *next));
                        seen += 1;
                    }
                }
            }
        }
    }
}

/// Returns the duration of the list schedule of a program on a number of workers: of the ready calls the one
/// with the longest path to the end runs first.
pub(super) fn list_schedule_ns(program: &Program, workers: u32) -> u64 {
    let calls = Calls::of(program);
    // Calls come after their dependencies.
    let mut way = calls.ns.clone();
    for call in (0..way.len()).rev() {
        way[call] += calls.needed_by[call].iter().map(|next| way[*next]).max().unwrap_or(0);
    }
    calls.run(workers, |call, _| (way[call], Reverse(call)), |_, _| {})
}

/// Returns the number of transfers if the members, of one worker each, took the calls from one queue, ordered
/// by the time when they became ready. Otherwise it is like the schedules of the graph: data of the program is
/// with the first member, a member keeps received data, so that nothing is transferred twice, and no worker is
/// idle while a call waits.
pub(super) fn transfers_of_a_queue(program: &Program, members: u32) -> usize {
    let calls = Calls::of(program);
    let mut there = BTreeSet::<(VersionId, u32)>::new();
    let mut reads = BTreeMap::new();
    for step in &program.steps {
        match step {
            Step::Data(call, _) => drop(there.insert((VersionId { call: *call, slot: 0 }, 0))),
            Step::Call(call, arguments) => drop(reads.insert(*call, arguments)),
            Step::Get(_) | Step::Drop(_) => {}
        }
    }
    let mut transfers = 0;
    let begins = |call: usize, member| {
        let id = calls.ids[call];
        for version in reads[&id].iter().flat_map(Argument::versions) {
            transfers += usize::from(there.insert((*version, member)));
        }
        let written = (0..).zip(&program.loads[&id].bytes);
        there.extend(written.map(|(slot, _)| (VersionId { call: id, slot }, member)));
    };
    calls.run(members, |_, number| Reverse(number), begins);
    transfers
}
