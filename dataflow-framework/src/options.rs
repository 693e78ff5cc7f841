//! The options of a call.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a call is run. A task has options ([`task`](crate::task)), which those of a call replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Of the calls that could begin, those of the highest priority do so first.
    pub priority: i32,
    /// How often a call that has failed is tried again.
    pub retry: u32,
    /// What follows when a call has failed for good.
    pub on_failure: OnFailure,
    /// How long a call may take. One that takes longer has failed. Its thread is left to it until it ends, and another
    /// one takes its place: so a task that can take much longer should look at [`time_left`](crate::time_left) now and
    /// then. An external program ([`Run`](crate::Run)) is killed.
    pub timeout: Option<Duration>,
    /// Whether a call does something outside of its data, such as sending a message: `#[task(effect)]`. Once a call has
    /// ended, that is recorded before anybody sees it, and the call is never run again, whichever nodes are lost. If its
    /// node is lost while it runs, it is run again, so whatever is outside should recognise the same call by its
    /// [`once_token`](crate::once_token).
    pub effect: bool,
    /// Whether a call may write something else each time that it is run, such as what a clock says:
    /// `#[task(nondeterministic)]`. What it has written is kept until the program has ended, and the call is never run
    /// again. Up to 64 KiB are kept with the job itself; what is larger is with two nodes, and if both are lost, the
    /// program fails.
    pub nondeterministic: bool,
}

/// What follows when a call has failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum OnFailure {
    /// What depends on the call is not run. All else is; but a program that was told of no failure, by
    /// [`Data::get`](crate::Data::get) or another wait, fails at its end.
    #[default]
    CancelSuccessors,
    /// The program fails at once: it ends at its next call, or where it waits.
    Fail,
    /// The program goes on as if the call had ended well. What it updates is as before, and its results are those of
    /// [`Default`]. This has to be said with the task, so that the compiler sees that its results have defaults:
    /// `#[task(on_failure = ignore)]`.
    Ignore,
}

impl Options {
    /// The options of a task that names none: a priority of 0, no further try, no limit of time, and a function of what
    /// it reads.
    pub const DEFAULT: Self = Self {
        priority: 0,
        retry: 0,
        on_failure: OnFailure::CancelSuccessors,
        timeout: None,
        effect: false,
        nondeterministic: false,
    };

    /// Returns whether a call is never run again once it has ended.
    pub(crate) fn is_durable(self) -> bool {
        self.effect || self.nondeterministic
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Adds the setters of [`Options`] to the struct of a task.
#[doc(hidden)]
#[macro_export]
macro_rules! __options {
    ($task:ident $($visible:tt)*) => {
        #[allow(dead_code, reason = "a program uses some of them")]
        impl $task {
            /// Sets the priority: of the calls that could begin, those of the highest priority do so first.
            #[must_use]
            $($visible)* fn priority(mut self, priority: i32) -> Self {
                self.options.priority = priority;
                self
            }

            /// Sets how often the call is tried again if it fails.
            #[must_use]
            $($visible)* fn retry(mut self, times: u32) -> Self {
                self.options.retry = times;
                self
            }

            /// Sets what follows when the call has failed for good.
            #[must_use]
            $($visible)* fn on_failure(mut self, what: $crate::OnFailure) -> Self {
                self.options.on_failure = what;
                self
            }

            /// Sets how long the call may take.
            #[must_use]
            $($visible)* fn timeout(mut self, timeout: ::core::time::Duration) -> Self {
                self.options.timeout = ::core::option::Option::Some(timeout);
                self
            }

            /// Says that the call does something outside of its data, so that it is not run again once it has ended.
            #[must_use]
            $($visible)* fn effect(mut self) -> Self {
                self.options.effect = true;
                self
            }

            /// Says that the call may write something else each time, so that what it has written once is kept.
            #[must_use]
            $($visible)* fn nondeterministic(mut self) -> Self {
                self.options.nondeterministic = true;
                self
            }
        }
    };
}
