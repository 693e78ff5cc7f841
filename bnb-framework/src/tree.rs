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
/// Each child is a separate state, created by [`next`](Self::next) from its parent, unless the children are
/// [`InPlace`]: then the search moves a single state up and down the tree.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the children of a state of `{T}`",
    note = "use `VecDeque<Self::State>`, to which a `Vec` is turned by `.into()`; or implement `Children` for a type that \
            generates one child after the other"
)]
pub trait Children<T: Tree>: Clone + Serialize + DeserializeOwned + Send + 'static {
    /// [`Copies`], or [`Moves`] for children that are [`InPlace`].
    type Step: Step<T, Self>;

    /// Returns the next child in the order of visit.
    fn next(&mut self, tree: &T, parent: &T::State) -> Option<T::State>;

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

/// Children of a search that moves a single state through the tree instead of keeping a state for each level. This pays
/// off if states are large or steps are small. Their [`Step`](Children::Step) is [`Moves`].
pub trait InPlace<T: Tree>: Children<T> {
    /// Moves a state to its next child, in the order of visit. Returns `false` and leaves the state unchanged
    /// if no child is left.
    fn descend(&mut self, tree: &T, state: &mut T::State) -> bool;

    /// Moves a state from the last descended child back to its parent, and undoes the changes that the child's
    /// [`branch`](Tree::branch) and [`bound`](crate::Problem::bound) made in it.
    ///
    /// The next call may be any other on these children, or `ascend` on those of the level above; a copy of the
    /// children may in between have generated all remaining ones by `next`. Data that none of these calls reads need
    /// not be undone.
    fn ascend(&self, tree: &T, state: &mut T::State);
}

/// The way in which a search reaches the children of a state: [`Copies`] or [`Moves`].
pub trait Step<T: Tree, C: ?Sized>: 'static {
    #[doc(hidden)]
    const IS_IN_PLACE: bool;

    #[doc(hidden)]
    fn descend(children: &mut C, tree: &T, state: &mut T::State) -> bool;

    #[doc(hidden)]
    fn ascend(children: &C, tree: &T, state: &mut T::State);
}

/// Each child is a state of its own.
#[derive(Debug)]
pub enum Copies {}

/// A single state moves through the tree ([`InPlace`]).
#[derive(Debug)]
pub enum Moves {}

impl<T: Tree, C: Children<T>> Step<T, C> for Copies {
    const IS_IN_PLACE: bool = false;

    fn descend(_: &mut C, _: &T, _: &mut T::State) -> bool {
        unreachable!("copies are not moved")
    }

    fn ascend(_: &C, _: &T, _: &mut T::State) {
        unreachable!("copies are not moved")
    }
}

#[expect(clippy::inline_always, reason = "the innermost step of the search")]
impl<T: Tree, C: InPlace<T>> Step<T, C> for Moves {
    const IS_IN_PLACE: bool = true;

    #[inline(always)]
    fn descend(children: &mut C, tree: &T, state: &mut T::State) -> bool {
        children.descend(tree, state)
    }

    #[inline(always)]
    fn ascend(children: &C, tree: &T, state: &mut T::State) {
        children.ascend(tree, state);
    }
}

/// The way in which a search reaches the children of a state of this tree.
pub(crate) type StepOf<T> = <<T as Tree>::Children as Children<T>>::Step;

/// Returns whether a search moves a single state through this tree.
pub(crate) const fn is_in_place<T: Tree>() -> bool {
    <StepOf<T> as Step<T, T::Children>>::IS_IN_PLACE
}

impl<T: Tree> Children<T> for VecDeque<T::State> {
    type Step = Copies;

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
