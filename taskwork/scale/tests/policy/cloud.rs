//! A cloud: machines that start late or not at all, are taken away, and are billed by quanta.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use taskwork_scale::policy::{Decision, MachineSeen, MachineState, OfferSeen};

use crate::chance::{exponential, normal};

/// The time until a request is complete.
const REQUEST_MS: u64 = 10_000;
/// The time after which a machine that has not joined is terminated.
const JOIN_MAX_MS: u64 = 600_000;
/// The maximum time of a drain.
const DRAIN_MAX_MS: f64 = 5_000.0;
/// The pause after a refusal.
const BACKOFF_MS: u64 = 60_000;

/// The properties of a kind of machine.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) offer: OfferSeen,
    /// The rate at which machines are taken away, per hour.
    pub(crate) losses_per_hour: f64,
    /// The time from the preemption notice to the loss.
    pub(crate) notice_ms: u64,
    /// The maximum number that the cloud provides, whatever the offer states.
    pub(crate) quota: u32,
}

#[derive(Debug, Clone)]
struct Machine {
    id: String,
    kind: usize,
    requested_ms: u64,
    /// `None` if it never joins.
    joins_ms: Option<u64>,
    taken_ms: Option<u64>,
    leaves_ms: Option<u64>,
    state: MachineState,
}

/// All machines of a run.
#[derive(Debug)]
pub(crate) struct Cloud {
    pub(crate) kinds: Vec<Kind>,
    machines: Vec<Machine>,
    chance: SmallRng,
    says_times: bool,
    next_id: u64,
    refused_until_ms: BTreeMap<usize, u64>,
    next_event_ms: u64,
    /// The workers of members that stay, and of those that leave.
    pub(crate) workers: u32,
    pub(crate) leaving_workers: u32,
    /// The bill of the machines that are gone.
    closed: f64,
    pub(crate) joined: u32,
}

impl Cloud {
    pub(crate) fn new(kinds: Vec<Kind>, seed: u64) -> Self {
        Self {
            kinds,
            machines: Vec::new(),
            chance: SmallRng::seed_from_u64(seed ^ 0xc10d),
            says_times: seed.is_multiple_of(2),
            next_id: 0,
            refused_until_ms: BTreeMap::new(),
            next_event_ms: u64::MAX,
            workers: 0,
            leaving_workers: 0,
            closed: 0.0,
            joined: 0,
        }
    }

    /// Applies a decision, as a fleet does.
    pub(crate) fn obey(&mut self, decision: &Decision, at_ms: u64) {
        let leave: BTreeSet<&String> = decision.leave.iter().collect();
        for place in 0..self.machines.len() {
            if leave.contains(&self.machines[place].id) && self.machines[place].state != MachineState::Leaving
            {
                let drain_ms = if self.machines[place].state == MachineState::Working {
                    self.chance.random_range(500.0..DRAIN_MAX_MS) as u64
                } else {
                    0
                };
                self.machines[place].state = MachineState::Leaving;
                self.machines[place].leaves_ms = Some(at_ms + drain_ms);
            }
        }
        for kind in 0..self.kinds.len() {
            let of_kind = |machine: &&Machine| machine.kind == kind;
            let all = self.machines.iter().filter(of_kind).count() as u32;
            let have =
                self.machines.iter().filter(of_kind).filter(|m| m.state != MachineState::Leaving).count();
            let wanted = decision.wanted.get(&self.kinds[kind].offer.name).copied().unwrap_or(0);
            let missing = wanted.saturating_sub(have as u32);
            let given = missing.min(self.kinds[kind].quota.saturating_sub(all));
            if given < missing {
                self.refused_until_ms.insert(kind, at_ms + BACKOFF_MS);
            }
            for _ in 0..given {
                self.create(kind, at_ms);
            }
        }
        self.count(at_ms);
    }

    fn create(&mut self, kind: usize, at_ms: u64) {
        let about = &self.kinds[kind];
        // Half of the machines take the stated time, 95 of 100 at most three times as long.
        let start_ms = about.offer.start_ms as f64 * (normal(&mut self.chance) * 3_f64.ln() / 1.645).exp();
        let joins_ms = (self.chance.random::<f64>() >= 0.02).then_some(at_ms + start_ms as u64);
        let taken_ms = (about.losses_per_hour > 0.0).then(|| {
            let after_ms = exponential(&mut self.chance, about.losses_per_hour) * 3_600_000.0;
            at_ms + after_ms.min(1e12) as u64
        });
        self.next_id += 1;
        let id = format!("m{}", self.next_id);
        let state = MachineState::Starting;
        self.machines.push(Machine {
            id,
            kind,
            requested_ms: at_ms,
            joins_ms,
            taken_ms,
            leaves_ms: None,
            state,
        });
    }

    /// Simulates the machines up to a time.
    pub(crate) fn advance(&mut self, at_ms: u64) {
        if at_ms < self.next_event_ms {
            return;
        }
        for machine in &mut self.machines {
            let notice_ms = self.kinds[machine.kind].notice_ms;
            if machine.state == MachineState::Starting && machine.joins_ms.is_some_and(|joins| joins <= at_ms)
            {
                machine.state = MachineState::Working;
                self.joined += 1;
            }
            let is_forgotten = machine.state == MachineState::Starting
                && machine.joins_ms.is_none()
                && at_ms >= machine.requested_ms + JOIN_MAX_MS;
            if is_forgotten {
                machine.state = MachineState::Leaving;
                machine.leaves_ms = Some(at_ms);
            }
            // A node with a preemption notice drains by itself.
            if let Some(taken_ms) = machine.taken_ms
                && notice_ms > 0
                && at_ms + notice_ms >= taken_ms + 20_000.min(notice_ms)
                && machine.state == MachineState::Working
            {
                machine.state = MachineState::Leaving;
                machine.leaves_ms = Some((at_ms + 5_000).min(taken_ms));
            }
            if machine.taken_ms.is_some_and(|taken| taken <= at_ms) {
                machine.state = MachineState::Leaving;
                machine.leaves_ms = Some(at_ms);
            }
        }
        let (gone, left): (Vec<Machine>, Vec<Machine>) = self
            .machines
            .drain(..)
            .partition(|machine| machine.leaves_ms.is_some_and(|leaves| leaves <= at_ms));
        self.machines = left;
        self.closed += gone.iter().map(|machine| self.bill(machine, at_ms)).sum::<f64>();
        self.count(at_ms);
    }

    fn count(&mut self, at_ms: u64) {
        let mut next = u64::MAX;
        (self.workers, self.leaving_workers) = (0, 0);
        for machine in &self.machines {
            let about = &self.kinds[machine.kind];
            let joins = machine.joins_ms.unwrap_or(machine.requested_ms + JOIN_MAX_MS);
            let is_starting = machine.state == MachineState::Starting;
            let notice = machine.taken_ms.map(|taken| taken - about.notice_ms.min(taken));
            let times = [is_starting.then_some(joins), notice, machine.taken_ms, machine.leaves_ms];
            for time in times.into_iter().flatten() {
                next = next.min(time.max(at_ms + 1));
            }
            match machine.state {
                MachineState::Starting => {}
                MachineState::Working => self.workers += about.offer.workers,
                MachineState::Leaving => self.leaving_workers += about.offer.workers,
            }
        }
        self.next_event_ms = next;
    }

    /// The cost of all machines so far.
    pub(crate) fn spent(&self, at_ms: u64) -> f64 {
        self.closed + self.machines.iter().map(|machine| self.bill(machine, at_ms)).sum::<f64>()
    }

    /// The price of one quantum of each existing machine.
    pub(crate) fn quanta(&self) -> f64 {
        let quantum = |machine: &Machine| {
            let offer = &self.kinds[machine.kind].offer;
            price(offer) * offer.quantum_ms.max(offer.minimum_ms) as f64 / 3_600_000.0
        };
        self.machines.iter().map(quantum).sum()
    }

    fn bill(&self, machine: &Machine, at_ms: u64) -> f64 {
        let offer = &self.kinds[machine.kind].offer;
        let used = at_ms - machine.requested_ms;
        let billed = used.div_ceil(offer.quantum_ms).saturating_mul(offer.quantum_ms).max(offer.minimum_ms);
        price(offer) * billed as f64 / 3_600_000.0
    }

    /// The machines and offers as the controller observes them.
    pub(crate) fn seen(&self, at_ms: u64) -> (Vec<MachineSeen>, Vec<OfferSeen>) {
        let machine = |machine: &Machine| {
            let about = &self.kinds[machine.kind];
            let is_member = machine.state != MachineState::Starting;
            let joined_ms = machine.joins_ms.filter(|_| is_member);
            // Half of the clouds do not report creation times; after the request is complete they are unknown.
            let is_known = self.says_times || at_ms < machine.requested_ms + REQUEST_MS;
            let said_ms = if is_known { machine.requested_ms } else { joined_ms.unwrap_or(at_ms) };
            MachineSeen {
                id: machine.id.clone(),
                offer: about.offer.name.clone(),
                state: machine.state,
                requested_ms: said_ms,
                joined_ms,
                workers: if is_member { about.offer.workers } else { 0 },
                noticed: about.notice_ms > 0
                    && machine.taken_ms.is_some_and(|taken| taken <= at_ms + about.notice_ms),
                ..MachineSeen::default()
            }
        };
        let offer = |(place, kind): (usize, &Kind)| OfferSeen {
            refused: self.refused_until_ms.get(&place).is_some_and(|until| at_ms < *until),
            ..kind.offer.clone()
        };
        (self.machines.iter().map(machine).collect(), self.kinds.iter().enumerate().map(offer).collect())
    }
}

fn price(offer: &OfferSeen) -> f64 {
    offer.price_per_hour.expect("machines of these tests have a price")
}
