//! Decisions from the work ahead that frameworks report.

use serde_json::json;
use taskwork::display::WorkAhead;

use super::*;

const AT_MS: u64 = 1_700_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn offer(name: &str, price: f64) -> OfferSeen {
    OfferSeen {
        name: name.into(),
        workers: 2,
        price_per_hour: Some(price),
        max: 50,
        start_ms: 5_000,
        ..OfferSeen::default()
    }
}

fn machine(number: usize, offer: &OfferSeen) -> MachineSeen {
    MachineSeen {
        id: format!("{}-{number}", offer.name),
        offer: offer.name.clone(),
        state: MachineState::Working,
        requested_ms: AT_MS - 600_000 + number as u64,
        joined_ms: Some(AT_MS - 500_000),
        workers: offer.workers,
        ..MachineSeen::default()
    }
}

/// Independent items of ten seconds, of which `running` run.
fn items(items: u64, running: u64) -> WorkAhead {
    let left_ns = items * 10 * SECOND;
    serde_json::from_value(json!({
        "left_ns": left_ns, "items": items, "ready": items - running, "running": running,
        "longest_ns": 10 * SECOND, "slices_ns": [left_ns],
    }))
    .unwrap()
}

fn demanding(demand: &serde_json::Value, has_place: bool) -> WorkAhead {
    let mut ahead = items(100, 2);
    let mut demand = demand.clone();
    (demand["items"], demand["ready"]) = (json!(10), json!(10));
    demand["left_ns"] = json!(100 * SECOND);
    demand["has_place"] = json!(has_place);
    ahead.demands = serde_json::from_value(json!([demand])).unwrap();
    ahead
}

/// A cluster with machines of the first offer.
fn seen(at_s: u64, machines: usize, offers: &[OfferSeen], ahead: WorkAhead) -> Observation {
    let busy = u64::from(offers[0].workers) * machines as u64;
    Observation {
        at_ms: AT_MS + at_s * 1_000,
        workers: u32::try_from(busy).unwrap(),
        jobs: vec![JobSeen {
            id: "1".into(),
            program: "genes".into(),
            busy_ns: (500 + at_s) * busy * SECOND,
            ahead: Some(ahead),
            ..JobSeen::default()
        }],
        machines: (0..machines).map(|number| machine(number, &offers[0])).collect(),
        offers: offers.to_vec(),
        ..Observation::default()
    }
}

fn goals(max: u32) -> Goals {
    Goals { max, ..Goals::default() }
}

#[test]
fn many_ready_items_start_the_maximum_within_two_rounds() {
    let offers = [offer("a", 0.1)];
    let mut policy = Policy::new(goals(8));
    let first = policy.decide(&seen(0, 1, &offers, items(2_000, 2))).nodes();
    let second = policy.decide(&seen(5, usize::try_from(first).unwrap(), &offers, items(2_000, 12))).nodes();
    assert_eq!((first, second), (6, 8));
}

#[test]
fn unknown_durations_do_not_hide_ready_items() {
    let offers = [offer("a", 0.1)];
    let mut policy = Policy::new(goals(8));
    let mut ahead = items(2_000, 2);
    ahead.deviation_ns = ahead.left_ns.unwrap();
    assert_eq!(policy.decide(&seen(0, 1, &offers, ahead.clone())).nodes(), 6);
    let decision = policy.decide(&seen(5, 6, &offers, ahead));
    assert_eq!(decision.nodes(), 8);
    assert!(decision.reason.contains("too early"), "{}", decision.reason);
}

#[test]
fn machines_do_not_exceed_the_width_of_the_work() {
    let offers = [offer("a", 0.1)];
    // A chain of 100 items of 10 s, next to another one of 20.
    let mut ahead = items(120, 2);
    (ahead.longest_ns, ahead.ready) = (1_000 * SECOND, 0);
    ahead.slices_ns = vec![200 * SECOND, 200 * SECOND, 200 * SECOND, 200 * SECOND, 400 * SECOND];
    let mut policy = Policy::new(goals(8));
    let decision = policy.decide(&seen(0, 1, &offers, ahead));
    assert_eq!(decision.nodes(), 1, "two workers suffice: {}", decision.reason);
    assert!(decision.reason.contains("the known work keeps about 2 workers busy"), "{}", decision.reason);
}

#[test]
fn idle_machines_leave_when_fewer_items_than_workers_are_left() {
    let offers = [offer("a", 0.1)];
    let mut policy = Policy::new(goals(8));
    for round in 0..10 {
        let decision = policy.decide(&seen(round * 5, 8, &offers, items(17, 16)));
        assert_eq!(decision.nodes(), 8, "17 items occupy 16 workers: {}", decision.reason);
    }
    let mut nodes = 8;
    for round in 10..20 {
        nodes = nodes.min(policy.decide(&seen(round * 5, 8, &offers, items(4, 4))).nodes());
    }
    assert_eq!(nodes, 2);
}

#[test]
fn demand_without_a_node_starts_the_cheapest_offer_that_satisfies_it() {
    let memory = |gib: u64| Some(gib << 30);
    let fat = OfferSeen { memory_bytes: memory(64), ..offer("fat", 0.8) };
    let dear = OfferSeen { memory_bytes: memory(128), ..offer("dear", 1.6) };
    let offers = [OfferSeen { memory_bytes: memory(8), ..offer("a", 0.1) }, dear, fat.clone()];
    let demand = json!({"memory_bytes": 32_u64 << 30});
    let wants = |decision: &Decision, name: &str| decision.wanted.get(name).copied().unwrap_or(0);
    let mut policy = Policy::new(goals(8));
    let mut later = demanding(&demand, false);
    later.demands[0].ready = 0;
    let decision = policy.decide(&seen(0, 1, &offers, later));
    assert_eq!(wants(&decision, "fat"), 0, "no item of that demand is ready: {}", decision.reason);
    let decision = policy.decide(&seen(0, 1, &offers, demanding(&demand, false)));
    assert_eq!((wants(&decision, "fat"), wants(&decision, "dear")), (1, 0), "{}", decision.reason);
    assert!(decision.reason.contains("no node can do"), "{}", decision.reason);

    // It starts: no other one is requested.
    let mut next = seen(5, 6, &offers, demanding(&demand, false));
    let starting = MachineSeen { state: MachineState::Starting, workers: 0, ..machine(9, &fat) };
    next.machines.push(starting);
    assert_eq!(wants(&policy.decide(&next), "fat"), 1);

    // It is there, is the most expensive one, and stays although fewer machines suffice.
    for round in 2..12 {
        let mut ahead = demanding(&demand, true);
        (ahead.ready, ahead.slices_ns) = (0, vec![20 * SECOND]);
        let mut next = seen(round * 5, 6, &offers, ahead);
        next.machines.push(machine(9, &fat));
        next.workers += 2;
        let decision = policy.decide(&next);
        assert_eq!(wants(&decision, "fat"), 1, "{}", decision.reason);
    }
}

#[test]
fn demand_replaces_a_machine_at_the_maximum() {
    let gpu = OfferSeen { labels: [("gpu".to_owned(), "a100".to_owned())].into(), ..offer("gpu", 0.8) };
    let offers = [offer("a", 0.1), gpu];
    let mut policy = Policy::new(goals(3));
    let decision = policy.decide(&seen(0, 3, &offers, demanding(&json!({"labels": ["gpu"]}), false)));
    assert_eq!((decision.wanted["a"], decision.wanted["gpu"], decision.leave.len()), (2, 1, 1));
    let decision = policy.decide(&seen(5, 3, &offers, demanding(&json!({"labels": ["tape"]}), false)));
    assert_eq!(decision.wanted.get("gpu"), None);
    assert!(decision.reason.contains("work needs the label tape"), "{}", decision.reason);
}

#[test]
fn offer_whose_machines_lack_what_it_promises_starts_no_further_one() {
    let fat = OfferSeen { memory_bytes: Some(64 << 30), ..offer("fat", 0.8) };
    let offers = [offer("a", 0.1), fat.clone()]
        .map(|offer| OfferSeen { memory_bytes: offer.memory_bytes.or(Some(8 << 30)), ..offer });
    let mut policy = Policy::new(goals(8));
    for round in 0..10 {
        let mut ahead = demanding(&json!({"memory_bytes": 64_u64 << 30}), false);
        (ahead.ready, ahead.slices_ns) = (10, vec![20 * SECOND]);
        let mut seen = seen(round * 5, 1, &offers, ahead);
        seen.machines.push(machine(9, &fat));
        seen.workers += 2;
        let decision = policy.decide(&seen);
        assert!(decision.wanted.get("fat").is_none_or(|wanted| *wanted <= 1), "{}", decision.reason);
        assert!(decision.reason.contains("correct the offer \"fat\""), "{}", decision.reason);
    }
}

#[test]
fn starved_windows_do_not_lower_the_efficiency() {
    let offers = [offer("a", 0.1)];
    let mut policy = Policy::new(goals(8));
    for round in 0..40_u64 {
        let mut seen = seen(round * 5, 4, &offers, items(4, 4));
        (seen.jobs[0].busy_ns, seen.jobs[0].idle_ns) = (round * 5 * 4 * SECOND, round * 5 * 4 * SECOND);
        policy.decide(&seen);
    }
    let decision = policy.decide(&seen(200, 4, &offers, items(2_000, 8)));
    assert_eq!(decision.nodes(), 8, "{}", decision.reason);
    assert!(
        decision.table.iter().all(|candidate| candidate.efficiency.is_none_or(|share| share > 0.95)),
        "{:?}",
        decision.table
    );
}
