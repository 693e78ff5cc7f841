//! The vertices to branch on, with bounds by colours and by conflicts of colours.

use super::{Clique, MaxClique, classes::Classes, set::Set, short};

impl<const W: usize, const WEIGHTED: bool> MaxClique<W, WEIGHTED> {
    /// Lists the vertices to branch on: every clique that extends this one and is better than the best has
    /// one of them. A vertex's bound holds for the cliques of itself, those listed before it, and those that
    /// are not listed.
    pub(super) fn list(&self, clique: &mut Clique<W>) {
        // The weight that the rest may have without improving on the best.
        let quota = u32::try_from(clique.best - i64::from(clique.weight)).ok();
        let Clique { classes, listed, open, weight, .. } = clique;
        let mut lister = Lister { problem: self, classes, listed, weight: *weight };
        lister.classes.clear();
        if WEIGHTED {
            lister.weigh(*open, quota);
        } else {
            lister.colour(*open, quota.unwrap_or(0));
        }
    }
}

struct Lister<'a, const W: usize, const WEIGHTED: bool> {
    problem: &'a MaxClique<W, WEIGHTED>,
    classes: &'a mut Classes<W>,
    listed: &'a mut Vec<(u16, u32)>,
    /// The weight of the clique.
    weight: u32,
}

impl<const W: usize, const WEIGHTED: bool> Lister<'_, W, WEIGHTED> {
    /// Lists the vertices that do not share the first colours. Greedy, a colour at a time (P. San Segundo and
    /// others, 2011).
    fn colour(&mut self, mut left: Set<W>, colours: u32) {
        let near = &self.problem.near;
        for _ in 0..colours {
            if left.is_empty() {
                return;
            }
            let class = independent(left, near);
            left.subtract_from(0, &class);
            self.classes.push(class, 1);
        }
        let mut bound = self.weight + colours;
        while !left.is_empty() {
            let before = self.listed.len();
            let mut free = left;
            for word in 0..W {
                while let Some(vertex) = free.first_of(word) {
                    left.remove(vertex);
                    free.remove(vertex);
                    if !self.classes.absorb_one(vertex, near) {
                        free.subtract_from(word, &near[vertex]);
                        self.listed.push((short(vertex), bound + 1));
                    }
                }
            }
            bound += u32::from(self.listed.len() > before);
        }
    }

    /// Lists the vertices that do not fit in classes with the weight of the quota. Each class counts as much
    /// as the least of its vertices; the rest of the others' weight goes to further classes (S. Held, W. Cook
    /// and E. Sewell, 2012; W. Tavares, 2016).
    fn weigh(&mut self, mut left: Set<W>, quota: Option<u32>) {
        let near = &self.problem.near;
        let mut rest = std::mem::take(&mut self.classes.rest);
        rest.clone_from(&self.problem.weights);
        let mut sum = 0;
        if let Some(quota) = quota {
            let weightless: Set<W> = left.iter().filter(|&vertex| rest[vertex] == 0).collect();
            left.subtract_from(0, &weightless);
            while !left.is_empty() && sum < quota {
                let class = independent(left, near);
                let part = least(&class, &rest).min(quota - sum);
                take(&class, part, &mut rest, &mut left);
                self.classes.push(class, part);
                sum += part;
            }
            let mut by_rest = std::mem::take(&mut self.classes.by_rest);
            by_rest.extend(left.iter());
            by_rest.sort_unstable_by_key(|&vertex| (rest[vertex], vertex));
            for vertex in by_rest.drain(..) {
                if self.classes.absorb(vertex, rest[vertex], near) {
                    left.remove(vertex);
                }
            }
            self.classes.by_rest = by_rest;
        }
        while !left.is_empty() {
            let class = independent(left, near);
            let part = least(&class, &rest);
            sum += part;
            let before = left;
            take(&class, part, &mut rest, &mut left);
            for vertex in before.without(&left).iter() {
                self.listed.push((short(vertex), self.weight + sum));
            }
        }
        self.classes.rest = rest;
    }
}

/// Returns vertices without edges between them, the first ones that are possible.
#[inline]
fn independent<const W: usize>(mut free: Set<W>, near: &[Set<W>]) -> Set<W> {
    let mut class = Set::EMPTY;
    for word in 0..W {
        while let Some(vertex) = free.first_of(word) {
            class.insert(vertex);
            free.remove(vertex);
            free.subtract_from(word, &near[vertex]);
        }
    }
    class
}

/// Returns the least that is left of the weight of a vertex of a class.
fn least<const W: usize>(class: &Set<W>, rest: &[u32]) -> u32 {
    class.iter().map(|vertex| rest[vertex]).min().unwrap_or(0)
}

/// Takes weight from each vertex of a class, and removes vertices without remaining weight.
fn take<const W: usize>(class: &Set<W>, part: u32, rest: &mut [u32], left: &mut Set<W>) {
    for vertex in class.iter() {
        rest[vertex] -= part;
        if rest[vertex] == 0 {
            left.remove(vertex);
        }
    }
}
