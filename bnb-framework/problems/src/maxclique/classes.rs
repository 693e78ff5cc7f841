//! Colour classes with weights, and their conflicts: bounds stronger than colours.
//!
//! Every clique has at most one vertex of each class, so its weight is at most the sum of the classes' weights. A
//! vertex in no class is also free if it **conflicts** with some classes: no clique has that
//! vertex and one of each of them. Then a clique lacks the vertex, or a vertex of one of these classes,
//! and the smallest of their weights is counted once too often. Conflicts are found by unit propagation, as
//! in `MaxSAT`: the vertex leaves its neighbours in each class; a class with one vertex left leaves
//! the neighbours of that one, and so on, until a class is empty (C. Li and Z. Quan, 2010; with
//! one step of propagation it is the infra-chromatic bound of P. San Segundo and others, BBMCX, 2015).

use super::set::{Set, Shared};

/// The classes of a state, and the buffers for finding conflicts: kept only to save allocations.
#[derive(Debug, Default)]
pub(super) struct Classes<const W: usize> {
    sets: Vec<Set<W>>,
    /// The undistributed weight of each vertex, and the vertices ordered by it.
    pub(super) rest: Vec<u32>,
    pub(super) by_rest: Vec<usize>,
    /// The remaining weight of each class.
    left: Vec<u32>,
    /// The propagated vertices with their classes; the first one is in none.
    trail: Vec<(usize, usize)>,
    /// Whether a class was propagated.
    is_used: Vec<bool>,
    /// The entries of the trail that the conflict needs.
    is_needed: Vec<bool>,
    conflict: Vec<usize>,
    /// The weight taken from each class for the vertex that is being absorbed.
    taken: Vec<(usize, u32)>,
    /// The remaining budget of classes to examine for this state.
    looks: usize,
}

/// The classes of a state are computed from the state, so a copy does not need them.
impl<const W: usize> Clone for Classes<W> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The marker for the entry of the trail with the vertex that is in no class.
const NO_CLASS: usize = usize::MAX;

impl<const W: usize> Classes<W> {
    /// Removes all classes. A large graph gets no more time for a state than a small one.
    pub(super) fn clear(&mut self) {
        self.sets.clear();
        self.left.clear();
        self.looks = (1 << 20) / W;
    }

    pub(super) fn push(&mut self, set: Set<W>, weight: u32) {
        self.sets.push(set);
        self.left.push(weight);
    }

    /// Takes a vertex of weight 1 into account, as [`absorb`](Self::absorb) does for classes of weight 1.
    pub(super) fn absorb_one(&mut self, vertex: usize, near: &[Set<W>]) -> bool {
        if !self.find_conflict(vertex, near) {
            return false;
        }
        if !self.recolour(vertex, near) {
            for &class in &self.conflict {
                self.left[class] = 0;
            }
        }
        true
    }

    /// Puts a vertex in one of the classes of its conflict, if need be by moving the only neighbour that it
    /// has there to the other one (Re-NUMBER of E. Tomita and others, 2010): this costs no class. Returns
    /// whether that was possible.
    fn recolour(&mut self, vertex: usize, near: &[Set<W>]) -> bool {
        match self.conflict[..] {
            [class] => self.sets[class].insert(vertex),
            [to, class] => {
                // The entry that made the other class empty.
                let Some(&(moved, _)) = self.trail.iter().find(|&&(_, of)| of == class) else { return false };
                if !self.sets[to].is_disjoint(&near[moved]) {
                    return false;
                }
                self.sets[class].remove(moved);
                self.sets[class].insert(vertex);
                self.sets[to].insert(moved);
            }
            _ => return false,
        }
        true
    }

    /// Takes a vertex of this weight into account without additional weight, by conflicts with the classes.
    /// Returns whether that was possible; if not, nothing has changed.
    pub(super) fn absorb(&mut self, vertex: usize, mut weight: u32, near: &[Set<W>]) -> bool {
        self.taken.clear();
        while weight > 0 {
            if !self.find_conflict(vertex, near) {
                for &(class, part) in &self.taken {
                    self.left[class] += part;
                }
                return false;
            }
            let least = self.conflict.iter().map(|&class| self.left[class]).min();
            let part = least.unwrap_or(weight).min(weight);
            for &class in &self.conflict {
                self.left[class] -= part;
                self.taken.push((class, part));
            }
            weight -= part;
        }
        true
    }

    /// Looks for classes with which a vertex conflicts.
    fn find_conflict(&mut self, vertex: usize, near: &[Set<W>]) -> bool {
        if self.looks == 0 {
            return false;
        }
        self.is_used.clear();
        self.is_used.extend(self.left.iter().map(|&left| left == 0));
        self.trail.clear();
        self.trail.push((vertex, NO_CLASS));
        // A vertex may be in several classes, so one that was propagated stays.
        let mut open = near[vertex];
        open.insert(vertex);
        loop {
            let before = self.trail.len();
            self.looks = self.looks.saturating_sub(self.sets.len());
            if self.looks == 0 {
                return false;
            }
            for class in 0..self.sets.len() {
                if self.is_used[class] {
                    continue;
                }
                match self.sets[class].shared(&open) {
                    Shared::Nothing => {
                        self.explain(class, near);
                        return true;
                    }
                    Shared::One(only) => {
                        self.is_used[class] = true;
                        self.trail.push((only, class));
                        open = open.common(&near[only]);
                        open.insert(only);
                    }
                    Shared::More => {}
                }
            }
            if self.trail.len() == before {
                return false;
            }
        }
    }

    /// Finds the classes that made a class empty.
    fn explain(&mut self, empty: usize, near: &[Set<W>]) {
        self.is_needed.clear();
        self.is_needed.resize(self.trail.len(), false);
        self.conflict.clear();
        self.conflict.push(empty);
        self.need(self.sets[empty], self.trail.len(), near);
        for entry in (1..self.trail.len()).rev() {
            if self.is_needed[entry] {
                let (vertex, class) = self.trail[entry];
                self.conflict.push(class);
                let mut others = self.sets[class];
                others.remove(vertex);
                self.need(others, entry, near);
            }
        }
    }

    /// Marks the first entries of the trail that have removed these vertices.
    fn need(&mut self, mut removed: Set<W>, entries: usize, near: &[Set<W>]) {
        for entry in 0..entries {
            let vertex = self.trail[entry].0;
            let kept = removed.common(&near[vertex]);
            if kept != removed {
                self.is_needed[entry] = true;
                removed = kept;
            }
        }
    }
}
