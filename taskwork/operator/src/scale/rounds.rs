//! The rounds of a controller: observe, decide, write, act.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use taskwork::{
    Client, JobId, NodeId,
    client::{
        ErrorKind,
        scaling::{NotWritten, ScalingOffice},
    },
    view::Snapshot,
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
    last_view::LastView,
    memory::{self, Memory, Said, UNSERVED_SHOWN_MAX},
    observed::{self, Scope},
};

/// The maximum time of a request to ZooKeeper in a round; the next round repeats it.
const ACT_MAX: Duration = Duration::from_secs(10);
/// The time after which the remaining actions are left to the next round, which observes the cluster again.
const ACTING_MAX: Duration = Duration::from_secs(30);
/// The time for which the office counts as held after a successful write, when machines are created.
const HELD_FOR: Duration = Duration::from_secs(2);
/// The difference between the clock and the elapsed time that counts as a clock jump, in milliseconds.
const LEAP_MS: u64 = 60_000;

/// The settings and clients of a controller.
pub(super) struct Controller<'a> {
    pub(super) client: &'a Client,
    pub(super) connector: &'a dyn Connector,
    pub(super) currency: Option<String>,
    pub(super) goals: Goals,
    /// The time from which the budget counts, if the user specifies it.
    pub(super) budget_from_ms: Option<u64>,
    pub(super) scope: Scope,
    pub(super) last_view: &'a LastView,
    pub(super) json: bool,
}

/// The changing state of a controller.
pub(super) struct Mind {
    fleet: Fleet,
    policy: Policy,
    newest: Newest,
    said: Said,
    /// The serialized fleet and policy in ZooKeeper, as last written or read.
    written: Vec<u8>,
    /// The reason why the last round did nothing; kept so that it is logged once.
    hindrance: Option<String>,
    /// Whether that was logged as a warning.
    is_warned: bool,
    /// The warnings of the last round; kept so that each is logged once.
    warned: BTreeSet<String>,
    /// The time of the last round, by the monotonic clock and by the observer's clock.
    last: Option<(Instant, u64)>,
}

/// The machines and nodes of a round.
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

/// The result of the write before the actions of a round.
enum Written {
    /// The write succeeded: all actions may be done.
    All,
    /// The state is too large; only the office was confirmed. Actions that need not be remembered may be done.
    OfficeOnly,
    /// The write failed: another controller may hold the office.
    Nothing,
}

/// The outcome of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The decision was carried out as far as possible.
    Done,
    /// Something was unknown, so nothing was done.
    Hindered,
    /// Another controller may have taken over, so nothing was done.
    OfficeLost,
}

impl Mind {
    /// Continues from the state of the last controller, with new goals. `written` is that state as it is in ZooKeeper.
    pub(super) fn new(controller: &Controller<'_>, memory: Memory, written: Vec<u8>, said: Said) -> Self {
        let Memory { fleet, mut policy, newest, .. } = memory;
        policy.pursue(controller.goals.clone(), &controller.scope.purpose(), controller.budget_from_ms);
        let connector = controller.connector;
        let limits = Limits { request_max: connector.request_max(), ..Limits::default() };
        let fleet = Fleet::new(connector.offers().to_vec(), limits, fleet);
        let (hindrance, is_warned, warned, last) = (None, false, BTreeSet::new(), None);
        Self { fleet, policy, newest, said, written, hindrance, is_warned, warned, last }
    }

    /// Returns the reason why the last round did nothing.
    pub(super) fn hindrance(&self) -> Option<&str> {
        self.hindrance.as_deref()
    }

    fn on_hindrance(&mut self, why: String) -> Outcome {
        if self.hindrance.as_ref() != Some(&why) {
            tracing::warn!("{why}; until that is resolved, nothing is changed");
            (self.hindrance, self.is_warned) = (Some(why), true);
        }
        Outcome::Hindered
    }

    /// Waits for the first read of the cluster, which takes up to some seconds at each start and needs no warning.
    fn on_first_read(&mut self) -> Outcome {
        self.hindrance.get_or_insert_with(|| "the cluster has not been read yet".to_owned());
        Outcome::Hindered
    }

    /// Logs the warnings that are new since the last round.
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
                "{path} cannot be read: {why}. Update this program; until then no machine is terminated for lack of a node"
            ));
        }
        if !missed.is_empty() {
            let names: Vec<&str> = missed.iter().map(|machine| machine.id.as_str()).collect();
            warnings.insert(format!(
                "the connector does not list the machines {}, whose nodes are members: they are assumed to exist",
                names.join(" ")
            ));
        }
        Lists { machines, missed, nodes, knows_all_nodes: unread.is_empty() }
    }

    /// Writes the state and the report. If they are too large, the report is shortened; if that does not suffice, the
    /// previous state is written again, which confirms that the office is held.
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
                tracing::warn!("{why}: machines are only drained and terminated, and none is started");
                match office.write(&self.written, &self.said.write()).await {
                    Ok(()) => return Written::OfficeOnly,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        tracing::warn!("the planned actions were not written: {lost}");
        Written::Nothing
    }

    /// Extends the fleet's timeouts if the clock has jumped ahead, as after a suspension of the whole machine.
    fn mind_the_clock(&mut self, now: Instant, at_ms: u64) {
        let Some((then, before_ms)) = self.last.replace((now, at_ms)) else { return };
        let passed_ms = u64::try_from(now.saturating_duration_since(then).as_millis()).unwrap_or(u64::MAX);
        let ahead_ms = at_ms.saturating_sub(before_ms).saturating_sub(passed_ms);
        if ahead_ms > LEAP_MS {
            tracing::warn!(seconds = ahead_ms / 1000, "the clock has jumped ahead");
            self.fleet.leapt(ahead_ms);
        }
    }
}

impl Controller<'_> {
    /// Observes, decides and acts once. Without an office nothing is written or done.
    pub(super) async fn round(&self, mind: &mut Mind, mut office: Option<&mut ScalingOffice>) -> Outcome {
        let Some(snapshot) = self.last_view.snapshot() else {
            return if self.last_view.is_first_read() {
                mind.on_first_read()
            } else {
                mind.on_hindrance("ZooKeeper does not answer".to_owned())
            };
        };
        let listing = if office.is_some() { self.connector.list() } else { self.connector.look() };
        let machines = match in_time("list its machines", listing).await {
            Ok(machines) => machines,
            Err(refusal) => return mind.on_hindrance(format!("the machines are not known: {refusal}")),
        };
        if mind.hindrance.take().is_some() && std::mem::take(&mut mind.is_warned) {
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
        // Actions are written before they are done, so that the next controller knows of them.
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

    /// Performs the planned actions while the office is certainly held: another controller may take over at any time.
    /// The remaining ones are left to the next round.
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
            // The connector may have forgotten an old key, and would start the machines again.
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
        let observation = observed::observation(
            snapshot,
            &self.scope,
            &demand,
            &shown,
            (offers, currency),
            mind.fleet.state(),
        );
        let decision = mind.policy.decide(&observation);
        (observation, decision)
    }

    /// Logs the decision, and records it in the report.
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
            taskwork_cli::command::print(&format!("{}\n", crate::json::versioned(told)));
        }
        if is_new {
            tracing::info!(wanted, now, workers = observation.workers, "{}", decision.reason);
        } else {
            tracing::debug!(wanted, now, workers = observation.workers, "{}", decision.reason);
        }
    }

    /// Updates the report for `taskwork scale --explain`.
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

    /// Performs one action. Returns false if ZooKeeper was asked and did not answer.
    async fn act(&self, fleet: &mut Fleet, now_ms: u64, action: Action) -> bool {
        match action {
            Action::Create { offer, count, key } => {
                tracing::info!(offer, count, %key, "requesting machines");
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
                tracing::info!(node, %machine, "asking a node to leave");
                let asked = match node.parse::<NodeId>() {
                    Ok(id) => {
                        // Not repeated if the answer is lost: a second request would make the node leave at once.
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
                tracing::info!(machines = names.join(" "), "terminating machines");
                if let Err(refusal) = in_time("end machines", self.connector.terminate(&machines)).await {
                    tracing::warn!("the machines may not have been terminated: {refusal}");
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

/// Reports a skipped action to the fleet. A request for machines is repeated without that.
fn leave_out(fleet: &mut Fleet, action: Action) {
    match action {
        Action::Create { .. } => {}
        Action::Drain { node, .. } => fleet.not_asked(&node),
        Action::Terminate { machines } => fleet.not_ended(&machines),
    }
}

/// Returns the number of machines that are not leaving.
fn there(observation: &Observation) -> usize {
    use taskwork_scale::policy::MachineState;
    observation.machines.iter().filter(|machine| machine.state != MachineState::Leaving).count()
}

/// Waits for a call of the connector, with a time limit.
async fn in_time<T>(what: &str, call: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    time::timeout(CALL_MAX, call).await.unwrap_or_else(|_| {
        let seconds = CALL_MAX.as_secs();
        Err(Refusal::unknown(format!("the connector did not {what} within {seconds} s")))
    })
}

/// Reads the state of the last controller. A state that cannot be read is an error: without it, machines could be
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
            "{error}. To start over, terminate the machines of this connector, and remove the znode scale of the cluster"
        ))
    })
}
