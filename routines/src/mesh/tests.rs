//! The state machines of a gateway and nodes, with messages that are lost, repeated and reordered.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use taskwork::NodeId;
use tokio::sync::mpsc;

use super::{
    LOSSES_MAX, Request, call,
    callee::{self, Callee, Key, QUEUE_OF_SLOT_MAX},
    caller::{self, Caller, Ended, REPEAT_MS, SILENCE_MS, Ticket},
    companions,
    message::{Load, Message, Spec},
};
use crate::{store::Body, tenant::Tenant};

const GATEWAY: NodeId = NodeId(100);

/// A gateway and nodes, with the messages between them.
struct Net {
    now_ms: u64,
    caller: Caller,
    nodes: BTreeMap<NodeId, Callee>,
    flight: Vec<(NodeId, NodeId, Message)>,
    running: Vec<(Key, NodeId)>,
    /// The nodes that have started each call; the argument of a call is its ticket.
    started: BTreeMap<Ticket, Vec<NodeId>>,
    ended: BTreeMap<Ticket, Ended>,
    sent: u64,
}

fn body(text: &str) -> Body {
    Body::Inline(text.to_owned())
}

fn spec(ticket: Ticket) -> Spec {
    let digest = format!("{:064x}", 7);
    Spec { digest, argument: body(&ticket.to_string()), limit_ms: 60_000, tenant: Tenant::default() }
}

impl Net {
    fn new(seed: u64, nodes: u64, slots: usize) -> Self {
        let mut net = Self {
            now_ms: 0,
            caller: Caller::new(seed),
            nodes: BTreeMap::new(),
            flight: Vec::new(),
            running: Vec::new(),
            started: BTreeMap::new(),
            ended: BTreeMap::new(),
            sent: 0,
        };
        for node in (0..nodes).map(NodeId) {
            let mut callee = Callee::new(slots);
            callee.on_joined(GATEWAY);
            net.nodes.insert(node, callee);
            net.caller.on_joined(node);
        }
        net.deliver_all();
        net
    }

    fn call(&mut self, ticket: Ticket) {
        self.caller.on_call(ticket, spec(ticket), self.now_ms);
        self.execute();
    }

    /// Executes effects: messages are in flight afterwards.
    fn execute(&mut self) {
        for (&node, callee) in &mut self.nodes {
            for effect in callee.take_effects() {
                match effect {
                    callee::Effect::Send(to, message) => self.flight.push((node, to, message)),
                    callee::Effect::Start(key, Spec { argument: Body::Inline(ticket), .. }) => {
                        self.started.entry(ticket.parse().unwrap()).or_default().push(node);
                        self.running.push((key, node));
                    }
                    callee::Effect::Start(..) => unreachable!("arguments are inline"),
                    // It ends soon.
                    callee::Effect::Stop(_) => {}
                }
            }
        }
        loop {
            let effects = self.caller.take_effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    caller::Effect::Send(to, message) => {
                        self.sent += 1;
                        if let Message::Call { number, .. } = message {
                            self.caller.on_sent(to, number, Some(self.sent), self.now_ms);
                        }
                        self.flight.push((GATEWAY, to, message));
                    }
                    caller::Effect::End(ticket, ended) => {
                        assert_eq!(self.ended.insert(ticket, ended), None, "call {ticket} ends once");
                    }
                }
            }
        }
    }

    fn deliver(&mut self, at: usize) {
        let (from, to, message) = self.flight.remove(at);
        if to == GATEWAY {
            self.caller.on_message(from, message, self.now_ms);
        } else if let Some(node) = self.nodes.get_mut(&to) {
            node.on_message(from, message, self.now_ms);
        }
        self.execute();
    }

    fn deliver_all(&mut self) {
        self.execute();
        while !self.flight.is_empty() {
            self.deliver(0);
        }
    }

    fn end(&mut self, at: usize) {
        let (key, node) = self.running.remove(at);
        if let Some(callee) = self.nodes.get_mut(&node) {
            callee.on_outcome(key, body("result"), self.now_ms);
        }
        self.execute();
    }

    fn tick(&mut self, ms: u64) {
        self.now_ms += ms;
        self.caller.on_tick(self.now_ms);
        self.nodes.values_mut().for_each(|node| node.on_tick(&body("late"), self.now_ms));
        self.execute();
    }

    /// Loses a node. Its messages in flight may still arrive.
    fn lose(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.running.retain(|(_, on)| *on != node);
    }

    /// Delivers messages and ends calls until nothing happens any more.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.deliver_all();
            while !self.running.is_empty() {
                self.end(0);
            }
            self.tick(REPEAT_MS);
        }
    }
}

#[test]
fn call_is_answered_once_and_forgotten() {
    let mut net = Net::new(1, 2, 1);
    net.call(1);
    net.deliver_all();
    assert_eq!(net.started[&1].len(), 1);
    net.end(0);
    let messages = net.flight.clone();
    net.deliver_all();
    assert_eq!(net.ended[&1], Ended::Answered(body("result")));
    // All messages a second time.
    net.flight = messages;
    net.settle();
    assert!(net.nodes.values().all(Callee::is_idle));
    // The nodes remember the earlier numbers.
    for node in [0, 1].map(NodeId) {
        net.caller.on_left(node);
        net.caller.on_joined(node);
    }
    net.deliver_all();
    net.call(2);
    net.settle();
    assert_eq!(net.ended[&2], Ended::Answered(body("result")));
}

#[test]
fn calls_start_at_most_once_and_end_once_whatever_happens_to_messages() {
    let mut refused = 0;
    for seed in 0..400 {
        let mut random = SmallRng::seed_from_u64(seed);
        // A single node is full at times.
        let (nodes, slots, at_once) = if seed % 2 == 0 { (3, 2, 1) } else { (1, 1, 3) };
        let mut net = Net::new(seed, nodes, slots);
        let (mut called, mut lost) = (0, BTreeSet::new());
        for step in 0..300 {
            let at = random.random_range(0..net.flight.len().max(1));
            match random.random_range(0..20) {
                0..3 => {
                    called += at_once;
                    (0..at_once as u64).for_each(|call| net.call(3 * step + call));
                }
                3..11 if !net.flight.is_empty() => net.deliver(at),
                11 if !net.flight.is_empty() => drop(net.flight.remove(at)),
                12 if !net.flight.is_empty() => net.flight.push(net.flight[at].clone()),
                13..16 if !net.running.is_empty() => net.end(at % net.running.len()),
                16..19 => net.tick(REPEAT_MS / 2),
                19 if random.random_bool(0.05) => {
                    net.nodes.values_mut().next_back().into_iter().for_each(Callee::leave);
                    net.execute();
                }
                19 if lost.len() as u64 + 1 < nodes && random.random_bool(0.1) => {
                    let node = NodeId(lost.len() as u64);
                    lost.insert(node);
                    net.lose(node);
                    net.caller.on_left(node);
                    net.execute();
                }
                _ => {}
            }
        }
        net.settle();
        assert_eq!(net.ended.len(), called, "seed {seed}");
        assert!(net.nodes.values().all(Callee::is_idle), "seed {seed}");
        for (ticket, ended) in &net.ended {
            let started = net.started.get(ticket).map_or(&[][..], Vec::as_slice);
            assert!(started.len() <= 1, "seed {seed}: call {ticket} on {started:?}: {ended:?}");
            let is_right = match ended {
                Ended::Answered(_) => !started.is_empty(),
                Ended::Unknown => !lost.is_empty() && started.iter().all(|node| lost.contains(node)),
                Ended::Busy | Ended::NoNode => started.is_empty(),
            };
            assert!(is_right, "seed {seed}: call {ticket} on {started:?}: {ended:?}");
            refused += usize::from(*ended == Ended::Busy);
        }
    }
    assert!(refused > 0);
}

#[test]
fn lost_node_ends_its_calls_and_gets_no_others() {
    for is_silent in [false, true] {
        let mut net = Net::new(1, 2, 1);
        net.call(1);
        net.deliver_all();
        let lost = net.started[&1][0];
        net.lose(lost);
        if is_silent {
            // ZooKeeper is unavailable: the node remains a member.
            for _ in 0..=SILENCE_MS / REPEAT_MS {
                net.tick(REPEAT_MS);
                net.deliver_all();
            }
        } else {
            net.caller.on_left(lost);
        }
        (2..5).for_each(|ticket| net.call(ticket));
        net.settle();
        assert_eq!(net.ended[&1], Ended::Unknown);
        for ticket in 2..5 {
            assert_eq!(net.ended[&ticket], Ended::Answered(body("result")), "{ticket}");
            assert!(net.started[&ticket][0] != lost, "{ticket}");
        }
    }
}

#[test]
fn end_of_the_service_job_ends_calls() {
    let mut net = Net::new(1, 1, 1);
    net.call(1);
    net.deliver_all();
    net.caller.on_over();
    net.execute();
    assert_eq!(net.ended, BTreeMap::from([(1, Ended::Unknown)]));
}

#[tokio::test]
async fn lost_idempotent_call_is_repeated_with_the_time_that_is_left() {
    let (requests, mut requested) = mpsc::unbounded_channel();
    companions().insert("j-0000000003".parse().unwrap(), requests);
    for (is_idempotent, times) in [(false, 1), (true, 1 + LOSSES_MAX)] {
        let call = tokio::spawn(call(spec(1), is_idempotent));
        for _ in 0..times {
            // A call that was not sent is no loss.
            for ended in [Ended::NoNode, Ended::Unknown] {
                let Request { spec, reply } = requested.recv().await.unwrap();
                assert!(spec.limit_ms <= 60_000);
                reply.send(ended).unwrap();
            }
        }
        assert_eq!(call.await.unwrap(), Ended::Unknown);
        assert!(requested.try_recv().is_err());
    }
    companions().clear();
}

#[test]
fn call_without_answer_ends_after_its_limit() {
    let mut net = Net::new(1, 1, 1);
    net.call(1);
    while net.ended.is_empty() {
        net.deliver_all();
        net.tick(REPEAT_MS);
        assert!(net.now_ms <= spec(1).limit_ms + SILENCE_MS);
    }
    assert_eq!(net.ended[&1], Ended::Unknown);
    net.settle();
    assert!(net.nodes[&NodeId(0)].is_idle(), "it is cancelled");
}

#[test]
fn refused_message_is_sent_to_another_node_without_doubt() {
    let mut net = Net::new(1, 2, 1);
    net.call(1);
    let (_, to, _) = net.flight.remove(0);
    // Its companion has exited.
    net.caller.on_refused(to, net.sent, net.now_ms);
    net.settle();
    assert!(net.started[&1][0] != to && net.ended[&1] == Ended::Answered(body("result")));
    // After a repetition the first copy may have been accepted.
    net.call(2);
    let sent = net.sent;
    net.tick(REPEAT_MS);
    let (_, to, _) = net.flight[0].clone();
    for message in sent..=net.sent {
        net.caller.on_refused(to, message, net.now_ms);
    }
    net.settle();
    assert_eq!(net.started[&2], [to]);
}

#[test]
fn full_queues_and_missing_nodes_end_calls() {
    let mut net = Net::new(1, 2, 1);
    let room = 2 * (1 + QUEUE_OF_SLOT_MAX) as u64;
    (0..=room).for_each(|ticket| {
        net.call(ticket);
        net.deliver_all();
    });
    assert_eq!(net.ended, BTreeMap::from([(room, Ended::Busy)]));
    net.settle();
    assert_eq!((net.ended.len() as u64, net.started.len() as u64), (room + 1, room));
    let mut alone = Net::new(1, 0, 0);
    alone.call(1);
    assert_eq!(alone.ended[&1], Ended::NoNode);
}

#[test]
fn leaving_node_answers_its_calls_and_gets_no_others() {
    let mut net = Net::new(1, 2, 1);
    net.call(1);
    net.deliver_all();
    let leaving = net.started[&1][0];
    net.nodes.get_mut(&leaving).unwrap().leave();
    net.call(2);
    net.call(3);
    net.deliver_all();
    assert!(!net.nodes[&leaving].is_idle(), "its call runs");
    net.settle();
    assert!((2..4).all(|ticket| net.started[&ticket][0] != leaving));
    assert!(net.ended.values().all(|ended| matches!(ended, Ended::Answered(_))));
}

#[test]
fn cordoned_node_answers_its_calls_and_gets_others_when_uncordoned() {
    let mut net = Net::new(1, 2, 1);
    net.call(1);
    net.deliver_all();
    let cordoned = net.started[&1][0];
    net.nodes.get_mut(&cordoned).unwrap().cordon(true);
    net.call(2);
    net.deliver_all();
    assert_ne!(net.started[&2][0], cordoned);
    net.nodes.get_mut(&cordoned).unwrap().cordon(false);
    net.end(0);
    net.deliver_all();
    net.call(3);
    net.settle();
    assert_eq!(net.started[&3][0], cordoned, "the other node has a call");
    assert!((1..4).all(|ticket| matches!(net.ended[&ticket], Ended::Answered(_))));
}

#[test]
fn leaving_node_refuses_its_waiting_calls_until_their_caller_knows() {
    let mut net = Net::new(1, 1, 1);
    net.call(1);
    net.call(2);
    net.deliver_all();
    let node = net.nodes.get_mut(&NodeId(0)).unwrap();
    node.leave();
    let refusals = node.take_effects();
    assert!(matches!(refusals[0], callee::Effect::Send(GATEWAY, Message::Busy { .. })), "{refusals:?}");
    net.end(0);
    net.deliver_all();
    assert!(net.nodes[&NodeId(0)].is_idle(), "it can leave");
    // The refusal was lost, and a question follows.
    net.settle();
    assert_eq!(net.ended[&1], Ended::Answered(body("result")));
    assert!(!net.started.contains_key(&2) && matches!(net.ended[&2], Ended::Busy | Ended::NoNode));
}

#[test]
fn lost_refusal_is_repeated() {
    let mut net = Net::new(1, 1, 1);
    let room = 1 + QUEUE_OF_SLOT_MAX as u64;
    (0..room).for_each(|ticket| net.call(ticket));
    net.deliver_all();
    net.call(room);
    net.deliver(0);
    let (_, _, refusal) = net.flight.remove(0);
    assert!(matches!(refusal, Message::Busy { .. }), "{refusal:?}");
    net.tick(REPEAT_MS);
    net.deliver_all();
    assert_eq!(net.ended, BTreeMap::from([(room, Ended::Busy)]));
}

#[test]
fn abandoned_calls_and_departed_callers_stop_their_calls() {
    let mut net = Net::new(1, 1, 1);
    net.call(1);
    net.call(2);
    net.deliver_all();
    net.caller.on_abandoned(2);
    net.deliver_all();
    let load = Load { slots: 1, calls: 1, warm: Vec::new() };
    // In case the first cancellation was lost.
    net.caller.on_message(NodeId(0), Message::Accepted { number: 1, load: load.clone() }, net.now_ms);
    let cancel = caller::Effect::Send(NodeId(0), Message::Cancel { number: 1 });
    assert_eq!(net.caller.take_effects(), [cancel]);
    let node = net.nodes.get_mut(&NodeId(0)).unwrap();
    node.on_message(GATEWAY, Message::Hello, net.now_ms);
    assert_eq!(node.take_effects(), [callee::Effect::Send(GATEWAY, Message::Load(load))]);
    node.on_left(GATEWAY);
    let stops = node.take_effects();
    assert!(matches!(stops[..], [callee::Effect::Stop(_)]), "{stops:?}");
    node.on_outcome(net.running[0].0, body("late"), net.now_ms);
    assert!(node.is_idle() && node.take_effects().is_empty(), "the other one has left the queue");
    // A late copy of a call that cannot be answered is not run.
    node.on_message(GATEWAY, Message::Call { number: 7, spec: spec(7) }, net.now_ms);
    assert!(node.take_effects().is_empty());
}

#[test]
fn idle_warm_runtime_is_preferred() {
    let mut caller = Caller::new(1);
    for node in 0..5 {
        caller.on_joined(NodeId(node));
        let warm = if node == 3 { vec![spec(0).warm_key()] } else { Vec::new() };
        let load = Load { slots: 2, calls: u32::from(node == 3), warm };
        caller.on_message(NodeId(node), Message::Load(load), 0);
    }
    caller.take_effects();
    for (ticket, is_warm) in [(1, true), (2, false), (3, false)] {
        caller.on_call(ticket, spec(ticket), 0);
        let effects = caller.take_effects();
        let [caller::Effect::Send(node, Message::Call { .. })] = effects[..] else { panic!("{effects:?}") };
        assert_eq!(node == NodeId(3), is_warm, "call {ticket}");
    }
}

#[test]
fn damaged_messages_are_refused() {
    let message = Message::Call { number: 3, spec: spec(1) };
    let encoded = message.encode();
    assert_eq!(Message::decode(&encoded), Some(message));
    assert!((0..encoded.len()).all(|end| Message::decode(&encoded[..end]).is_none()));
    assert_eq!(Message::decode(&[encoded, vec![0]].concat()), None);
}
