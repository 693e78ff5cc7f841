//! The steps of the controller after each observation.
//!
//! 1. Observe: spending, start times, progress, windows of ten seconds; the models learn.
//! 2. Compare sizes: [`choose`](super::choose).
//! 3. Act if the best size is better by 5 %, or if a bound is in danger. The number grows at once, to at most
//!    twice the present number plus four. It falls after three rounds that agree; each machine leaves when its paid time ends.
//! 4. Never exceed the budget by more than the quanta that have begun: machines leave before their next quantum.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use taskwork::view::SHARE_MIN;

use super::{
    Candidate, Decision, Goals, MachineSeen, MachineState, Observation,
    ahead::{self, Ahead},
    choose::{Aim, Choice, choose, grid},
    estimate::{Guess, Progress},
    explain,
    forecast::{Outlook, QUANTUM_FINE_MS},
    model::Efficiency,
    parallelism::Parallelism,
    prior::Totals,
    spending::{Spending, Tariff, used_ms},
    starts::Starts,
    victims::paid_left_ms,
    window::Windows,
};

/// Observations at shorter intervals do not count as rounds.
const ROUND_MS: u64 = 4_000;
/// The number of consecutive rounds that must agree before machines leave.
const ROUNDS_DOWN: usize = 3;
/// A turn is an increase after a decrease, or a decrease after an increase. At most this many happen within
/// [`TURNS_MS`]: faster changes are not followed, since machines take minutes to start.
const TURNS_MAX: usize = 3;
const TURNS_MS: u64 = 3_600_000;
/// The time that a machine needs to leave: the round that notices it, and the drain.
const LEAVE_MS: u64 = 45_000;
/// The maximum number of programs that are remembered.
const PROGRAMS_MAX: usize = 32;

/// The policy: decides how many machines a cluster should have.
///
/// A policy is a value: serialised and read again, it continues as if nothing had happened.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    goals: Goals,
    /// A text that identifies the jobs of the goals.
    purpose: String,
    spending: Spending,
    starts: Starts,
    windows: Windows,
    parallelism: Parallelism,
    jobs: BTreeMap<String, JobKnown>,
    /// By program, or by the names of all programs if several run.
    efficiency: BTreeMap<String, Efficiency>,
    totals: BTreeMap<String, Totals>,
    raised_ms: Option<u64>,
    fewer: Fewer,
    turns: Turns,
    idle_since_ms: Option<u64>,
    /// Whether no work was ready at a time in the open window.
    was_starved: bool,
}

/// The known facts about a job.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
struct JobKnown {
    program: String,
    progress: Progress,
    /// The remaining work that the framework reports, and whether it may grow.
    ahead: Option<(Guess, bool)>,
    /// Whether the end of the job can be estimated from the reported work; `None` if none is reported.
    is_estimated: Option<bool>,
}

/// Consecutive rounds in which fewer machines were best.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Fewer {
    /// The best numbers in the latest rounds.
    latest: Vec<u32>,
    at_ms: u64,
}

/// Recent changes of direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Turns {
    /// Whether the last change was an increase; `None` before the first change.
    is_up: Option<bool>,
    /// The number of machines after that change.
    target: u32,
    at_ms: Vec<u64>,
}

impl Turns {
    fn change(&mut self, target: u32, now: u32, at_ms: u64) {
        let is_up = target > now;
        // Replacing lost machines is not a change.
        if target == now || is_up && self.is_up.is_some() && target <= self.target {
            return;
        }
        self.at_ms.retain(|turn| at_ms < turn.saturating_add(TURNS_MS));
        if self.is_up.is_some_and(|was_up| was_up != is_up) {
            self.at_ms.push(at_ms);
        }
        (self.is_up, self.target) = (Some(is_up), target);
    }

    /// Returns the maximum number of machines at present. A larger number would probably have to be reduced again
    /// soon, which would be one turn too many.
    fn most(&self, at_ms: u64) -> Option<u32> {
        let of_late = self.at_ms.iter().filter(|turn| at_ms < turn.saturating_add(TURNS_MS)).count();
        (self.is_up == Some(false) && of_late + 2 > TURNS_MAX).then_some(self.target)
    }
}

impl Policy {
    /// Creates a policy without knowledge.
    pub fn new(goals: Goals) -> Self {
        Self { goals, ..Self::default() }
    }

    /// Returns the goals.
    pub fn goals(&self) -> &Goals {
        &self.goals
    }

    /// Changes the goals, and keeps the learnt models and the spending.
    pub fn set_goals(&mut self, goals: Goals) {
        self.goals = goals;
        self.fewer = Fewer::default();
        self.turns = Turns::default();
    }

    /// Changes the goals and the text that identifies their jobs. The learnt models are kept. Spending restarts at 0
    /// for another budget or other jobs, and if it has been counted since before `from_ms`.
    pub fn pursue(&mut self, goals: Goals, purpose: &str, from_ms: Option<u64>) {
        let is_other = self.purpose != purpose || goals.budget.is_some() && goals.budget != self.goals.budget;
        let is_asked = from_ms.zip(self.spending.began_ms()).is_some_and(|(from_ms, began)| began < from_ms);
        if is_other || is_asked {
            self.spending.restart();
        }
        purpose.clone_into(&mut self.purpose);
        if goals != self.goals {
            self.set_goals(goals);
        }
    }

    /// Returns whether the last observation contained the machine with this id.
    pub fn knows(&self, machine: &str) -> bool {
        self.spending.knows(machine)
    }

    /// Returns the money spent on machines so far; `None` if the price of one of them is unknown.
    pub fn spent(&self) -> Option<f64> {
        self.spending.total()
    }

    /// Decides from an observation.
    pub fn decide(&mut self, seen: &Observation) -> Decision {
        let seen = &self.learn(seen);
        let outlook = self.outlook(seen);
        let kept = outlook.unsuited().filter(|(machine, tariff)| is_paid(seen, machine, *tariff)).count();
        let max = self.goals.max.saturating_sub(u32::try_from(kept).unwrap_or(u32::MAX));
        let most = max.min(outlook.nodes_max());
        let sizes = grid(self.goals.min, most, outlook.nodes_now());
        let choice = choose(&outlook, &sizes);
        let now = outlook.nodes_now();
        let (target, fewer) = match &choice {
            Some(choice) => self.follow(choice, (now, outlook.occupied()), seen.at_ms),
            None => (self.without_work(&outlook), Fewer::default()),
        };
        // A machine that never joins must not block the others.
        let target =
            if choice.is_some() && outlook.is_stuck() { target.max(now.saturating_add(1)) } else { target };
        // The minimum and the maximum always hold.
        let target = target.max(self.goals.min).max(outlook.indispensable()).min(max);
        let target = match outlook.required() {
            0 => target,
            required => target.max(now.saturating_add(required)).min(max.min(outlook.nodes_max())),
        };
        let mut decision = Self::carry_out(&outlook, target);
        let is_short = Self::guard_budget(&outlook, &mut decision);
        decision.suspend =
            is_short && decision.nodes() == 0 && self.goals.then_suspend && !seen.jobs.is_empty();
        (decision.spent, decision.spent_since_ms) = (self.spending.total(), self.spending.began_ms());
        decision.broken = choice.as_ref().and_then(|choice| choice.broken);
        decision.table = choice.iter().flat_map(|choice| explain::table(&outlook, choice)).collect();
        let is_turn_too_many =
            choice.as_ref().is_some_and(|it| it.best().size.nodes > self.most(it, now, seen.at_ms));
        let is_occupied =
            outlook.occupied() >= now && choice.as_ref().is_some_and(|choice| choice.aim == Aim::Time);
        let held = explain::Held { is_short, is_turn_too_many, is_occupied };
        decision.reason = explain::reason(&outlook, choice.as_ref(), &decision, target, held);
        let raised_ms = if decision.nodes() > now { Some(seen.at_ms) } else { self.raised_ms };
        if choice.is_some() {
            self.turns.change(target, now, seen.at_ms);
        }
        (self.fewer, self.raised_ms) = (fewer, raised_ms);
        decision
    }

    /// Returns the forecasts for these numbers of machines. The policy does not change.
    pub fn whatif(&self, seen: &Observation, nodes: &[u32]) -> Vec<Candidate> {
        let mut with = self.clone();
        let seen = with.learn(seen);
        let outlook = with.outlook(&seen);
        let mut sizes: Vec<u32> = nodes.to_vec();
        sizes.push(outlook.nodes_now());
        sizes.sort_unstable();
        sizes.dedup();
        choose(&outlook, &sizes).map(|choice| explain::table(&outlook, &choice)).unwrap_or_default()
    }

    /// Learns from an observation. Returns it with the times of machines that earlier observations contained.
    fn learn(&mut self, seen: &Observation) -> Observation {
        let is_first = self.spending.began_ms().is_none();
        let new = self.spending.observe(seen);
        let seen = self.spending.settled(seen);
        self.starts.observe(&seen, &new, is_first);
        self.learn_scaling(&seen);
        seen
    }

    fn learn_scaling(&mut self, seen: &Observation) {
        self.observe_jobs(seen);
        let has_work = !seen.jobs.is_empty() || seen.waiting_jobs > 0;
        match (has_work, self.idle_since_ms) {
            (true, _) => self.idle_since_ms = None,
            (false, None) => self.idle_since_ms = Some(seen.at_ms),
            (false, Some(_)) => {}
        }
        // Workers are idle for lack of ready work, which says nothing about how the program scales.
        let ahead = Ahead::of(seen);
        self.was_starved |= ahead.as_ref().is_some_and(|ahead| !ahead.has_ready());
        let Some(closed) = self.windows.observe(seen) else { return };
        let was_starved = std::mem::take(&mut self.was_starved);
        if ahead.is_some() {
            if closed.is_steady && !was_starved {
                self.efficiency.entry(programs(seen)).or_default().learn(&closed.window);
            }
            return;
        }
        let key = programs(seen);
        let known = self.efficiency.get(&key);
        let curves = known.cloned().unwrap_or_default().curves();
        let expected_idle =
            1.0 - curves.efficiency(closed.window.workers) / curves.worth(closed.window.workers);
        if !self.parallelism.observe(&closed, expected_idle) && closed.is_steady {
            self.efficiency.entry(key).or_default().learn(&closed.window);
        }
    }

    /// Updates the progress of the jobs, and learns from jobs that are over.
    fn observe_jobs(&mut self, seen: &Observation) {
        let ids: BTreeSet<&str> = seen.jobs.iter().map(|job| &*job.id).collect();
        let is_other = self.jobs.len() != ids.len() || self.jobs.keys().any(|id| !ids.contains(&**id));
        if is_other {
            self.parallelism.reset();
            self.turns = Turns::default();
        }
        let totals = &mut self.totals;
        self.jobs.retain(|id, known| {
            let is_there = ids.contains(&**id);
            // A cancelled job gives no information about the duration of its kind, nor does a job that still runs.
            let is_unserved = seen.unserved.iter().any(|job| job.id == *id);
            if !is_there && !is_unserved && known.progress.share.is_none_or(|share| share > 0.9) {
                totals.entry(known.program.clone()).or_default().finished(known.progress.work);
            }
            is_there
        });
        for job in &seen.jobs {
            let known = self.jobs.entry(job.id.clone()).or_default();
            known.program.clone_from(&job.program);
            known.progress = Progress::new(job.busy_ns as f64 / 1e9, job.share);
            known.is_estimated = job.ahead.as_ref().map(|it| !ahead::is_early(it));
            known.ahead = job.ahead.as_ref().and_then(|it| Some((ahead::left(it)?, it.is_open)));
        }
        while self.totals.len() > PROGRAMS_MAX {
            self.totals.pop_first();
        }
        while self.efficiency.len() > PROGRAMS_MAX {
            self.efficiency.pop_first();
        }
    }

    fn outlook<'a>(&'a self, seen: &'a Observation) -> Outlook<'a> {
        let curves = self.efficiency.get(&programs(seen)).cloned().unwrap_or_default().curves();
        let spent = (self.spending.known(), self.spending.began_ms().unwrap_or(seen.at_ms));
        let mut outlook = Outlook::new(seen, &self.goals, &self.starts, curves, spent);
        outlook.cap = self.parallelism.cap();
        let total = |program: &str| self.totals.get(program).copied().unwrap_or_default();
        let of_job = |known: &JobKnown| {
            let before = total(&known.program).left(known.progress.work);
            match known.ahead {
                // A program that has not made all calls may be as long as others were.
                Some((left, true)) if left.median < before.median => {
                    return Guess { sigma: left.sigma, ..before };
                }
                Some((left, _)) => return left,
                None => {}
            }
            let Some(left) = known.progress.left() else { return before };
            // The smaller the rest, the less accurately the estimated total predicts it.
            let before = Guess { sigma: before.sigma * (1.0 + known.progress.work / left.median), ..before };
            left.combine(before)
        };
        let waiting = (0..seen.waiting_jobs.min(1_000)).map(|_| Totals::default().left(0.0));
        outlook.left = Guess::sum(self.jobs.values().map(of_job).chain(waiting));
        let is_known = |known: &JobKnown| {
            let has_share = || known.progress.share.is_some_and(|share| share >= SHARE_MIN);
            known.is_estimated.unwrap_or_else(has_share)
        };
        outlook.is_early = seen.waiting_jobs > 0 || !self.jobs.values().all(is_known);
        outlook
    }

    /// Returns the maximum number of machines at present.
    fn most(&self, choice: &Choice, now: u32, at_ms: u64) -> u32 {
        let most = self.turns.most(at_ms).filter(|_| now > 0 && !choice.is_urgent());
        most.map_or(u32::MAX, |most| most.max(now))
    }

    /// Returns the next number of machines, and the consecutive rounds that agree on fewer.
    fn follow(&self, choice: &Choice, (now, occupied): (u32, u32), at_ms: u64) -> (u32, Fewer) {
        let best = choice.best();
        let wanted = best.size.nodes.min(self.most(choice, now, at_ms));
        let is_better = choice.is_worth_it();
        if wanted > now && (is_better || now == 0) {
            let is_soon = self.raised_ms.is_some_and(|raised| at_ms < raised.saturating_add(ROUND_MS));
            let step = if is_soon { now } else { now.saturating_mul(2).saturating_add(4) };
            return (wanted.min(step), Fewer::default());
        }
        // The fastest size that is not wasteful does not interrupt work: the forecast averages over the rest of the work.
        let wanted = if choice.aim == Aim::Time { wanted.max(occupied.min(now)) } else { wanted };
        if wanted < now && is_better {
            let mut fewer = self.fewer.clone();
            if fewer.latest.is_empty() || at_ms >= fewer.at_ms.saturating_add(ROUND_MS) {
                if fewer.latest.len() == ROUNDS_DOWN {
                    fewer.latest.remove(0);
                }
                fewer.latest.push(wanted);
                fewer.at_ms = at_ms;
            }
            let most = fewer.latest.iter().copied().max().filter(|_| fewer.latest.len() == ROUNDS_DOWN);
            return (most.map_or(now, |most| most.min(now)), fewer);
        }
        (now, Fewer::default())
    }

    /// Without work, idle machines are kept for the time that new ones would take to start: then both cost the same.
    fn without_work(&self, outlook: &Outlook<'_>) -> u32 {
        let seen = outlook.seen;
        let since_ms = self.idle_since_ms.unwrap_or(seen.at_ms);
        let longest_s = seen.offers.iter().map(|offer| self.starts.median_s(offer)).fold(0.0, f64::max);
        let idle_s = seen.at_ms.saturating_sub(since_ms) as f64 / 1000.0;
        if idle_s >= longest_s { self.goals.min } else { outlook.nodes_now() }
    }

    /// Starts missing machines, and lets surplus machines leave when their paid time ends.
    fn carry_out(outlook: &Outlook<'_>, target: u32) -> Decision {
        let mut decision = Decision::default();
        let seen = outlook.seen;
        let noticed =
            seen.machines.iter().filter(|machine| machine.noticed && machine.state != MachineState::Leaving);
        decision.leave.extend(noticed.map(|machine| machine.id.clone()));
        let mut replaced = BTreeSet::new();
        for (machine, tariff) in outlook.unsuited() {
            if is_paid(seen, machine, tariff) {
                *decision.wanted.entry(machine.offer.clone()).or_default() += 1;
            } else {
                decision.leave.push(machine.id.clone());
                replaced.insert(machine.offer.as_str());
            }
        }
        let mut surplus = Vec::new();
        let size = outlook.size(target.min(outlook.nodes_max()));
        let kept = size.as_ref().map_or(target as usize, |size| size.kept);
        for (place, (machine, tariff)) in outlook.staying().enumerate() {
            let is_too_many = place >= kept;
            if is_too_many && !is_paid(seen, machine, tariff) {
                surplus.push(machine.id.clone());
            } else {
                *decision.wanted.entry(machine.offer.clone()).or_default() += 1;
            }
        }
        // Victims are in the reverse order of `staying`.
        decision.leave.extend(surplus.into_iter().rev());
        for (index, count) in size.into_iter().flat_map(|size| size.started) {
            let offer = &seen.offers[index].name;
            // A surplus machine that is paid leaves later, and its successor waits for that.
            let count = count.min(outlook.goals.max.saturating_sub(decision.nodes()));
            // The fleet compares numbers. It would keep the leaving machines instead of starting others, so those
            // are started in the next round.
            if count > 0 && !replaced.contains(offer.as_str()) {
                *decision.wanted.entry(offer.clone()).or_default() += count;
            }
        }
        decision
    }

    /// Enforces the budget: machines leave, and none starts, if the rest of the budget does not pay for the time
    /// until they have left. Returns whether that limited the decision.
    fn guard_budget(outlook: &Outlook<'_>, decision: &mut Decision) -> bool {
        let Some(budget) = outlook.goals.budget else { return false };
        let seen = outlook.seen;
        let mut allowance = budget - outlook.spent;
        let mut is_short = false;
        for (machine, tariff) in outlook.staying() {
            let Some(tariff) = tariff else { continue };
            let next = tariff.further(used_ms(machine, seen.at_ms), LEAVE_MS);
            if next <= allowance || decision.leave.contains(&machine.id) {
                allowance -= if decision.leave.contains(&machine.id) { 0.0 } else { next };
                continue;
            }
            is_short = true;
            decision.leave.push(machine.id.clone());
            if let Some(count) = decision.wanted.get_mut(&machine.offer) {
                *count = count.saturating_sub(1);
            }
        }
        for offer in &seen.offers {
            let Some(tariff) = Tariff::of(offer) else { continue };
            let all = outlook.staying().chain(outlook.unsuited());
            let have = all.filter(|(machine, _)| machine.offer == offer.name);
            let stay = have.filter(|(machine, _)| !decision.leave.contains(&machine.id)).count();
            let stay = u32::try_from(stay).unwrap_or(u32::MAX);
            let Some(count) = decision.wanted.get_mut(&offer.name) else { continue };
            let each = tariff.bill(LEAVE_MS);
            while *count > stay && each * f64::from(*count - stay) > allowance {
                *count -= 1;
                is_short = true;
            }
            allowance -= each * f64::from(count.saturating_sub(stay));
        }
        decision.wanted.retain(|_, count| *count > 0);
        is_short
    }
}

/// Returns whether a machine is paid for by a long quantum, beyond the time that it needs to leave.
fn is_paid(seen: &Observation, machine: &MachineSeen, tariff: Option<Tariff>) -> bool {
    let offer = seen.offers.iter().find(|offer| offer.name == machine.offer).filter(|_| tariff.is_some());
    offer.is_some_and(|offer| {
        offer.quantum_ms > QUANTUM_FINE_MS && paid_left_ms(machine, offer, seen.at_ms) > LEAVE_MS
    })
}

/// The programs of the running jobs, joined to one name.
fn programs(seen: &Observation) -> String {
    let names: BTreeSet<&str> = seen.jobs.iter().map(|job| &*job.program).collect();
    names.into_iter().collect::<Vec<_>>().join(" and ")
}
