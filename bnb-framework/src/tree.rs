//! The tree that is searched: states, and how they branch.

use std::collections::VecDeque;

use serde::{Serialize, de::DeserializeOwned};

/// The number up to which children are counted.
pub const COUNT_MAX: u64 = 1000;

/// A tree of states (paper, 4.1).
///
/// The implementing value holds the instance (the graph, the items) and is sent to every node once. It must
/// behave the same everywhere: the tree below a state may depend only on the instance and the state.
pub trait Tree: Serialize + DeserializeOwned + Send + Sync + Sized + 'static {
    /// A state: a partial solution, a node of the tree.
    type State: Serialize + DeserializeOwned + Clone + Send + 'static;
    /// The children of a state that were not visited yet, in the order of their visit.
    /// `VecDeque<Self::State>` is sufficient unless generating children one by one pays off.
    type Children: Children<Self>;

    /// Returns the state that the search starts from.
    fn root(&self) -> Self::State;

    /// Returns the children of a state. They are disjoint, and together they cover everything below the
    /// state. May store data in the state that the children share.
    fn branch(&self, state: &mut Self::State) -> Self::Children;
}

/// The children of a state that were not visited yet: one generator for each level of the search.
///
/// Each child is a separate state, created by [`next`](Self::next) from its parent, unless
/// [`IN_PLACE`](Self::IN_PLACE) makes the search move a single state up and down the tree.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the children of a state of `{T}`",
    note = "use `VecDeque<Self::State>`, to which a `Vec` is turned by `.into()`; or implement `Children` for a type that \
            generates one child after the other"
)]
pub trait Children<T: Tree>: Clone + Serialize + DeserializeOwned + Send + 'static {
    /// Whether the search moves a single state through the tree, by [`descend`](Self::descend) and
    /// [`ascend`](Self::ascend), instead of keeping a state for each level. This pays off if states are large
    /// or steps are small.
    const IN_PLACE: bool = false;

    /// Returns the next child in the order of visit.
    fn next(&mut self, tree: &T, parent: &T::State) -> Option<T::State>;

    /// Moves a state to its next child, in the order of visit. Returns `false` and leaves the state unchanged
    /// if no child is left.
    fn descend(&mut self, tree: &T, state: &mut T::State) -> bool {
        let child = self.next(tree, state);
        child.map(|child| *state = child).is_some()
    }

    /// Moves a state from the child that was descended to last back to its parent, and undoes what the
    /// child's [`branch`](Tree::branch) and [`bound`](crate::Problem::bound) stored in it. Only called if
    /// [`IN_PLACE`](Self::IN_PLACE) is set.
    ///
    /// The next call may be any other on these children, or `ascend` on those of the level above; a copy of the
    /// children may in between have generated all remaining ones by `next`. Data that none of these calls reads need
    /// not be undone.
    ///
    /// # Panics
    /// Panics if it is not implemented.
    fn ascend(&self, _tree: &T, _state: &mut T::State) {
        panic!("children that are IN_PLACE have no `ascend`");
    }

    /// Splits off some of the remaining children, those visited last, for another task. Returns `None` only
    /// if no child is left.
    fn split(&mut self, tree: &T, parent: &T::State) -> Option<Self>;

    /// Returns the number of remaining children; [1000](COUNT_MAX) stands for all larger numbers.
    fn count(&self, tree: &T, parent: &T::State) -> u64 {
        let mut left = self.clone();
        (0..COUNT_MAX).take_while(|_| left.next(tree, parent).is_some()).count() as u64
    }

    /// Returns whether it is obvious that no child is left; then the search keeps nothing for the state. A
    /// wrong `false` costs only a moment.
    fn is_empty(&self) -> bool {
        false
    }

    /// Returns whether exactly one child is left. A task does not give away the last state it has, since that
    /// would only move the work. A wrong `false` only causes such moves.
    fn is_single(&self, _tree: &T, _parent: &T::State) -> bool {
        false
    }
}

impl<T: Tree> Children<T> for VecDeque<T::State> {
    fn next(&mut self, _: &T, _: &T::State) -> Option<T::State> {
        self.pop_front()
    }

    /// Splits off the later half, including the middle one.
    fn split(&mut self, _: &T, _: &T::State) -> Option<Self> {
        if VecDeque::is_empty(self) { None } else { Some(self.split_off(self.len() / 2)) }
    }

    fn count(&self, _: &T, _: &T::State) -> u64 {
        COUNT_MAX.min(self.len() as u64)
    }

    fn is_empty(&self) -> bool {
        VecDeque::is_empty(self)
    }

    fn is_single(&self, _: &T, _: &T::State) -> bool {
        self.len() == 1
    }
}
