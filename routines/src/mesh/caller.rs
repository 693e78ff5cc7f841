//! The calls that this process makes on other nodes, as a pure state machine: it does no I/O and reads no clock.
//!
//! ```text
//!   waiting ──▶ sent ──▶ accepted ──▶ answered
//!     ▲           │ busy, refused         (once, by any order of messages)
//!     └───────────┤
//!                 │ node lost: again if the routine is idempotent, else its outcome is unknown
//! ```
//!
//! A call has a new number on each node that it is sent to, so an answer of an earlier node has no effect.

use std::collections::BTreeMap;

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use taskwork::NodeId;

use super::message::{Load, Message, Spec, warm_key};
use crate::store::Body;

/// The time after which an unanswered message is repeated.
pub(super) const REPEAT_MS: u64 = 250;

/// The time after which the node of a running call is asked whether it still runs.
const ASK_MS: u64 = 1_000;

/// The time without any message after which a node with calls is considered lost, although it is a member.
pub(super) const SILENCE_MS: u64 = 10_000;

/// The maximum time of one wait for a node, at first or after a rejection or a loss.
pub(super) const WAIT_MS: u64 = 10_000;

/// The maximum number of nodes that a call is tried on since its last loss, including the lost node.
pub(super) const TRIES_MAX: usize = 8;

/// The number of lost nodes after which an idempotent call is no longer repeated.
const LOSSES_MAX: u32 = 3;

/// The maximum number of calls of this process.
const CALLS_MAX: usize = 4_096;

/// The identification of a call in this process.
pub(crate) type Ticket = u64;

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    Answered(Body),
    /// It was not started: all nodes are busy.
    Busy,
    /// No node takes it. It was not started, or it is idempotent: then it may have run on a lost node, or until the
    /// service job ended.
    NoNode,
    /// It may have run, but its outcome is unknown: its node was lost, it had no answer in time, or the service job
    /// ended.
    Unknown,
}

/// An effect of an event.
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

/// A node.
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
    spec: Spec,
    is_idempotent: bool,
    until_ms: u64,
    losses: u32,
    /// The nodes that did not take it since its last loss, and the node of that loss.
    tried: Vec<NodeId>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Waiting { until_ms: u64 },
    Sent(Sent),
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

    /// Removes the effects so far.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(super) fn on_call(&mut self, ticket: Ticket, spec: Spec, is_idempotent: bool, now_ms: u64) {
        if self.calls.len() >= CALLS_MAX {
            return self.effects.push(Effect::End(ticket, Ended::Busy));
        }
        let until_ms = now_ms.saturating_add(spec.limit_ms);
        let stage = Stage::Waiting { until_ms: until_ms.min(now_ms + WAIT_MS) };
        let open = Open { spec, is_idempotent, until_ms, losses: 0, tried: Vec::new(), stage };
        self.calls.insert(ticket, open);
        self.send(ticket, now_ms);
    }

    /// Cancels a call.
    pub(super) fn on_abandoned(&mut self, ticket: Ticket) {
        let Some(Open { stage: Stage::Sent(sent), .. }) = self.calls.remove(&ticket) else { return };
        self.forget(sent);
        self.effects.push(Effect::Send(sent.node, Message::Cancel { number: sent.number }));
    }

    /// Ends all calls, at the end of the service job.
    pub(super) fn on_over(&mut self) {
        for (ticket, open) in std::mem::take(&mut self.calls) {
            let may_repeat = open.is_idempotent || matches!(open.stage, Stage::Waiting { .. });
            let ended = if may_repeat { Ended::NoNode } else { Ended::Unknown };
            self.effects.push(Effect::End(ticket, ended));
        }
    }

    pub(super) fn on_joined(&mut self, node: NodeId) {
        // A node that left and joined again may remember the numbers of earlier calls, so numbers start at a random
        // value.
        let next = u64::from(self.random.random::<u32>()) << u32::BITS;
        self.nodes.entry(node).or_insert_with(|| Known { next, ..Known::default() });
        self.effects.push(Effect::Send(node, Message::Hello));
    }

    pub(super) fn on_left(&mut self, node: NodeId, now_ms: u64) {
        if let Some(known) = self.nodes.remove(&node) {
            self.lose(node, known.calls, now_ms);
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
            | Message::Settled { .. } => return,
        }
        self.send_waiting(now_ms);
    }

    /// Repeats messages, and gives up nodes that are silent and calls that wait too long.
    pub(super) fn on_tick(&mut self, now_ms: u64) {
        let is_silent = |known: &Known| !known.calls.is_empty() && now_ms >= known.heard_ms + SILENCE_MS;
        let silent = self.nodes.iter().filter(|(_, known)| is_silent(known)).map(|(&node, _)| node);
        for node in silent.collect::<Vec<_>>() {
            let Some(known) = self.nodes.get_mut(&node) else { continue };
            known.load = None;
            let calls = std::mem::take(&mut known.calls);
            self.lose(node, calls, now_ms);
        }
        let overdue = self.calls.iter().filter(|(_, open)| now_ms >= open.until_ms + SILENCE_MS);
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
        for (ticket, open) in &mut self.calls {
            match &mut open.stage {
                Stage::Waiting { until_ms } if now_ms >= *until_ms => {
                    self.effects.push(Effect::End(*ticket, Ended::NoNode));
                }
                Stage::Sent(sent) if !sent.is_accepted && now_ms >= sent.at_ms + REPEAT_MS => {
                    (sent.at_ms, sent.copies, sent.message) = (now_ms, sent.copies + 1, None);
                    let (number, limit_ms) = (sent.number, open.until_ms.saturating_sub(now_ms));
                    let spec = Spec { limit_ms, ..open.spec.clone() };
                    self.effects.push(Effect::Send(sent.node, Message::Call { number, spec }));
                }
                Stage::Sent(sent) if now_ms >= sent.at_ms + ASK_MS => {
                    sent.at_ms = now_ms;
                    self.effects.push(Effect::Send(sent.node, Message::Ask { number: sent.number }));
                }
                Stage::Waiting { .. } | Stage::Sent(_) => {}
            }
        }
        self.calls.retain(|_, open| !matches!(open.stage, Stage::Waiting { until_ms } if now_ms >= until_ms));
    }

    /// Returns the call with this number on a node.
    fn sent(&mut self, node: NodeId, number: u64) -> Option<&mut Sent> {
        let ticket = self.nodes.get(&node)?.calls.get(&number)?;
        match &mut self.calls.get_mut(ticket)?.stage {
            Stage::Sent(sent) => Some(sent),
            Stage::Waiting { .. } => None,
        }
    }

    fn forget(&mut self, sent: Sent) {
        if let Some(known) = self.nodes.get_mut(&sent.node) {
            known.calls.remove(&sent.number);
        }
    }

    /// Sends a call to another node, since this one does not have it.
    fn try_elsewhere(&mut self, node: NodeId, number: u64, now_ms: u64) {
        let Some(ticket) = self.nodes.get_mut(&node).and_then(|known| known.calls.remove(&number)) else {
            return;
        };
        self.wait(ticket, node, now_ms);
        self.send(ticket, now_ms);
    }

    fn wait(&mut self, ticket: Ticket, tried: NodeId, now_ms: u64) {
        if let Some(open) = self.calls.get_mut(&ticket) {
            open.tried.push(tried);
            open.stage = Stage::Waiting { until_ms: open.until_ms.min(now_ms + WAIT_MS) };
        }
    }

    /// Handles the loss of a node with calls.
    fn lose(&mut self, node: NodeId, calls: BTreeMap<u64, Ticket>, now_ms: u64) {
        if !calls.is_empty() {
            tracing::warn!(%node, calls = calls.len(), "a node is lost with direct calls");
        }
        for ticket in calls.into_values() {
            let Some(open) = self.calls.get_mut(&ticket) else { continue };
            open.losses += 1;
            if open.is_idempotent && open.losses < LOSSES_MAX {
                open.tried.clear();
                self.wait(ticket, node, now_ms);
                self.send(ticket, now_ms);
            } else {
                self.calls.remove(&ticket);
                self.effects.push(Effect::End(ticket, Ended::Unknown));
            }
        }
    }

    fn send_waiting(&mut self, now_ms: u64) {
        let is_waiting = |open: &Open| matches!(open.stage, Stage::Waiting { .. });
        let waiting = self.calls.iter().filter(|(_, open)| is_waiting(open)).map(|(&ticket, _)| ticket);
        for ticket in waiting.collect::<Vec<_>>() {
            self.send(ticket, now_ms);
        }
    }

    /// Sends a waiting call to a node. It keeps waiting if no node serves calls. If all of them, or `TRIES_MAX`, were
    /// tried, it ends as busy, or waits if a node was lost with it.
    fn send(&mut self, ticket: Ticket, now_ms: u64) {
        let Some(open) = self.calls.get_mut(&ticket) else { return };
        let serves = |known: &Known| known.load.as_ref().is_some_and(|load| load.slots > 0);
        let mut nodes = self.nodes.iter().filter(|(_, known)| serves(known)).peekable();
        if nodes.peek().is_none() {
            return;
        }
        let candidates: Vec<(NodeId, &Load)> = nodes
            .filter(|(node, _)| !open.tried.contains(node))
            .filter_map(|(&node, known)| Some((node, known.load.as_ref()?)))
            .collect();
        let node = choose(&candidates, warm_key(&open.spec.digest), &mut self.random);
        let Some(node) = node.filter(|_| open.tried.len() < TRIES_MAX) else {
            if open.losses == 0 {
                self.calls.remove(&ticket);
                self.effects.push(Effect::End(ticket, Ended::Busy));
            }
            // Otherwise it waits for a node that was not tried.
            return;
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
        open.stage =
            Stage::Sent(Sent { node, number, at_ms: now_ms, is_accepted: false, copies: 1, message: None });
        let spec = Spec { limit_ms: open.until_ms.saturating_sub(now_ms), ..open.spec.clone() };
        self.effects.push(Effect::Send(node, Message::Call { number, spec }));
    }
}

/// Returns the least loaded node with an idle warm runtime, or else the less loaded one of two random nodes.
fn choose(nodes: &[(NodeId, &Load)], warm: u64, random: &mut SmallRng) -> Option<NodeId> {
    // A few thousandths suffice: loads are estimates.
    let share = |load: &Load| u64::from(load.calls) * 1_000 / u64::from(load.slots.max(1));
    let is_warm = |load: &Load| load.calls < load.slots && load.warm.contains(&warm);
    let warm = nodes.iter().filter(|(_, load)| is_warm(load)).min_by_key(|(_, load)| share(load));
    if let Some((node, _)) = warm {
        return Some(*node);
    }
    let first = random.random_range(0..nodes.len().max(1));
    let (first, other) = (nodes.get(first)?, nodes.len().checked_sub(1).filter(|&others| others > 0));
    let Some(others) = other else { return Some(first.0) };
    let second = random.random_range(0..others);
    let second = nodes.iter().filter(|node| node.0 != first.0).nth(second)?;
    Some(if share(second.1) < share(first.1) { second.0 } else { first.0 })
}
