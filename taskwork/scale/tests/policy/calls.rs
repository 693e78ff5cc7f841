//! A workflow that runs on machines in virtual time, with a controller that decides every five seconds.
//!
//! Ready calls start by the longest chain behind them. A machine that leaves first completes its calls.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use serde_json::json;
use taskwork::display::WorkAhead;
use taskwork_scale::policy::{JobSeen, MachineSeen, MachineState, Observation, OfferSeen, Place};

use crate::{
    workflows::Workflow,
    world::{BEGAN_MS, Controller},
};

const ROUND_MS: u64 = 5_000;
/// The number of parts of the longest chain in the outlook.
const SLICES: usize = 32;

/// A provider of machines of one kind.
#[derive(Debug, Clone)]
pub(crate) struct Provider {
    pub(crate) offer: OfferSeen,
    /// Whether it creates one machine at a time.
    pub(crate) is_serial: bool,
}

/// The results of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    pub(crate) took_s: f64,
    pub(crate) spent: f64,
    /// The number of machines that existed, by offer.
    pub(crate) machines: BTreeMap<String, usize>,
    /// The largest number of calls that were unfinished when a machine was asked to leave.
    pub(crate) left_at_leave: Option<usize>,
}

#[derive(Debug)]
struct Machine {
    id: String,
    provider: usize,
    requested_ms: u64,
    /// The start of its creation, from which it is billed, and its end.
    begins_ms: u64,
    joins_ms: u64,
    is_leaving: bool,
    gone_ms: Option<u64>,
    running: u32,
}

/// The order of events at one time: calls end before machines join, and both before a round.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ended { call: usize, machine: usize },
    Joined,
    Round,
}

struct Run<'a> {
    workflow: &'a Workflow,
    providers: &'a [Provider],
    machines: Vec<Machine>,
    now_ms: u64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// The ready calls by their chains.
    ready: BTreeSet<(Reverse<u64>, usize)>,
    missing: Vec<usize>,
    /// The start of each running call.
    running: BTreeMap<usize, u64>,
    is_over: Vec<bool>,
    left: usize,
    chains: Vec<f64>,
    /// The count, the mean and the sum of squares of the completed calls of each task.
    durations: Vec<(f64, f64, f64)>,
    busy_ms: u64,
    worker_ms: u64,
    outcome: Outcome,
}

/// Runs a workflow. At the start there are `present` machines of the first provider.
pub(crate) fn run(
    workflow: &Workflow,
    providers: &[Provider],
    present: usize,
    controller: &mut dyn Controller,
) -> Outcome {
    let tasks = workflow.calls.iter().map(|call| call.task + 1).max().unwrap_or(0);
    let mut run = Run {
        workflow,
        providers,
        machines: Vec::new(),
        now_ms: 0,
        events: BinaryHeap::from([Reverse((0, Event::Round))]),
        ready: BTreeSet::new(),
        missing: workflow.calls.iter().map(|call| call.after.len()).collect(),
        running: BTreeMap::new(),
        is_over: vec![false; workflow.calls.len()],
        left: workflow.calls.len(),
        chains: workflow.chains(|call| workflow.calls[call].took_s),
        durations: vec![(0.0, 0.0, 0.0); tasks],
        busy_ms: 0,
        worker_ms: 0,
        outcome: Outcome::default(),
    };
    (0..present).for_each(|_| run.create(0, true));
    let first: Vec<usize> = (0..run.missing.len()).filter(|call| run.missing[*call] == 0).collect();
    for call in first {
        run.push(call);
    }
    while run.left > 0 {
        let Reverse((at_ms, event)) = run.events.pop().expect("there is always a next round");
        run.advance(at_ms);
        match event {
            Event::Ended { call, machine } => run.ended(call, machine),
            Event::Joined => {}
            Event::Round => run.round(controller),
        }
        run.assign();
        assert!(at_ms < 10 * 86_400_000, "the workflow does not end");
    }
    run.outcome.took_s = run.now_ms as f64 / 1000.0;
    run.outcome.spent = run.machines.iter().map(|machine| run.bill(machine)).sum();
    for machine in run.machines.iter().filter(|machine| machine.joins_ms <= run.now_ms) {
        *run.outcome.machines.entry(providers[machine.provider].offer.name.clone()).or_default() += 1;
    }
    run.outcome
}

impl Run<'_> {
    fn offer(&self, machine: &Machine) -> &OfferSeen {
        &self.providers[machine.provider].offer
    }

    fn is_member(&self, machine: &Machine) -> bool {
        machine.joins_ms <= self.now_ms && machine.gone_ms.is_none()
    }

    fn create(&mut self, provider: usize, is_present: bool) {
        let Provider { offer, is_serial } = &self.providers[provider];
        let others =
            self.machines.iter().filter(|other| other.provider == provider && other.gone_ms.is_none());
        let free_ms = others.map(|other| other.joins_ms).max().filter(|_| *is_serial).unwrap_or(0);
        let begins_ms = if is_present { 0 } else { self.now_ms.max(free_ms) };
        let joins_ms = if is_present { 0 } else { begins_ms + offer.start_ms };
        self.events.push(Reverse((joins_ms, Event::Joined)));
        self.machines.push(Machine {
            id: format!("m{}", self.machines.len()),
            provider,
            requested_ms: self.now_ms,
            begins_ms,
            joins_ms,
            is_leaving: false,
            gone_ms: None,
            running: 0,
        });
    }

    fn bill(&self, machine: &Machine) -> f64 {
        let offer = self.offer(machine);
        let until_ms = machine.gone_ms.unwrap_or(self.now_ms);
        if until_ms <= machine.begins_ms {
            return 0.0;
        }
        let used_ms = (until_ms - machine.begins_ms).max(1);
        let billed_ms = used_ms.div_ceil(offer.quantum_ms) * offer.quantum_ms;
        offer.price_per_hour.unwrap_or(0.0) * billed_ms.max(offer.minimum_ms) as f64 / 3_600_000.0
    }

    fn advance(&mut self, at_ms: u64) {
        let members = self.machines.iter().filter(|machine| self.is_member(machine));
        let workers: u64 = members.map(|machine| u64::from(self.offer(machine).workers)).sum();
        let passed_ms = at_ms - self.now_ms;
        self.worker_ms += workers * passed_ms;
        self.busy_ms += self.running.len() as u64 * passed_ms;
        self.now_ms = at_ms;
    }

    fn push(&mut self, call: usize) {
        self.ready.insert((Reverse((self.chains[call] * 1000.0) as u64), call));
    }

    fn ended(&mut self, call: usize, machine: usize) {
        self.running.remove(&call);
        (self.is_over[call], self.left) = (true, self.left - 1);
        let took_s = self.workflow.calls[call].took_s;
        let (count, mean, squares) = &mut self.durations[self.workflow.calls[call].task];
        *count += 1.0;
        let off = took_s - *mean;
        *mean += off / *count;
        *squares += off * (took_s - *mean);
        for reader in &self.workflow.readers[call] {
            self.missing[*reader] -= 1;
            if self.missing[*reader] == 0 {
                self.ready.insert((Reverse((self.chains[*reader] * 1000.0) as u64), *reader));
            }
        }
        let machine = &mut self.machines[machine];
        machine.running -= 1;
        if machine.is_leaving && machine.running == 0 {
            machine.gone_ms = Some(self.now_ms);
        }
    }

    /// Starts ready calls, on the machine with the fewest.
    fn assign(&mut self) {
        while let Some(first) = self.ready.first().copied() {
            let free = |machine: &Machine| {
                self.is_member(machine)
                    && !machine.is_leaving
                    && machine.running < self.offer(machine).workers
            };
            let free = (0..self.machines.len()).filter(|place| free(&self.machines[*place]));
            let Some(place) = free.min_by_key(|place| self.machines[*place].running) else { return };
            self.ready.remove(&first);
            let (_, call) = first;
            self.machines[place].running += 1;
            self.running.insert(call, self.now_ms);
            let took_ms = (self.workflow.calls[call].took_s * 1000.0).round() as u64;
            self.events.push(Reverse((self.now_ms + took_ms, Event::Ended { call, machine: place })));
        }
    }

    fn round(&mut self, controller: &mut dyn Controller) {
        self.events.push(Reverse((self.now_ms + ROUND_MS, Event::Round)));
        let decision = controller.decide(&self.seen(controller.sees_jobs()));
        for place in 0..self.machines.len() {
            let machine = &mut self.machines[place];
            if machine.gone_ms.is_some() || machine.is_leaving || !decision.leave.contains(&machine.id) {
                continue;
            }
            machine.is_leaving = true;
            if machine.running == 0 {
                machine.gone_ms = Some(self.now_ms);
            }
            self.outcome.left_at_leave = self.outcome.left_at_leave.max(Some(self.left));
        }
        for provider in 0..self.providers.len() {
            let is_its = |machine: &&Machine| {
                machine.provider == provider && machine.gone_ms.is_none() && !machine.is_leaving
            };
            let have = self.machines.iter().filter(is_its).count();
            let wanted = decision.wanted.get(&self.providers[provider].offer.name).copied().unwrap_or(0);
            (have..wanted as usize).for_each(|_| self.create(provider, false));
        }
    }

    fn seen(&self, with_jobs: bool) -> Observation {
        let there = self.machines.iter().filter(|machine| machine.gone_ms.is_none());
        let machines: Vec<MachineSeen> = there.map(|machine| self.machine_seen(machine)).collect();
        let members = machines.iter().filter(|machine| machine.state == MachineState::Working);
        Observation {
            at_ms: BEGAN_MS + self.now_ms,
            workers: members.map(|machine| machine.workers).sum(),
            jobs: vec![JobSeen {
                id: "job".to_owned(),
                program: "workflow".to_owned(),
                busy_ns: self.busy_ms * 1_000_000,
                idle_ns: (self.worker_ms - self.busy_ms) * 1_000_000,
                began_ms: BEGAN_MS,
                ahead: with_jobs.then(|| self.ahead()),
                ..JobSeen::default()
            }],
            machines,
            offers: self.providers.iter().map(|provider| provider.offer.clone()).collect(),
            ..Observation::default()
        }
    }

    fn machine_seen(&self, machine: &Machine) -> MachineSeen {
        let is_member = machine.joins_ms <= self.now_ms;
        MachineSeen {
            id: machine.id.clone(),
            offer: self.offer(machine).name.clone(),
            state: match (machine.is_leaving, is_member) {
                (true, _) => MachineState::Leaving,
                (false, true) => MachineState::Working,
                (false, false) => MachineState::Starting,
            },
            place: if machine.begins_ms <= self.now_ms { Place::There } else { Place::Queued },
            requested_ms: BEGAN_MS + machine.requested_ms,
            billed_since_ms: Some(BEGAN_MS + machine.begins_ms),
            joined_ms: is_member.then_some(BEGAN_MS + machine.joins_ms),
            workers: if is_member { self.offer(machine).workers } else { 0 },
            ..MachineSeen::default()
        }
    }

    /// Returns the outlook of the calls as a coordinator knows it: by the mean durations of completed calls.
    fn ahead(&self) -> WorkAhead {
        let known: Vec<f64> =
            self.durations.iter().filter(|known| known.0 > 0.0).map(|known| known.1).collect();
        let unknown = (known.iter().sum::<f64>() / known.len().max(1) as f64).max(10.0);
        let expected = |call: usize| {
            let (count, mean, _) = self.durations[self.workflow.calls[call].task];
            let full = if count > 0.0 { mean } else { unknown };
            match (self.is_over[call], self.running.contains_key(&call)) {
                (true, _) => 0.0,
                (false, true) => full / 2.0,
                (false, false) => full,
            }
        };
        let chains = self.workflow.chains(expected);
        let longest = chains.iter().copied().fold(0.0, f64::max);
        let (mut slices, mut left) = ([0.0; SLICES], 0.0);
        let mut by_task = vec![(0.0, 0.0); self.durations.len()];
        let width = longest / SLICES as f64;
        for call in (0..self.is_over.len()).filter(|call| !self.is_over[*call]) {
            let took = expected(call);
            left += took;
            let (calls, sum) = &mut by_task[self.workflow.calls[call].task];
            (*calls, *sum) = (*calls + 1.0, *sum + took);
            let from = longest - chains[call];
            let first = if width > 0.0 { (from / width) as usize } else { 0 };
            for (at, slice) in slices.iter_mut().enumerate().skip(first) {
                let start = width * at as f64;
                if start >= from + took {
                    break;
                }
                *slice += ((from + took).min(start + width) - from.max(start)).max(0.0);
            }
        }
        let variance = by_task.iter().zip(&self.durations).map(|((calls, sum), (count, mean, squares))| {
            if *count < 1.0 {
                return sum * sum;
            }
            let of_call = if *count > 1.0 { squares / (count - 1.0) } else { mean * mean };
            of_call * calls * (1.0 + calls / count)
        });
        let ns = |seconds: f64| (seconds * 1e9).round() as u64;
        serde_json::from_value(json!({
            "left_ns": ns(left),
            "deviation_ns": ns(variance.sum::<f64>().sqrt()),
            "items": self.left,
            "ready": self.ready.len(),
            "running": self.running.len(),
            "longest_ns": ns(longest),
            "slices_ns": slices.into_iter().map(ns).collect::<Vec<_>>(),
        }))
        .expect("it is an outlook")
    }
}
