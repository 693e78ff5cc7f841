//! The search itself: a recursion with frames that can be turned back into levels.

use super::{Below, Frontier, Searched, Visitor};
use crate::tree::{Children, Step as _, StepOf, Tree, is_in_place};

/// The maximum depth of the recursion before its frames are moved to the stack: small enough for any thread,
/// regardless of the size of a state.
pub(super) const RECURSION_MAX: u32 = if cfg!(test) { 3 } else { 64 };

/// The reason why a recursion has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Back {
    /// Everything below is done.
    Done,
    TooDeep,
    Paused,
    Childless,
    ChildlessAndPaused,
}

impl<T: Tree> Frontier<T> {
    /// Visits the open states, depth first, until none is left or the visitor requests a pause.
    pub fn search(&mut self, tree: &T, visitor: &mut impl Visitor<T>) -> Searched {
        loop {
            if self.children.is_empty() {
                let begin = self.roots_begin();
                let Some(root) = self.roots.pop_front() else { return Searched::Over };
                self.gap = 0.0;
                self.begin(tree, visitor, root, begin);
                if visitor.pauses(true) {
                    return Searched::Paused;
                }
            }
            let level = self.children.len().saturating_sub(1);
            let back = if is_in_place::<T>() {
                self.search_in_place(tree, visitor)
            } else {
                self.search_copying(tree, visitor)
            };
            match back {
                None | Some(Back::Done | Back::Childless) => {}
                Some(back) => {
                    // The frames were put back with the deepest first.
                    self.children[level..].reverse();
                    if !is_in_place::<T>() {
                        self.states[level..].reverse();
                    }
                    if back == Back::Paused {
                        return Searched::Paused;
                    }
                }
            }
        }
    }

    /// Visits a root that starts at a position in the order of the search.
    fn begin(&mut self, tree: &T, visitor: &mut impl Visitor<T>, mut root: T::State, begin: f64) {
        match visitor.visit_root(tree, &mut root) {
            Below::Open => {
                let children = visitor.branch(tree, &mut root);
                self.states.push(root);
                self.children.push(children);
                self.ends = vec![begin + self.share];
            }
            Below::Nothing | Below::NothingAndPause => {}
            Below::NothingNorAfter => self.roots.clear(),
        }
    }

    /// Searches below the deepest level. Returns `None` if there is no level.
    fn search_copying(&mut self, tree: &T, visitor: &mut impl Visitor<T>) -> Option<Back> {
        let (parent, left) = (self.states.pop()?, self.children.pop()?);
        let level = self.children.len();
        let back = Recursion { frontier: self, tree, visitor }.below(parent, left, 0);
        if back == Back::Done {
            self.forget(level);
        }
        Some(back)
    }

    /// Searches like [`search_copying`](Self::search_copying), but in place.
    fn search_in_place(&mut self, tree: &T, visitor: &mut impl Visitor<T>) -> Option<Back> {
        let (mut here, mut left) = (self.states.pop()?, self.children.pop()?);
        let level = self.children.len();
        let back = Recursion { frontier: self, tree, visitor }.each_in_place(&mut here, &mut left, 0);
        if back == Back::Done {
            self.forget(level);
            if let Some(above) = self.children.last() {
                StepOf::<T>::ascend(above, tree, &mut here);
                self.states.push(here);
            }
        } else {
            self.states.push(here);
        }
        Some(back)
    }
}

/// A running search with levels as frames. A frame that returns early puts its unvisited part on the
/// frontier, the deepest first.
struct Recursion<'a, T: Tree, V> {
    frontier: &'a mut Frontier<T>,
    tree: &'a T,
    visitor: &'a mut V,
}

impl<T: Tree, V: Visitor<T>> Recursion<'_, T, V> {
    /// Visits the children of a state. The frame owns both, so that small ones stay in registers.
    fn below(&mut self, parent: T::State, mut left: T::Children, depth: u32) -> Back {
        while let Some(mut child) = left.next(self.tree, &parent) {
            let back = match self.visitor.visit(self.tree, &mut child) {
                Below::Open => {
                    let children = self.visitor.branch(self.tree, &mut child);
                    if children.is_empty() {
                        Back::Childless
                    } else if self.visitor.pauses(true) {
                        self.keep(child, children);
                        Back::Paused
                    } else if depth == RECURSION_MAX {
                        self.keep(child, children);
                        Back::TooDeep
                    } else {
                        self.below(child, children, depth + 1)
                    }
                }
                Below::Nothing => Back::Childless,
                Below::NothingNorAfter => break,
                Below::NothingAndPause => Back::Paused,
            };
            let back = if back == Back::Childless { self.after_childless() } else { back };
            if back != Back::Done {
                self.keep(parent, left);
                return back;
            }
        }
        Back::Done
    }

    #[inline]
    fn after_childless(&mut self) -> Back {
        if self.visitor.pauses(false) { Back::Paused } else { Back::Done }
    }

    #[cold]
    fn keep(&mut self, state: T::State, children: T::Children) {
        self.frontier.states.push(state);
        self.keep_children(children);
    }

    #[cold]
    fn keep_children(&mut self, children: T::Children) {
        self.frontier.children.push(children);
    }

    /// Branches a state and searches below it. The children are created in the frame that uses them: to hand them
    /// over costs more than a short step, since memory that was just written by parts is read as a whole.
    fn below_in_place(&mut self, here: &mut T::State, depth: u32) -> Back {
        let mut left = self.visitor.branch(self.tree, here);
        let back = if left.is_empty() {
            return Back::Childless;
        } else if self.visitor.pauses(true) {
            Back::Paused
        } else if depth > RECURSION_MAX {
            Back::TooDeep
        } else {
            return self.each_in_place(here, &mut left, depth);
        };
        self.keep_children(left);
        back
    }

    #[expect(clippy::inline_always, reason = "part of the frame that owns the children")]
    #[inline(always)]
    fn each_in_place(&mut self, here: &mut T::State, left: &mut T::Children, depth: u32) -> Back {
        while StepOf::<T>::descend(left, self.tree, here) {
            let back = match self.visitor.visit(self.tree, here) {
                Below::Open => self.below_in_place(here, depth + 1),
                Below::Nothing => Back::Childless,
                Below::NothingAndPause => Back::ChildlessAndPaused,
                Below::NothingNorAfter => {
                    StepOf::<T>::ascend(left, self.tree, here);
                    break;
                }
            };
            // Otherwise the frontier's state is that of the deepest level.
            if matches!(back, Back::Done | Back::Childless | Back::ChildlessAndPaused) {
                StepOf::<T>::ascend(left, self.tree, here);
            }
            let back = if back == Back::Childless { self.after_childless() } else { back };
            if back != Back::Done {
                self.keep_children(left.clone());
                return if back == Back::ChildlessAndPaused { Back::Paused } else { back };
            }
        }
        Back::Done
    }
}
