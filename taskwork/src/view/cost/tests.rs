//! The costs of nodes, from events of an observer.

#![expect(clippy::float_cmp, reason = "the amounts that are compared are rounded")]

use serde::Serialize;
use zk::{
    figures::{NodeFigures, TimelineEvent},
    job::JobRecord,
};

use super::{sums::VALUES_MAX, *};
use crate::{
    figures::Figures,
    view::{Content, Event, Snapshot, View, fixtures},
};

const HOUR: u64 = HOUR_MS;
const SECOND_NS: u64 = 1_000_000_000;
const PRICED: &str = "price=0.50/h,currency=EUR,zone=a";

fn content(record: &impl Serialize) -> Content {
    let mut value = serde_json::to_value(record).unwrap();
    value["format"] = 2.into();
    Content::Data(value.to_string().into_bytes())
}

fn member(node: &str, labels: &str) -> Content {
    let labels = if labels.is_empty() { Labels::default() } else { labels.parse().unwrap() };
    content(&Member { labels, ..fixtures::member(node) })
}

fn times(searching_s: u64, starting_s: u64) -> WorkerTimes {
    WorkerTimes {
        searching_ns: searching_s * SECOND_NS,
        starting_ns: starting_s * SECOND_NS,
        ..WorkerTimes::default()
    }
}

fn report(times: WorkerTimes) -> NodeFigures<Figures> {
    NodeFigures { attempt: 2, figures: Figures { times, ..Figures::default() }, ..NodeFigures::default() }
}

/// An observed cluster.
struct Observed(View);

impl Observed {
    /// Starts with members, each with its labels.
    fn begin(members: &[(&str, &str)]) -> Self {
        let mut observed = Self(View::default());
        for (node, labels) in members {
            observed.see(0, &format!("members/{node}"), member(node, labels));
        }
        observed.see(0, "", Content::Found);
        observed.tick(0);
        observed
    }

    fn see(&mut self, at_ms: u64, path: &str, content: Content) {
        self.0.apply(&Event::of(at_ms, path, content));
    }

    fn tick(&mut self, at_ms: u64) -> Snapshot {
        self.0.apply(&Event::tick(at_ms));
        self.0.snapshot()
    }

    fn run_job(&mut self, job: &str) {
        self.see(0, &format!("jobs/{job}"), content(&fixtures::record()));
    }

    fn reports(&mut self, job: &str, node: &str, report: &NodeFigures<Figures>) {
        self.see(0, &format!("jobs/{job}/figures/{node}"), content(report));
    }
}

fn euros(money: &Money) -> f64 {
    assert!(money.len() <= 1, "{money:?}");
    let cents = money.get("EUR").map_or(f64::NAN, |amount| amount * 1e4);
    cents.round() / 1e4
}

const JOB: &str = "j-0000000001";

#[test]
fn member_costs_its_price_while_it_is_a_member() {
    let mut observed = Observed::begin(&[("n1", PRICED), ("n2", "zone=b")]);
    let Costs { about, hours, labels } = observed.tick(HOUR / 2).costs;
    assert_eq!((about.since_ms, about.nodes, about.unpriced), (Some(0), 2, 1));
    assert_eq!((about.total.node_ms, about.total.unpriced_ms, about.total.idle_ms()), (HOUR, HOUR / 2, HOUR));
    assert_eq!((euros(&about.total.money), euros(&about.an_hour)), (0.25, 0.5));
    assert_eq!((labels.len(), labels["zone=a"].node_ms, euros(&labels["zone=a"].money)), (2, HOUR / 2, 0.25));
    assert!(
        labels["zone=b"].money.is_empty() && labels["zone=b"].unpriced_ms == HOUR / 2,
        "unknown is not 0"
    );
    assert_eq!(hours.keys().collect::<Vec<_>>(), ["00000000"]);
    // It joins in the middle of a tick, and leaves in the middle of another one.
    observed.see(HOUR, "members/n3", member("n3", PRICED));
    observed.tick(HOUR + HOUR / 2);
    observed.see(2 * HOUR, "members/n3", Content::Gone);
    let after = observed.tick(3 * HOUR).costs;
    assert_eq!((after.labels["zone=a"].node_ms, after.about.nodes), (3 * HOUR + HOUR, 2));
    assert_eq!(euros(&after.about.total.money), 2.0);
    let by_hour: u64 = after.hours.values().map(|spent| spent.node_ms).sum();
    assert_eq!(by_hour, after.about.total.node_ms);
}

#[test]
fn cost_activity_follows_from_reports() {
    let mut observed = Observed::begin(&[("n1", PRICED)]);
    observed.run_job(JOB);
    // Two workers: half of them worked for 40 s, both waited for 5 s.
    observed.reports(JOB, "n1", &report(times(40, 10)));
    let now = observed.tick(60_000);
    let spent = now.costs.about.total;
    assert_eq!(
        (spent.node_ms, spent.busy_ms, spent.starting_ms, spent.idle_ms()),
        (60_000, 20_000, 5_000, 35_000)
    );
    assert_eq!(spent.busy_share(), Some(1.0 / 3.0));
    let cost = now.jobs[JOB].about.cost.clone().unwrap();
    assert_eq!((cost.spent.node_ms, cost.spent.busy_ms, cost.nodes, cost.unpriced), (25_000, 20_000, 1, 0));
    assert!((cost.spent.money["EUR"] - 0.5 * 25.0 / 3_600.0).abs() < 1e-12);
    assert_eq!(euros(&cost.an_hour), 0.5);
    // A report cannot exceed the node's time as a member.
    let too_much = WorkerTimes { searching_ns: u64::MAX, ..WorkerTimes::default() };
    observed.reports(JOB, "n1", &report(too_much));
    let spent = observed.tick(90_000).costs.about.total;
    assert_eq!((spent.node_ms, spent.busy_ms + spent.starting_ms, spent.idle_ms()), (90_000, 90_000, 0));
}

#[test]
fn work_before_observation_counts_only_for_its_job() {
    let mut observed = Observed(View::default());
    observed.see(0, "members/n1", member("n1", PRICED));
    observed.run_job(JOB);
    observed.reports(JOB, "n1", &report(times(7_200, 0)));
    observed.reports(JOB, "n0", &report(times(7_200, 0)));
    observed.see(0, "", Content::Found);
    observed.tick(1_000);
    observed.reports(JOB, "n1", &report(times(7_220, 0)));
    let now = observed.tick(21_000);
    assert_eq!((now.costs.about.total.node_ms, now.costs.about.total.busy_ms), (20_000, 10_000));
    let cost = now.jobs[JOB].about.cost.clone().unwrap();
    assert_eq!((cost.spent.node_ms, cost.nodes, cost.unpriced, cost.unseen), (3_610_000, 2, 1, 1));
    assert_eq!(euros(&cost.spent.money), 0.5014);
}

#[test]
fn job_taken_again_by_a_node_accumulates_costs() {
    let mut observed = Observed::begin(&[("n1", PRICED)]);
    observed.run_job(JOB);
    observed.reports(JOB, "n1", &report(times(100, 0)));
    observed.tick(100_000);
    observed.reports(JOB, "n1", &report(times(20, 0)));
    let now = observed.tick(200_000);
    assert_eq!(now.jobs[JOB].about.cost.as_ref().unwrap().spent.busy_ms, 60_000);
    assert_eq!(now.costs.about.total.busy_ms, 60_000);
}

#[test]
fn price_of_departed_node_is_remembered() {
    let mut observed = Observed::begin(&[("n1", PRICED)]);
    observed.run_job(JOB);
    observed.tick(60_000);
    observed.see(60_000, "members/n1", Content::Gone);
    observed.tick(61_000);
    // Its last report is read later.
    observed.reports(JOB, "n1", &NodeFigures { last: true, ..report(times(7_200, 0)) });
    let now = observed.tick(100_000);
    let cost = now.jobs[JOB].about.cost.clone().unwrap();
    assert_eq!((euros(&cost.spent.money), cost.unpriced, cost.an_hour.len()), (0.5, 0, 0));
    assert_eq!((now.costs.about.total.node_ms, now.costs.about.total.busy_ms), (60_000, 60_000));
    assert_eq!((now.costs.about.nodes, now.costs.about.an_hour.len()), (0, 0));
}

#[test]
fn node_with_several_jobs_is_divided_among_them() {
    let mut observed = Observed::begin(&[("n1", PRICED), ("n2", PRICED)]);
    for job in [JOB, "j-0000000002"] {
        observed.run_job(job);
        observed.reports(job, "n1", &report(times(1, 0)));
    }
    observed.reports(JOB, "n2", &report(times(1, 0)));
    let jobs = observed.tick(60_000).jobs;
    let an_hour = |job: &str| euros(&jobs[job].about.cost.as_ref().unwrap().an_hour);
    assert_eq!((an_hour(JOB), an_hour("j-0000000002")), (0.75, 0.25));
}

#[test]
fn invalid_price_labels_give_a_warning_and_no_price() {
    let wrong =
        ["price=free,currency=EUR", "price=-1/h,currency=EUR", "price=1e400,currency=EUR", "price=1/h"];
    let names = ["n1", "n2", "n3", "n4"];
    let mut members: Vec<(&str, &str)> = names.into_iter().zip(wrong).collect();
    members.extend([("n5", PRICED), ("n6", "price=1/h,currency=USD")]);
    let mut observed = Observed::begin(&members);
    let about = observed.tick(HOUR).costs.about;
    assert_eq!((about.nodes, about.unpriced, about.warnings.len()), (6, 4, 4));
    for ((name, said), warning) in names.into_iter().zip(wrong).zip(&about.warnings) {
        let (said, _) = said.split_once(',').unwrap_or((said, ""));
        assert!(warning.contains(name) && warning.contains(said), "{warning}");
    }
    // Amounts in different currencies are not added up.
    assert_eq!(
        (about.total.money["EUR"], about.total.money["USD"], about.total.unpriced_ms),
        (0.5, 1.0, 4 * HOUR)
    );
    observed.see(HOUR, "members/n1", member("n1", PRICED));
    assert_eq!(observed.tick(HOUR + 1_000).costs.about.warnings.len(), 3);
}

#[test]
fn currencies_are_bounded() {
    let labels: Vec<String> = ["AAA", "BBB", "CCC", "DDD", "EEE"]
        .into_iter()
        .map(|currency| format!("price=1/h,currency={currency}"))
        .collect();
    let names = ["n1", "n2", "n3", "n4", "n5"];
    let members: Vec<(&str, &str)> = names.into_iter().zip(labels.iter().map(String::as_str)).collect();
    let about = Observed::begin(&members).tick(HOUR).costs.about;
    assert_eq!((about.total.money.len(), about.unpriced), (4, 1));
    assert!(about.warnings[0].contains("EEE") && about.warnings[0].contains("AAA"), "{:?}", about.warnings);
}

#[test]
fn nodes_cost_during_an_outage() {
    let mut observed = Observed::begin(&[("n1", PRICED), ("n2", PRICED)]);
    observed.see(1_000, "", Content::Lost);
    assert_eq!(observed.tick(HOUR).costs.about.total.node_ms, 0);
    observed.see(2 * HOUR, "members/n2", Content::Gone);
    observed.see(2 * HOUR, "", Content::Found);
    let now = observed.tick(2 * HOUR);
    assert_eq!((now.costs.about.total.node_ms, now.costs.about.nodes), (4 * HOUR, 1));
}

#[test]
fn outage_time_counts_in_its_hours() {
    let mut observed = Observed::begin(&[("n1", PRICED)]);
    observed.run_job(JOB);
    observed.reports(JOB, "n1", &report(times(0, 0)));
    observed.tick(HOUR / 2);
    observed.see(HOUR / 2, "", Content::Lost);
    observed.tick(2 * HOUR);
    observed.see(4 * HOUR + HOUR / 4, "", Content::Found);
    // Of two workers, one was busy all the time.
    let since = 3_600 * 3 + 2_700;
    observed.reports(JOB, "n1", &report(times(since, 0)));
    let costs = observed.tick(4 * HOUR + HOUR / 4).costs;
    let hours: Vec<_> = costs.hours.values().map(|spent| (spent.node_ms, spent.busy_ms)).collect();
    let whole = (HOUR, HOUR / 2);
    assert_eq!(hours, [(HOUR, HOUR / 4), whole, whole, whole, (HOUR / 4, HOUR / 8)]);
    let money: Vec<f64> = costs.hours.values().map(|spent| euros(&spent.money)).collect();
    assert_eq!(money, [0.5, 0.5, 0.5, 0.5, 0.125]);
    assert_eq!(costs.about.total.node_ms, 4 * HOUR + HOUR / 4);
}

#[test]
fn time_is_divided_among_hours_without_loss() {
    let divided = |between, ms| by_hours(between, ms).collect::<Vec<_>>();
    assert_eq!(divided(0..HOUR, HOUR), [(0, HOUR)]);
    assert_eq!(divided(HOUR - 1..HOUR + 1, 2), [(0, 1), (1, 1)]);
    assert_eq!(divided(HOUR / 2..3 * HOUR, 5), [(0, 1), (1, 2), (2, 2)]);
    assert_eq!(divided(7..7, 3), [(0, 3)]);
    assert_eq!(divided(HOUR..HOUR, 3), [(1, 3)]);
    assert_eq!(divided(Range { start: 9, end: 7 }, 0), []);
    // For any length.
    let ages = divided(0..u64::MAX, u64::MAX);
    assert_eq!(ages.len(), HOURS_MAX);
    assert!(ages[..HOURS_MAX - 1].iter().all(|(_, ms)| *ms == HOUR), "{ages:?}");
}

#[test]
fn cost_of_finished_job_is_known_after_members_were_read() {
    let mut observed = Observed(View::default());
    let over = JobRecord { state: JobState::Done, ..fixtures::record() };
    observed.see(0, &format!("jobs/{JOB}"), content(&over));
    observed.reports(JOB, "n1", &report(times(7_200, 0)));
    // The initial read takes longer than a tick.
    let now = observed.tick(1_000);
    assert!(!now.jobs[JOB].about.cost.as_ref().unwrap().is_seen());
    observed.see(1_500, "members/n1", member("n1", PRICED));
    observed.see(1_500, "", Content::Found);
    let now = observed.tick(2_000);
    let cost = now.jobs[JOB].about.cost.clone().unwrap();
    assert_eq!((cost.spent.node_ms, cost.unseen, euros(&cost.spent.money)), (HOUR, 0, 0.5));
}

#[test]
fn draining_time_is_counted_separately() {
    let mut observed = Observed::begin(&[("n1", PRICED), ("n2", PRICED)]);
    observed.run_job(JOB);
    observed.see(0, "drain/n1", Content::Data(Vec::new()));
    let told = TimelineEvent { at_ms: 1, kind: EventKind::ToldToLeave, detail: String::new() };
    observed.reports(JOB, "n2", &NodeFigures { timeline: vec![told], ..report(times(20, 0)) });
    observed.tick(10_000);
    let spent = observed.tick(20_000).costs.about.total;
    assert_eq!((spent.node_ms, spent.draining_ms, spent.busy_ms), (40_000, 20_000 + 10_000, 10_000));
    assert_eq!(spent.idle_ms(), 0);
}

#[test]
fn members_without_workers_cost_nothing() {
    let mut observed = Observed::begin(&[]);
    let submits = Member { workers: 0, labels: PRICED.parse().unwrap(), ..fixtures::member("n1") };
    observed.see(0, "members/n1", content(&submits));
    let about = observed.tick(HOUR).costs.about;
    assert_eq!((about.nodes, about.total), (0, Spent::default()));
}

#[test]
fn cost_labels_and_hours_are_bounded() {
    let labels: Vec<(String, String)> = (0..100)
        .map(|number| (format!("n{number:03}"), format!("machine=m{number},zone=a,price=1/h,currency=EUR")))
        .collect();
    let members: Vec<(&str, &str)> = labels.iter().map(|(name, labels)| (&**name, &**labels)).collect();
    let mut observed = Observed::begin(&members);
    let mut followed = observed.0.snapshot();
    for hour in 1..1_000 {
        observed.tick(hour * HOUR);
        let delta = observed.0.delta_since(followed.seq).unwrap();
        assert!(
            delta.costs.as_ref().is_some_and(|costs| costs.hours.set.len() <= 2),
            "only what has changed"
        );
        followed.apply(delta);
    }
    let now = observed.0.snapshot();
    assert_eq!(followed, now);
    assert_eq!((now.costs.hours.len(), now.costs.labels.len()), (HOURS_MAX, VALUES_MAX + 1 + 1));
    assert_eq!(now.costs.labels["machine=…"].node_ms, (100 - VALUES_MAX as u64) * 999 * HOUR);
    assert_eq!(now.costs.about.total.node_ms, 100 * 999 * HOUR);
}

#[test]
fn cost_sums_are_shown_periodically_and_node_changes_immediately() {
    let mut observed = Observed::begin(&[("n1", PRICED)]);
    let told = |observed: &mut Observed, at_ms| {
        let seq = observed.0.seq();
        observed.tick(at_ms);
        observed.0.delta_since(seq).unwrap().costs.map(|costs| costs.about)
    };
    assert_eq!(told(&mut observed, 1_000), None);
    assert_eq!(told(&mut observed, 9_999), None);
    assert_eq!(told(&mut observed, 10_000).unwrap().total.node_ms, 10_000);
    observed.see(11_000, "members/n2", member("n2", "price=none"));
    let about = told(&mut observed, 12_000).unwrap();
    assert_eq!((about.nodes, about.unpriced, about.total.node_ms), (2, 1, 13_000));
}

#[test]
fn cost_of_job_survives_forgotten_nodes() {
    let mut observed = Observed::begin(&[("n1", PRICED)]);
    let id = |number: u64| format!("j-{number:010}");
    for number in 0..20 {
        observed.run_job(&id(number));
        observed.reports(&id(number), "n1", &report(times(7_200, 0)));
        observed.tick(number * 10_000);
        let over = JobRecord { state: JobState::Done, ..fixtures::record() };
        observed.see(1, &format!("jobs/{}", id(number)), content(&over));
        observed.tick(number * 10_000 + 5_000);
    }
    let now = observed.tick(HOUR);
    let costs = now.jobs.values().map(|job| job.about.cost.clone().unwrap());
    assert!(costs.clone().all(|cost| euros(&cost.spent.money) == 0.5 && cost.an_hour.is_empty()));
    assert_eq!(costs.count(), 20);
    assert!(observed.0.costs.times.len() <= 10, "{}", observed.0.costs.times.len());
}

#[test]
fn departed_nodes_remembered_for_costs_are_bounded() {
    let mut observed = Observed::begin(&[]);
    let name = |number: usize| format!("n{number:06}");
    for number in 0..GONE_MAX + 100 {
        observed.see(0, &format!("members/{}", name(number)), member(&name(number), ""));
        if number % 1_000 == 0 || number + 1 == GONE_MAX + 100 {
            observed.tick(number as u64);
            for gone in number.saturating_sub(1_000)..=number {
                observed.see(number as u64, &format!("members/{}", name(gone)), Content::Gone);
            }
            observed.tick(number as u64);
        }
    }
    assert_eq!(observed.0.costs.nodes.len(), GONE_MAX);
    assert!(observed.0.costs.nodes.contains_key(&name(GONE_MAX + 99)));
}
