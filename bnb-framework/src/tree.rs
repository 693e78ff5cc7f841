//! The tree that is searched: states, and how they branch.

use std::collections::VecDeque;

use serde::{Serialize, de::DeserializeOwned};

/// Up to how many children are counted.
pub const COUNT_MAX: u64 = 1000;

/// A tree of states (paper, 4.1).
///
/// The value that implements it holds the instance (the graph, the items); it is sent to every node once. It
/// must be the same everywhere: what is below a state may depend on nothing but the instance and the state.
pub trait Tree: Serialize + DeserializeOwned + Send + Sync + Sized + 'static {
    /// A state: a partial solution, a node of the tree.
    type State: Serialize + DeserializeOwned + Clone + Send + 'static;
    /// The children of a state that were not visited yet, in the order of their visit.
    /// `VecDeque<Self::State>` does unless generating them one by one is worth it.
    type Children: Children<Self>;

    /// The state that the search starts from.
    fn root(&self) -> Self::State;

    /// The children of a state: disjoint, and together everything that lies below it. It may keep in the
    /// state what they have in common.
    fn branch(&self, state: &mut Self::State) -> Self::Children;
}

/// The children of a state that were not visited yet: one generator a level of the search.
///
/// Each child is a state of its own, made by [`next`](Self::next) from its parent, unless
/// [`IN_PLACE`](Self::IN_PLACE) says that the search is to move a single state up and down the tree.
pub trait Children<T: Tree>: Clone + Serialize + DeserializeOwned + Send + 'static {
    /// Whether the search moves a single state through the tree, by [`descend`](Self::descend) and
    /// [`ascend`](Self::ascend), instead of keeping a state for each level: what pays where a state is large,
    /// or a step small.
    const IN_PLACE: bool = false;

    /// The next child in the order of visit.
    fn next(&mut self, tree: &T, parent: &T::State) -> Option<T::State>;

    /// Moves a state to its next child, in the order of visit. False, and the state as it was, if none is
    /// left.
    fn descend(&mut self, tree: &T, state: &mut T::State) -> bool {
        let child = self.next(tree, state);
        child.map(|child| *state = child).is_some()
    }

    /// Moves a state from the child that was descended to last back to its parent, and undoes what the
    /// child's [`branch`](Tree::branch) and [`bound`](crate::Problem::bound) have kept in it. Only called if
    /// [`IN_PLACE`](Self::IN_PLACE).
    ///
    /// What follows is `descend`, `split` or `is_single` of these children, or `ascend` of those of the level
    /// above: what none of them reads need not be undone.
    ///
    /// # Panics
    /// If it is not implemented.
    fn ascend(&self, _tree: &T, _state: &mut T::State) {
        panic!("children that are IN_PLACE have no `ascend`");
    }

    /// Splits off some of the children that are left, those visited last, for another task. `None` only if
    /// none is left.
    fn split(&mut self, tree: &T, parent: &T::State) -> Option<Self>;

    /// How many are left, [1000](COUNT_MAX) standing for all that is more.
    fn count(&self, tree: &T, parent: &T::State) -> u64 {
        let mut left = self.clone();
        (0..COUNT_MAX).take_while(|_| left.next(tree, parent).is_some()).count() as u64
    }

    /// Whether it is plain to see that no child is left: then nothing is kept for it. To say no costs only a
    /// moment.
    fn is_empty(&self) -> bool {
        false
    }

    /// Whether exactly one child is left. A task does not give away the last state it has: that would only
    /// move the work. To say no too often costs such moves, and nothing else.
    fn is_single(&self, _tree: &T, _parent: &T::State) -> bool {
        false
    }
}

impl<T: Tree> Children<T> for VecDeque<T::State> {
    fn next(&mut self, _: &T, _: &T::State) -> Option<T::State> {
        self.pop_front()
    }

    /// The later half, the middle one included.
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
