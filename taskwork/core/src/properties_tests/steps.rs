//! The steps of a random test.

use super::*;

/// A step of a test; numbers are small, so that they coincide.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Joined(u64),
    /// A look finds these transits, and these members in addition to this node.
    Orphans {
        attempt: u32,
        members: Vec<u64>,
        transits: Vec<(u64, u64, u64)>,
        held: Vec<u64>,
    },
    Left(u64, Option<u32>),
    Attempt(u32),
    Enrolled,
    Parked(u32, Vec<u64>),
    JobOver,
    Message {
        from: u64,
        attempt: u32,
        message: Message,
    },
    Unreachable(u64),
    Pass {
        ms: u64,
    },
    /// The current transaction is answered.
    Answered(Answer),
    /// A worker starts, splits off, or completes a task.
    Begin,
    Split,
    Complete,
    Drain,
    Cordon(bool),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    Done,
    TooLate,
    Unknown,
    AttemptOver,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let (node, attempt) = (2_u64..6, 1_u32..3);
    prop_oneof![
        3 => node.clone().prop_map(Step::Joined),
        1 => (node.clone(), prop::option::of(attempt.clone())).prop_map(|(node, clean_in)| Step::Left(node, clean_in)),
        1 => attempt.clone().prop_map(Step::Attempt),
        3 => Just(Step::Enrolled),
        2 => (attempt.clone(), prop::collection::vec(0_u64..3, 0..3)).prop_map(|(k, tasks)| Step::Parked(k, tasks)),
        12 => (node.clone(), attempt.clone(), message())
            .prop_map(|(from, attempt, message)| Step::Message { from, attempt, message }),
        2 => (
            attempt.clone(),
            prop::collection::vec(node.clone(), 0..4),
            prop::collection::vec((1_u64..6, 0_u64..12, 1_u64..6), 0..4),
            prop::collection::vec(node.clone(), 0..2),
        )
            .prop_map(|(attempt, members, transits, held)| Step::Orphans { attempt, members, transits, held }),
        1 => node.prop_map(Step::Unreachable),
        1 => any::<bool>().prop_map(Step::Cordon),
        4 => (0_u64..400).prop_map(|ms| Step::Pass { ms }),
        5 => prop_oneof![
            4 => Just(Answer::Done), 1 => Just(Answer::TooLate), 2 => Just(Answer::Unknown), 1 => Just(Answer::AttemptOver)
        ].prop_map(Step::Answered),
        6 => Just(Step::Begin),
        4 => Just(Step::Split),
        3 => Just(Step::Complete),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let number = 0_u64..12;
    prop_oneof![
        number.clone().prop_map(|request| Message::Steal { request }),
        number.clone().prop_map(|request| Message::Deny { request }),
        (number.clone(), prop::option::of(number.clone()), 0_u64..4).prop_map(|(grant, request, back)| {
            // The tasks depend on the sender and the grant's number: see `Bench::tasks_of`.
            Message::Grant { grant, request, settled_below: grant.saturating_sub(back), tasks: Vec::new() }
        }),
        number.clone().prop_map(|grant| Message::Ack { grant }),
        number.clone().prop_map(|grant| Message::Refuse { grant }),
        number.clone().prop_map(|grant| Message::Settled { grant, settled_below: grant }),
        (prop::collection::vec(number.clone(), 0..4), any::<bool>())
            .prop_map(|(grants, urgent)| Message::Pending { grants, urgent }),
        prop::collection::vec(number.clone(), 0..4).prop_map(|grants| Message::Confirmed { grants }),
        prop::collection::vec(number, 0..4).prop_map(|grants| Message::Void { grants }),
    ]
}
