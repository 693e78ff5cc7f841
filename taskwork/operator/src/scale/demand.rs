//! The jobs that machines are started for: open jobs that an offer can serve.
//!
//! A job runs on nodes of its own release (program and version) that have the labels it requires. An offer states the
//! program, the version and the labels of its nodes in the connector's file. If it does not state the program, that of
//! its newest node counts, also after that node has left. If it does not state the version, that of its newest node
//! counts for jobs that were submitted before that node started: a later job may be for a newer build, which the next
//! machine may have. An offer of which neither is known is taken to serve every program.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use taskwork::{
    Labels,
    client::{
        Stage,
        records::{JobRecord, Member},
    },
    view::{JobNow, Snapshot},
};
use taskwork_scale::{connector::Offer, policy::JobUnserved};

use super::observed::Scope;

/// The maximum number of reasons shown for one job.
const REASONS_MAX: usize = 3;

/// The newest node of each offer, by the offer's name.
pub(super) type Newest = BTreeMap<String, NewestNode>;

/// The newest node of an offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NewestNode {
    program: String,
    version: String,
    /// The time of its start, in milliseconds since 1970 by its own clock.
    started_ms: u64,
}

/// Records the newest node of each offer.
pub(super) fn update_newest(newest: &mut Newest, offers: &[Offer], snapshot: &Snapshot) {
    for (offer, members) in by_offer(snapshot) {
        if offers.iter().all(|known| known.name != offer) {
            continue;
        }
        let Some(member) = members.iter().max_by_key(|member| member.started_ms) else { continue };
        if newest.get(offer).is_none_or(|node| node.started_ms < member.started_ms) {
            let (program, version) = (member.program.clone(), member.program_version.clone());
            newest.insert(offer.to_owned(), NewestNode { program, version, started_ms: member.started_ms });
        }
    }
    newest.retain(|name, _| offers.iter().any(|offer| offer.name == *name));
}

fn by_offer(snapshot: &Snapshot) -> BTreeMap<&str, Vec<&Member>> {
    let mut members: BTreeMap<&str, Vec<&Member>> = BTreeMap::new();
    for member in snapshot.members.values().filter_map(|now| now.member.as_deref()) {
        if let Some(offer) = member.labels.get("offer") {
            members.entry(offer).or_default().push(member);
        }
    }
    members
}

/// The open jobs of a scope.
#[derive(Debug, Default)]
pub(crate) struct Demand<'a> {
    /// The jobs that count, with their ids.
    pub(super) jobs: Vec<(&'a str, &'a JobNow)>,
    /// The jobs that no offer can serve.
    pub(super) unserved: Vec<JobUnserved>,
    /// The offers that can serve one of the jobs that count.
    suited: BTreeSet<&'a str>,
    /// A record of each kind among the jobs that count.
    kinds: BTreeMap<Kind<'a>, &'a JobRecord>,
}

/// The properties that decide which nodes run a job: program, version and labels. Thousands of jobs may be of one
/// kind.
type Kind<'a> = (&'a str, &'a str, &'a Labels);

fn kind(record: &JobRecord) -> Kind<'_> {
    (&record.program, &record.program_version, &record.require)
}

impl<'a> Demand<'a> {
    /// Returns all open jobs, independently of the machines.
    pub(crate) fn of_all(snapshot: &'a Snapshot, scope: &Scope) -> Self {
        let jobs = snapshot.jobs.iter().map(|(id, job)| (id.as_str(), job));
        let is_open =
            |job: &JobNow| matches!(job.about.stage, Stage::Running | Stage::Queued | Stage::NoNodes);
        let jobs: Vec<_> = jobs.filter(|(id, job)| scope.has_job(id, job) && is_open(job)).collect();
        let records = jobs.iter().filter_map(|(_, job)| job.about.record.as_deref());
        let kinds = records.map(|record| (kind(record), record)).collect();
        Self { jobs, kinds, ..Self::default() }
    }

    /// Returns the open jobs that these offers can serve, and names the others.
    pub(super) fn of_offers(
        snapshot: &'a Snapshot,
        scope: &Scope,
        offers: &'a [Offer],
        currency: Option<&str>,
        newest: &'a Newest,
    ) -> Self {
        let all = Self::of_all(snapshot, scope);
        let members = by_offer(snapshot);
        let offers: Vec<Nodes<'_>> = offers
            .iter()
            .map(|offer| {
                let members = members.get(&*offer.name).map(Vec::as_slice).unwrap_or_default();
                let runs = |record: &&JobRecord| members.iter().any(|member| member.takes(record).is_ok());
                Nodes {
                    offer,
                    labels: offer.node_labels(currency).into_iter().collect(),
                    newest: newest.get(&offer.name),
                    running: all.kinds.values().copied().filter(runs).map(kind).collect(),
                }
            })
            .collect();
        let mut demand = Self::default();
        for (id, job) in all.jobs {
            let Some(record) = job.about.record.as_deref() else { continue };
            let mut reasons = BTreeSet::new();
            let mut is_served = false;
            for nodes in &offers {
                match nodes.serve(record) {
                    Ok(()) => {
                        is_served = true;
                        demand.suited.insert(&nodes.offer.name);
                    }
                    Err(reason) => {
                        reasons.insert(format!("offer {} {reason}", nodes.offer.name));
                    }
                }
            }
            if is_served {
                demand.jobs.push((id, job));
                demand.kinds.insert(kind(record), record);
            } else {
                demand.unserved.push(JobUnserved { id: id.to_owned(), reason: needs(record, &reasons) });
            }
        }
        demand
    }

    /// Returns whether a member can run one of the jobs.
    pub(crate) fn fits(&self, member: &Member) -> bool {
        self.kinds.values().any(|record| member.takes(record).is_ok())
    }

    /// Returns whether there are jobs, and the machines of an offer can run none of them.
    pub(super) fn is_unsuited(&self, offer: &str) -> bool {
        !self.jobs.is_empty() && !self.suited.contains(offer)
    }
}

/// The nodes of an offer, as far as they are known.
struct Nodes<'a> {
    offer: &'a Offer,
    labels: BTreeMap<String, String>,
    newest: Option<&'a NewestNode>,
    /// The kinds of jobs that its present members run.
    running: BTreeSet<Kind<'a>>,
}

impl Nodes<'_> {
    /// Checks that a new machine of the offer can be expected to run a job.
    ///
    /// # Errors
    /// The mismatch, as a phrase that follows the name of the offer.
    fn serve(&self, job: &JobRecord) -> Result<(), String> {
        if self.running.contains(&kind(job)) {
            return Ok(());
        }
        let (offer, newest) = (self.offer, self.newest);
        let program = offer.program.as_deref().or(newest.map(|node| &*node.program));
        if let Some(program) = program.filter(|program| *program != job.program) {
            return Err(format!("runs {program}"));
        }
        let newest = newest.filter(|node| node.program == job.program && node.started_ms >= job.submitted_ms);
        let version = offer.version.as_deref().or(newest.map(|node| &*node.version));
        if let Some(version) = version.filter(|version| *version != job.program_version) {
            return Err(format!("runs {} {version}", job.program));
        }
        let lacks = job
            .require
            .iter()
            .filter(|(name, value)| self.labels.get(*name).map(|has| &**has) != Some(value));
        let lacks: Vec<String> = lacks.map(|(name, value)| format!("{name}={value}")).collect();
        if lacks.is_empty() { Ok(()) } else { Err(format!("lacks {}", lacks.join(","))) }
    }
}

/// Describes the needs of a job and the mismatches of the offers.
fn needs(job: &JobRecord, reasons: &BTreeSet<String>) -> String {
    let JobRecord { program, program_version, require, .. } = job;
    let require = if require == Labels::NONE { String::new() } else { format!(" with {require}") };
    let mut has: Vec<&str> = reasons.iter().take(REASONS_MAX).map(String::as_str).collect();
    if reasons.len() > REASONS_MAX {
        has.push("and so on");
    }
    format!("it needs {program} {program_version}{require}, but {}", has.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::fixtures::{job, member, snapshot},
        *,
    };

    /// Returns the reason for which one offer does not serve one job.
    fn reason(offer: &serde_json::Value, newest: &Newest, znodes: &[(String, String)]) -> Option<String> {
        let offers: Vec<Offer> = serde_json::from_value(json!([offer])).unwrap();
        let snapshot = snapshot(znodes);
        let demand = Demand::of_offers(&snapshot, &Scope::default(), &offers, Some("EUR"), newest);
        assert_eq!(demand.jobs.len() + demand.unserved.len(), 1);
        demand.unserved.first().map(|job| job.reason.clone())
    }

    #[test]
    fn offer_serves_jobs_of_its_program_version_and_labels() {
        let gpu = r#"{"gpu": "yes"}"#;
        let offer = |more: serde_json::Value| {
            let mut offer = json!({"name": "a", "workers": 1, "max": 1});
            offer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            offer
        };
        for (more, require, says) in [
            (json!({}), "{}", None),
            (json!({"program": "tsp"}), "{}", None),
            (json!({"program": "tsp", "version": "2"}), "{}", None),
            (json!({"labels": {"gpu": "yes", "zone": "b"}}), gpu, None),
            (json!({}), r#"{"offer": "a"}"#, None),
            (json!({"program": "uts"}), "{}", Some("it needs tsp 2, but offer a runs uts")),
            (json!({"program": "tsp", "version": "1"}), "{}", Some("it needs tsp 2, but offer a runs tsp 1")),
            (
                json!({"labels": {"gpu": "no"}}),
                gpu,
                Some("it needs tsp 2 with gpu=yes, but offer a lacks gpu=yes"),
            ),
        ] {
            let job = job("j-0000000001", ("tsp", "2"), require, 0);
            assert_eq!(reason(&offer(more.clone()), &Newest::new(), &[job]).as_deref(), says, "{more}");
        }
    }

    #[test]
    fn offer_without_program_serves_program_of_its_newest_node() {
        let offer = json!({"name": "a", "workers": 1, "max": 1});
        let offers: Vec<Offer> = serde_json::from_value(json!([offer])).unwrap();
        let mut newest = Newest::new();
        let node = |name, program, label: &str| member(name, program, &format!(r#"{{"offer": "{label}"}}"#));
        update_newest(
            &mut newest,
            &offers,
            &snapshot(&[node("n01", "tsp", "a"), node("n02", "uts", "other")]),
        );
        assert_eq!(newest.keys().collect::<Vec<_>>(), ["a"]);
        let of = |release, submitted_ms| job("j-0000000001", release, "{}", submitted_ms);
        for (job, says) in [
            (of(("tsp", "1"), 0), None),
            (of(("tsp", "2"), 5), Some("it needs tsp 2, but offer a runs tsp 1")),
            // The next machine may have a newer build than the newest node.
            (of(("tsp", "2"), 6), None),
            (of(("uts", "1"), 6), Some("it needs uts 1, but offer a runs tsp")),
        ] {
            assert_eq!(reason(&offer, &newest, &[job]).as_deref(), says);
        }
    }

    #[test]
    fn offer_serves_programs_of_its_nodes_despite_its_file() {
        let offer = json!({"name": "a", "workers": 1, "max": 1, "program": "uts"});
        let node = member("n01", "tsp", r#"{"offer": "a", "gpu": "yes"}"#);
        let job = job("j-0000000001", ("tsp", "1"), r#"{"gpu": "yes"}"#, 0);
        assert_eq!(reason(&offer, &Newest::new(), &[node, job]), None);
    }
}
