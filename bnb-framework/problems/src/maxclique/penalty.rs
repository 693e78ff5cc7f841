//! A local search that learns which vertices lead nowhere: each gets a penalty when the search is stuck with
//! it (W. Pullan and H. Hoos, DLS-MC, 2006). It finds cliques that hide among vertices of low degree, which
//! tabu search misses.

use super::{
    local::{LOOKS_OF_ROUND, LOOKS_OF_STEP, LOOKS_UNASKED, Walk},
    set::Set,
};

/// The numbers of dead ends after which penalties decrease by one; the best one depends on the graph.
const DELAYS: [usize; 5] = [15, 2, 45, 1, 5];

/// A walk with its learned penalties.
struct Learner<'w, 'a, const W: usize, const WEIGHTED: bool> {
    walk: &'w mut Walk<'a, W, WEIGHTED>,
    penalties: Vec<usize>,
    /// The vertices that were in the clique since it was last stuck.
    was_in: Set<W>,
    last: usize,
}

impl<const W: usize, const WEIGHTED: bool> Walk<'_, W, WEIGHTED> {
    /// Searches until the round is over, and returns the heaviest clique, if it is heavier than the first.
    /// `kind` chooses how fast penalties fall.
    pub(super) fn run_with_penalties(&mut self, kind: u64, stops: &dyn Fn() -> bool) -> Option<Set<W>> {
        let delay = usize::try_from(kind).map_or(1, |kind| DELAYS[kind % DELAYS.len()]);
        let vertices = self.vertices();
        let mut best = (self.weight, None);
        let mut learner = Learner { walk: self, penalties: vec![0; vertices], was_in: Set::EMPTY, last: 0 };
        let (mut stuck, mut plateau) = (0, Set::EMPTY);
        let looks = vertices + LOOKS_OF_STEP;
        for step in 0..LOOKS_OF_ROUND / looks {
            if step % (LOOKS_UNASKED / looks).max(1) == 0 && stops() {
                break;
            }
            if learner.add_one() {
                plateau = learner.walk.members;
                if learner.walk.weight > best.0 {
                    best = (learner.walk.weight, Some(learner.walk.members));
                }
            } else if plateau.is_disjoint(&learner.walk.members) || !learner.swap_one() {
                stuck += 1;
                learner.learn(stuck % delay == 0);
                learner.leave(delay);
                plateau = learner.walk.members;
            }
        }
        best.1
    }
}

impl<const W: usize, const WEIGHTED: bool> Learner<'_, '_, W, WEIGHTED> {
    /// Returns the vertex with the least penalty among those that were not in the clique lately and that so
    /// many members are not connected to; a random one of equal ones.
    fn pick(&mut self, missing: u16) -> Option<usize> {
        let (mut best, mut least, mut equal) = (None, usize::MAX, 0);
        for place in 0..self.walk.vertices() {
            let is_allowed = self.walk.missing[place] == missing
                && !self.walk.members.contains(place)
                && !self.was_in.contains(place);
            if !is_allowed || self.penalties[place] > least {
                continue;
            }
            if self.penalties[place] < least {
                (best, least, equal) = (Some(place), self.penalties[place], 1);
                continue;
            }
            equal += 1;
            if self.walk.random.below(equal) == 0 {
                best = Some(place);
            }
        }
        best
    }

    fn add(&mut self, place: usize) {
        self.walk.add(place);
        self.was_in.insert(place);
        self.last = place;
    }

    /// Adds a vertex to the clique, if one is left.
    fn add_one(&mut self) -> bool {
        let place = self.pick(0);
        if let Some(place) = place {
            self.add(place);
        }
        place.is_some()
    }

    /// Replaces a vertex of the clique by another, if that is possible.
    fn swap_one(&mut self) -> bool {
        let Some(place) = self.pick(1) else { return false };
        let near = &self.walk.problem.near[place];
        let Some(other) = self.walk.members.without(near).iter().next() else { return false };
        self.walk.drop(other);
        self.add(place);
        true
    }

    /// Changes the penalties after the search got stuck with this clique.
    fn learn(&mut self, falls: bool) {
        for place in self.walk.members.iter() {
            self.penalties[place] += 1;
        }
        if falls {
            self.penalties.iter_mut().for_each(|penalty| *penalty = penalty.saturating_sub(1));
        }
        self.was_in = Set::EMPTY;
    }

    /// Leaves the clique: keeps only its last vertex, or, if penalties are short-lived, the neighbours of a
    /// random vertex.
    fn leave(&mut self, delay: usize) {
        let vertices = self.walk.vertices();
        if vertices == 0 {
            return;
        }
        if delay > 1 {
            self.walk.clear();
            self.add(self.last);
            return;
        }
        let kept = self.walk.random.below(vertices);
        let others = self.walk.members.without(&self.walk.problem.near[kept]);
        for place in others.iter().filter(|&place| place != kept) {
            self.walk.drop(place);
        }
        if !self.walk.members.contains(kept) {
            self.add(kept);
        }
    }
}
