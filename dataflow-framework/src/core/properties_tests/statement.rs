//! The statements of random programs.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};

use super::{MEMORY, VARIABLES};
use crate::options::{OnFailure, Options};

#[derive(Debug, Clone)]
pub(super) enum Statement {
    /// Assigns new data to a variable.
    New(usize),
    /// Assigns a clone of a variable to another one.
    Clone {
        from: usize,
        to: usize,
    },
    Call {
        reads: Vec<usize>,
        updates: Vec<usize>,
        result: Option<usize>,
        fails: bool,
        options: Options,
    },
    /// Assigns the sum of variables, which are added in any order.
    Reduce {
        of: Vec<usize>,
        to: usize,
    },
    /// Adds other variables to a variable, in any order.
    Commute {
        on: usize,
        by: Vec<usize>,
    },
    /// Opens a group, or closes the open one.
    Group,
    /// Cancels this number of the latest calls.
    Cancel(u64),
    /// A running call or a pending copy completes, if there is one.
    End(prop::sample::Index),
    /// The program waits for a variable.
    Get(usize),
    /// A member with this number of workers joins.
    Join(u32),
    /// A member other than that of the program is lost.
    Lose(prop::sample::Index),
    /// A member is lost, and the graph does not know it yet.
    Vanish(prop::sample::Index),
    /// A member other than that of the program leaves. It has started every second one of its calls.
    Leave(prop::sample::Index),
    /// A member is cordoned until all calls wait for a member. It has started every second one of its calls.
    Cordon(prop::sample::Index),
    /// The member of a call is unfit to run it; at most once for each call.
    Unfit(prop::sample::Index),
    /// The copy of a version on a member is damaged.
    Damage(prop::sample::Index),
    /// A member asks which of its copies are redundant.
    Ask(prop::sample::Index),
    /// The other nodes receive the history of completed calls.
    Remember,
    /// The member of the program is lost, and the program restarts on another one. Some members report their data
    /// at the restart, the others when the program has repeated half of its statements.
    Restart {
        here: prop::sample::Index,
        late: prop::sample::Index,
    },
    /// The pending records are written to the journal.
    Write,
    /// The member of the program leaves, and the program restarts on another one.
    Move(prop::sample::Index),
    /// All members leave, this one first, and the program restarts on a new one.
    Empty(prop::sample::Index),
}

impl Statement {
    /// Returns whether the program executes this statement; the others are external events.
    pub(super) fn is_of_program(&self) -> bool {
        matches!(
            self,
            Self::New(_)
                | Self::Clone { .. }
                | Self::Call { .. }
                | Self::Reduce { .. }
                | Self::Commute { .. }
                | Self::Group
                | Self::Get(_)
                | Self::Cancel(_)
        )
    }

    /// Returns the statement without `everywhere`, since a failed copy to all members may be mistaken for an awaited
    /// one. With `never_fails`, its call succeeds.
    pub(super) fn plain(mut self, never_fails: bool) -> Self {
        if let Self::Call { fails, options, .. } = &mut self {
            options.everywhere = false;
            *fails &= !never_fails;
        }
        self
    }

    /// Returns whether it makes calls with inputs that are decided later.
    pub(super) fn is_undecided(&self) -> bool {
        matches!(self, Self::Commute { .. } | Self::Reduce { .. })
    }

    pub(super) fn is_harmless(&self) -> bool {
        let is_loss = matches!(
            self,
            Self::Lose(_) | Self::Vanish(_) | Self::Damage(_) | Self::Unfit(_) | Self::Restart { .. }
        );
        !is_loss
    }
}

pub(super) fn statement() -> impl Strategy<Value = Statement> {
    let variable = || 0..VARIABLES;
    let demands = (1..=2_u32, 0..=MEMORY, 0..4, 0..8);
    let on_failure = prop_oneof![
        1 => Just(OnFailure::Ignore),
        1 => Just(OnFailure::CancelGroup),
        1 => Just(OnFailure::CancelSuccessors),
    ];
    let options = (-1..=1, 0..=1_u32, on_failure, 0..4, prop::option::of(demands), 0..3);
    let options = options.prop_map(|(priority, retry, on_failure, durable, demands, limited)| {
        let (cores, memory, spread, everywhere) = demands.unwrap_or((1, 0, 1, 1));
        Options {
            priority,
            retry,
            pause: Some(Duration::from_secs(1)),
            on_failure,
            nondeterministic: durable == 0,
            cores,
            memory,
            limits: if limited == 0 { &["licence=1"] } else { &[] },
            spread: spread == 0,
            everywhere: everywhere == 0,
            ..Options::DEFAULT
        }
    });
    let call = (vec(variable(), 0..3), vec(variable(), 0..3), prop::option::of(variable()), 0..12, options);
    prop_oneof![
        1 => variable().prop_map(Statement::New),
        2 => (variable(), variable()).prop_map(|(from, to)| Statement::Clone { from, to }),
        6 => call.prop_map(|(reads, mut updates, result, fails, options)| {
            // The borrow checker allows one update of a handle in a call.
            updates.sort_unstable();
            updates.dedup();
            Statement::Call { reads, updates, result, fails: fails == 0, options }
        }),
        1 => (vec(variable(), 1..8), variable()).prop_map(|(of, to)| Statement::Reduce { of, to }),
        2 => (variable(), vec(variable(), 1..4)).prop_map(|(on, by)| Statement::Commute { on, by }),
        1 => Just(Statement::Group),
        1 => (1..10_u64).prop_map(Statement::Cancel),
        5 => any::<prop::sample::Index>().prop_map(Statement::End),
        1 => variable().prop_map(Statement::Get),
        1 => (1..3_u32).prop_map(Statement::Join),
        1 => any::<prop::sample::Index>().prop_map(Statement::Lose),
        1 => any::<prop::sample::Index>().prop_map(Statement::Vanish),
        1 => any::<prop::sample::Index>().prop_map(Statement::Leave),
        1 => any::<prop::sample::Index>().prop_map(Statement::Cordon),
        1 => any::<prop::sample::Index>().prop_map(Statement::Unfit),
        1 => any::<prop::sample::Index>().prop_map(Statement::Damage),
        1 => any::<prop::sample::Index>().prop_map(Statement::Ask),
        2 => Just(Statement::Remember),
        2 => Just(Statement::Write),
        1 => any::<(prop::sample::Index, prop::sample::Index)>()
            .prop_map(|(here, late)| Statement::Restart { here, late }),
        1 => any::<prop::sample::Index>().prop_map(Statement::Move),
        1 => any::<prop::sample::Index>().prop_map(Statement::Empty),
    ]
}
