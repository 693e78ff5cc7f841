//! The state of a cluster as input of the policy and the fleet.

use std::collections::BTreeSet;

use taskwork::{
    JobId,
    client::{Stage, records::Member},
    view::{JobNow, Snapshot},
};
use taskwork_scale::{
    connector::{MachineId, Offer},
    fleet::{MachineNow, NodeSeen, Standing, State},
    policy::{JobSeen, MachineSeen, MachineState, Observation, OfferSeen, Place},
};

use super::demand::Demand;

/// The jobs for which a controller scales.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    /// If given, only this job.
    pub(crate) job: Option<JobId>,
    /// If given, only jobs of this program.
    pub(crate) program: Option<String>,
}

impl Scope {
    /// Returns a text that identifies the set of jobs.
    pub(super) fn purpose(&self) -> String {
        match (&self.job, &self.program) {
            (Some(job), _) => format!("job {job}"),
            (None, Some(program)) => format!("program {program}"),
            (None, None) => "all jobs".to_owned(),
        }
    }

    pub(super) fn has_job(&self, id: &str, job: &JobNow) -> bool {
        let program = job.about.record.as_deref().map(|record| record.program.as_str());
        self.job.as_ref().is_none_or(|only| only.as_str() == id)
            && self.program.as_deref().is_none_or(|only| program == Some(only))
    }

    /// Returns whether a member may work on these jobs, judging by its program.
    fn has_member(&self, member: &Member, snapshot: &Snapshot) -> bool {
        let of_job = self.job.as_ref().and_then(|job| snapshot.jobs.get(job.as_str()));
        let record = of_job.and_then(|job| job.about.record.as_deref());
        let program = record.map(|record| record.program.as_str()).or(self.program.as_deref());
        program.is_none_or(|only| member.program == only)
    }
}

/// Returns the nodes of a cluster that have workers.
pub(super) fn nodes(snapshot: &Snapshot) -> Vec<NodeSeen> {
    let working: BTreeSet<&str> = snapshot
        .jobs
        .values()
        .filter(|job| job.about.stage == Stage::Running)
        .flat_map(|job| job.nodes.iter())
        .filter(|(_, node)| !node.report.last && node.report.pool.is_some_and(|pool| pool.busy > 0))
        .map(|(name, _)| name.as_str())
        .collect();
    let seen = snapshot.members.iter().filter_map(|(name, now)| {
        let member = now.member.as_deref()?;
        Some(NodeSeen {
            node: name.clone(),
            machine: member.labels.get("machine").and_then(|id| id.parse::<MachineId>().ok()),
            offer: member.labels.get("offer").map(str::to_owned),
            draining: now.draining,
            leads: !now.leads.is_empty(),
            working: working.contains(name.as_str()),
            workers: member.workers,
            zone: member.labels.get("zone").map(str::to_owned),
        })
    });
    seen.collect()
}

/// Returns the names of the members that cannot be parsed: their version may be newer.
pub(super) fn unread(snapshot: &Snapshot) -> Vec<String> {
    let unread = snapshot.members.iter().filter(|(_, now)| now.member.is_none());
    unread.map(|(name, _)| name.clone()).collect()
}

/// Returns the observation for the policy.
pub(super) fn observation(
    snapshot: &Snapshot,
    scope: &Scope,
    demand: &Demand<'_>,
    machines: &[MachineNow],
    (offers, currency): (&[Offer], Option<&str>),
    state: &State,
) -> Observation {
    let at_ms = snapshot.cluster.at_ms;
    let machine = |machine| MachineSeen {
        unsuited: is_unsuited(machine, demand, snapshot),
        ..machine_seen(machine, snapshot)
    };
    let offer = |offer: &Offer| OfferSeen {
        unsuited: demand.is_unsuited(&offer.name),
        ..offer_seen(offer, currency, state.is_blocked(&offer.name, at_ms))
    };
    Observation {
        machines: machines.iter().map(machine).collect(),
        offers: offers.iter().map(offer).collect(),
        ..of_cluster(snapshot, scope, demand)
    }
}

/// Returns whether there are jobs, and a machine can run none of them. Its nodes decide, or its offer until they join.
fn is_unsuited(machine: &MachineNow, demand: &Demand<'_>, snapshot: &Snapshot) -> bool {
    let members = || machine.nodes.iter().filter_map(|node| snapshot.members.get(node)?.member.as_deref());
    if members().next().is_none() {
        return demand.is_unsuited(&machine.offer);
    }
    !demand.jobs.is_empty() && !members().any(|member| demand.fits(member))
}

/// Returns the part of an observation that does not depend on machines.
pub(crate) fn of_cluster(snapshot: &Snapshot, scope: &Scope, demand: &Demand<'_>) -> Observation {
    let jobs = || demand.jobs.iter().copied();
    let running = || jobs().filter(|(_, job)| job.about.stage == Stage::Running);
    let pools = || running().filter_map(|(_, job)| job.about.pool);
    let is_known = pools().next().is_some();
    let workers =
        snapshot.members.values().filter(|now| !now.draining).filter_map(|now| now.member.as_deref());
    let workers = workers.filter(|member| {
        if demand.jobs.is_empty() { scope.has_member(member, snapshot) } else { demand.fits(member) }
    });
    let sum = |count: &dyn Fn(&JobNow) -> Option<u64>| {
        running().filter_map(|(_, job)| count(job)).reduce(u64::saturating_add)
    };
    let reported = |count: u64, job: &JobNow| job.about.reported.then_some(count);
    Observation {
        at_ms: snapshot.cluster.at_ms,
        workers: workers.map(|member| member.workers).fold(0, u32::saturating_add),
        busy: is_known.then(|| pools().map(|pool| pool.busy).fold(0, u32::saturating_add)),
        hungry: is_known.then(|| pools().map(|pool| pool.hungry).fold(0, u32::saturating_add)),
        queued: is_known.then(|| pools().map(|pool| u64::from(pool.queued)).fold(0, u64::saturating_add)),
        open_tasks: sum(&|job| job.about.listed_tasks.map(u64::from)),
        steals_granted: sum(&|job| reported(job.about.figures.steals, job)),
        steals_refused: sum(&|job| {
            let figures = &job.about.figures;
            reported(figures.requests.saturating_sub(figures.steals), job)
        }),
        jobs: running().map(|(id, job)| job_seen(id, job)).collect(),
        unread_members: count(snapshot.members.values().filter(|now| now.member.is_none())),
        waiting_jobs: count(
            jobs().filter(|(_, job)| matches!(job.about.stage, Stage::NoNodes | Stage::Queued)),
        ),
        unserved: demand.unserved.clone(),
        ..Observation::default()
    }
}

fn count<T>(of: impl Iterator<Item = T>) -> u32 {
    u32::try_from(of.count()).unwrap_or(u32::MAX)
}

fn job_seen(id: &str, job: &JobNow) -> JobSeen {
    let (about, times) = (&job.about, job.about.figures.times);
    JobSeen {
        id: id.to_owned(),
        program: about.record.as_deref().map(|record| record.program.clone()).unwrap_or_default(),
        share: about.share,
        work: about.figures.worked.saturating_sub(about.figures.worked_earlier) as f64,
        busy_ns: times.total_ns().saturating_sub(times.idle_ns()),
        idle_ns: times.idle_ns(),
        began_ms: about.record.as_deref().map_or(0, |record| record.submitted_ms),
        ahead: about.display.as_deref().and_then(|display| display.ahead.clone()),
    }
}

fn machine_seen(machine: &MachineNow, snapshot: &Snapshot) -> MachineSeen {
    let joined_ms =
        machine.nodes.iter().filter_map(|node| snapshot.members.get(node)).map(|now| now.since_ms).min();
    MachineSeen {
        id: machine.id.clone(),
        offer: machine.offer.clone(),
        state: match machine.standing {
            Standing::Joined | Standing::Working => MachineState::Working,
            Standing::Draining | Standing::Ending => MachineState::Leaving,
            _ => MachineState::Starting,
        },
        place: match machine.standing {
            Standing::Requested if machine.is_listed => Place::Queued,
            Standing::Requested => Place::Asked,
            _ => Place::There,
        },
        requested_ms: machine.since_ms.or(joined_ms).unwrap_or(snapshot.cluster.at_ms),
        billed_since_ms: machine.since_ms,
        joined_ms,
        workers: machine.workers,
        noticed: false,
        unsuited: false,
        leader: machine.leads,
        zone: machine.zone.clone(),
    }
}

fn offer_seen(offer: &Offer, currency: Option<&str>, refused: bool) -> OfferSeen {
    OfferSeen {
        name: offer.name.clone(),
        workers: offer.workers,
        price_per_hour: offer.price_per_hour,
        quantum_ms: u64::from(offer.quantum_s) * 1000,
        minimum_ms: u64::from(offer.minimum_s) * 1000,
        max: offer.max,
        spot: offer.spot,
        start_ms: u64::from(offer.start_s) * 1000,
        refused,
        memory_bytes: offer.memory_bytes,
        labels: offer.node_labels(currency).into_iter().collect(),
        ..OfferSeen::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{
        super::fixtures::{job, member, snapshot},
        *,
    };

    #[test]
    fn node_is_assigned_to_machine_by_label() {
        let snapshot = snapshot(&[
            member("n01", "tsp", r#"{"machine": "k-0.1", "zone": "b"}"#),
            member("n02", "tsp", "{}"),
            member("n03", "uts", r#"{"machine": "k-0.2"}"#),
            ("drain/n02".to_owned(), String::new()),
        ]);
        let seen = nodes(&snapshot);
        let machines: Vec<Option<&str>> =
            seen.iter().map(|node| node.machine.as_ref().map(MachineId::as_str)).collect();
        assert_eq!(machines, [Some("k-0.1"), None, Some("k-0.2")]);
        assert_eq!((seen[0].zone.as_deref(), seen[1].draining), (Some("b"), true));
        let all = of_cluster(&snapshot, &Scope::default(), &Demand::default());
        assert_eq!((all.workers, all.busy), (8, None), "one leaves; nobody has reported");
        let scope = Scope { program: Some("tsp".to_owned()), job: None };
        assert_eq!(of_cluster(&snapshot, &scope, &Demand::default()).workers, 4);
    }

    #[test]
    fn members_of_newer_version_are_listed_as_unread() {
        let (path, newer) = member("n02", "tsp", r#"{"machine": "k-0.2", "offer": "small"}"#);
        let newer = newer.replace(r#""format": 2"#, r#""format": 99"#);
        let other = member("n01", "tsp", r#"{"machine": "k-0.1", "offer": "small"}"#);
        let snapshot = snapshot(&[(path, newer), other]);
        assert_eq!(unread(&snapshot), ["n02"]);
        assert_eq!(of_cluster(&snapshot, &Scope::default(), &Demand::default()).unread_members, 1);
        let nodes = nodes(&snapshot);
        assert_eq!((nodes.len(), nodes[0].offer.as_deref()), (1, Some("small")));
    }

    /// One machine of each of two offers, and jobs of two programs, of which one offer serves one.
    #[test]
    fn machines_and_offers_without_a_job_are_unsuited() {
        let snapshot = snapshot(&[
            member("n01", "tsp", r#"{"machine": "k-0.1", "offer": "a"}"#),
            member("n02", "uts", r#"{"machine": "k-0.2", "offer": "b"}"#),
            job("j-0000000001", ("tsp", "1"), "{}", 0),
            job("j-0000000002", ("tsp", "1"), r#"{"gpu": "yes"}"#, 0),
        ]);
        let offers: Vec<Offer> = serde_json::from_value(serde_json::json!([
            {"name": "a", "workers": 4, "max": 9},
            {"name": "b", "workers": 4, "max": 9, "program": "uts"},
        ]))
        .unwrap();
        let machine = |id: &str, offer: &str, nodes: &[&str]| MachineNow {
            id: id.to_owned(),
            offer: offer.to_owned(),
            standing: Standing::Joined,
            is_listed: true,
            since_ms: None,
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            workers: 4,
            leads: false,
            zone: None,
        };
        let machines =
            [machine("k-0.1", "a", &["n01"]), machine("k-0.2", "b", &["n02"]), machine("k-0.3", "b", &[])];
        let scope = Scope::default();
        let newest = BTreeMap::new();
        let demand = Demand::of_offers(&snapshot, &scope, &offers, None, &newest);
        let seen = observation(&snapshot, &scope, &demand, &machines, (&offers, None), &State::new("t"));
        let unsuited: Vec<bool> = seen.machines.iter().map(|machine| machine.unsuited).collect();
        assert_eq!(unsuited, [false, true, true]);
        assert!(!seen.offers[0].unsuited && seen.offers[1].unsuited);
        let counted = seen.jobs.len() + seen.waiting_jobs as usize;
        assert_eq!((counted, seen.unserved.len(), seen.workers), (1, 1, 4));
        assert_eq!(seen.unserved[0].id, "j-0000000002");
    }

    #[test]
    fn place_of_requested_machine_depends_on_listing() {
        let snapshot = snapshot(&[]);
        let place = |standing, is_listed| {
            let machine = MachineNow {
                id: "m".to_owned(),
                offer: "small".to_owned(),
                standing,
                is_listed,
                since_ms: None,
                nodes: Vec::new(),
                workers: 0,
                leads: false,
                zone: None,
            };
            machine_seen(&machine, &snapshot).place
        };
        assert_eq!(place(Standing::Requested, true), Place::Queued);
        assert_eq!(place(Standing::Requested, false), Place::Asked);
        assert_eq!(place(Standing::Booting, true), Place::There);
    }
}
