//! The calls that other processes make on this node, as a pure state machine: it does no I/O and reads no clock.
//!
//! A call is accepted at most once: its number is remembered as long as its caller is a member. The answer is repeated
//! until the caller has settled it.

use std::collections::{BTreeMap, VecDeque};

use taskwork::NodeId;

use super::{
    caller::REPEAT_MS,
    message::{Load, Message, Spec},
};
use crate::{ranges::Ranges, store::Body};

/// The maximum number of waiting calls for each slot.
pub(super) const QUEUE_OF_SLOT_MAX: usize = 16;

/// The maximum number of calls, including those with answers that are not settled.
const CALLS_MAX: usize = 4_096;

/// A call: its caller, and its number there.
pub(crate) type Key = (NodeId, u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    Send(NodeId, Message),
    /// Run a call, with this time left.
    Start(Key, Spec),
    Stop(Key),
}

/// The calls on this node.
#[derive(Debug)]
pub(crate) struct Callee {
    slots: usize,
    running: usize,
    is_leaving: bool,
    is_cordoned: bool,
    warm: Vec<u64>,
    /// The numbers that each member has used.
    used: BTreeMap<NodeId, Ranges>,
    calls: BTreeMap<Key, Call>,
    queue: VecDeque<Key>,
    effects: Vec<Effect>,
}

#[derive(Debug)]
enum Call {
    Waiting { spec: Spec, until_ms: u64 },
    Running,
    Answered { outcome: Body, sent_ms: u64 },
}

impl Callee {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots,
            running: 0,
            is_leaving: false,
            is_cordoned: false,
            warm: Vec::new(),
            used: BTreeMap::new(),
            calls: BTreeMap::new(),
            queue: VecDeque::new(),
            effects: Vec::new(),
        }
    }

    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Sets the packages with an idle runtime.
    pub(super) fn set_warm(&mut self, warm: Vec<u64>) {
        self.warm = warm;
    }

    /// Accepts no more calls, and refuses those that wait: other nodes can make them.
    pub(super) fn leave(&mut self) {
        self.is_leaving = true;
        self.announce();
    }

    /// Accepts no more calls until the node is uncordoned, like a node that leaves.
    pub(super) fn cordon(&mut self, is_cordoned: bool) {
        self.is_cordoned = is_cordoned;
        self.announce();
    }

    fn is_closed(&self) -> bool {
        self.is_leaving || self.is_cordoned
    }

    /// Reports whether the node accepts calls, and refuses those that wait if it does not.
    fn announce(&mut self) {
        let refused = if self.is_closed() { std::mem::take(&mut self.queue) } else { VecDeque::new() };
        for key in refused {
            self.calls.remove(&key);
            self.refuse(key);
        }
        let load = self.report();
        self.effects.extend(self.used.keys().map(|&node| Effect::Send(node, Message::Load(load.clone()))));
    }

    /// Returns whether the node can leave without the loss of a call.
    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn on_message(&mut self, from: NodeId, message: Message, now_ms: u64) {
        match message {
            Message::Hello => {
                self.effects.push(Effect::Send(from, Message::Load(self.report())));
            }
            Message::Call { number, spec } => self.on_call((from, number), spec, now_ms),
            Message::Ask { number } => self.repeat((from, number)),
            Message::Cancel { number } => self.cancel((from, number)),
            Message::Settled { number } => {
                if let Some(Call::Answered { .. }) = self.calls.get(&(from, number)) {
                    self.calls.remove(&(from, number));
                }
            }
            // For callers.
            Message::Load(_) | Message::Accepted { .. } | Message::Busy { .. } | Message::Answer { .. } => {}
        }
    }

    pub(super) fn on_joined(&mut self, node: NodeId) {
        self.used.entry(node).or_default();
    }

    /// Handles the departure of a caller: its calls are cancelled.
    pub(super) fn on_left(&mut self, node: NodeId) {
        let calls = self.calls.range((node, 0)..=(node, u64::MAX)).map(|(&key, _)| key).collect::<Vec<_>>();
        for key in calls {
            self.cancel(key);
        }
        self.used.remove(&node);
    }

    /// Handles the end of a call that was [started](Effect::Start).
    pub(super) fn on_outcome(&mut self, key: Key, outcome: Body, now_ms: u64) {
        self.running -= 1;
        if self.calls.contains_key(&key) {
            self.answer(key, outcome, now_ms);
        }
        while self.running < self.slots
            && let Some(key) = self.queue.pop_front()
        {
            self.start(key, now_ms);
        }
    }

    /// Repeats answers. `late` is the outcome of a call that has waited for too long.
    pub(super) fn on_tick(&mut self, late: &Body, now_ms: u64) {
        let is_late = |key: &Key| matches!(self.calls.get(key), Some(Call::Waiting { until_ms, .. }) if now_ms >= *until_ms);
        let (expired, left) = std::mem::take(&mut self.queue).into_iter().partition(is_late);
        self.queue = left;
        for key in Vec::from(expired) {
            self.answer(key, late.clone(), now_ms);
        }
        let mut due = Vec::new();
        for (&key, call) in &mut self.calls {
            if let Call::Answered { sent_ms, .. } = call
                && now_ms >= *sent_ms + REPEAT_MS
            {
                *sent_ms = now_ms;
                due.push(key);
            }
        }
        for key in due {
            self.repeat(key);
        }
    }

    fn on_call(&mut self, key: Key, spec: Spec, now_ms: u64) {
        if self.calls.contains_key(&key) {
            return self.repeat(key);
        }
        let (from, number) = key;
        // A call of a node that has left, or is not yet known, would never be settled.
        let Some(used) = self.used.get_mut(&from) else { return };
        if used.contains(number) {
            // It was refused, which its caller may not know, or its caller has forgotten it.
            return self.refuse(key);
        }
        used.insert(number..number + 1);
        let is_full = self.queue.len() >= self.slots * QUEUE_OF_SLOT_MAX || self.calls.len() >= CALLS_MAX;
        if self.is_closed() || is_full {
            return self.refuse(key);
        }
        let until_ms = now_ms.saturating_add(spec.limit_ms);
        self.calls.insert(key, Call::Waiting { spec, until_ms });
        if self.running < self.slots {
            self.start(key, now_ms);
        } else {
            self.queue.push_back(key);
        }
        self.repeat(key);
    }

    fn start(&mut self, key: Key, now_ms: u64) {
        let Some(call) = self.calls.get_mut(&key) else { return };
        let Call::Waiting { spec, until_ms } = std::mem::replace(call, Call::Running) else { return };
        self.running += 1;
        let limit_ms = until_ms.saturating_sub(now_ms);
        self.effects.push(Effect::Start(key, Spec { limit_ms, ..spec }));
    }

    fn answer(&mut self, key: Key, outcome: Body, now_ms: u64) {
        self.calls.insert(key, Call::Answered { outcome, sent_ms: now_ms });
        self.repeat(key);
    }

    fn cancel(&mut self, key: Key) {
        match self.calls.remove(&key) {
            Some(Call::Running) => self.effects.push(Effect::Stop(key)),
            Some(Call::Waiting { .. }) => self.queue.retain(|waiting| *waiting != key),
            Some(Call::Answered { .. }) | None => {}
        }
    }

    fn refuse(&mut self, (from, number): Key) {
        let load = self.report();
        self.effects.push(Effect::Send(from, Message::Busy { number, load }));
    }

    /// Sends the state of a call.
    fn repeat(&mut self, (from, number): Key) {
        let load = self.report();
        let message = match self.calls.get(&(from, number)) {
            Some(Call::Waiting { .. } | Call::Running) => Message::Accepted { number, load },
            Some(Call::Answered { outcome, .. }) => {
                Message::Answer { number, outcome: outcome.clone(), load }
            }
            None if self.used.get(&from).is_some_and(|used| used.contains(number)) => {
                Message::Busy { number, load }
            }
            // An earlier companion on this node may have started it.
            None => return,
        };
        self.effects.push(Effect::Send(from, message));
    }

    fn report(&self) -> Load {
        let slots = if self.is_closed() { 0 } else { self.slots };
        let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
        Load { slots: count(slots), calls: count(self.running + self.queue.len()), warm: self.warm.clone() }
    }
}
