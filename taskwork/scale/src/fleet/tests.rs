//! Single steps of a fleet. Invariants are tested in `tests/fleet/`.

use super::*;
use crate::connector::MachineState;

const S: u64 = 1000;

fn offers() -> Vec<Offer> {
    serde_json::from_str(
        r#"[{"name": "small", "workers": 1, "max": 20, "start_s": 1}, {"name": "large", "workers": 8, "max": 4}]"#,
    )
    .unwrap()
}

fn id(text: &str) -> MachineId {
    text.parse().unwrap()
}

fn machine(name: &str, state: MachineState, key: Option<&Key>) -> Machine {
    Machine { id: id(name), offer: "small".to_owned(), state, key: key.cloned(), created_ms: None }
}

fn node(name: &str, on: &str) -> NodeSeen {
    NodeSeen { node: name.to_owned(), machine: Some(id(on)), workers: 1, ..NodeSeen::default() }
}

/// A fleet and its input.
struct Stage {
    fleet: Fleet,
    now_ms: u64,
    wanted: BTreeMap<String, u32>,
    leave: Vec<MachineId>,
    machines: Vec<Machine>,
    nodes: Vec<NodeSeen>,
    knows_all_nodes: bool,
}

impl Stage {
    fn new(wanted: u32) -> Self {
        Self {
            fleet: Fleet::new(offers(), Limits::default(), State::new("t")),
            now_ms: 1_000_000 * S,
            wanted: BTreeMap::from([("small".to_owned(), wanted)]),
            leave: Vec::new(),
            machines: Vec::new(),
            nodes: Vec::new(),
            knows_all_nodes: true,
        }
    }

    fn after(&mut self, seconds: u64) -> Vec<Action> {
        self.now_ms += seconds * S;
        let missed = self.fleet.missed(&self.machines, &self.nodes, |id| id.as_str().starts_with("old"));
        let round = Round {
            now_ms: self.now_ms,
            wanted: &self.wanted,
            leave: &self.leave,
            machines: &self.machines,
            missed: &missed,
            nodes: &self.nodes,
            knows_all_nodes: self.knows_all_nodes,
        };
        let planned = self.fleet.plan(&round);
        // Another controller would continue from this.
        let written = serde_json::to_string(self.fleet.state()).unwrap();
        assert_eq!(&serde_json::from_str::<State>(&written).unwrap(), self.fleet.state());
        planned
    }

    fn want(&mut self, count: u32) {
        self.wanted.insert("small".to_owned(), count);
    }

    /// Two machines with one node each.
    fn of_two() -> Self {
        let mut stage = Self::new(2);
        stage.machines =
            vec![machine("a", MachineState::Running, None), machine("b", MachineState::Running, None)];
        stage.nodes = vec![node("n1", "a"), node("n2", "b")];
        assert_eq!(stage.after(0), []);
        stage
    }
}

fn created(actions: &[Action]) -> (u32, Key) {
    match actions {
        [Action::Create { count, key, .. }] => (*count, key.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn missing_machines_are_requested_once() {
    let mut stage = Stage::new(3);
    let (count, key) = created(&stage.after(0));
    assert_eq!(count, 3);
    stage.fleet.created(stage.now_ms, &key, &Ok(vec![id("a"), id("b"), id("c")]));
    assert_eq!(stage.after(5), [], "they are not listed yet");
    stage.machines = ["a", "b", "c"].map(|name| machine(name, MachineState::Running, None)).to_vec();
    assert_eq!(stage.after(5), []);
    stage.want(5);
    assert_eq!(created(&stage.after(5)).0, 2);
}

#[test]
fn unanswered_request_is_repeated_under_its_key() {
    let mut stage = Stage::new(2);
    let (_, key) = created(&stage.after(0));
    stage.fleet.created(stage.now_ms, &key, &Err(Refusal::unknown("no answer")));
    let state = stage.fleet.state().clone();
    assert_eq!(created(&stage.after(5)), (2, key.clone()));
    // The controller was killed before it received the answer.
    stage.fleet = Fleet::new(offers(), Limits::default(), state);
    assert_eq!(created(&stage.after(60)), (2, key.clone()));
    // One of two appears: the request stays open, and no other is made.
    stage.machines = vec![machine("a", MachineState::Running, Some(&key))];
    assert_eq!(created(&stage.after(60)), (2, key));
}

#[test]
fn refused_offer_is_paused() {
    let mut stage = Stage::new(2);
    let (_, key) = created(&stage.after(0));
    stage.fleet.created(stage.now_ms, &key, &Err(Refusal::exhausted("quota of 0")));
    assert!(stage.fleet.state().is_blocked("small", stage.now_ms));
    assert_eq!(stage.fleet.state().troubles()["small"].why, "quota of 0");
    assert_eq!(stage.after(5), []);
    let (_, again) = created(&stage.after(11));
    assert_ne!(again, key);
    stage.fleet.created(stage.now_ms, &again, &Err(Refusal::wrong("no right")));
    assert_eq!(stage.after(16), [], "the pause is longer");
    let (_, third) = created(&stage.after(15));
    // A machine that joins ends the pause.
    stage.fleet.created(stage.now_ms, &third, &Ok(vec![id("a"), id("b")]));
    stage.machines = ["a", "b"].map(|name| machine(name, MachineState::Running, Some(&third))).to_vec();
    stage.after(5);
    stage.nodes = vec![node("n1", "a")];
    stage.after(5);
    assert!(stage.fleet.state().troubles().is_empty());
}

#[test]
fn failed_starts_count_as_failures_and_losses_do_not() {
    let mut stage = Stage::of_two();
    stage.want(3);
    let (_, key) = created(&stage.after(5));
    stage.fleet.created(stage.now_ms, &key, &Ok(vec![id("c")]));
    stage.machines.push(machine("c", MachineState::Failed("no image".to_owned()), Some(&key)));
    assert_eq!(stage.after(5), []);
    stage.after(5);
    let trouble = stage.fleet.state().troubles()["small"].clone();
    assert_eq!((trouble.failures, trouble.why.as_str()), (1, "no image"), "it is counted once");
    let mut stage = Stage::of_two();
    stage.machines.remove(0);
    stage.nodes.remove(0);
    assert_eq!(created(&stage.after(5)).0, 1, "what was taken away is replaced at once");
    assert!(stage.fleet.state().troubles().is_empty());
}

#[test]
fn node_leaves_before_its_machine_is_ended() {
    let mut stage = Stage::of_two();
    stage.nodes[0].leads = true;
    stage.want(1);
    let drain = Action::Drain { node: "n2".to_owned(), machine: id("b") };
    assert_eq!(stage.after(5), std::slice::from_ref(&drain), "the leader goes last");
    assert_eq!(stage.after(5), [], "it is asked once");
    stage.fleet.not_asked("n2");
    assert_eq!(stage.after(5), [drain]);
    // It has lost its session, or the machine has restarted its node: the new node is asked too.
    stage.nodes[1] = node("n3", "b");
    assert_eq!(stage.after(5), [Action::Drain { node: "n3".to_owned(), machine: id("b") }]);
    // This is done once.
    stage.nodes[1] = node("n4", "b");
    let end = Action::Terminate { machines: vec![id("b")] };
    assert_eq!(stage.after(5), std::slice::from_ref(&end));
    assert_eq!(stage.after(5), []);
    assert_eq!(stage.after(30), [end], "it is still there");
    stage.machines.pop();
    stage.nodes.pop();
    assert_eq!(stage.after(30), []);
    assert!(stage.fleet.state().machines.is_empty());
}

#[test]
fn machine_of_stuck_node_is_ended_after_limit() {
    let mut stage = Stage::of_two();
    stage.want(1);
    stage.leave = vec![id("a")];
    assert_eq!(stage.after(5), [Action::Drain { node: "n1".to_owned(), machine: id("a") }]);
    stage.nodes[0].draining = true;
    assert_eq!(stage.after(179), []);
    assert_eq!(stage.after(2), [Action::Terminate { machines: vec![id("a")] }]);
    assert!(stage.fleet.take_notes()[0].contains("has not left within 181 s"));
}

#[test]
fn machines_without_node_leave_first_without_drain() {
    let mut stage = Stage::of_two();
    stage.machines.push(machine("c", MachineState::Requested, None));
    assert_eq!(stage.after(5), [Action::Terminate { machines: vec![id("c")] }]);
}

#[test]
fn machine_without_joined_node_is_ended() {
    let mut stage = Stage::new(1);
    stage.machines = vec![machine("a", MachineState::Requested, None)];
    assert_eq!(stage.after(3600), [], "it waits for its place");
    stage.machines[0].state = MachineState::Running;
    assert_eq!(stage.after(5), []);
    assert_eq!(stage.after(600), []);
    assert_eq!(stage.after(1), [Action::Terminate { machines: vec![id("a")] }]);
    assert!(stage.fleet.take_notes()[0].contains("no node of it has joined"));
    assert!(stage.fleet.state().is_blocked("small", stage.now_ms));
}

#[test]
fn machine_with_lost_node_is_ended_soon() {
    let mut stage = Stage::of_two();
    stage.nodes.remove(0);
    assert_eq!(stage.after(5), []);
    // It may have lost its session and rejoin under another name.
    stage.nodes.push(node("n9", "a"));
    assert_eq!(stage.after(5), []);
    stage.nodes.pop();
    assert_eq!(stage.after(5), []);
    assert_eq!(stage.after(121), [Action::Terminate { machines: vec![id("a")] }]);
}

#[test]
fn node_that_leaves_by_itself_is_replaced() {
    let mut stage = Stage::of_two();
    stage.nodes[0].draining = true;
    assert_eq!(created(&stage.after(5)).0, 1);
}

#[test]
fn requests_stay_below_maximum_of_offer() {
    let mut stage = Stage::new(100);
    assert_eq!(created(&stage.after(0)).0, 20);
    stage.wanted = BTreeMap::from([("large".to_owned(), 9), ("gone".to_owned(), 3)]);
    let (count, _) = created(&stage.after(5));
    assert_eq!(count, 4);
    // The offer is no longer in the file.
    stage.machines = vec![Machine { offer: "gone".to_owned(), ..machine("x", MachineState::Running, None) }];
    let actions = stage.after(5);
    assert!(actions.contains(&Action::Terminate { machines: vec![id("x")] }), "{actions:?}");
}

#[test]
fn last_machine_of_zone_stays_if_another_can_leave() {
    let mut stage = Stage::of_two();
    stage.machines.push(machine("c", MachineState::Running, None));
    stage.nodes.push(node("n3", "c"));
    for (node, zone) in stage.nodes.iter_mut().zip(["east", "west", "west"]) {
        node.zone = Some(zone.to_owned());
    }
    assert!(matches!(&stage.after(5)[..], [Action::Drain { machine, .. }] if *machine != id("a")));
}

#[test]
fn displayed_machine_follows_its_progress() {
    let mut stage = Stage::of_two();
    stage.nodes[1].working = true;
    stage.machines.push(machine("c", MachineState::Running, None));
    stage.want(6);
    stage.after(5);
    stage.nodes[0].draining = true;
    let round = Round {
        now_ms: stage.now_ms,
        wanted: &stage.wanted,
        leave: &[],
        machines: &stage.machines,
        missed: &[],
        nodes: &stage.nodes,
        knows_all_nodes: true,
    };
    let shown: Vec<(String, Standing)> =
        stage.fleet.machines(&round).into_iter().map(|machine| (machine.id, machine.standing)).collect();
    let named = |name: &str, standing| (name.to_owned(), standing);
    assert_eq!(
        shown,
        [
            named("a", Standing::Draining),
            named("b", Standing::Working),
            named("c", Standing::Booting),
            named("t-0/0", Standing::Requested),
            named("t-0/1", Standing::Requested),
            named("t-0/2", Standing::Requested),
        ]
    );
}

/// A connector that omits machines: a script without pipefail, an incident of a cloud.
#[test]
fn unlisted_machines_with_members_still_count() {
    let mut stage = Stage::of_two();
    let all = std::mem::take(&mut stage.machines);
    assert_eq!(stage.after(5), [], "they are not replaced");
    stage.machines = all[..1].to_vec();
    stage.want(1);
    assert_eq!(stage.after(5), [], "and nobody goes because of them");
    stage.machines = all;
    assert_eq!(stage.after(5).len(), 1);
    // Their nodes are lost too.
    let mut stage = Stage::of_two();
    (stage.machines, stage.nodes) = (Vec::new(), Vec::new());
    assert_eq!(created(&stage.after(5)).0, 2);
    // The connector reports that it is gone.
    let mut stage = Stage::of_two();
    stage.machines[0].state = MachineState::Gone;
    assert_eq!(created(&stage.after(5)).0, 1);
    // A new controller knows the machines of its predecessor, but not those of others.
    let mut stage = Stage::new(2);
    stage.nodes = vec![node("n1", "old-1"), node("n2", "old-2"), node("n3", "b")];
    stage.nodes[0].offer = Some("small".to_owned());
    stage.nodes[1].offer = Some("of another file".to_owned());
    stage.nodes[2].offer = Some("small".to_owned());
    assert_eq!(created(&stage.after(5)).0, 1);
}

/// Nodes of a newer version have joined, which this controller cannot read.
#[test]
fn unreadable_member_protects_machines_without_node() {
    let mut stage = Stage::of_two();
    stage.machines.push(machine("c", MachineState::Running, None));
    stage.want(3);
    stage.knows_all_nodes = false;
    assert_eq!(stage.after(5), []);
    assert_eq!(stage.after(3600), []);
    stage.want(2);
    stage.leave = vec![id("c")];
    assert_eq!(stage.after(5), [], "nor because it is too many, nor another one in its place");
    stage.leave = vec![id("a")];
    assert_eq!(stage.after(5), [Action::Drain { node: "n1".to_owned(), machine: id("a") }]);
    stage.knows_all_nodes = true;
    assert_eq!(stage.after(5), [Action::Terminate { machines: vec![id("c")] }]);
}

#[test]
fn restarting_machine_has_one_time_limit_to_join() {
    let mut stage = Stage::new(1);
    stage.machines = vec![machine("a", MachineState::Running, None)];
    assert_eq!(stage.after(5), []);
    for _ in 0..5 {
        stage.machines[0].state = MachineState::Requested;
        assert_eq!(stage.after(60), []);
        stage.machines[0].state = MachineState::Running;
        assert_eq!(stage.after(60), []);
    }
    assert_eq!(stage.after(5), [Action::Terminate { machines: vec![id("a")] }]);
}

#[test]
fn offer_listed_under_another_name_is_paused_ever_longer() {
    let mut stage = Stage::new(3);
    let mut asked = 0;
    for round in 0..720 {
        let actions = stage.after(5);
        for action in &actions {
            match action {
                Action::Create { count, key, .. } => {
                    asked += 1;
                    let ids: Vec<MachineId> =
                        (0..*count).map(|number| id(&format!("{key}.{number}"))).collect();
                    stage.fleet.created(stage.now_ms, key, &Ok(ids.clone()));
                    stage.machines.extend(ids.into_iter().map(|id| Machine {
                        id,
                        offer: "t3.small".to_owned(),
                        state: MachineState::Running,
                        key: Some(key.clone()),
                        created_ms: None,
                    }));
                }
                Action::Terminate { machines } => stage.machines.retain(|it| !machines.contains(&it.id)),
                Action::Drain { .. } => panic!("{round}: {action:?}"),
            }
        }
    }
    assert!(asked < 15, "{asked} times in an hour");
    let why = &stage.fleet.state().troubles()["small"].why;
    assert!(why.contains("t3.small") && why.contains("asked for as \"small\""), "{why}");
}

#[test]
fn large_request_is_split() {
    let mut stage = Stage::new(7);
    let limits = Limits { request_max: 3, ..Limits::default() };
    stage.fleet = Fleet::new(offers(), limits, State::new("t"));
    let counts: Vec<u32> = stage
        .after(0)
        .iter()
        .map(|action| match action {
            Action::Create { count, .. } => *count,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(counts, [3, 3, 1]);
    assert_eq!(stage.after(1), [], "all of them are on their way");
}

#[test]
fn simultaneous_failures_count_once_until_machine_joins() {
    let mut stage = Stage::of_two();
    stage.want(12);
    let (_, key) = created(&stage.after(5));
    let ids: Vec<MachineId> = (0..10).map(|number| id(&format!("x{number}"))).collect();
    stage.fleet.created(stage.now_ms, &key, &Ok(ids.clone()));
    for id in &ids {
        stage.machines.push(machine(id.as_str(), MachineState::Failed("no image".to_owned()), Some(&key)));
    }
    stage.after(5);
    assert_eq!(stage.fleet.state().troubles()["small"].failures, 1);
    // A controller that takes over counts none of them again.
    let state = stage.fleet.state().clone();
    stage.fleet = Fleet::new(offers(), Limits::default(), state);
    stage.after(1);
    assert_eq!(stage.fleet.state().troubles()["small"].failures, 1);
    // Its node is a member when it is first listed.
    stage.machines.push(machine("y", MachineState::Running, None));
    stage.nodes.push(node("n9", "y"));
    stage.after(1);
    assert!(stage.fleet.state().troubles().is_empty());
}

#[test]
fn clock_jump_neither_ends_nor_delays_machines() {
    let mut stage = Stage::of_two();
    stage.want(1);
    stage.leave = vec![id("a")];
    assert_eq!(stage.after(5).len(), 1);
    stage.nodes.remove(0);
    assert_eq!(stage.after(5), [Action::Terminate { machines: vec![id("a")] }]);
    stage.want(9);
    let (_, key) = created(&stage.after(5));
    stage.fleet.created(stage.now_ms, &key, &Err(Refusal::unknown("no answer")));
    // The next controller runs on a machine with a clock that is an hour behind.
    let state = stage.fleet.state().clone();
    stage.fleet = Fleet::new(offers(), Limits::default(), state);
    stage.now_ms -= 3_600 * S;
    stage.after(0);
    let actions = stage.after(30);
    assert!(actions.contains(&Action::Terminate { machines: vec![id("a")] }), "{actions:?}");
    assert!(actions.iter().any(|action| matches!(action, Action::Create { .. })), "{actions:?}");
    // It was suspended with its whole machine.
    let mut stage = Stage::of_two();
    stage.want(3);
    stage.machines.push(machine("c", MachineState::Running, None));
    assert_eq!(stage.after(5), []);
    stage.fleet.leapt(3_600 * S);
    assert_eq!(stage.after(3_600), [], "it boots");
    assert_eq!(stage.after(601), [Action::Terminate { machines: vec![id("c")] }]);
}
