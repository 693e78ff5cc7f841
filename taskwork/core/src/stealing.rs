//! Stealing (paper, 3.3): all steps by which a node gets tasks from others and gives tasks to them, from
//! the request to the last message about a grant. The messages are shown in [`message`](super::message).
//!
//! | decision | function | rules |
//! |---|---|---|
//! | the member to ask, and the time | [`Run::ask`] | [`thief`](super::thief) |
//! | whether a thief may wait here | [`Run::admit`] | [`victim`](super::victim) |
//! | the next thief and the number of its tasks; the thieves to deny | [`Run::serve`] | [`victim`](super::victim) |
//! | when grants are closed, and tasks come back | [`Run::hear`], [`Run::left`] | [`victim`](super::victim), [`given`](super::given) |
//! | whether this node takes a grant | [`Run::granted`] | [`receipts`](super::receipts) |
//! | which grants wait until this node may hold tasks | [`Run::hold_back`] | this file |
//!
//! The rules are small state machines that are independent of each other; here they are connected to the
//! pool, the members and the messages.

use super::{
    action::Action,
    given::Refused,
    message::Message,
    receipts::{Granted, Receipt},
    run::{Enrolment, Run},
    surroundings::Surroundings,
    thief::Members,
    victim::{Serving, Waiting},
};
use crate::{
    config::Limits,
    envelope::Envelope,
    holdings::{Basis, Transit},
    id::NodeId,
};

/// The maximum number of grants that are held back; further ones are dropped, and will be sent again.
const HELD_BACK_MAX: usize = 16;

impl Run {
    pub(super) fn hear(&mut self, around: &mut Surroundings, from: NodeId, message: Message) {
        match message {
            Message::Steal { request } => self.admit(around, from, request),
            Message::Deny { request } => self.thief.denied(around.now, request),
            Message::Grant { grant, request, settled_below, tasks } => {
                let granted = Granted { from, grant, request, settled_below, tasks };
                // This node must not hold a task before it is enrolled.
                if accepts(around, request) && self.enrolment != Enrolment::Done {
                    self.hold_back(around, granted);
                } else {
                    self.granted(around, granted);
                }
            }
            Message::Ack { grant } => {
                let settled = self.victim.acknowledged(from, grant);
                self.send(around, from, settled);
            }
            Message::Refuse { grant } => self.refused(around, from, grant),
            Message::Settled { grant, settled_below } => self.receipts.settled(from, grant, settled_below),
            Message::Pending { grants, urgent } => self.pending(around, from, &grants, urgent),
            Message::Confirmed { grants } => self.bases.confirmed(around.now, from, &grants),
            Message::Void { grants } => {
                let void = self.bases.void(from, &grants);
                self.drop_void(around, void);
            }
        }
    }
}

/// Returns whether this node accepts a grant. A cordoned node accepts those that it has requested before, and not those of
/// nodes that leave.
fn accepts(around: &Surroundings, request: Option<u64>) -> bool {
    around.drain.is_none() && (request.is_some() || !around.is_cordoned)
}

/// The part of the thief.
impl Run {
    /// Sends a steal request if one is due.
    pub(super) fn ask(&mut self, around: &mut Surroundings) {
        // The enrolment is pending, so a received task could not start yet.
        if self.enrolment == Enrolment::Asked {
            return;
        }
        let Surroundings { now, pool, members, known, near, limits, random, .. } = around;
        if around.is_cordoned {
            return self.thief.rest(*now, *pool);
        }
        let members = Members { all: members, known, near };
        if let Some(request) = self.thief.step(*now, *pool, members, limits, random) {
            around.counts.requests += 1;
            self.asked_at = around.clock;
            self.send(around, request.to, Message::Steal { request: request.request });
        }
    }

    /// Takes or refuses a grant, and answers.
    fn granted(&mut self, around: &mut Surroundings, granted: Granted) {
        let Granted { from, grant, request, settled_below, tasks } = granted;
        let (accepting, open_max) = (accepts(around, request), around.limits.open_grants_max);
        match self.receipts.receive(from, grant, settled_below, accepting, open_max) {
            Receipt::Take(ack) => {
                let asked = self.thief.granted(request).then_some(self.asked_at);
                around.counts.steals += u64::from(asked.is_some());
                around.counts.stolen_tasks += tasks.len() as u64;
                around.received.push((from, tasks.len() as u64));
                let transit = Transit::grant(from, grant, around.id);
                let basis = self.bases.granted(around.now, transit, &around.limits);
                around.actions.push(Action::Put { tasks, basis, asked });
                self.send(around, from, ack);
            }
            Receipt::Answer(message) => self.send(around, from, message),
            Receipt::Pass => {}
        }
    }

    /// Keeps a grant until this node is enrolled, and requests the enrolment.
    fn hold_back(&mut self, around: &mut Surroundings, granted: Granted) {
        let same = |held: &Granted| (held.from, held.grant) == (granted.from, granted.grant);
        let known = self.held_back.iter().any(same);
        if self.held_back.is_empty() {
            self.held_back_until = around.now + around.limits.enrol_patience_ms;
        }
        let bytes: usize = self.held_back.iter().map(Granted::bytes).sum();
        let has_room =
            self.held_back.is_empty() || bytes + granted.bytes() <= around.limits.open_grant_bytes_max;
        if !known && has_room && self.held_back.len() < HELD_BACK_MAX {
            self.held_back.push(granted);
        }
        if self.enrolment == Enrolment::Open {
            self.enrolment = Enrolment::Asked;
            around.actions.push(Action::Enrol { attempt: self.attempt });
        }
    }

    /// Handles the grants that were held back, after this node was enrolled and may hold tasks.
    pub(super) fn enrolled(&mut self, around: &mut Surroundings) {
        self.enrolment = Enrolment::Done;
        for granted in std::mem::take(&mut self.held_back) {
            if around.members.contains(&granted.from) {
                self.granted(around, granted);
            }
        }
    }

    /// Refuses grants that were held back for too long. A refusal is final: the victim keeps the tasks.
    pub(super) fn refuse_held_back(&mut self, around: &mut Surroundings) {
        if self.held_back.is_empty() || around.now < self.held_back_until {
            return;
        }
        let open_max = around.limits.open_grants_max;
        for Granted { from, grant, settled_below, .. } in std::mem::take(&mut self.held_back) {
            if let Receipt::Answer(refusal) =
                self.receipts.receive(from, grant, settled_below, false, open_max)
            {
                self.send(around, from, refusal);
            }
        }
    }
}

/// The part of the victim.
impl Run {
    /// Lets a thief wait for tasks, or denies it immediately.
    fn admit(&mut self, around: &mut Surroundings, thief: NodeId, request: u64) {
        let admitted = around.drain.is_none()
            && self.given.has_room(around.limits.open_grant_bytes_max)
            && self.victim.admit(around.now, thief, request, around.pool, &around.limits);
        if admitted {
            self.tell_waiting(around);
        } else {
            self.send(around, thief, Message::Deny { request });
        }
    }

    /// Takes tasks out of the pool for the next thief, or denies thieves that have waited too long or find the pool
    /// idle. Then sends overdue grants again.
    pub(super) fn serve(&mut self, around: &mut Surroundings) {
        match self.victim.step(around.now, around.pool, &around.limits) {
            Serving::Nothing => {}
            Serving::Take { thief, request, tasks_max, bytes_max } => {
                around.actions.push(Action::Take { thief, request, tasks_max, bytes_max });
            }
            Serving::Deny(denied) => {
                self.tell_waiting(around);
                self.deny(around, denied);
            }
        }
        self.remind(around);
    }

    /// Grants queued tasks, which were taken out of the pool for a thief.
    pub(super) fn taken(
        &mut self,
        around: &mut Surroundings,
        thief: NodeId,
        request: u64,
        (basis, tasks): (Basis, Vec<Envelope>),
    ) {
        if tasks.is_empty() {
            return;
        }
        // If the thief no longer waits, or this node has started to leave, the node keeps the tasks.
        if around.drain.is_some() || !self.victim.serve(thief, request) {
            around.keep(self.bases.still(basis), tasks);
            return;
        }
        self.tell_waiting(around);
        self.grant(around, thief, Some(request), basis, tasks);
    }

    /// Gives tasks with a common basis to a node.
    pub(super) fn grant(
        &mut self,
        around: &mut Surroundings,
        to: NodeId,
        request: Option<u64>,
        basis: Basis,
        tasks: Vec<Envelope>,
    ) {
        let (grant, message) = self.victim.grant(around.now, to, request, tasks.clone(), &around.limits);
        self.given.give(around.now, grant, to, tasks, self.bases.still(basis));
        self.send(around, to, message);
    }

    pub(super) fn deny(&self, around: &mut Surroundings, denied: Vec<Waiting>) {
        for Waiting { thief, request, .. } in denied {
            self.send(around, thief, Message::Deny { request });
        }
    }

    /// Sends grants again that were not acknowledged in time.
    pub(super) fn remind(&mut self, around: &mut Surroundings) {
        // A node that leaves has no time for increasing intervals.
        let Limits { grant_retry_ms, grant_retry_max_ms, .. } = around.limits;
        let wait_max_ms = if around.drain.is_some() { grant_retry_ms } else { grant_retry_max_ms };
        for (to, message) in self.victim.overdue(around.now, wait_max_ms) {
            self.send(around, to, message);
        }
    }

    /// Handles a refusal: the tasks come back, immediately or by a claim.
    fn refused(&mut self, around: &mut Surroundings, thief: NodeId, grant: u64) {
        let (tasks, settled) = self.victim.refused(thief, grant);
        self.send(around, thief, settled);
        if tasks.is_empty() {
            return;
        }
        if let Some(drain) = &mut around.drain {
            drain.refused_by(thief);
            around.counts.handed_on = around.counts.handed_on.saturating_sub(tasks.len() as u64);
        }
        match self.given.refused(around.id, thief, grant) {
            Refused::Back(basis) => around.keep(self.bases.still(basis), tasks),
            Refused::Later => {}
            Refused::Claim(transit) => self.reclaim.push(transit),
        }
    }

    /// Handles the departure of a member. Unwritten grants to it come back.
    pub(super) fn left(&mut self, around: &mut Surroundings, node: NodeId, clean: bool) {
        self.thief.unreachable(around.now, node);
        self.heard_of.remove(&node);
        if clean {
            self.receipts.left_cleanly(node);
        }
        self.looks.left(node);
        if !clean || self.bases.any_from(node) {
            self.look_for_orphans(around);
        }
        let waiting = self.victim.waiting();
        self.victim.left(node);
        if self.victim.waiting() < waiting {
            self.tell_waiting(around);
        }
        for (basis, returned) in self.given.left(node) {
            if around.drain.is_some() {
                around.counts.handed_on = around.counts.handed_on.saturating_sub(returned.len() as u64);
            }
            around.keep(self.bases.still(basis), returned);
        }
    }

    /// Updates the pool's number of waiting thieves, each of which adds to the demand for splits.
    fn tell_waiting(&self, around: &mut Surroundings) {
        around.actions.push(Action::Thieves { waiting: self.victim.waiting() });
    }

    pub(super) fn send(&self, around: &mut Surroundings, to: NodeId, message: Message) {
        around.send(self.attempt, to, message);
    }
}
