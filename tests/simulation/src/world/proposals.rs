//! Writes that the servers have received but not committed: while their leader cannot commit, because its
//! disk is slow or it has lost its quorum, or after the leader is lost.
//!
//! During this time connections stay alive, and reads are answered, except those that a client has sent after
//! a write, which wait behind it. A client that waits too long gives up and does not know the outcome.

use rand::Rng as _;
use zk::{Error, tree::SessionId};

use super::{MachineId, State, servers::Pending};
use crate::invariants::Seen;

/// Maximum time that a client waits for an answer, in milliseconds.
const REQUEST_TIMEOUT_MS: u64 = 5_000;

/// Executes a delayed request.
type Doing = Box<dyn FnOnce(&mut State) + Send>;

/// The requests that wait for the leader, in order.
#[derive(Default)]
pub(super) struct Proposals {
    stalled: bool,
    stalled_until: u64,
    waiting: Vec<Proposal>,
}

enum Proposal {
    Request(Doing),
    /// The end of a session. The next leader ends it too.
    End(SessionId),
}

impl Proposals {
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled
    }

    pub(super) fn push(&mut self, doing: Doing) {
        self.waiting.push(Proposal::Request(doing));
    }

    pub(super) fn end(&mut self, session: SessionId) {
        self.waiting.push(Proposal::End(session));
    }
}

impl State {
    pub(crate) fn stall(&mut self, ms: u64) {
        if self.servers.away {
            return;
        }
        let proposals = &mut self.servers.proposals;
        proposals.stalled = true;
        proposals.stalled_until = proposals.stalled_until.max(self.now + ms);
        self.see(&Seen::Stalled { stalled: true });
        self.after(ms, |state| {
            let proposals = &state.servers.proposals;
            if proposals.stalled && state.now >= proposals.stalled_until && !state.servers.away {
                state.commit_proposals();
            }
        });
    }

    /// Lets the leader commit again, and executes the waiting requests.
    pub(super) fn commit_proposals(&mut self) {
        self.servers.proposals.stalled = false;
        self.servers.proposals.stalled_until = 0;
        self.see(&Seen::Stalled { stalled: false });
        for client in self.servers.sessions.values_mut() {
            client.held = None;
        }
        let waiting = std::mem::take(&mut self.servers.proposals.waiting);
        if !waiting.is_empty() {
            self.note(format_args!("the servers execute the waiting requests: {}", waiting.len()));
        }
        for proposal in waiting {
            match proposal {
                Proposal::Request(doing) => doing(self),
                Proposal::End(session) => self.commit_end(session),
            }
        }
    }

    /// Removes proposals of a lost leader. The next leader has received those up to a random point.
    pub(super) fn lose_proposals(&mut self) {
        let count = self.servers.proposals.waiting.len();
        let heard = if count == 0 { 0 } else { self.random.random_range(0..=count) };
        let mut place = 0..;
        self.servers.proposals.waiting.retain(|proposal| {
            let kept = place.next().is_some_and(|place| place < heard);
            kept || matches!(proposal, Proposal::End(_))
        });
    }

    /// Limits the wait of a request sent at this time: if it is not answered in time, the client gives up.
    pub(super) fn give_up_in_time(&mut self, sent: u64, machine: MachineId, asked: impl Pending + 'static) {
        let wait = (sent + REQUEST_TIMEOUT_MS).saturating_sub(self.now);
        self.after(wait, move |state| {
            state.at(machine, move |_| asked.fail(Error::TimedOut { waited_ms: REQUEST_TIMEOUT_MS }));
        });
    }
}

impl std::fmt::Debug for Proposals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.waiting.len();
        f.debug_struct("Proposals")
            .field("stalled", &self.stalled)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}
