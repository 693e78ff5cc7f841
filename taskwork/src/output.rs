//! The output of a program's tasks.

use serde::{Serialize, de::DeserializeOwned};

/// The output of tasks: a commutative monoid, with `Default` as its neutral element.
///
/// Merging must not depend on order or grouping, since tasks complete in any order, anywhere.
pub trait Output: Default + Serialize + DeserializeOwned + Send + 'static {
    /// Adds the output of another task.
    fn merge(&mut self, other: Self);
}

impl Output for () {
    fn merge(&mut self, (): Self) {}
}

impl Output for u64 {
    /// Adds the two; the sum saturates at `u64::MAX`.
    fn merge(&mut self, other: Self) {
        *self = self.saturating_add(other);
    }
}
