//! The metrics of the cost of nodes. Unknown values have no sample.

use taskwork::view::{JobAbout, Money, Snapshot};
use taskwork_cli::web::family::{
    Family, JOB,
    Kind::{Counter, Gauge},
    Labels, Value,
};

/// Returns the costs of the cluster during its observation, and the costs of jobs.
pub(super) fn of_cluster(snapshot: &Snapshot, jobs: &[(&str, &JobAbout)]) -> Vec<Family> {
    let about = &snapshot.costs.about;
    let is_observed = about.since_ms.is_some();
    let one = |number: f64| is_observed.then(|| (Labels::new(), Value::Number(number))).into_iter().collect();
    let ms = |ms: u64| one(ms as f64 / 1e3);
    let family = |kind, name, help, samples| Family { name, help, kind, samples };
    let of_jobs = jobs.iter().filter_map(|(id, job)| Some((*id, job.cost.as_ref()?)));
    let job_money = of_jobs.clone().flat_map(|(id, cost)| money(&cost.spent.money, Some(id))).collect();
    let job_nodes = of_jobs
        .filter(|(_, cost)| cost.is_seen())
        .map(|(id, cost)| (vec![(JOB, id.to_owned())], Value::Number(cost.spent.node_ms as f64 / 1e3)));
    vec![
        family(
            Counter,
            "cost",
            "Cost of the nodes with a price during the observation.",
            money(&about.total.money, None),
        ),
        family(
            Gauge,
            "cost_per_hour",
            "Hourly cost of the members with a price.",
            money(&about.an_hour, None),
        ),
        family(Gauge, "unpriced_members", "Members without a price.", one(f64::from(about.unpriced))),
        family(
            Counter,
            "node_seconds",
            "Membership time of nodes during the observation.",
            ms(about.total.node_ms),
        ),
        family(Counter, "node_busy_seconds", "The part of it with tasks.", ms(about.total.busy_ms)),
        family(
            Counter,
            "node_draining_seconds",
            "The part of it spent leaving.",
            ms(about.total.draining_ms),
        ),
        family(
            Counter,
            "node_unpriced_seconds",
            "The part of it of nodes without a price.",
            ms(about.total.unpriced_ms),
        ),
        family(
            Gauge,
            "job_cost",
            "Cost of the job's nodes that were seen as members and have a price.",
            job_money,
        ),
        family(
            Gauge,
            "job_node_seconds",
            "Time of the job's nodes that were seen as members.",
            job_nodes.collect(),
        ),
    ]
}

fn money(amounts: &Money, job: Option<&str>) -> Vec<(Labels, Value)> {
    let sample = |(currency, amount): (&String, &f64)| {
        let of_job = job.map(|job| (JOB, job.to_owned()));
        let labels = of_job.into_iter().chain([("currency", currency.clone())]).collect();
        (labels, Value::Number(*amount))
    };
    amounts.iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};
    use taskwork::view::{Content, Event, JobNow, View};

    use super::*;

    fn observed(labels: &[&Json]) -> Snapshot {
        let mut view = View::default();
        for (number, labels) in labels.iter().enumerate() {
            let member = json!({
                "format": 2, "node": format!("n{number}"), "address": null, "fingerprint": "", "workers": 2,
                "labels": labels, "program": "tree", "program_version": "1", "started_ms": 1,
            });
            let content = Content::Data(member.to_string().into_bytes());
            view.apply(&Event::of(0, format!("members/n{number}"), content));
        }
        view.apply(&Event::of(0, "", Content::Found));
        for at_ms in [0, 3_600_000] {
            view.apply(&Event::tick(at_ms));
        }
        view.snapshot()
    }

    fn samples(snapshot: &Snapshot, name: &str) -> Vec<(Labels, f64)> {
        let family = of_cluster(snapshot, &[]).into_iter().find(|family| family.name == name).unwrap();
        let number = |value| if let Value::Number(number) = value { number } else { f64::NAN };
        family.samples.into_iter().map(|(labels, value)| (labels, number(value))).collect()
    }

    #[test]
    fn costs_have_currency_and_unpriced_members_are_counted() {
        let priced = json!({ "price": "0.25/h", "currency": "EUR" });
        let now = observed(&[&priced, &priced, &json!({ "price": "free" })]);
        let euros = |amount| vec![(vec![("currency", "EUR".to_owned())], amount)];
        assert_eq!((samples(&now, "cost"), samples(&now, "cost_per_hour")), (euros(0.5), euros(0.5)));
        let one = |number| vec![(Labels::new(), number)];
        assert_eq!(samples(&now, "unpriced_members"), one(1.0));
        assert_eq!(samples(&now, "node_seconds"), one(3.0 * 3_600.0));
        assert_eq!(samples(&now, "node_unpriced_seconds"), one(3_600.0));
    }

    #[test]
    fn job_with_unseen_nodes_has_no_sample() {
        let of = |unseen: u32| {
            let cost =
                json!({ "node_ms": if unseen == 2 { 0 } else { 5_000 }, "nodes": 2, "unseen": unseen });
            let mut about = json!(JobNow::default().about);
            about["cost"] = cost;
            let about: JobAbout = serde_json::from_value(about).unwrap();
            let families = of_cluster(&Snapshot::default(), &[("j-0000000001", &about)]);
            families.into_iter().find(|family| family.name == "job_node_seconds").unwrap().samples
        };
        assert_eq!((of(2).len(), of(1).len(), of(0).len()), (0, 1, 1));
    }

    #[test]
    fn unknown_costs_have_no_sample() {
        let without = observed(&[&json!({})]);
        assert!(samples(&without, "cost").is_empty() && samples(&without, "cost_per_hour").is_empty());
        for name in ["node_seconds", "unpriced_members", "node_busy_seconds"] {
            assert!(samples(&Snapshot::default(), name).is_empty(), "{name}: nothing was observed yet");
        }
    }
}
