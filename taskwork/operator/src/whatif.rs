//! `taskwork whatif`: estimates the finish time and the cost of a job with other numbers of nodes.
//!
//! If a controller runs, the estimate uses its state: it has learnt how the job scales, and knows the prices of
//! machines. Otherwise the cluster is observed for a while, and the prices are those in the labels of nodes.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use serde_json::json;
use taskwork::{
    JobId,
    client::{Stage, records::Member},
    view::{Event, Snapshot},
};
use taskwork_cli::{
    Failure,
    command::{job_id, seconds, tell},
};
use taskwork_scale::policy::{Goals, MachineSeen, MachineState, Observation, OfferSeen, Policy};
use tokio::time::{self, Instant};

use super::{
    connection::Connection,
    scale::{
        demand::Demand,
        explain,
        last_view::LastView,
        memory::{Memory, Said},
        observed::{self, Scope},
    },
};

/// The maximum number of machines in a question.
const NODES_MAX: u32 = 100_000;
/// The maximum age of a controller's report that is used, in milliseconds.
const RECENT_MS: u64 = 60_000;
/// The time between two observations.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The job and the numbers of nodes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The job, as `taskwork jobs` lists it; the number alone suffices.
    #[arg(value_name = "ID", value_parser = job_id)]
    job: JobId,
    /// The numbers of nodes, separated by commas: 50, or +20 and -5 relative to the present number. The default is a
    /// range around the present number.
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        allow_hyphen_values = true,
        value_parser = str::parse::<Nodes>
    )]
    nodes: Vec<Nodes>,
    /// The time to observe the cluster if no controller runs, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    observe: Duration,
}

/// A number of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nodes {
    Exactly(u32),
    /// More nodes than now, or fewer if negative.
    More(i64),
}

impl FromStr for Nodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected a number of nodes up to {NODES_MAX}, such as 50, +20 or -5");
        let number: i64 = text.parse().map_err(|_| expected())?;
        if number.unsigned_abs() > u64::from(NODES_MAX) {
            return Err(expected());
        }
        if text.starts_with(['+', '-']) {
            return Ok(Self::More(number));
        }
        u32::try_from(number).map(Self::Exactly).map_err(|_| expected())
    }
}

impl Nodes {
    fn given(self, now: u32) -> u32 {
        match self {
            Self::Exactly(nodes) => nodes,
            Self::More(more) => {
                let nodes = (i64::from(now) + more).clamp(0, NODES_MAX.into());
                u32::try_from(nodes).unwrap_or(NODES_MAX)
            }
        }
    }
}

/// Prints the table.
pub(super) async fn run(connection: &Connection, arguments: &Arguments) -> Result<(), Failure> {
    let told = connection.client.scaling_said().await?.filter(|told| told.holder.is_some());
    let asked = told.and_then(|told| {
        let said = Said::read(&told.said);
        let policy = Memory::read(&told.state).ok()?.policy();
        let observation =
            said.observation.filter(|seen| seen.jobs.iter().any(|job| job.id == arguments.job.as_str()))?;
        let age_ms = told.at_ms.abs_diff(unix_ms());
        (age_ms < RECENT_MS).then_some((policy, observation, said.currency))
    });
    let (policy, observation, currency) = match asked {
        Some(asked) => asked,
        None => observe(connection, arguments).await?,
    };
    let now = there(&observation);
    let nodes: Vec<u32> = if arguments.nodes.is_empty() {
        around(now)
    } else {
        arguments.nodes.iter().map(|nodes| nodes.given(now)).collect()
    };
    let sizes = policy.whatif(&observation, &nodes);
    if sizes.is_empty() {
        return Err(Failure::failed(format!(
            "nothing is known about job {} yet: no node works on it, or it has just started",
            arguments.job
        )));
    }
    connection.say(
        || json!({ "job": arguments.job.as_str(), "now": now, "currency": currency, "sizes": sizes }),
        || explain::candidates("#NODES", &sizes, currency.as_deref()),
    );
    Ok(())
}

fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the number of machines that stay and can run one of the jobs.
fn there(observation: &Observation) -> u32 {
    let stays = |machine: &&MachineSeen| machine.state != MachineState::Leaving && !machine.unsuited;
    let staying = observation.machines.iter().filter(stays);
    u32::try_from(staying.count()).unwrap_or(u32::MAX)
}

/// Returns a range of numbers around the present one.
fn around(now: u32) -> Vec<u32> {
    let now = now.max(1);
    vec![now.div_ceil(2), now, now + now.div_ceil(2), now.saturating_mul(2), now.saturating_mul(4)]
}

/// Observes the cluster for a while, with a policy that learns meanwhile.
async fn observe(
    connection: &Connection,
    arguments: &Arguments,
) -> Result<(Policy, Observation, Option<String>), Failure> {
    let id = arguments.job.as_str();
    let details = connection.client.job(&arguments.job).await?;
    if details.stage != Stage::Running {
        return Err(Failure::failed(format!("job {id} does not run: {}", details.stage.text())));
    }
    let seconds = arguments.observe.as_secs();
    tell(format_args!("note: no controller works for job {id}; the cluster is observed for {seconds} s"));
    let (last_view, observer) = (LastView::default(), connection.client.observer());
    let scope = Scope { job: Some(arguments.job.clone()), program: None };
    let mut apply = |event: Event| last_view.apply(&event);
    let looking = async {
        let until = Instant::now() + arguments.observe;
        let mut policy = Policy::new(Goals { max: NODES_MAX, ..Goals::default() });
        let mut last = None;
        while Instant::now() < until || last.is_none() {
            time::sleep(LOOK_EVERY.min(arguments.observe)).await;
            let Some(snapshot) = last_view.snapshot() else {
                if Instant::now() > until + arguments.observe {
                    return Err(Failure::unreachable("the cluster could not be read in this time"));
                }
                continue;
            };
            let (observation, currency) = with_members(&snapshot, &scope);
            policy.decide(&observation);
            last = Some((observation, currency));
        }
        let (observation, currency) = last.ok_or_else(|| Failure::unreachable("nothing was observed"))?;
        Ok((policy, observation, currency))
    };
    tokio::select! {
        refused = observer.follow(&mut apply) => Err(refused.into()),
        looked = looking => looked,
    }
}

/// Treats each member that can run the job as a machine, of an offer with as many workers.
fn with_members(snapshot: &Snapshot, scope: &Scope) -> (Observation, Option<String>) {
    let demand = Demand::of_all(snapshot, scope);
    let mut observation = observed::of_cluster(snapshot, scope, &demand);
    let mut offers: BTreeMap<String, OfferSeen> = BTreeMap::new();
    let mut currencies: Vec<&str> = Vec::new();
    for (name, now) in &snapshot.members {
        let Some(member) = now.member.as_deref().filter(|member| demand.fits(member)) else { continue };
        let price = price(member);
        let offer = format!("{} workers at {price:?}", member.workers);
        offers.entry(offer.clone()).or_insert_with(|| OfferSeen {
            name: offer.clone(),
            workers: member.workers,
            price_per_hour: price,
            labels: member.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            ..OfferSeen::default()
        });
        currencies.extend(member.labels.get("currency"));
        observation.machines.push(MachineSeen {
            id: name.clone(),
            offer,
            state: if now.draining { MachineState::Leaving } else { MachineState::Working },
            requested_ms: now.since_ms,
            billed_since_ms: Some(member.started_ms.min(now.since_ms)),
            joined_ms: Some(now.since_ms),
            workers: member.workers,
            leader: !now.leads.is_empty(),
            ..MachineSeen::default()
        });
    }
    observation.offers = offers.into_values().collect();
    currencies.dedup();
    let currency = if let [one] = currencies[..] { Some(one.to_owned()) } else { None };
    (observation, currency)
}

/// Returns the hourly price in the labels of a member.
fn price(member: &Member) -> Option<f64> {
    let price: f64 = member.labels.get("price")?.strip_suffix("/h")?.parse().ok()?;
    (price.is_finite() && price >= 0.0).then_some(price)
}

#[cfg(test)]
mod tests {
    use super::{
        super::scale::fixtures::{job, member, snapshot},
        *,
    };

    #[test]
    fn numbers_are_absolute_or_relative() {
        for (text, now, given) in
            [("50", 30, 50), ("+20", 30, 50), ("-5", 30, 25), ("-50", 30, 0), ("0", 3, 0)]
        {
            assert_eq!(text.parse::<Nodes>().unwrap().given(now), given, "{text}");
        }
        for wrong in ["", "many", "1.5", "+", "--5", "100001", "-100001", "99999999999999999999"] {
            assert!(wrong.parse::<Nodes>().unwrap_err().contains("+20"), "{wrong}");
        }
    }

    /// Two nodes of another program, and one without a required label.
    #[test]
    fn sizes_count_only_nodes_that_can_run_the_job() {
        let gpu = r#"{"gpu": "yes"}"#;
        let snapshot = snapshot(&[
            member("n01", "tsp", gpu),
            member("n02", "tsp", gpu),
            member("n03", "tsp", "{}"),
            member("n04", "uts", gpu),
            member("n05", "uts", gpu),
            job("j-0000000001", ("tsp", "1"), gpu, 0),
        ]);
        let scope = Scope { job: Some("j-0000000001".parse().unwrap()), program: None };
        let (observation, _) = with_members(&snapshot, &scope);
        assert_eq!((there(&observation), observation.workers), (2, 8));
    }

    #[test]
    fn sizes_by_default_are_around_the_present_one() {
        assert!(around(0).contains(&1) && around(3) == [2, 3, 5, 6, 12]);
    }
}
