//! Objects that nodes fetch from each other. The bytes of a stream arrive in order, one chunk after the other, until its
//! connection breaks: at random, or because one side is silent for too long.

use taskwork::{
    NodeId,
    simulation::{Answer, Answering},
};

use super::State;

/// The time without traffic after which both sides consider their connection broken, in milliseconds.
const IDLE_MS: u64 = 10_000;

/// The interval at which data is sent again over a cut connection, in milliseconds.
const AGAIN_MS: u64 = 100;

/// A fetch in progress.
struct Transfer {
    fetcher: NodeId,
    owner: NodeId,
    answer: Answer,
}

impl Transfer {
    fn note(&self, state: &mut State, event: &str) {
        let Self { fetcher, owner, .. } = self;
        state.note(format_args!("{owner} > {fetcher} object: {event}"));
    }
}

impl State {
    pub(super) fn ask(&mut self, fetcher: NodeId, owner: NodeId, question: Vec<u8>, answer: Answer) {
        let transfer = Transfer { fetcher, owner, answer };
        let Some(machine) = self.machines.of(fetcher) else { return };
        self.at(machine, move |state| {
            let ms = state.latency();
            state.after(ms, move |state| {
                state.cross((fetcher, owner), 0, transfer, move |state, transfer| {
                    let answering = state.inbox(owner).and_then(|inbox| inbox.ask(fetcher, &question));
                    transfer.note(state, if answering.is_some() { "answered" } else { "refused" });
                    if let Some(answering) = answering {
                        state.send_next(transfer, answering);
                    }
                });
            });
        });
    }

    /// Sends the next bytes of an object from its owner.
    fn send_next(&mut self, transfer: Transfer, mut answering: Answering) {
        if transfer.answer.is_dropped() {
            return transfer.note(self, "dropped by the fetcher");
        }
        let Some(bytes) = answering.next_bytes() else { return transfer.note(self, "ends") };
        if self.chance(self.rates.lost) {
            return transfer.note(self, "the connection breaks");
        }
        let (ms, way) = (self.latency(), (transfer.owner, transfer.fetcher));
        self.after(ms, move |state| {
            state.cross(way, 0, (transfer, answering), move |state, (transfer, answering)| {
                transfer.answer.deliver(bytes);
                let way = (transfer.fetcher, transfer.owner);
                // The acknowledgement.
                state.cross(way, 0, (transfer, answering), |state, (transfer, answering)| {
                    state.send_next(transfer, answering);
                });
            });
        });
    }

    /// Delivers `part` to the receiving node once the connection to it is not cut. After `IDLE_MS` the connection is broken,
    /// and the part is lost.
    fn cross<T: Send + 'static>(
        &mut self,
        (from, to): (NodeId, NodeId),
        waited_ms: u64,
        part: T,
        then: impl FnOnce(&mut Self, T) + Send + 'static,
    ) {
        let machines = (self.machines.of(from), self.machines.of(to));
        let (Some(sender), Some(receiver)) = machines else { return };
        if self.machines.is_dead(receiver) || self.machines.is_dead(sender) || self.inbox(to).is_none() {
            self.note(format_args!("{from} > {to} object: a node is lost"));
            return self.after(IDLE_MS - waited_ms, move |_| drop(part));
        }
        if !self.is_cut(sender, receiver) {
            return self.at(receiver, move |state| then(state, part));
        }
        if waited_ms < IDLE_MS {
            self.after(AGAIN_MS, move |state| state.cross((from, to), waited_ms + AGAIN_MS, part, then));
        }
    }
}
