//! The calls that this process makes on other nodes, as a pure state machine: it does no I/O and reads no clock.
//!
//! ```text
//!   sent ──▶ accepted ──▶ answered
//!   ▲  │ busy, refused        (once, by any order of messages)
//!   └──┤
//!      │ node lost: the outcome is unknown
//! ```
//!
//! A call has a new number on each node that it is sent to, so an answer of an earlier node has no effect.

use std::collections::BTreeMap;

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use taskwork::NodeId;

use super::message::{Load, Message, Spec};
use crate::store::Body;

/// The time after which an unanswered message is repeated.
pub(super) const REPEAT_MS: u64 = 250;

/// The time after which the node of a running call is asked whether it still runs.
const ASK_MS: u64 = 1_000;

/// The time without any message after which a node with calls is considered lost, although it is a member.
pub(super) const SILENCE_MS: u64 = 10_000;

/// The maximum number of nodes that a call is tried on.
pub(super) const TRIES_MAX: usize = 8;

/// The maximum number of calls of this process.
const CALLS_MAX: usize = 4_096;

/// The identification of a call in this process.
pub(crate) type Ticket = u64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    Answered(Body),
    /// It was not started: all nodes are busy.
    Busy,
    /// It was not started: no node takes it.
    NoNode,
    /// It may have run, but its outcome is unknown: its node was lost, it had no answer in time, or the service job
    /// ended.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    Send(NodeId, Message),
    End(Ticket, Ended),
}

/// The calls of this process.
#[derive(Debug)]
pub(crate) struct Caller {
    random: SmallRng,
    nodes: BTreeMap<NodeId, Known>,
    calls: BTreeMap<Ticket, Open>,
    effects: Vec<Effect>,
}

#[derive(Debug, Default)]
struct Known {
    /// `None` until it has reported it, or after it was silent.
    load: Option<Load>,
    heard_ms: u64,
    /// The number of the next call.
    next: u64,
    /// The calls on the node, by number.
    calls: BTreeMap<u64, Ticket>,
}

/// A call that has not ended.
#[derive(Debug)]
struct Open {
    wanted: Wanted,
    sent: Sent,
}

#[derive(Debug)]
struct Wanted {
    spec: Spec,
    until_ms: u64,
    /// The nodes that did not take it.
    tried: Vec<NodeId>,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    node: NodeId,
    number: u64,
    at_ms: u64,
    is_accepted: bool,
    /// The number of messages with the call.
    copies: u32,
    /// The number of the message with the first copy, while it is the only copy: if that message is refused, the node
    /// does not have the call.
    message: Option<u64>,
}

impl Caller {
    pub(super) fn new(seed: u64) -> Self {
        let random = SmallRng::seed_from_u64(seed);
        Self { random, nodes: BTreeMap::new(), calls: BTreeMap::new(), effects: Vec::new() }
    }

    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(super) fn on_call(&mut self, ticket: Ticket, spec: Spec, now_ms: u64) {
        if self.calls.len() >= CALLS_MAX {
            return self.effects.push(Effect::End(ticket, Ended::Busy));
        }
        let until_ms = now_ms.saturating_add(spec.limit_ms);
        self.send(ticket, Wanted { spec, until_ms, tried: Vec::new() }, now_ms);
    }

    pub(super) fn on_abandoned(&mut self, ticket: Ticket) {
        let Some(Open { sent, .. }) = self.calls.remove(&ticket) else { return };
        if let Some(known) = self.nodes.get_mut(&sent.node) {
            known.calls.remove(&sent.number);
        }
        self.effects.push(Effect::Send(sent.node, Message::Cancel { number: sent.number }));
    }

    /// Ends all calls, at the end of the service job.
    pub(super) fn on_over(&mut self) {
        for ticket in std::mem::take(&mut self.calls).into_keys() {
            self.effects.push(Effect::End(ticket, Ended::Unknown));
        }
    }

    pub(super) fn on_joined(&mut self, node: NodeId) {
        // A node that left and joined again may remember the numbers of earlier calls, so numbers start at a random
        // value.
        let next = u64::from(self.random.random::<u32>()) << u32::BITS;
        self.nodes.entry(node).or_insert_with(|| Known { next, ..Known::default() });
        self.effects.push(Effect::Send(node, Message::Hello));
    }

    pub(super) fn on_left(&mut self, node: NodeId) {
        if let Some(known) = self.nodes.remove(&node) {
            self.lose(node, known.calls);
        }
    }

    /// Notes the number of the message with a call; `None` if it was not sent.
    pub(super) fn on_sent(&mut self, node: NodeId, number: u64, message: Option<u64>, now_ms: u64) {
        // Only the first copy counts: after a repetition, an earlier copy may have been accepted.
        let Some(sent) = self.sent(node, number).filter(|sent| sent.copies == 1) else { return };
        sent.message = message;
        if message.is_none() {
            self.try_elsewhere(node, number, now_ms);
        }
    }

    /// Handles a message that its receiver has not accepted.
    pub(super) fn on_refused(&mut self, node: NodeId, message: u64, now_ms: u64) {
        let numbers = self.nodes.get(&node).map(|known| known.calls.keys().copied().collect::<Vec<_>>());
        let is_it = |caller: &mut Self, number| {
            caller.sent(node, number).is_some_and(|sent| !sent.is_accepted && sent.message == Some(message))
        };
        if let Some(number) = numbers.unwrap_or_default().into_iter().find(|&number| is_it(self, number)) {
            self.try_elsewhere(node, number, now_ms);
        }
    }

    pub(super) fn on_message(&mut self, from: NodeId, message: Message, now_ms: u64) {
        let Some(known) = self.nodes.get_mut(&from) else { return };
        known.heard_ms = now_ms;
        match message {
            Message::Load(load) => known.load = Some(load),
            Message::Accepted { number, load } => {
                known.load = Some(load);
                match self.sent(from, number) {
                    Some(sent) => sent.is_accepted = true,
                    // It was abandoned, or runs elsewhere.
                    None => self.effects.push(Effect::Send(from, Message::Cancel { number })),
                }
            }
            Message::Busy { number, load } => {
                known.load = Some(load);
                self.try_elsewhere(from, number, now_ms);
            }
            Message::Answer { number, outcome, load } => {
                known.load = Some(load);
                self.effects.push(Effect::Send(from, Message::Settled { number }));
                if let Some(ticket) = known.calls.remove(&number) {
                    self.calls.remove(&ticket);
                    self.effects.push(Effect::End(ticket, Ended::Answered(outcome)));
                }
            }
            // For nodes.
            Message::Hello
            | Message::Call { .. }
            | Message::Ask { .. }
            | Message::Cancel { .. }
            | Message::Settled { .. } => {}
        }
    }

    /// Repeats messages, and gives up nodes that are silent and calls that take too long.
    pub(super) fn on_tick(&mut self, now_ms: u64) {
        let is_silent = |known: &Known| !known.calls.is_empty() && now_ms >= known.heard_ms + SILENCE_MS;
        let silent = self.nodes.iter().filter(|(_, known)| is_silent(known)).map(|(&node, _)| node);
        for node in silent.collect::<Vec<_>>() {
            let Some(known) = self.nodes.get_mut(&node) else { continue };
            known.load = None;
            let calls = std::mem::take(&mut known.calls);
            self.lose(node, calls);
        }
        let overdue =
            self.calls.iter().filter(|(_, open)| now_ms >= open.wanted.until_ms.saturating_add(SILENCE_MS));
        for ticket in overdue.map(|(&ticket, _)| ticket).collect::<Vec<_>>() {
            // The node answers, but not this call.
            self.on_abandoned(ticket);
            self.effects.push(Effect::End(ticket, Ended::Unknown));
        }
        for (&node, known) in &self.nodes {
            if known.load.is_none() {
                self.effects.push(Effect::Send(node, Message::Hello));
            }
        }
        for Open { wanted, sent } in self.calls.values_mut() {
            let interval = if sent.is_accepted { ASK_MS } else { REPEAT_MS };
            if now_ms < sent.at_ms + interval {
                continue;
            }
            sent.at_ms = now_ms;
            let number = sent.number;
            let message = if sent.is_accepted {
                Message::Ask { number }
            } else {
                (sent.copies, sent.message) = (sent.copies + 1, None);
                Message::Call { number, spec: wanted.spec(now_ms) }
            };
            self.effects.push(Effect::Send(sent.node, message));
        }
    }

    /// Returns the call with this number on a node.
    fn sent(&mut self, node: NodeId, number: u64) -> Option<&mut Sent> {
        let ticket = self.nodes.get(&node)?.calls.get(&number)?;
        Some(&mut self.calls.get_mut(ticket)?.sent)
    }

    /// Sends a call to another node, since this one does not have it.
    fn try_elsewhere(&mut self, node: NodeId, number: u64, now_ms: u64) {
        let ticket = self.nodes.get_mut(&node).and_then(|known| known.calls.remove(&number));
        let Some((ticket, open)) = ticket.and_then(|ticket| self.calls.remove_entry(&ticket)) else { return };
        let mut wanted = open.wanted;
        wanted.tried.push(node);
        self.send(ticket, wanted, now_ms);
    }

    /// Handles the loss of a node with calls.
    fn lose(&mut self, node: NodeId, calls: BTreeMap<u64, Ticket>) {
        if !calls.is_empty() {
            tracing::warn!(%node, calls = calls.len(), "a node is lost with direct calls");
        }
        for ticket in calls.into_values() {
            self.calls.remove(&ticket);
            self.effects.push(Effect::End(ticket, Ended::Unknown));
        }
    }

    /// Sends a call to a node. It ends if there are only busy ones, or none.
    fn send(&mut self, ticket: Ticket, wanted: Wanted, now_ms: u64) {
        let serves = |known: &Known| known.load.as_ref().is_some_and(|load| load.slots > 0);
        let mut nodes = self.nodes.iter().filter(|(_, known)| serves(known)).peekable();
        if nodes.peek().is_none() {
            return self.effects.push(Effect::End(ticket, Ended::NoNode));
        }
        let candidates: Vec<(NodeId, &Load)> = nodes
            .filter(|(node, _)| !wanted.tried.contains(node))
            .filter_map(|(&node, known)| Some((node, known.load.as_ref()?)))
            .collect();
        let node = choose(&candidates, wanted.spec.warm_key(), &mut self.random);
        let Some(node) = node.filter(|_| wanted.tried.len() < TRIES_MAX) else {
            return self.effects.push(Effect::End(ticket, Ended::Busy));
        };
        let Some(known) = self.nodes.get_mut(&node) else { return };
        if known.calls.is_empty() {
            known.heard_ms = now_ms;
        }
        let number = known.next;
        known.next += 1;
        known.calls.insert(number, ticket);
        if let Some(load) = &mut known.load {
            // Until the node reports it.
            load.calls += 1;
        }
        let spec = wanted.spec(now_ms);
        self.effects.push(Effect::Send(node, Message::Call { number, spec }));
        let sent = Sent { node, number, at_ms: now_ms, is_accepted: false, copies: 1, message: None };
        self.calls.insert(ticket, Open { wanted, sent });
    }
}

impl Wanted {
    /// Returns the call with the time that is left.
    fn spec(&self, now_ms: u64) -> Spec {
        Spec { limit_ms: self.until_ms.saturating_sub(now_ms), ..self.spec.clone() }
    }
}

/// Returns the least loaded node, among those with an idle warm runtime if there are any.
fn choose(nodes: &[(NodeId, &Load)], warm: u64, random: &mut SmallRng) -> Option<NodeId> {
    // A few thousandths suffice: loads are estimates.
    let share = |load: &Load| u64::from(load.calls) * 1_000 / u64::from(load.slots.max(1));
    let is_warm = |load: &Load| load.calls < load.slots && load.warm.contains(&warm);
    let key = |(_, load): &&(NodeId, &Load)| (!is_warm(load), share(load), random.random::<u32>());
    nodes.iter().min_by_key(key).map(|(node, _)| *node)
}
