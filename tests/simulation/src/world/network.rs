//! The network between nodes: messages are delayed, lost, repeated and reordered; machines are cut off from each other, both ways
//! or one way.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng as _;
use taskwork::{
    NodeId,
    simulation::{Inbox, carries_tasks, describe},
};

use super::{MachineId, State};
use crate::invariants::Seen;

#[derive(Debug, Default)]
pub(super) struct Network {
    inboxes: BTreeMap<NodeId, Inbox>,
    /// From one machine to another nothing comes through.
    cut: BTreeSet<(MachineId, MachineId)>,
}

impl State {
    pub(super) fn listen(&mut self, node: NodeId, inbox: Inbox) {
        self.network.inboxes.insert(node, inbox);
    }

    pub(super) fn hang_up(&mut self, node: NodeId) {
        self.network.inboxes.remove(&node);
    }

    /// Cuts the way from one machine to another, for a while.
    pub(crate) fn cut(&mut self, from: MachineId, to: MachineId, ms: u64) {
        self.network.cut.insert((from, to));
        self.after(ms, move |state| {
            state.network.cut.remove(&(from, to));
        });
    }

    /// A node sends a message.
    pub(super) fn send(&mut self, from: NodeId, to: NodeId, payload: Vec<u8>) {
        let Some(sender) = self.machines.of(from) else { return };
        self.counts.messages += 1;
        self.counts.grants += u64::from(carries_tasks(&payload));
        self.see(&Seen::Sent { from, to, payload: &payload });
        self.at(sender, move |state| state.carry(from, to, &payload));
    }

    /// A message is under way, as often as chance has it.
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
        let reached = !self.network.cut.contains(&(sender, receiver)) && !self.machines.is_dead(receiver);
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

    /// A sender hears, a little later, that a message did not arrive.
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

    /// A message that no node has sent gets into a node's inbox, under whatever name.
    pub(crate) fn smuggle(&mut self, from: NodeId, to: NodeId, payload: Vec<u8>) {
        self.note(format_args!("somebody who says to be {from} > {to} {}", describe(&payload)));
        if let Some(inbox) = self.network.inboxes.get(&to) {
            inbox.message(from, payload);
        }
    }
}
