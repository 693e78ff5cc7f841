//! The options of a call.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::needs;

/// How a call is run. A task has options ([`task`](crate::task)), which those of a call replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each says something of its own, by its name")]
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
    /// How many workers of one node a call takes, from 1: a task that has threads of its own should take as many.
    pub cores: u32,
    /// The memory that a call takes, in bytes: those that run on a node take no more altogether than it
    /// [has](taskwork::NodeBuilder::memory_bytes).
    pub memory: u64,
    /// The [labels](taskwork::NodeBuilder::labels) that a node must have, each by its name, or with its value
    /// (`name=value`).
    #[serde(deserialize_with = "needs::deserialize")]
    pub needs: &'static [&'static str],
    /// Whether calls go to all nodes in turn, wherever their data is: for those that make the data of a program, so that
    /// each node has a part of it.
    pub spread: bool,
    /// Whether what a call writes is copied to all nodes at once: for data that all of them will read.
    pub everywhere: bool,
    /// Whether a call runs in a process of its own, which is started for it: so it may crash or be killed, and that is
    /// the failure of the call alone. Such a process is killed when the call has taken too long. It is one of the same
    /// program, so `main` has to begin with [`cli::main`](crate::cli::main) or
    /// [`serve_isolated`](crate::serve_isolated). To start it takes some milliseconds, and what the call reads and
    /// writes is copied.
    pub isolated: bool,
    /// How much memory the process of an isolated call may take besides what it has at its start, in bytes. A call that
    /// needs more has failed.
    pub memory_max: Option<u64>,
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
    /// The calls of its [group](crate::group) that have not begun are cancelled, also those that are made before that is
    /// complete, and waiting for the group tells of this failure first. In groups within others it is the innermost one
    /// of the call. All else is as with [`CancelSuccessors`](Self::CancelSuccessors), also if there is no group.
    CancelGroup,
}

impl Options {
    /// The options of a task that names none: a priority of 0, no further try, no limit of time, any worker, and a
    /// function of what it reads.
    pub const DEFAULT: Self = Self {
        priority: 0,
        retry: 0,
        on_failure: OnFailure::CancelSuccessors,
        timeout: None,
        isolated: false,
        memory_max: None,
        cores: 1,
        memory: 0,
        needs: &[],
        spread: false,
        everywhere: false,
        effect: false,
        nondeterministic: false,
    };

    /// Returns whether a call is never run again once it has ended.
    pub(crate) fn is_durable(self) -> bool {
        self.effect || self.nondeterministic
    }

    /// Returns the same, for a call that may run anywhere.
    pub(crate) fn without_demands(self) -> Self {
        let Self { cores, memory, needs, spread, everywhere, .. } = Self::DEFAULT;
        Self { cores, memory, needs, spread, everywhere, ..self }
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

            /// Sets whether the call runs in a process of its own.
            #[must_use]
            $($visible)* fn isolated(mut self, isolated: bool) -> Self {
                self.options.isolated = isolated;
                self
            }

            /// Sets how much memory the process of an isolated call may take, in bytes.
            #[must_use]
            $($visible)* fn memory_max(mut self, bytes: u64) -> Self {
                self.options.memory_max = ::core::option::Option::Some(bytes);
                self
            }

            /// Sets how many workers of one node the call takes.
            #[must_use]
            $($visible)* fn cores(mut self, cores: u32) -> Self {
                self.options.cores = cores;
                self
            }

            /// Sets the memory that the call takes, in bytes.
            #[must_use]
            $($visible)* fn memory(mut self, bytes: u64) -> Self {
                self.options.memory = bytes;
                self
            }

            /// Sets the labels that the node must have, each by its name, or with its value (`name=value`).
            #[must_use]
            $($visible)* fn needs(mut self, labels: &'static [&'static str]) -> Self {
                self.options.needs = labels;
                self
            }

            /// Has the call go to the nodes in turn, with others that are spread.
            #[must_use]
            $($visible)* fn spread(mut self) -> Self {
                self.options.spread = true;
                self
            }

            /// Has what the call writes copied to all nodes at once.
            #[must_use]
            $($visible)* fn everywhere(mut self) -> Self {
                self.options.everywhere = true;
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
