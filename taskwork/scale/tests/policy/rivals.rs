//! Other policies for comparison.

use std::collections::BTreeMap;

use taskwork_scale::policy::{Decision, MachineState, Observation, victims};

use crate::world::Controller;

/// A constant number of machines.
#[derive(Debug)]
pub(crate) struct Fixed(pub(crate) u32);

impl Controller for Fixed {
    fn decide(&mut self, seen: &Observation) -> Decision {
        wish(seen, self.0)
    }

    fn sees_jobs(&self) -> bool {
        false
    }
}

/// A threshold of CPU use, as in the Horizontal Pod Autoscaler: the number for which the mean use is the target, at
/// most twice as many or four more each 15 seconds, fewer only after five minutes.
#[derive(Debug, Default)]
pub(crate) struct Threshold {
    pub(crate) max: u32,
    before: Option<(u64, u64, u64)>,
    wishes: Vec<(u64, u32)>,
}

impl Threshold {
    const USE: f64 = 0.8;

    pub(crate) fn new(max: u32) -> Self {
        Self { max, ..Self::default() }
    }
}

impl Controller for Threshold {
    fn decide(&mut self, seen: &Observation) -> Decision {
        let now =
            seen.machines.iter().filter(|machine| machine.state != MachineState::Leaving).count() as u32;
        let job = &seen.jobs[0];
        let Some((at_ms, busy, idle)) = self.before else {
            self.before = Some((seen.at_ms, job.busy_ns, job.idle_ns));
            return wish(seen, 1);
        };
        if seen.at_ms < at_ms + 15_000 {
            return wish(seen, now.max(1));
        }
        self.before = Some((seen.at_ms, job.busy_ns, job.idle_ns));
        let (busy, idle) = ((job.busy_ns - busy) as f64, (job.idle_ns - idle) as f64);
        let working = seen.machines.iter().filter(|machine| machine.state == MachineState::Working).count();
        let wanted = if busy + idle > 0.0 {
            // Starting machines count as unused, as pods that are not ready do.
            let ratio = busy / (busy + idle) / Self::USE;
            let ready = (working as f64 * ratio).ceil() as u32;
            if (0.9..=1.1).contains(&ratio) { now } else { ready.max(1) }
        } else {
            now.max(1)
        };
        let wanted = wanted.clamp(1, self.max).min((now * 2).max(now + 4));
        self.wishes.retain(|(at, _)| at + 300_000 > seen.at_ms);
        self.wishes.push((seen.at_ms, wanted));
        let highest = self.wishes.iter().map(|(_, wish)| *wish).max().unwrap_or(1);
        wish(seen, if wanted < now { highest.min(now) } else { wanted })
    }
}

/// Returns a decision for this many machines of the first offer.
fn wish(seen: &Observation, nodes: u32) -> Decision {
    let order = victims(seen);
    let leave = order.len().saturating_sub(nodes as usize);
    let wanted = BTreeMap::from([(seen.offers[0].name.clone(), nodes)]);
    Decision { wanted, leave: order[..leave].to_vec(), ..Decision::default() }
}
