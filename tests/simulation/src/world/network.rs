//! The network between nodes: messages are delayed, lost, repeated and reordered; machines are cut off from
//! each other, in one or both directions.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng as _;
use taskwork::{
    NodeId,
    fuzzing::describe,
    simulation::{Inbox, carries_tasks, subject},
};

use super::{MachineId, State};
use crate::invariants::Seen;

#[derive(Debug, Default)]
pub(super) struct Network {
    inboxes: BTreeMap<NodeId, Inbox>,
    /// The pairs of machines with a cut connection, as sender and receiver.
    cut: BTreeSet<(MachineId, MachineId)>,
    /// The time at which the connection from one node to another is free again.
    free_at: BTreeMap<(NodeId, NodeId), u64>,
    /// The messages that wait for their connection, or are in transit, by subject.
    under_way: BTreeMap<(NodeId, NodeId, Subject), usize>,
}

/// The subject of a message: its job, its grant, and its kind.
type Subject = (u64, u64, u8);

impl State {
    pub(super) fn listen(&mut self, node: NodeId, inbox: Inbox) {
        self.network.inboxes.insert(node, inbox);
    }

    pub(super) fn hang_up(&mut self, node: NodeId) {
        self.network.inboxes.remove(&node);
    }

    /// Cuts the connection from one machine to another for a while.
    pub(crate) fn cut(&mut self, from: MachineId, to: MachineId, ms: u64) {
        self.network.cut.insert((from, to));
        self.after(ms, move |state| {
            state.network.cut.remove(&(from, to));
        });
    }

    pub(super) fn is_cut(&self, from: MachineId, to: MachineId) -> bool {
        self.network.cut.contains(&(from, to))
    }

    pub(super) fn inbox(&self, node: NodeId) -> Option<&Inbox> {
        self.network.inboxes.get(&node)
    }

    /// Returns whether a message about this subject is already in transit to a node.
    pub(super) fn is_under_way(&self, from: NodeId, to: NodeId, about: Subject) -> bool {
        self.network.under_way.get(&(from, to, about)).is_some_and(|&copies| copies > 0)
    }

    pub(super) fn send(&mut self, from: NodeId, to: NodeId, payload: Vec<u8>) {
        let Some(sender) = self.machines.of(from) else { return };
        self.counts.messages += 1;
        self.counts.grants += u64::from(carries_tasks(&payload));
        self.see(&Seen::Sent { from, to, payload: &payload });
        let Some(about) = subject(&payload).filter(|_| self.rates.bytes_per_ms > 0) else {
            return self.at(sender, move |state| state.carry(from, to, &payload));
        };
        let copies = self.network.under_way.entry((from, to, about)).or_default();
        *copies += 1;
        let copies = *copies;
        self.see(&Seen::Waits { from, to, copies, bytes: payload.len() });
        self.at(sender, move |state| state.wait_for_way(from, to, about, payload));
    }

    /// Makes a message wait for earlier ones, and then for its own transmission.
    fn wait_for_way(&mut self, from: NodeId, to: NodeId, about: Subject, payload: Vec<u8>) {
        let takes = payload.len() as u64 / self.rates.bytes_per_ms.max(1);
        let free_at = self.network.free_at.entry((from, to)).or_default();
        *free_at = (*free_at).max(self.now) + takes;
        let wait = *free_at - self.now;
        self.after(wait, move |state| {
            if let Some(copies) = state.network.under_way.get_mut(&(from, to, about)) {
                *copies -= 1;
            }
            state.carry(from, to, &payload);
        });
    }

    /// Delivers a message, lost or repeated at random.
    fn carry(&mut self, from: NodeId, to: NodeId, payload: &[u8]) {
        if self.chance(self.rates.lost) {
            self.note(format_args!("{from} > {to} {} is lost", describe(payload)));
            if self.random.random() {
                self.report_unreachable(from, to);
            }
            return;
        }
        let copies = 1 + u32::from(self.chance(self.rates.repeated));
        for _ in 0..copies {
            let (ms, payload) = (self.latency(), payload.to_vec());
            self.after(ms, move |state| state.arrive(from, to, payload));
        }
    }

    fn arrive(&mut self, from: NodeId, to: NodeId, payload: Vec<u8>) {
        let (Some(sender), Some(receiver)) = (self.machines.of(from), self.machines.of(to)) else {
            return;
        };
        let reached = !self.is_cut(sender, receiver) && !self.machines.is_dead(receiver);
        if !reached || !self.network.inboxes.contains_key(&to) {
            self.note(format_args!("{from} > {to} {} does not arrive", describe(&payload)));
            return self.report_unreachable(from, to);
        }
        self.at(receiver, move |state| {
            state.note(format_args!("{from} > {to} {}", describe(&payload)));
            if let Some(inbox) = state.network.inboxes.get(&to) {
                inbox.message(from, payload);
            }
        });
    }

    /// Notifies a sender, after a delay, that a message did not arrive.
    fn report_unreachable(&mut self, from: NodeId, to: NodeId) {
        let Some(sender) = self.machines.of(from) else { return };
        let ms = self.random.random_range(1..=30);
        self.after(ms, move |state| {
            state.at(sender, move |state| {
                if let Some(inbox) = state.network.inboxes.get(&from) {
                    inbox.unreachable(to);
                }
            });
        });
    }

    /// Puts a message that no node has sent into a node's inbox, under any name.
    pub(crate) fn smuggle(&mut self, from: NodeId, to: NodeId, payload: Vec<u8>) {
        self.note(format_args!("impersonating {from} > {to} {}", describe(&payload)));
        if let Some(inbox) = self.network.inboxes.get(&to) {
            inbox.message(from, payload);
        }
    }
}
