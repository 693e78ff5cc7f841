//! Splitting off open states of a task.

use super::Frontier;
use crate::tree::{Children, Tree};

impl<T: Tree> Frontier<T> {
    /// Splits off children of the shallowest level that has any left. The part split off and the rest are
    /// disjoint, and together they are what was there before.
    pub fn split(&mut self, tree: &T) -> Option<Self> {
        self.split_levels(tree, 1)
    }

    /// Splits off children of several levels like [`split`](Self::split): of at most `levels_max`, and of at
    /// most half of those that may have any left. This suits trees in which the work below a state does not
    /// depend on its depth, and is mostly small. In place only one level is split.
    pub fn split_levels(&mut self, tree: &T, levels_max: usize) -> Option<Self> {
        let half = (self.children.len().saturating_sub(self.spent)).div_ceil(2);
        let levels_max = if T::Children::IN_PLACE { 1 } else { levels_max.min(half) };
        let mut away = Self::nothing();
        let mut level = self.spent;
        while level < self.children.len() && away.children.len() < levels_max {
            let state = self.state_at(tree, level)?;
            if away.children.is_empty() && self.is_last(tree, level, &state) {
                break;
            }
            let share = self.share_of_child(tree, level);
            match self.children[level].split(tree, &state) {
                Some(children) => {
                    away.states.push(state);
                    away.children.push(children);
                    away.shares.push(share);
                }
                None if level == self.spent => self.spent += 1,
                None => {}
            }
            level += 1;
        }
        (!away.children.is_empty()).then_some(away)
    }

    /// Splits off children of a level, counted from the shallowest. Returns `None` if it has none left, or
    /// only the last state of all.
    pub fn split_at(&mut self, tree: &T, level: usize) -> Option<Self> {
        let state = self.state_at(tree, level)?;
        if self.is_last(tree, level, &state) {
            return None;
        }
        let share = self.share_of_child(tree, level);
        let children = self.children[level].split(tree, &state)?;
        let mut away = Self::below(state, children, 0.0);
        away.shares.push(share);
        Some(away)
    }

    /// Splits off the next state of the shallowest level that has any left.
    pub fn split_state(&mut self, tree: &T) -> Option<Self> {
        loop {
            let level = self.spent;
            let parent = self.state_at(tree, level)?;
            if self.is_last(tree, level, &parent) {
                return None;
            }
            let share = self.share_of_child(tree, level);
            match self.children[level].next(tree, &parent) {
                Some(state) => return Some(Self::at(state, share)),
                None => self.spent += 1,
            }
        }
    }

    /// Returns whether a level has one state left, with none below it: giving it away would only move the
    /// work.
    fn is_last(&self, tree: &T, level: usize, state: &T::State) -> bool {
        level + 1 == self.children.len() && self.children[level].is_single(tree, state)
    }
}
