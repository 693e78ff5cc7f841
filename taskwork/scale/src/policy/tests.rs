//! Single decisions. Simulations of whole jobs are in `tests/policy/`.

use proptest::prelude::*;

use super::*;

const AT_MS: u64 = 1_700_000_000_000;

fn offer(name: &str, price: f64) -> OfferSeen {
    OfferSeen {
        name: name.into(),
        workers: 4,
        price_per_hour: Some(price),
        max: 50,
        start_ms: 40_000,
        ..OfferSeen::default()
    }
}

fn machine(number: u64, state: MachineState) -> MachineSeen {
    let requested_ms = AT_MS - 600_000 + number;
    MachineSeen {
        id: format!("m{number}"),
        offer: "a".into(),
        state,
        requested_ms,
        joined_ms: (state == MachineState::Working).then_some(requested_ms + 40_000),
        workers: if state == MachineState::Working { 4 } else { 0 },
        ..MachineSeen::default()
    }
}

/// A cluster whose machines work on a job with a completed share.
fn busy(at_ms: u64, machines: u64, share: f64, work_s: f64) -> Observation {
    Observation {
        at_ms,
        workers: u32::try_from(machines * 4).unwrap(),
        jobs: vec![JobSeen {
            id: "1".into(),
            program: "tsp".into(),
            share: Some(share),
            work: work_s * 100.0,
            busy_ns: millis(work_s) * 1_000_000,
            idle_ns: millis(work_s) * 10_000,
            began_ms: AT_MS,
            ahead: None,
        }],
        machines: (0..machines).map(|number| machine(number, MachineState::Working)).collect(),
        offers: vec![offer("a", 0.4)],
        ..Observation::default()
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small, and not below 0")]
fn millis(seconds: f64) -> u64 {
    (seconds * 1000.0) as u64
}

/// Observes a job with `total` seconds of work until `share` is complete. The policy cannot act.
fn taught(policy: &mut Policy, machines: u64, total: f64, share: f64) -> Observation {
    let rounds = 40;
    let mut seen = busy(AT_MS, machines, 0.0, 0.0);
    for round in 1..=rounds {
        let part = share * f64::from(round) / f64::from(rounds);
        seen = busy(AT_MS + u64::try_from(round).unwrap() * 5_000, machines, part, part * total);
        policy.decide(&seen);
    }
    seen
}

#[test]
fn cluster_without_jobs_keeps_minimum() {
    let mut policy = Policy::new(Goals { min: 2, max: 10, ..Goals::default() });
    let mut seen = Observation { at_ms: AT_MS, offers: vec![offer("a", 0.4)], ..Observation::default() };
    let decision = policy.decide(&seen);
    assert_eq!((decision.nodes(), decision.table.len()), (2, 0));
    assert_eq!(decision.reason, "2 nodes: there is no job");
    seen.offers.clear();
    let decision = policy.decide(&seen);
    assert_eq!(decision.nodes(), 0);
    assert!(decision.reason.contains("no offer"), "{}", decision.reason);
}

#[test]
fn idle_machines_stay_for_one_start_time() {
    let mut policy = Policy::new(Goals::default());
    let mut seen = busy(AT_MS, 3, 0.99, 100.0);
    policy.decide(&seen);
    seen.jobs.clear();
    seen.at_ms += 5_000;
    assert_eq!(policy.decide(&seen).nodes(), 3);
    seen.at_ms += 30_000;
    assert_eq!(policy.decide(&seen).nodes(), 3);
    seen.at_ms += 15_000;
    let decision = policy.decide(&seen);
    assert_eq!((decision.nodes(), decision.leave.len()), (0, 3));
    // Billed by the hour, they stay until the hour ends.
    seen.offers[0].quantum_ms = 3_600_000;
    assert_eq!(policy.decide(&seen).nodes(), 3);
    seen.at_ms = AT_MS + 3_000_000 - 20_000;
    assert_eq!(policy.decide(&seen).leave, ["m2", "m1", "m0"], "the newest first");
}

#[test]
fn unknown_job_starts_few_machines_then_doubles() {
    let mut policy = Policy::new(Goals { max: 50, ..Goals::default() });
    let mut seen = Observation {
        at_ms: AT_MS,
        waiting_jobs: 1,
        offers: vec![offer("a", 0.4)],
        ..Observation::default()
    };
    assert_eq!(policy.decide(&seen).nodes(), 4, "of ten minutes of work nothing is known");
    seen.machines = (0..4).map(|number| machine(number, MachineState::Starting)).collect();
    seen.machines.iter_mut().for_each(|machine| machine.requested_ms = AT_MS);
    seen.at_ms += 1_000;
    assert_eq!(policy.decide(&seen).nodes(), 4, "it is not a round of its own");
    seen.waiting_jobs = 100;
    assert_eq!(policy.decide(&seen).nodes(), 4, "it is still not");
    seen.at_ms += 4_000;
    let decision = policy.decide(&seen);
    assert_eq!(decision.nodes(), 12);
    assert!(decision.table.iter().all(|size| size.finish_ms.is_none()), "it is too early to say");
    assert!(decision.reason.contains("too early"), "{}", decision.reason);
}

#[test]
fn deadline_determines_number_of_machines() {
    let far = AT_MS + 3_600_000;
    let mut policy = Policy::new(Goals { max: 50, deadline_ms: Some(far), ..Goals::default() });
    // 90,000 s remain, within a factor of two: 7 machines of 4 workers for an hour, or 14.
    let seen = taught(&mut policy, 10, 100_000.0, 0.1);
    let choice = policy.decide(&Observation { at_ms: seen.at_ms + 5_000, ..seen.clone() });
    let best = choice.table.iter().find(|size| size.note.contains("best")).unwrap();
    assert!((8..=22).contains(&best.nodes), "{choice:?}");
    assert_eq!(choice.broken, None);
    policy.set_goals(Goals { max: 50, deadline_ms: Some(AT_MS + 210_000), ..Goals::default() });
    let choice = policy.decide(&Observation { at_ms: seen.at_ms + 10_000, ..seen });
    assert_eq!(choice.broken, Some(Bound::Deadline));
    assert_eq!(choice.nodes(), 24, "as many as a step allows");
    assert!(choice.reason.contains("meets the deadline in only 0 of 100"), "{}", choice.reason);
}

#[test]
fn whatif_leaves_policy_unchanged() {
    let mut policy = Policy::new(Goals { max: 50, ..Goals::default() });
    let seen = taught(&mut policy, 10, 100_000.0, 0.3);
    let before = policy.clone();
    let table = policy.whatif(&seen, &[5, 30, 200, 30]);
    assert_eq!(policy, before);
    let nodes: Vec<u32> = table.iter().map(|size| size.nodes).collect();
    assert_eq!(nodes, [5, 10, 30], "200 are not available");
    assert!(table[1].now && !table[0].now);
    let ends: Vec<u64> = table.iter().map(|size| size.finish_ms.unwrap().1).collect();
    assert!(ends[0] > ends[1] && ends[1] > ends[2], "{table:?}");
    // 70,000 s at 0.1 an hour are 1.94. On average, recorded runs needed six tenths of that remainder in proportion to the
    // share. More machines cost little more.
    let cost = table[1].cost.unwrap() - policy.spent().unwrap();
    assert!((0.9..1.5).contains(&cost), "{cost}");
    assert!((table[0].cost.unwrap() / table[2].cost.unwrap() - 1.0).abs() < 0.2, "{table:?}");
}

#[test]
fn unknown_price_makes_cost_unknown() {
    let mut policy = Policy::new(Goals { max: 50, deadline_ms: Some(AT_MS + 7_200_000), ..Goals::default() });
    let mut seen = taught(&mut policy, 10, 100_000.0, 0.3);
    seen.offers[0].price_per_hour = None;
    seen.machines.push(MachineSeen { id: "other".into(), ..machine(60, MachineState::Working) });
    seen.at_ms += 5_000;
    let decision = policy.decide(&seen);
    assert_eq!(decision.spent, None);
    let works = decision.table.iter().filter(|size| size.workers > 0);
    assert!(works.clone().count() > 10);
    assert!(works.clone().all(|size| size.cost.is_none() && size.finish_ms.is_some()));
    assert_eq!(decision.broken, None);
}

#[test]
fn budget_of_zero_ends_all_machines() {
    let goals = Goals { min: 1, budget: Some(0.0), then_suspend: true, ..Goals::default() };
    let decision = Policy::new(goals).decide(&busy(AT_MS, 3, 0.5, 100.0));
    assert_eq!((decision.nodes(), decision.leave.len(), decision.suspend), (0, 3, true));
    assert!(decision.reason.contains("budget"), "{}", decision.reason);
}

#[test]
fn machine_with_preemption_notice_is_replaced() {
    let mut policy = Policy::new(Goals { max: 10, ..Goals::default() });
    let mut seen = taught(&mut policy, 10, 1e6, 0.3);
    seen.machines[4].noticed = true;
    seen.at_ms += 5_000;
    let decision = policy.decide(&seen);
    assert_eq!(decision.leave, ["m4"]);
    assert_eq!(decision.nodes(), 10);
}

#[test]
fn refused_offer_starts_no_machine() {
    let mut policy = Policy::new(Goals { max: 10, ..Goals::default() });
    let mut seen = busy(AT_MS, 1, 0.001, 100.0);
    seen.offers.push(OfferSeen { workers: 8, ..offer("dear", 4.0) });
    assert_eq!(policy.decide(&seen).wanted.get("dear"), None);
    seen.offers[0].refused = true;
    seen.at_ms += 5_000;
    let decision = policy.decide(&seen);
    assert!(decision.wanted["dear"] >= 1 && decision.wanted["a"] == 1, "{decision:?}");
}

#[test]
fn unsuited_machines_are_replaced_by_suited_ones() {
    let mut seen = Observation { waiting_jobs: 1, workers: 0, jobs: Vec::new(), ..busy(AT_MS, 3, 0.0, 0.0) };
    seen.machines.iter_mut().for_each(|machine| machine.unsuited = true);
    seen.offers[0].unsuited = true;
    seen.offers.push(offer("dear", 4.0));
    let decision = Policy::new(Goals { max: 5, ..Goals::default() }).decide(&seen);
    assert_eq!(decision.leave, ["m2", "m1", "m0"]);
    assert!(decision.wanted["dear"] >= 1 && !decision.wanted.contains_key("a"), "{decision:?}");
    // Paid machines stay, and count against the maximum.
    seen.offers[0].quantum_ms = 3_600_000;
    let decision = Policy::new(Goals { max: 5, ..Goals::default() }).decide(&seen);
    assert_eq!(
        (decision.leave.len(), decision.wanted["a"], decision.wanted["dear"]),
        (0, 3, 2),
        "{decision:?}"
    );
}

#[test]
fn unsuited_machines_of_suited_offer_leave_before_others_start() {
    let mut policy = Policy::new(Goals { max: 5, ..Goals::default() });
    let mut seen = Observation { waiting_jobs: 1, workers: 0, jobs: Vec::new(), ..busy(AT_MS, 3, 0.0, 0.0) };
    seen.machines.iter_mut().for_each(|machine| machine.unsuited = true);
    let decision = policy.decide(&seen);
    assert_eq!((decision.leave.len(), decision.nodes()), (3, 0), "{decision:?}");
    seen.machines.iter_mut().for_each(|machine| machine.state = MachineState::Leaving);
    seen.at_ms += 5_000;
    let decision = policy.decide(&seen);
    assert!(decision.wanted["a"] >= 1 && decision.leave.is_empty(), "{decision:?}");
}

#[test]
fn jobs_without_offer_are_named_and_start_no_machine() {
    let unserved =
        |id: &str| JobUnserved { id: id.into(), reason: "it runs uts 1, offer a runs tsp".to_owned() };
    let mut seen = Observation {
        at_ms: AT_MS,
        offers: vec![offer("a", 0.4)],
        unserved: vec![unserved("j-7"), unserved("j-8")],
        ..Observation::default()
    };
    let decision = Policy::new(Goals::default()).decide(&seen);
    assert_eq!(decision.nodes(), 0);
    let expected = "0 nodes: there is no job for the machines; no offer can serve job j-7: it runs uts 1, offer a \
                    runs tsp; nor 1 other job";
    assert_eq!(decision.reason, expected);
    seen.unserved.pop();
    seen.waiting_jobs = 1;
    let decision = Policy::new(Goals::default()).decide(&seen);
    assert!(decision.nodes() >= 1 && decision.reason.ends_with("offer a runs tsp"), "{decision:?}");
}

#[test]
fn machine_that_never_joins_is_supplemented() {
    let mut policy = Policy::new(Goals::default());
    let mut seen = busy(AT_MS, 0, 0.0, 0.0);
    seen.jobs[0].share = None;
    seen.machines = vec![MachineSeen { requested_ms: AT_MS, ..machine(1, MachineState::Starting) }];
    let mut times = Vec::new();
    for round in 0..40 {
        seen.at_ms = AT_MS + round * 5_000;
        let decision = policy.decide(&seen);
        assert!(decision.leave.is_empty());
        for number in seen.machines.len()..decision.nodes() as usize {
            times.push(round * 5);
            let id = format!("more{number}");
            let requested_ms = seen.at_ms;
            seen.machines.push(MachineSeen { id, requested_ms, ..machine(1, MachineState::Starting) });
        }
    }
    // Several at once as long as there may be much work, then one after the other.
    assert!(times.iter().any(|at| *at >= 80), "{times:?}");
    assert!(times.len() <= 6, "{times:?}");
}

/// Twenty jobs in a full queue: no money is spent, and no further job is submitted.
#[test]
fn queued_machines_are_neither_billed_nor_late() {
    let mut policy = Policy::new(Goals { max: 50, budget: Some(10.0), ..Goals::default() });
    let mut seen = busy(AT_MS, 0, 0.0, 0.0);
    seen.jobs[0].share = None;
    let mut most = 0;
    for round in 0..4_000 {
        seen.at_ms = AT_MS + round * 5_000;
        let decision = policy.decide(&seen);
        assert!(decision.spent.is_some_and(|spent| spent < 1e-9), "{decision:?}");
        for number in seen.machines.len()..decision.nodes() as usize {
            let (id, requested_ms) = (format!("job{number}"), seen.at_ms);
            let place = Place::Queued;
            seen.machines.push(MachineSeen { id, place, requested_ms, ..machine(1, MachineState::Starting) });
        }
        if round == 100 {
            most = seen.machines.len();
        }
    }
    assert_eq!(seen.machines.len(), most, "more and more of them are submitted");
}

#[test]
fn budget_restarts_for_other_jobs_and_on_request() {
    let goals = Goals { max: 10, budget: Some(3.0), then_suspend: true, ..Goals::default() };
    let mut policy = Policy::default();
    policy.pursue(goals.clone(), "job 1", None);
    let mut seen = busy(AT_MS, 3, 0.5, 100.0);
    policy.decide(&seen);
    seen.at_ms += 3 * 3_600_000;
    let decision = policy.decide(&seen);
    assert!(decision.suspend, "{decision:?}");
    assert!(decision.reason.contains("of 3.00 are spent since 2023-11-14T22:13:20Z"), "{}", decision.reason);
    // The same budget again does not restart counting: the controller was restarted.
    let mut again = policy.clone();
    again.pursue(Goals { deadline_ms: Some(5), ..goals.clone() }, "job 1", Some(AT_MS));
    seen.at_ms += 5_000;
    assert!(again.decide(&seen).suspend);
    for (purpose, budget, from_ms) in
        [("job 2", 3.0, None), ("job 1", 4.0, None), ("job 1", 3.0, Some(seen.at_ms))]
    {
        let mut other = policy.clone();
        other.pursue(Goals { budget: Some(budget), ..goals.clone() }, purpose, from_ms);
        let decision = other.decide(&seen);
        assert!(!decision.suspend, "{purpose} {budget} {from_ms:?}: {decision:?}");
        assert_eq!(decision.spent, Some(0.0));
    }
}

fn any_machine() -> impl Strategy<Value = MachineSeen> {
    let state =
        prop_oneof![Just(MachineState::Starting), Just(MachineState::Working), Just(MachineState::Leaving)];
    let place = prop_oneof![Just(Place::There), Just(Place::Queued), Just(Place::Asked)];
    let state = (state, place);
    (0..40_u8, 0..4_u8, state, any::<u64>(), any::<Option<u64>>(), any::<u32>(), any::<bool>()).prop_map(
        |(id, offer, (state, place), requested_ms, joined_ms, workers, noticed)| MachineSeen {
            id: id.to_string(),
            offer: offer.to_string(),
            state,
            place,
            requested_ms,
            joined_ms,
            workers,
            noticed,
            zone: Some((id % 3).to_string()),
            ..MachineSeen::default()
        },
    )
}

fn any_offer() -> impl Strategy<Value = OfferSeen> {
    let number = any::<u64>();
    (any::<u32>(), any::<Option<f64>>(), number, number, any::<u32>(), any::<Option<f64>>(), number).prop_map(
        |(workers, price_per_hour, quantum_ms, minimum_ms, max, losses_per_hour, start_ms)| OfferSeen {
            workers,
            price_per_hour,
            quantum_ms,
            minimum_ms,
            max,
            losses_per_hour,
            start_ms,
            ..OfferSeen::default()
        },
    )
}

prop_compose! {
    fn any_job()(id in 0..3_u8, share in any::<Option<f64>>(), work in any::<f64>(), busy_ns in any::<u64>(),
                 idle_ns in any::<u64>()) -> JobSeen {
        JobSeen { id: id.to_string(), share, work, busy_ns, idle_ns, ..JobSeen::default() }
    }
}

prop_compose! {
    fn any_observation()(at_ms in any::<u64>(), workers in any::<u32>(), waiting_jobs in any::<u32>(),
                         machines in prop::collection::vec(any_machine(), 0..12),
                         mut offers in prop::collection::vec(any_offer(), 0..4),
                         jobs in prop::collection::vec(any_job(), 0..3)) -> Observation {
        for (place, offer) in offers.iter_mut().enumerate() {
            offer.name = place.to_string();
        }
        Observation { at_ms, workers, jobs, waiting_jobs, machines, offers, ..Observation::default() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every observation has a decision within the bounds, and the policy can be serialised.
    #[test]
    fn any_observation_gives_decision_within_bounds(seen in prop::collection::vec(any_observation(), 1..6), max in 1..100_u32,
                                     deadline_ms in any::<Option<u64>>(), budget in any::<Option<u32>>(),
                                     delay in any::<Option<u32>>()) {
        let goals = Goals { max, deadline_ms, budget: budget.map(f64::from), delay_price: delay.map(f64::from),
                            ..Goals::default() };
        let mut policy = Policy::new(goals);
        for seen in &seen {
            let decision = policy.decide(seen);
            prop_assert!(!decision.reason.is_empty());
            // Machines that are paid for may exceed the maximum, but none is started.
            prop_assert!(decision.nodes() <= max.max(u32::try_from(seen.machines.len()).unwrap()));
            let written = serde_json::to_string(&policy).unwrap();
            let read: Policy = serde_json::from_str(&written).unwrap();
            prop_assert_eq!(&read, &policy);
        }
    }
}
