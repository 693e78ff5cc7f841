//! The state of a cluster as input of the policy and the fleet.

use std::collections::BTreeSet;

use taskwork::{
    JobId,
    client::{Member, Stage},
    view::{JobNow, Snapshot},
};
use taskwork_scale::{
    connector::{MachineId, Offer},
    fleet::{MachineNow, NodeSeen, Standing, State},
    policy::{JobSeen, MachineSeen, MachineState, Observation, OfferSeen, Place},
};

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

    fn has_job(&self, id: &str, job: &JobNow) -> bool {
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
    machines: &[MachineNow],
    offers: &[Offer],
    state: &State,
) -> Observation {
    let at_ms = snapshot.cluster.at_ms;
    Observation {
        machines: machines.iter().map(|machine| machine_seen(machine, snapshot)).collect(),
        offers: offers.iter().map(|offer| offer_seen(offer, state.is_blocked(&offer.name, at_ms))).collect(),
        ..of_cluster(snapshot, scope)
    }
}

/// Returns the part of an observation that does not depend on machines.
pub(crate) fn of_cluster(snapshot: &Snapshot, scope: &Scope) -> Observation {
    let jobs = || snapshot.jobs.iter().filter(|(id, job)| scope.has_job(id, job));
    let running = || jobs().filter(|(_, job)| job.about.stage == Stage::Running);
    let pools = || running().filter_map(|(_, job)| job.about.pool);
    let is_known = pools().next().is_some();
    let workers =
        snapshot.members.values().filter(|now| !now.draining).filter_map(|now| now.member.as_deref());
    let workers = workers.filter(|member| scope.has_member(member, snapshot));
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
        leader: machine.leads,
        zone: machine.zone.clone(),
    }
}

fn offer_seen(offer: &Offer, refused: bool) -> OfferSeen {
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
        ..OfferSeen::default()
    }
}

#[cfg(test)]
mod tests {
    use taskwork::view::{Content, Event, View};

    use super::*;

    fn snapshot(events: &[(&str, &str)]) -> Snapshot {
        let mut view = View::default();
        for (path, content) in events {
            view.apply(&Event::of(1_000, *path, Content::Data(content.as_bytes().to_vec())));
        }
        view.apply(&Event::of(1_000, "", Content::Found));
        view.apply(&Event::tick(2_000));
        view.snapshot()
    }

    fn member(node: &str, program: &str, labels: &str) -> (String, String) {
        let content = format!(
            r#"{{"format": 2, "node": "{node}", "address": null, "fingerprint": "", "workers": 4,
                "labels": {labels},
                "program": "{program}", "program_version": "1", "started_ms": 5}}"#
        );
        (format!("members/{node}"), content)
    }

    #[test]
    fn node_is_assigned_to_machine_by_label() {
        let members = [
            member("n01", "tsp", r#"{"machine": "k-0.1", "zone": "b"}"#),
            member("n02", "tsp", "{}"),
            member("n03", "uts", r#"{"machine": "k-0.2"}"#),
        ];
        let mut events: Vec<(&str, &str)> = members.iter().map(|(path, text)| (&**path, &**text)).collect();
        events.push(("drain/n02", ""));
        let snapshot = snapshot(&events);
        let seen = nodes(&snapshot);
        let machines: Vec<Option<&str>> =
            seen.iter().map(|node| node.machine.as_ref().map(MachineId::as_str)).collect();
        assert_eq!(machines, [Some("k-0.1"), None, Some("k-0.2")]);
        assert_eq!((seen[0].zone.as_deref(), seen[1].draining), (Some("b"), true));
        let all = of_cluster(&snapshot, &Scope::default());
        assert_eq!((all.workers, all.busy), (8, None), "one leaves; there is no report");
        let scope = Scope { program: Some("tsp".to_owned()), job: None };
        assert_eq!(of_cluster(&snapshot, &scope).workers, 4);
    }

    #[test]
    fn members_of_newer_version_are_listed_as_unread() {
        let (path, newer) = member("n02", "tsp", r#"{"machine": "k-0.2", "offer": "small"}"#);
        let newer = newer.replace(r#""format": 2"#, r#""format": 99"#);
        let (other, text) = member("n01", "tsp", r#"{"machine": "k-0.1", "offer": "small"}"#);
        let snapshot = snapshot(&[(&path, &newer), (&other, &text)]);
        assert_eq!(unread(&snapshot), ["n02"]);
        assert_eq!(of_cluster(&snapshot, &Scope::default()).unread_members, 1);
        let nodes = nodes(&snapshot);
        assert_eq!((nodes.len(), nodes[0].offer.as_deref()), (1, Some("small")));
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
