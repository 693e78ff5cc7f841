//! The rounds of a controller: look, decide, write, act.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use taskwork::{
    Client, JobId, NodeId,
    client::{NotWritten, ScalingOffice},
    view::{Content, Event, Snapshot, View},
};
use taskwork_scale::{
    connector::{CALL_MAX, Connector, Machine, MachineId, Refusal},
    fleet::{Action, Fleet, Limits, MachineNow, NodeSeen, Round},
    policy::{Decision, Goals, Observation, Policy},
};
use tokio::time;

use super::{
    memory::{self, Memory, Said},
    observed::{self, Scope},
};
use crate::Failure;

/// The longest time that a request to ZooKeeper may take in a round: the next round does it again.
const ACT_MAX: Duration = Duration::from_secs(10);

/// The cluster as it was seen last.
#[derive(Default)]
pub(in crate::operator) struct Sight {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    view: View,
    is_whole: bool,
}

impl Sight {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was seen.
    pub(in crate::operator) fn apply(&self, event: &Event) {
        let mut seen = self.seen();
        match event.content {
            Content::Found => seen.is_whole = true,
            Content::Lost => seen.is_whole = false,
            _ => {}
        }
        seen.view.apply(event);
    }

    /// Returns the cluster, unless what is known of it is incomplete or out of date.
    pub(in crate::operator) fn snapshot(&self) -> Option<Snapshot> {
        let seen = self.seen();
        let is_current = seen.is_whole && seen.view.silent_since_ms().is_none() && seen.view.seq() > 0;
        is_current.then(|| seen.view.snapshot())
    }
}

/// What a controller works with.
pub(super) struct Controller<'a> {
    pub(super) client: &'a Client,
    pub(super) connector: &'a dyn Connector,
    pub(super) currency: Option<String>,
    pub(super) goals: Goals,
    pub(super) scope: Scope,
    pub(super) sight: &'a Sight,
    pub(super) json: bool,
}

/// What a controller has in mind.
pub(super) struct Mind {
    fleet: Fleet,
    policy: Policy,
    said: Said,
    /// What was in the way at the last round, so that it is told once.
    hindrance: Option<String>,
}

/// What has come of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// What was decided is done, as far as it could be.
    Done,
    /// Something was not known, so nothing was done.
    Hindered,
    /// Another controller may have taken over, so nothing was done.
    OfficeLost,
}

impl Mind {
    /// Goes on from what was remembered, with these goals.
    pub(super) fn new(controller: &Controller<'_>, memory: Memory, said: Said) -> Self {
        let Memory { fleet, mut policy, .. } = memory;
        if *policy.goals() != controller.goals {
            policy.set_goals(controller.goals.clone());
        }
        let fleet = Fleet::new(controller.connector.offers().to_vec(), Limits::default(), fleet);
        Self { fleet, policy, said, hindrance: None }
    }

    fn is_hindered(&mut self, why: String) -> Outcome {
        if self.hindrance.as_ref() != Some(&why) {
            tracing::warn!("{why}; nothing is changed meanwhile");
            self.hindrance = Some(why);
        }
        Outcome::Hindered
    }
}

impl Controller<'_> {
    /// Looks, decides and acts, once. Without an office nothing is written or done.
    pub(super) async fn round(&self, mind: &mut Mind, office: Option<&mut ScalingOffice>) -> Outcome {
        let Some(snapshot) = self.sight.snapshot() else {
            return mind
                .is_hindered("the cluster has not been read yet, or ZooKeeper does not answer".to_owned());
        };
        let machines = match in_time("list its machines", self.connector.list()).await {
            Ok(machines) => machines,
            Err(refusal) => return mind.is_hindered(format!("the machines are not known: {refusal}")),
        };
        if mind.hindrance.take().is_some() {
            tracing::info!("the cluster and its machines are known again");
        }
        let nodes = observed::nodes(&snapshot);
        let (observation, decision) = self.decide(mind, &snapshot, &machines, &nodes);
        self.tell(mind, &observation, &decision);
        let Some(office) = office else {
            return Outcome::Done;
        };
        let leave: Vec<MachineId> = decision.leave.iter().filter_map(|id| id.parse().ok()).collect();
        let round = Round {
            now_ms: observation.at_ms,
            wanted: &decision.wanted,
            leave: &leave,
            machines: &machines,
            nodes: &nodes,
        };
        let actions = mind.fleet.plan(&round);
        for note in mind.fleet.take_notes() {
            tracing::warn!("{note}");
        }
        let at_ms = observation.at_ms;
        self.note(mind, observation, &round);
        // What is about to be done is written first, so that whoever comes next knows of it.
        match office.write(&memory::written(mind.fleet.state(), &mind.policy), &mind.said.write()).await {
            Ok(()) => {}
            Err(NotWritten::TooLarge(why)) => return mind.is_hindered(why),
            Err(lost) => {
                tracing::warn!("what is to be done was not written: {lost}");
                return Outcome::OfficeLost;
            }
        }
        for action in actions {
            self.act(&mut mind.fleet, at_ms, action).await;
        }
        if decision.suspend {
            self.suspend(&snapshot).await;
        }
        Outcome::Done
    }

    fn decide(
        &self,
        mind: &mut Mind,
        snapshot: &Snapshot,
        machines: &[Machine],
        nodes: &[NodeSeen],
    ) -> (Observation, Decision) {
        let now_ms = snapshot.cluster.at_ms;
        let round = Round { now_ms, wanted: &BTreeMap::new(), leave: &[], machines, nodes };
        let shown = mind.fleet.machines(&round);
        let offers = self.connector.offers();
        let observation = observed::observation(snapshot, &self.scope, &shown, offers, mind.fleet.state());
        let decision = mind.policy.decide(&observation);
        (observation, decision)
    }

    /// Tells people what was decided.
    fn tell(&self, mind: &mut Mind, observation: &Observation, decision: &Decision) {
        let (wanted, now) = (decision.nodes(), there(observation));
        let is_new = mind.said.decided(observation.at_ms, wanted, &decision.reason);
        mind.said.table.clone_from(&decision.table);
        mind.said.spent = decision.spent;
        if self.json {
            let told =
                serde_json::json!({ "at_ms": observation.at_ms, "machines": now, "decision": decision });
            crate::failure::print(&format!("{told}\n"));
        }
        if is_new {
            tracing::info!(wanted, now, workers = observation.workers, "{}", decision.reason);
        } else {
            tracing::debug!(wanted, now, workers = observation.workers, "{}", decision.reason);
        }
    }

    /// Notes for `taskwork scale --explain` what is so.
    fn note(&self, mind: &mut Mind, observation: Observation, round: &Round<'_>) {
        let said = &mut mind.said;
        let now_ms = observation.at_ms;
        said.goals.clone_from(&self.goals);
        said.currency.clone_from(&self.currency);
        said.machines.clear();
        for MachineNow { standing, .. } in mind.fleet.machines(round) {
            *said.machines.entry(standing.text().to_owned()).or_default() += 1;
        }
        let troubles = mind.fleet.state().troubles().iter().filter(|(_, trouble)| now_ms < trouble.until_ms);
        said.troubles = troubles.map(|(offer, trouble)| (offer.clone(), trouble.why.clone())).collect();
        said.observed(observation);
    }

    async fn act(&self, fleet: &mut Fleet, now_ms: u64, action: Action) {
        match action {
            Action::Create { offer, count, key } => {
                tracing::info!(offer, count, %key, "machines are asked for");
                let answer = in_time("create machines", self.connector.create(&offer, count, &key)).await;
                match &answer {
                    Ok(machines) => {
                        tracing::debug!(%key, named = machines.len(), "the machines were created");
                    }
                    Err(refusal) => {
                        tracing::warn!(offer, count, why = ?refusal.why, "no machines: {refusal}");
                    }
                }
                fleet.created(now_ms, &key, &answer);
            }
            Action::Drain { node, machine } => {
                tracing::info!(node, %machine, "a node is asked to leave");
                let asked = match node.parse::<NodeId>() {
                    Ok(id) => {
                        self.client.with_patience(Some(ACT_MAX)).drain(id).await.map_err(|e| e.to_string())
                    }
                    Err(error) => Err(format!("{error}")),
                };
                if let Err(error) = asked {
                    tracing::warn!(node, "the node was not asked to leave: {error}");
                    fleet.not_asked(&node);
                }
            }
            Action::Terminate { machines } => {
                let names: Vec<&str> = machines.iter().map(MachineId::as_str).collect();
                tracing::info!(machines = names.join(" "), "machines are ended");
                if let Err(refusal) = in_time("end machines", self.connector.terminate(&machines)).await {
                    tracing::warn!("the machines may not have been ended: {refusal}");
                    fleet.not_ended(&machines);
                }
            }
        }
    }

    /// Suspends the jobs: the budget is spent.
    async fn suspend(&self, snapshot: &Snapshot) {
        let client = self.client.with_patience(Some(ACT_MAX));
        for job in observed::of_cluster(snapshot, &self.scope).jobs {
            let Ok(id) = job.id.parse::<JobId>() else { continue };
            match client.suspend(&id).await {
                Ok(()) => tracing::warn!(job = %id, "the budget is spent, and the job is suspended"),
                Err(error) => tracing::warn!(job = %id, "the job was not suspended: {error}"),
            }
        }
    }
}

/// The machines that do not leave.
fn there(observation: &Observation) -> usize {
    use taskwork_scale::policy::MachineState;
    observation.machines.iter().filter(|machine| machine.state != MachineState::Leaving).count()
}

/// Waits for a connector, but not for ever.
async fn in_time<T>(what: &str, call: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    time::timeout(CALL_MAX, call).await.unwrap_or_else(|_| {
        let seconds = CALL_MAX.as_secs();
        Err(Refusal::unknown(format!("the connector did not {what} within {seconds} s")))
    })
}

/// Reads what the last controller has left behind; what cannot be read is a reason to stop, since machines could be
/// started twice.
pub(super) fn recall(
    state: Option<&[u8]>,
    goals: &Goals,
    new_tag: impl FnOnce() -> String,
) -> Result<Memory, Failure> {
    let Some(state) = state else {
        return Ok(Memory::new(&new_tag(), goals.clone()));
    };
    Memory::read(state).map_err(|error| {
        Failure::failed(format!(
            "{error}. To begin anew, end the machines of this connector, and remove the znode scale of the cluster"
        ))
    })
}
