//! The options of a call.

/// How a call is run. A task has options ([`task`](crate::task)), which those of a call replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Of the calls that could begin, those of the highest priority do so first.
    pub priority: i32,
    /// How often a call that has failed is tried again.
    pub retry: u32,
}

impl Options {
    /// The options of a task that names none: a priority of 0, and no further try.
    pub const DEFAULT: Self = Self { priority: 0, retry: 0 };
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
        }
    };
}
