//! The rounds of a controller: look, decide, write, act.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use taskwork::{
    Client, JobId, NodeId,
    client::{ErrorKind, NotWritten, ScalingOffice},
    view::{Content, Event, Snapshot, View},
};
use taskwork_cli::Failure;
use taskwork_scale::{
    connector::{CALL_MAX, Connector, Machine, MachineId, Refusal},
    fleet::{Action, Fleet, Limits, MachineNow, NodeSeen, Round},
    policy::{Decision, Goals, JobUnserved, Observation, Policy},
};
use tokio::time;

use super::{
    demand::{self, Demand, Newest},
    memory::{self, Memory, Said, UNSERVED_SHOWN_MAX},
    observed::{self, Scope},
};

/// The longest time that a request to ZooKeeper may take in a round: the next round does it again.
const ACT_MAX: Duration = Duration::from_secs(10);
/// The time after which what is left to be done is left to the next round, which looks again first.
const ACTING_MAX: Duration = Duration::from_secs(30);
/// The time for which the office is taken to be held after it was written that it is, when machines are to be created.
const HELD_FOR: Duration = Duration::from_secs(2);
/// By how much the clock must be ahead of the time that has passed for that to be a leap, in milliseconds.
const LEAP_MS: u64 = 60_000;

/// The cluster as it was seen last.
#[derive(Default)]
pub(crate) struct Sight {
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
    pub(crate) fn apply(&self, event: &Event) {
        let mut seen = self.seen();
        match event.content {
            Content::Found => seen.is_whole = true,
            Content::Lost => seen.is_whole = false,
            _ => {}
        }
        seen.view.apply(event);
    }

    /// Returns the cluster, unless what is known of it is incomplete or out of date.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
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
    /// From when on the budget is to count, if the user says it.
    pub(super) budget_from_ms: Option<u64>,
    pub(super) scope: Scope,
    pub(super) sight: &'a Sight,
    pub(super) json: bool,
}

/// What a controller has in mind.
pub(super) struct Mind {
    fleet: Fleet,
    policy: Policy,
    newest: Newest,
    said: Said,
    /// What stands in ZooKeeper of the two, as it was written last or found.
    written: Vec<u8>,
    /// What was in the way at the last round, so that it is told once.
    hindrance: Option<String>,
    /// Warnings that hold since an earlier round, so that each is told once.
    warned: BTreeSet<String>,
    /// When the last round was, by the time that passes and by the clock.
    last: Option<(Instant, u64)>,
}

/// What a round goes by.
struct Lists {
    machines: Vec<Machine>,
    missed: Vec<Machine>,
    nodes: Vec<NodeSeen>,
    knows_all_nodes: bool,
}

impl Lists {
    fn round<'a>(
        &'a self,
        now_ms: u64,
        wanted: &'a BTreeMap<String, u32>,
        leave: &'a [MachineId],
    ) -> Round<'a> {
        let Self { machines, missed, nodes, knows_all_nodes } = self;
        Round { now_ms, wanted, leave, machines, missed, nodes, knows_all_nodes: *knows_all_nodes }
    }
}

/// What was written before anything is done.
enum Written {
    /// All that is about to be done.
    All,
    /// Only that the office is held: what is remembered is too large. What does not need to be remembered may be done.
    OfficeOnly,
    /// Nothing, and nobody knows who holds the office.
    Nothing,
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
    /// Goes on from what was remembered, with the goals of a controller. What stands in ZooKeeper is given as it is.
    pub(super) fn new(controller: &Controller<'_>, memory: Memory, written: Vec<u8>, said: Said) -> Self {
        let Memory { fleet, mut policy, newest, .. } = memory;
        policy.pursue(controller.goals.clone(), &controller.scope.purpose(), controller.budget_from_ms);
        let connector = controller.connector;
        let limits = Limits { request_max: connector.request_max(), ..Limits::default() };
        let fleet = Fleet::new(connector.offers().to_vec(), limits, fleet);
        let (hindrance, warned, last) = (None, BTreeSet::new(), None);
        Self { fleet, policy, newest, said, written, hindrance, warned, last }
    }

    /// Returns what was in the way at the last round.
    pub(super) fn hindrance(&self) -> Option<&str> {
        self.hindrance.as_deref()
    }

    fn is_hindered(&mut self, why: String) -> Outcome {
        if self.hindrance.as_ref() != Some(&why) {
            tracing::warn!("{why}; nothing is changed meanwhile");
            self.hindrance = Some(why);
        }
        Outcome::Hindered
    }

    /// Tells warnings that did not hold at the last round.
    fn warn(&mut self, warnings: BTreeSet<String>) {
        for new in warnings.difference(&self.warned) {
            tracing::warn!("{new}");
        }
        self.warned = warnings;
    }

    /// Gathers the input of a round. Adds warnings of gaps in it.
    fn lists(
        &mut self,
        snapshot: &Snapshot,
        machines: Vec<Machine>,
        warnings: &mut BTreeSet<String>,
    ) -> Lists {
        let nodes = observed::nodes(snapshot);
        let missed = self.fleet.missed(&machines, &nodes, |id| self.policy.knows(id.as_str()));
        let unread = observed::unread(snapshot);
        for name in &unread {
            let path = format!("members/{name}");
            let why = snapshot.warnings.get(&path).map_or("it may be of a newer version", String::as_str);
            warnings.insert(format!(
                "{path} cannot be read: {why}. Update this program; no machine is ended for having no node meanwhile"
            ));
        }
        if !missed.is_empty() {
            let names: Vec<&str> = missed.iter().map(|machine| machine.id.as_str()).collect();
            warnings.insert(format!(
                "the connector does not list the machines {}, whose nodes are members: they are taken to be there",
                names.join(" ")
            ));
        }
        Lists { machines, missed, nodes, knows_all_nodes: unread.is_empty() }
    }

    /// Writes what is remembered and said. If it is too large, people are told less; and if that does not help, what
    /// stands there is written again, which shows that the office is held.
    async fn write(&mut self, office: &mut ScalingOffice) -> Written {
        let state = memory::written(self.fleet.state(), &self.policy, &self.newest);
        let mut wrote = office.write(&state, &self.said.write()).await;
        if matches!(wrote, Err(NotWritten::TooLarge(_))) {
            self.said.shorten();
            wrote = office.write(&state, &self.said.write()).await;
        }
        let lost = match wrote {
            Ok(()) => {
                self.written = state;
                return Written::All;
            }
            Err(NotWritten::TooLarge(why)) => {
                tracing::warn!("{why}: machines are only drained and ended, and none is started");
                match office.write(&self.written, &self.said.write()).await {
                    Ok(()) => return Written::OfficeOnly,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        tracing::warn!("what is to be done was not written: {lost}");
        Written::Nothing
    }

    /// Lets the fleet wait anew if the clock has leapt ahead, as after a suspension of the whole machine.
    fn mind_the_clock(&mut self, now: Instant, at_ms: u64) {
        let Some((then, before_ms)) = self.last.replace((now, at_ms)) else { return };
        let passed_ms = u64::try_from(now.saturating_duration_since(then).as_millis()).unwrap_or(u64::MAX);
        let ahead_ms = at_ms.saturating_sub(before_ms).saturating_sub(passed_ms);
        if ahead_ms > LEAP_MS {
            tracing::warn!(seconds = ahead_ms / 1000, "the clock has leapt ahead");
            self.fleet.leapt(ahead_ms);
        }
    }
}

impl Controller<'_> {
    /// Looks, decides and acts, once. Without an office nothing is written or done.
    pub(super) async fn round(&self, mind: &mut Mind, mut office: Option<&mut ScalingOffice>) -> Outcome {
        let Some(snapshot) = self.sight.snapshot() else {
            return mind
                .is_hindered("the cluster has not been read yet, or ZooKeeper does not answer".to_owned());
        };
        let listing = if office.is_some() { self.connector.list() } else { self.connector.look() };
        let machines = match in_time("list its machines", listing).await {
            Ok(machines) => machines,
            Err(refusal) => return mind.is_hindered(format!("the machines are not known: {refusal}")),
        };
        if mind.hindrance.take().is_some() {
            tracing::info!("the cluster and its machines are known again");
        }
        mind.mind_the_clock(Instant::now(), snapshot.cluster.at_ms);
        let mut warnings = BTreeSet::new();
        let lists = mind.lists(&snapshot, machines, &mut warnings);
        let (observation, decision) = self.decide(mind, &snapshot, &lists);
        let unserved = observation.unserved.iter().take(UNSERVED_SHOWN_MAX);
        warnings.extend(unserved.map(|JobUnserved { id, reason }| {
            format!("no offer can serve job {id}, so no machine is started for it: {reason}")
        }));
        mind.warn(warnings);
        self.tell(mind, &observation, &decision);
        let Some(office) = office.as_mut() else {
            return Outcome::Done;
        };
        let leave: Vec<MachineId> = decision.leave.iter().filter_map(|id| id.parse().ok()).collect();
        let round = lists.round(observation.at_ms, &decision.wanted, &leave);
        let actions = mind.fleet.plan(&round);
        for note in mind.fleet.take_notes() {
            tracing::warn!("{note}");
        }
        let at_ms = observation.at_ms;
        let running: Vec<String> = observation.jobs.iter().map(|job| job.id.clone()).collect();
        self.note(mind, observation, &round);
        // What is about to be done is written first, so that whoever comes next knows of it.
        match mind.write(office).await {
            Written::All => {}
            Written::OfficeOnly => {
                for action in actions.into_iter().filter(|action| !matches!(action, Action::Create { .. })) {
                    let _ = self.act(&mut mind.fleet, at_ms, action).await;
                }
                if decision.suspend {
                    self.suspend(&running).await;
                }
                return Outcome::Done;
            }
            Written::Nothing => return Outcome::OfficeLost,
        }
        match self.act_all(mind, office, at_ms, actions).await {
            Outcome::Done if decision.suspend => self.suspend(&running).await,
            Outcome::Done | Outcome::Hindered => {}
            Outcome::OfficeLost => return Outcome::OfficeLost,
        }
        Outcome::Done
    }

    /// Does what was planned, for as long as that is what an office holder may do: somebody else may have taken over
    /// meanwhile. What is left is left to the next round.
    async fn act_all(
        &self,
        mind: &mut Mind,
        office: &mut ScalingOffice,
        at_ms: u64,
        actions: Vec<Action>,
    ) -> Outcome {
        let began = Instant::now();
        let (mut held, mut goes_on) = (began, true);
        for action in actions {
            if !goes_on || began.elapsed() > ACTING_MAX {
                leave_out(&mut mind.fleet, action);
                goes_on = false;
                continue;
            }
            // A key that was used long ago may be forgotten by the connector, and would start machines again.
            if matches!(action, Action::Create { .. }) && held.elapsed() > HELD_FOR {
                if !matches!(mind.write(office).await, Written::All) {
                    return Outcome::OfficeLost;
                }
                held = Instant::now();
            }
            goes_on = self.act(&mut mind.fleet, at_ms, action).await;
        }
        if goes_on { Outcome::Done } else { Outcome::Hindered }
    }

    fn decide(&self, mind: &mut Mind, snapshot: &Snapshot, lists: &Lists) -> (Observation, Decision) {
        let shown = mind.fleet.machines(&lists.round(snapshot.cluster.at_ms, &BTreeMap::new(), &[]));
        let offers = self.connector.offers();
        demand::update_newest(&mut mind.newest, offers, snapshot);
        let currency = self.currency.as_deref();
        let demand = Demand::of_offers(snapshot, &self.scope, offers, currency, &mind.newest);
        let observation =
            observed::observation(snapshot, &self.scope, &demand, &shown, offers, mind.fleet.state());
        let decision = mind.policy.decide(&observation);
        (observation, decision)
    }

    /// Tells people what was decided.
    fn tell(&self, mind: &mut Mind, observation: &Observation, decision: &Decision) {
        let (wanted, now) = (decision.nodes(), there(observation));
        let is_new = mind.said.decided(observation.at_ms, wanted, &decision.reason);
        mind.said.table.clone_from(&decision.table);
        (mind.said.spent, mind.said.spent_since_ms) = (decision.spent, decision.spent_since_ms);
        if self.json {
            let told = serde_json::json!({
                "at_ms": observation.at_ms,
                "machines": now,
                "decision": decision,
                "unserved": observation.unserved,
            });
            taskwork_cli::command::print(&format!("{told}\n"));
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

    /// Does one thing. Returns whether ZooKeeper has answered, as far as it was asked.
    async fn act(&self, fleet: &mut Fleet, now_ms: u64, action: Action) -> bool {
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
                        // Again after an answer that was lost, it would leave at once.
                        let asked = self.client.with_patience(Some(ACT_MAX)).drain_once(id).await;
                        asked
                            .map(drop)
                            .map_err(|error| (error.kind() != ErrorKind::Unreachable, error.to_string()))
                    }
                    Err(error) => Err((true, format!("{error}"))),
                };
                if let Err((has_answered, error)) = asked {
                    tracing::warn!(node, "the node was not asked to leave: {error}");
                    fleet.not_asked(&node);
                    return has_answered;
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
        true
    }

    /// Suspends the jobs: the budget is spent.
    async fn suspend(&self, jobs: &[String]) {
        let client = self.client.with_patience(Some(ACT_MAX));
        for id in jobs {
            let Ok(id) = id.parse::<JobId>() else { continue };
            match client.suspend(&id).await {
                Ok(()) => tracing::warn!(job = %id, "the budget is spent, and the job is suspended"),
                Err(error) => tracing::warn!(job = %id, "the job was not suspended: {error}"),
            }
        }
    }
}

/// Notes that something was not done after all. A request for machines is repeated by itself.
fn leave_out(fleet: &mut Fleet, action: Action) {
    match action {
        Action::Create { .. } => {}
        Action::Drain { node, .. } => fleet.not_asked(&node),
        Action::Terminate { machines } => fleet.not_ended(&machines),
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
