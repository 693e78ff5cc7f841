//! Splitting off open states of a task. The part split off and the rest are disjoint, and together they equal
//! the part before the split.

use std::collections::VecDeque;

use super::{Frontier, Place};
use crate::tree::{Children, Step as _, StepOf, Tree, is_in_place};

/// States of one level that were not visited yet.
#[derive(Debug)]
pub(crate) struct Siblings {
    /// The estimated share of the whole tree below each.
    pub(crate) share: f64,
    /// Their number; [1000](crate::COUNT_MAX) stands for all larger numbers.
    pub(crate) count: u64,
}

impl<T: Tree> Frontier<T> {
    /// Splits off the later half of the roots, or of the shallowest level that has any left.
    pub fn split(&mut self, tree: &T) -> Option<Self> {
        self.split_levels(tree, 1)
    }

    /// Splits off children of several levels like [`split`](Self::split): of at most `levels_max`, and of at
    /// most half of those that may have any left. This suits trees in which the work below a state does not
    /// depend on its depth, and is mostly small. In place only one level is split.
    pub fn split_levels(&mut self, tree: &T, levels_max: usize) -> Option<Self> {
        if let Some(away) = self.split_roots() {
            return Some(away);
        }
        let half = (self.children.len().saturating_sub(self.spent)).div_ceil(2);
        let levels_max = if is_in_place::<T>() { 1 } else { levels_max.min(half) };
        let mut away = Self::nothing();
        let mut level = self.spent;
        while level < self.children.len() && away.children.len() < levels_max {
            let state = self.state_at(tree, level)?;
            if away.children.is_empty() && self.is_last(tree, level, &state) {
                break;
            }
            match self.split_children(tree, level, &state) {
                Some((children, share, end)) => {
                    if away.children.is_empty() {
                        away.place = Place { depth: self.place.depth + level, end };
                    }
                    away.states.push(state);
                    away.children.push(children);
                    away.shares.push(share);
                    away.ends.push(end);
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
        let (children, share, end) = self.split_children(tree, level, &state)?;
        let mut away = Self::below(state, children, 0.0, Place { depth: self.place.depth + level, end });
        away.shares.push(share);
        Some(away)
    }

    /// Splits off the next root, or the next state of the shallowest level that has any left.
    pub fn split_state(&mut self, tree: &T) -> Option<Self> {
        if let Some(away) = self.take_roots(1) {
            return Some(away);
        }
        loop {
            let level = self.spent;
            let parent = self.state_at(tree, level)?;
            if self.is_last(tree, level, &parent) {
                return None;
            }
            match self.take_next(tree, level, &parent, 1) {
                Some(away) => return Some(away),
                None => self.spent += 1,
            }
        }
    }

    /// Splits off the next states of the deepest level that has any left, is not below `depth_max`, and is large
    /// enough. `wanted` returns the number of states to take from a level, or that the level is too small. At least
    /// one is taken, and at most half of the rest.
    pub(crate) fn split_next(
        &mut self,
        tree: &T,
        depth_max: usize,
        wanted: impl Fn(&Siblings) -> Option<u64>,
    ) -> Option<Self> {
        let Some(deepest) = self.children.len().checked_sub(1) else {
            return self.split_next_roots(depth_max, wanted);
        };
        let (mut level, mut parent) = (deepest, self.state_at(tree, deepest)?);
        loop {
            let depth = self.place.depth + level + 1;
            if depth <= depth_max
                && !self.children[level].is_empty()
                && let Some(away) = self.take_wanted(tree, level, &parent, &wanted)
            {
                return Some(away);
            }
            if level <= self.spent {
                return self.split_next_roots(depth_max, wanted);
            }
            level -= 1;
            if is_in_place::<T>() {
                StepOf::<T>::ascend(&self.children[level], tree, &mut parent);
            } else {
                parent = self.states[level].clone();
            }
        }
    }

    /// Does the same with a level.
    fn take_wanted(
        &mut self,
        tree: &T,
        level: usize,
        parent: &T::State,
        wanted: impl Fn(&Siblings) -> Option<u64>,
    ) -> Option<Self> {
        let count = self.children[level].count(tree, parent);
        if count == 0 || self.is_last(tree, level, parent) {
            return None;
        }
        let wanted = wanted(&Siblings { share: self.share_of_child(tree, level), count })?;
        self.take_next(tree, level, parent, wanted.min(count.div_ceil(2)).max(1))
    }

    /// Does the same with roots.
    fn split_next_roots(
        &mut self,
        depth_max: usize,
        wanted: impl Fn(&Siblings) -> Option<u64>,
    ) -> Option<Self> {
        if self.place.depth > depth_max {
            return None;
        }
        let wanted = wanted(&Siblings { share: self.share, count: self.roots.len() as u64 })?;
        self.take_roots(usize::try_from(wanted).unwrap_or(usize::MAX))
    }

    /// Takes the next roots, but at most half of them; without any level the first one stays.
    fn take_roots(&mut self, wanted: usize) -> Option<Self> {
        let first = usize::from(self.children.is_empty());
        let count = wanted.max(1).min(self.roots.len().saturating_sub(first).div_ceil(2));
        if count == 0 {
            return None;
        }
        let end = self.roots_begin() + self.share * (first + count) as f64 + self.gap;
        let roots: VecDeque<T::State> = self.roots.drain(first..first + count).collect();
        if first > 0 {
            self.gap += self.share * count as f64;
        }
        let place = Place { end, ..self.place };
        Some(Self { roots, share: self.share, place, ..Self::nothing() })
    }

    /// Splits off the later half of the roots.
    fn split_roots(&mut self) -> Option<Self> {
        // Before they are fewer.
        let end = self.place.end;
        let stay = if self.children.is_empty() { self.roots.len().div_ceil(2) } else { self.roots.len() / 2 };
        let roots = self.roots.split_off(stay);
        self.place.end -= self.share * roots.len() as f64;
        let place = Place { end, ..self.place };
        (!roots.is_empty()).then(|| Self { roots, share: self.share, place, ..Self::nothing() })
    }

    /// Splits the children of a level, and returns the later ones, the share of each, and where they end.
    fn split_children(
        &mut self,
        tree: &T,
        level: usize,
        state: &T::State,
    ) -> Option<(T::Children, f64, f64)> {
        let (share, end) = (self.share_of_child(tree, level), self.end_of(tree, level));
        self.know_next_end(tree, level);
        let children = self.children[level].split(tree, state)?;
        self.ends[level] -= share * children.count(tree, state) as f64;
        Some((children, share, end))
    }

    /// Removes the next states of a level, given its parent state.
    fn take_next(&mut self, tree: &T, level: usize, parent: &T::State, count: u64) -> Option<Self> {
        let share = self.share_of_child(tree, level);
        self.know_next_end(tree, level);
        let begin = self.begins_at(tree, level, parent);
        let mut roots = VecDeque::new();
        while (roots.len() as u64) < count {
            let Some(state) = self.children[level].next(tree, parent) else { break };
            roots.push_back(state);
        }
        let end = begin + share * roots.len() as f64;
        let place = Place { depth: self.place.depth + level + 1, end };
        (!roots.is_empty()).then(|| Self { roots, share, place, ..Self::nothing() })
    }

    /// Returns whether a level has one state left, with nothing below or next to it: giving it away would only move
    /// the work.
    fn is_last(&self, tree: &T, level: usize, state: &T::State) -> bool {
        self.roots.is_empty()
            && level + 1 == self.children.len()
            && self.children[level].is_single(tree, state)
    }
}
