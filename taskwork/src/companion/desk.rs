//! The inbox of a companion: its messages, and the state changes to report to it. Everything here is bounded, whether
//! the companion reads or not.

use std::{
    collections::{BTreeSet, VecDeque},
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{CompanionEvent, Refusal, Rescue, status::ProviderSlot};
use crate::id::NodeId;

/// The maximum number of messages that wait for a companion.
const MESSAGES_MAX: usize = 1_024;

/// The maximum size of all messages that wait for a companion, in bytes.
const MESSAGES_BYTES_MAX: usize = 16 << 20;

/// The maximum number of refusals that wait for a companion. Further ones are dropped.
const REFUSALS_MAX: usize = 1_024;

/// The inbox of a companion.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    state: Mutex<State>,
    changed: Notify,
    ended: Notify,
    /// The provider of the companion's status.
    pub(crate) provider: ProviderSlot,
}

#[derive(Debug, Default)]
struct State {
    is_over: bool,
    /// An attempt that was not reported to the companion yet.
    attempt: Option<u32>,
    /// The nodes that currently take part.
    nodes: BTreeSet<NodeId>,
    /// The nodes that take part according to the events reported so far.
    reported: BTreeSet<NodeId>,
    /// The difference between `nodes` and `reported`.
    changed: BTreeSet<NodeId>,
    /// The members that have left the attempt.
    left: BTreeSet<NodeId>,
    is_cordoned: bool,
    /// Whether the node is cordoned according to the events reported so far.
    was_cordoned: bool,
    rescue: Option<Rescue>,
    refusals: VecDeque<(NodeId, u64, Refusal)>,
    messages: VecDeque<(NodeId, Vec<u8>)>,
    messages_bytes: usize,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let done = change(&mut self.lock());
        self.changed.notify_one();
        done
    }

    /// Delivers a message.
    pub(crate) fn message(&self, from: NodeId, bytes: Vec<u8>) -> Result<(), Refusal> {
        self.change(|state| {
            if state.is_over {
                return Err(Refusal::Absent);
            }
            let bytes_then = state.messages_bytes + bytes.len();
            if state.messages.len() >= MESSAGES_MAX || bytes_then > MESSAGES_BYTES_MAX {
                return Err(Refusal::Full);
            }
            state.messages_bytes = bytes_then;
            state.messages.push_back((from, bytes));
            Ok(())
        })
    }

    /// Reports that a message was not accepted.
    pub(crate) fn refused(&self, to: NodeId, number: u64, why: Refusal) {
        self.change(|state| {
            if state.refusals.len() < REFUSALS_MAX && !state.is_over {
                state.refusals.push_back((to, number, why));
            }
        });
    }

    /// Reports that a node has become, or is no longer, a member that may work on the job.
    pub(crate) fn node(&self, node: NodeId, is_there: bool) {
        self.change(|state| {
            if !is_there {
                state.left.remove(&node);
            }
            let takes_part = is_there && !state.left.contains(&node);
            state.set(node, takes_part);
        });
    }

    /// Reports that a member has left the attempt.
    pub(crate) fn left(&self, node: NodeId) {
        self.change(|state| {
            if state.nodes.contains(&node) {
                state.left.insert(node);
            }
            state.set(node, false);
        });
    }

    /// Reports the start of an attempt, in which all members may take part.
    pub(crate) fn attempt(&self, number: u32) {
        self.change(|state| {
            state.attempt = Some(number);
            for node in std::mem::take(&mut state.left) {
                state.set(node, true);
            }
        });
    }

    /// Reports whether the node is cordoned.
    pub(crate) fn cordon(&self, is_cordoned: bool) {
        self.change(|state| state.is_cordoned = is_cordoned);
    }

    /// Asks the companion to rescue its data. The future completes when that is done, or the companion has exited.
    pub(crate) fn rescue(&self, until: Instant) -> impl Future<Output = ()> + Send + use<> {
        let (done, rescued) = oneshot::channel();
        self.change(|state| {
            state.rescue = Some(Rescue { until, _done: done }).filter(|_| !state.is_over);
        });
        async move {
            // The sender only drops the channel.
            let _ = rescued.await;
        }
    }

    /// Stops the companion, or records that it has exited: pending events are dropped.
    pub(crate) fn end(&self) {
        self.change(|state| *state = State { is_over: true, ..State::default() });
        self.ended.notify_waiters();
    }

    /// Waits until the companion was stopped or has exited.
    pub(crate) async fn over(&self) {
        let ended = self.ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        if !self.is_over() {
            ended.await;
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Waits for the next event; `None` after the end.
    ///
    /// # Cancellation safety
    /// Dropping the future loses no event.
    pub(crate) async fn next(&self) -> Option<CompanionEvent> {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.lock();
                if state.is_over {
                    return None;
                }
                if let Some(event) = state.next() {
                    return Some(event);
                }
            }
            changed.await;
        }
    }
}

impl State {
    fn set(&mut self, node: NodeId, is_there: bool) {
        if is_there {
            self.nodes.insert(node);
        } else {
            self.nodes.remove(&node);
        }
        if self.reported.contains(&node) == is_there {
            self.changed.remove(&node);
        } else {
            self.changed.insert(node);
        }
    }

    /// Returns the next event. Changes of nodes precede messages.
    fn next(&mut self) -> Option<CompanionEvent> {
        if let Some(number) = self.attempt.take() {
            return Some(CompanionEvent::Attempt { number });
        }
        if let Some(node) = self.changed.pop_first() {
            if self.reported.remove(&node) {
                return Some(CompanionEvent::Left { node });
            }
            self.reported.insert(node);
            return Some(CompanionEvent::Joined { node });
        }
        if self.is_cordoned != self.was_cordoned {
            self.was_cordoned = self.is_cordoned;
            return Some(CompanionEvent::Cordon { is_cordoned: self.is_cordoned });
        }
        if let Some(rescue) = self.rescue.take() {
            return Some(CompanionEvent::Rescue(rescue));
        }
        if let Some((to, number, why)) = self.refusals.pop_front() {
            return Some(CompanionEvent::Refused { to, number, why });
        }
        let (from, bytes) = self.messages.pop_front()?;
        self.messages_bytes -= bytes.len();
        Some(CompanionEvent::Message { from, bytes })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
        time::Duration,
    };

    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    /// Returns the output of a future that is ready immediately.
    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Returns all pending events as texts.
    fn events(desk: &Desk) -> Vec<String> {
        let next = || {
            Some(match now(desk.next())?? {
                CompanionEvent::Attempt { number } => format!("attempt {number}"),
                CompanionEvent::Joined { node } => format!("joined {}", node.0),
                CompanionEvent::Left { node } => format!("left {}", node.0),
                CompanionEvent::Message { from, bytes } => format!("{} bytes of {}", bytes.len(), from.0),
                CompanionEvent::Refused { to, number, why } => format!("{} refused {number}: {why:?}", to.0),
                CompanionEvent::Cordon { is_cordoned } => format!("cordoned: {is_cordoned}"),
                CompanionEvent::Rescue(_) => "rescue".to_owned(),
            })
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn node_events_precede_messages_of_the_node() {
        let desk = Desk::default();
        assert_eq!(desk.message(B, vec![0; 3]), Ok(()));
        desk.node(B, true);
        desk.refused(A, 7, Refusal::Absent);
        desk.attempt(1);
        assert_eq!(events(&desk), ["attempt 1", "joined 2", "1 refused 7: Absent", "3 bytes of 2"]);
        desk.node(A, true);
        desk.node(A, false);
        desk.node(B, true);
        assert_eq!(events(&desk), [""; 0], "nothing has changed");
        desk.node(B, false);
        assert_eq!(events(&desk), ["left 2"]);
    }

    #[test]
    fn cordon_is_reported_when_it_has_changed() {
        let desk = Desk::default();
        desk.cordon(false);
        assert_eq!(events(&desk), [""; 0]);
        desk.cordon(true);
        desk.cordon(true);
        assert_eq!(events(&desk), ["cordoned: true"]);
        desk.cordon(false);
        desk.cordon(true);
        assert_eq!(events(&desk), [""; 0], "nothing has changed");
        desk.cordon(false);
        assert_eq!(events(&desk), ["cordoned: false"]);
    }

    #[test]
    fn member_that_left_an_attempt_joins_the_next_one() {
        let desk = Desk::default();
        desk.attempt(1);
        desk.node(A, true);
        desk.left(A);
        desk.left(B);
        // Reading its record again changes nothing.
        desk.node(A, true);
        assert_eq!(events(&desk), ["attempt 1"]);
        desk.attempt(2);
        assert_eq!(events(&desk), ["attempt 2", "joined 1"]);
        desk.left(A);
        desk.node(A, false);
        desk.attempt(3);
        assert_eq!(events(&desk), ["attempt 3", "left 1"]);
    }

    #[test]
    fn departed_nodes_take_no_space() {
        let desk = Desk::default();
        for number in 0..10_000 {
            desk.node(NodeId(number), true);
            desk.left(NodeId(number));
            desk.node(NodeId(number), false);
        }
        let state = desk.lock();
        assert_eq!((state.nodes.len(), state.changed.len(), state.left.len()), (0, 0, 0));
    }

    #[test]
    fn companion_that_does_not_read_uses_bounded_space() {
        let desk = Desk::default();
        for _ in 0..MESSAGES_MAX {
            assert_eq!(desk.message(A, vec![0; 1]), Ok(()));
        }
        assert_eq!(desk.message(A, vec![0; 1]), Err(Refusal::Full));
        assert_eq!(events(&desk).len(), MESSAGES_MAX);
        assert_eq!(desk.message(A, vec![0; MESSAGES_BYTES_MAX]), Ok(()));
        assert_eq!(desk.message(A, vec![0; 1]), Err(Refusal::Full));
        for number in 0..2 * REFUSALS_MAX as u64 {
            desk.refused(A, number, Refusal::Full);
        }
        assert_eq!(events(&desk).len(), 1 + REFUSALS_MAX);
    }

    #[test]
    fn rescue_completes_when_the_companion_drops_it_or_exits() {
        let desk = Desk::default();
        let until = Instant::now() + Duration::from_secs(1);
        let mut rescued = pin!(desk.rescue(until));
        assert_eq!(now(rescued.as_mut()), None);
        let Some(Some(CompanionEvent::Rescue(rescue))) = now(desk.next()) else {
            panic!("there is no request")
        };
        assert_eq!((rescue.until(), now(rescued.as_mut())), (until, None));
        drop(rescue);
        assert_eq!(now(rescued), Some(()));
        let unheard = desk.rescue(until);
        desk.end();
        assert_eq!((now(unheard), now(desk.rescue(until))), (Some(()), Some(())));
        assert!(matches!(now(desk.next()), Some(None)));
        assert_eq!(desk.message(A, Vec::new()), Err(Refusal::Absent));
    }
}
