//! The options of a call.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::needs;

/// The options of a call. The options of the task ([`task`](crate::task)) are its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent option")]
pub struct Options {
    /// Among the calls that can start, those of the highest priority start first.
    pub priority: i32,
    /// The number of times that a failed call is retried, each time on another node than the last time if one has a
    /// free worker.
    pub retry: u32,
    /// The pause before the first retry, which doubles for each further one. If the program restarts, the pause
    /// continues.
    pub pause: Option<Duration>,
    /// The maximum pause before a retry; by default [`PAUSE_MAX`](Self::PAUSE_MAX).
    pub pause_max: Option<Duration>,
    /// The effect of a call's failure after the last retry.
    pub on_failure: OnFailure,
    /// The maximum duration of a call. A call that takes longer fails. Its thread is abandoned until the task
    /// returns, and another thread replaces it: so a task that may take much longer should check
    /// [`time_left`](crate::time_left) regularly. An external program ([`Run`](crate::Run)) is killed, and the future of an
    /// `async` task is dropped.
    pub timeout: Option<Duration>,
    /// The number of workers of one node that a call takes, from 1. A task with threads of its own should take one
    /// worker per thread. An `async` task takes none, at any value, unless it is [isolated](Self::isolated).
    pub cores: u32,
    /// The memory that a call takes, in bytes. The running calls of a node together take no more than the memory of
    /// the [node](taskwork::node::NodeBuilder::memory_bytes).
    pub memory: u64,
    /// The [labels](taskwork::node::NodeBuilder::labels) that a node must have, by name or with a value (`name=value`).
    #[serde(deserialize_with = "needs::deserialize")]
    pub needs: &'static [&'static str],
    /// The limits on the calls that run at a time, over all nodes, each as `NAME=CALLS`: a call starts only while fewer
    /// running calls than this have a limit of this name. While a call waits for calls that it has made, it counts, so
    /// calls within it cannot have limits.
    #[serde(deserialize_with = "needs::deserialize")]
    pub limits: &'static [&'static str],
    /// Whether calls are distributed over all nodes in turn, regardless of the places of their data: for calls that
    /// create the data of a program, so that each node has a part of it.
    pub spread: bool,
    /// Whether the output of a call is copied to all nodes at once: for data that every node reads.
    pub everywhere: bool,
    /// Whether a call runs in a separate process: if that crashes or is killed, only the call fails. The process is
    /// killed when the call exceeds its timeout. It runs the same program, so `main` has to start with
    /// [`cli::main`](crate::cli::main) or [`serve_isolated`](crate::serve_isolated). Starting it takes several
    /// milliseconds, and the inputs and outputs are copied.
    pub isolated: bool,
    /// The maximum memory that the process of an isolated call may take in addition to its memory at the start, in
    /// bytes. A call that needs more fails.
    pub memory_max: Option<u64>,
    /// Whether a call has an external effect, such as sending a message: `#[task(effect)]`. The completion of the
    /// call is recorded before it becomes visible, and the call is never run again afterwards, even if nodes are
    /// lost. If its node is lost while it runs, it is run again, so the external system should detect the repetition
    /// by the [`once_token`](crate::once_token).
    pub effect: bool,
    /// Whether the output of a call may differ between executions, for example because it depends on a clock:
    /// `#[task(nondeterministic)]`. The output is kept until the program has completed, and the call is never run
    /// again. Up to 64 KiB are stored with the job itself; a larger output is stored on two nodes, and if both are
    /// lost, the program fails.
    pub nondeterministic: bool,
    /// Whether the output of a call is kept in the cache of the node ([`Settings::cache`](crate::Settings::cache)), and
    /// taken from there instead of running the call, also by later programs: `#[task(cached)]`. A node without a cache
    /// runs the call.
    ///
    /// The output is found by the code of the task and the content of its arguments. Functions that the task calls, types,
    /// external programs and files that are no arguments do not count: after such a change, set another version of the
    /// task, `#[task(cached = "v2")]`. The task makes no calls itself, and is neither an [`effect`](Self::effect) nor
    /// [`nondeterministic`](Self::nondeterministic).
    pub cached: bool,
}

/// The effect of a call's failure after the last retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum OnFailure {
    /// Calls that depend on the failed call are not run; other calls are. If the program has not received a failure
    /// from [`Data::get`](crate::Data::get) or another wait, it fails when it completes.
    #[default]
    CancelSuccessors,
    /// The program fails at once: it stops at its next call or wait.
    Fail,
    /// The program continues as if the call had succeeded. Updated data keeps its previous value, and results have
    /// their [`Default`] value. This has to be an option of the task, `#[task(on_failure = ignore)]`, so that the
    /// compiler checks that its results have defaults.
    Ignore,
    /// The unfinished calls of its [group](crate::group) are cancelled, including calls that are added
    /// before the group is complete, and waiting for the group returns this failure first. With nested groups, this
    /// applies to the innermost group of the call. Otherwise, and for a call without a group, this is the same as
    /// [`CancelSuccessors`](Self::CancelSuccessors).
    CancelGroup,
}

impl Options {
    /// The default maximum pause before a retry: one hour.
    pub const PAUSE_MAX: Duration = Duration::from_secs(3_600);

    /// The options of a task without options: priority 0, no retries, no timeout, one worker of any node, and a
    /// deterministic task without effects.
    pub const DEFAULT: Self = Self {
        priority: 0,
        retry: 0,
        pause: None,
        pause_max: None,
        on_failure: OnFailure::CancelSuccessors,
        timeout: None,
        isolated: false,
        memory_max: None,
        cores: 1,
        memory: 0,
        needs: &[],
        limits: &[],
        spread: false,
        everywhere: false,
        effect: false,
        nondeterministic: false,
        cached: false,
    };

    /// Returns whether a call is never run again after it has completed.
    pub(crate) fn is_durable(self) -> bool {
        self.effect || self.nondeterministic
    }

    /// Returns the same options for a call that may run on any node, and is retried at once.
    pub(crate) fn without_demands(self) -> Self {
        let Self { pause, cores, memory, needs, limits, spread, everywhere, .. } = Self::DEFAULT;
        Self { pause, cores, memory, needs, limits, spread, everywhere, ..self }
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
            /// Sets the priority: among the calls that can start, those of the highest priority start first.
            #[must_use]
            $($visible)* fn priority(mut self, priority: i32) -> Self {
                self.options.priority = priority;
                self
            }

            /// Sets the number of times that the call is retried if it fails.
            #[must_use]
            $($visible)* fn retry(mut self, times: u32) -> Self {
                self.options.retry = times;
                self
            }

            /// Sets the pause before the first retry, which doubles for each further one.
            #[must_use]
            $($visible)* fn pause(mut self, pause: ::core::time::Duration) -> Self {
                self.options.pause = ::core::option::Option::Some(pause);
                self
            }

            /// Sets the maximum pause before a retry.
            #[must_use]
            $($visible)* fn pause_max(mut self, pause: ::core::time::Duration) -> Self {
                self.options.pause_max = ::core::option::Option::Some(pause);
                self
            }

            /// Sets the effect of the call's failure after the last retry.
            #[must_use]
            $($visible)* fn on_failure(mut self, what: $crate::OnFailure) -> Self {
                self.options.on_failure = what;
                self
            }

            /// Sets the maximum duration of the call.
            #[must_use]
            $($visible)* fn timeout(mut self, timeout: ::core::time::Duration) -> Self {
                self.options.timeout = ::core::option::Option::Some(timeout);
                self
            }

            /// Sets whether the call runs in a separate process.
            #[must_use]
            $($visible)* fn isolated(mut self, isolated: bool) -> Self {
                self.options.isolated = isolated;
                self
            }

            /// Sets the maximum additional memory of the process of an isolated call, in bytes.
            #[must_use]
            $($visible)* fn memory_max(mut self, bytes: u64) -> Self {
                self.options.memory_max = ::core::option::Option::Some(bytes);
                self
            }

            /// Sets the number of workers of one node that the call takes.
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

            /// Sets the labels that the node must have, by name or with a value (`name=value`).
            #[must_use]
            $($visible)* fn needs(mut self, labels: &'static [&'static str]) -> Self {
                self.options.needs = labels;
                self
            }

            /// Sets the limits on the calls that run at a time, each as `NAME=CALLS`.
            #[must_use]
            $($visible)* fn limits(mut self, limits: &'static [&'static str]) -> Self {
                self.options.limits = limits;
                self
            }

            /// Distributes the call, with other calls of this option, over the nodes in turn.
            #[must_use]
            $($visible)* fn spread(mut self) -> Self {
                self.options.spread = true;
                self
            }

            /// Copies the output of the call to all nodes at once.
            #[must_use]
            $($visible)* fn everywhere(mut self) -> Self {
                self.options.everywhere = true;
                self
            }

            /// Declares that the call has an external effect, so that it is not run again after it has completed.
            #[must_use]
            $($visible)* fn effect(mut self) -> Self {
                self.options.effect = true;
                self
            }

            /// Declares that the output of the call may differ between executions, so that the first output is kept.
            #[must_use]
            $($visible)* fn nondeterministic(mut self) -> Self {
                self.options.nondeterministic = true;
                self
            }

            /// Takes the output of the call from the cache of its node, and keeps it there.
            #[must_use]
            $($visible)* fn cached(mut self) -> Self {
                self.options.cached = true;
                self
            }
        }
    };
}
